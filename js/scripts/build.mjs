/** Build the two committed bundles. `--check` builds to memory and fails when they differ from what is committed. */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../../attnwidgets/static/", import.meta.url));
/** Bytes of a bundle with every view; beyond it a notebook that saves its widgets becomes heavy. */
const LIMIT = 100_000;

const shared = {
  absWorkingDir: root,
  bundle: true,
  charset: "utf8",
  legalComments: "none",
  loader: { ".css": "text" },
  logLevel: "warning",
  minify: true,
  outdir: out,
  plugins: [minifiedCss()],
  target: ["es2022"],
  write: false,
};

/** Style sheets travel as minified text inside the bundle. */
function minifiedCss() {
  return {
    name: "minified-css",
    setup(plugin) {
      plugin.onLoad({ filter: /\.css$/ }, async ({ path }) => {
        const { transform } = await import("esbuild");
        const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
        return { contents: code.trim(), loader: "text" };
      });
    },
  };
}

const results = await Promise.all([
  build({ ...shared, entryPoints: { attnwidgets: "src/runtime.ts" }, format: "esm" }),
  build({ ...shared, entryPoints: { standalone: "src/host/standalone.ts" }, format: "iife" }),
]);
let failed = false;
for (const { path, contents } of results.flatMap((r) => r.outputFiles)) {
  const name = path.split(/[\\/]/).pop();
  const old = await readFile(path).catch(() => null);
  const same = old !== null && Buffer.compare(old, Buffer.from(contents)) === 0;
  if (contents.length > LIMIT) {
    console.error(`${name}: ${contents.length} bytes, the limit is ${LIMIT}`);
    failed = true;
  }
  if (process.argv.includes("--check")) {
    if (!same) console.error(`${name}: not what the sources give; run \`npm run build\` and commit it`);
    failed ||= !same;
  } else if (!same) {
    await writeFile(path, contents);
  }
  console.log(`${name}: ${contents.length} bytes`);
}
process.exitCode = failed ? 1 : 0;
