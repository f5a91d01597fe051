/** Bundle every test/*.test.ts to a temporary folder and hand it to node's own runner. */
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { assembly } from "./assembly.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const names = (await readdir(join(root, "test"))).filter((name) => name.endsWith(".test.ts")).sort();
const out = await mkdtemp(join(tmpdir(), "attnwidgets-test-"));
try {
  await build({
    absWorkingDir: root,
    bundle: true,
    entryPoints: names.map((name) => join("test", name)),
    format: "esm",
    loader: { ".css": "text" },
    logLevel: "warning",
    outdir: out,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    plugins: [assembly(root)],
    sourcemap: "inline",
    target: "node20",
  });
  const files = names.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
  const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit" });
  process.exitCode = run.status ?? 1;
} finally {
  await rm(out, { recursive: true, force: true });
}
