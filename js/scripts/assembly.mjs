/** Compile js/assembly to WebAssembly for `import code from "assembly:simd"` or "assembly:fused". */
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";

const FEATURES = { simd: ["simd"], fused: ["simd", "relaxed-simd"] };
const SOURCE = "kernels.ts";

/** `sources` are the texts of js/assembly by file name. */
async function compiled(name, sources) {
  const { default: asc } = await import("assemblyscript/asc");
  let code;
  const features = FEATURES[name].flatMap((feature) => ["--enable", feature]);
  const flags = ["-O3", "--converge", "--noAssert", "--runtime", "stub", "--importMemory", "--outFile", "out.wasm"];
  const { error, stderr } = await asc.main([SOURCE, ...features, ...flags], {
    readFile: (file) => sources[file] ?? null,
    writeFile: (_, contents) => {
      code = contents;
    },
    listFiles: () => [],
  });
  if (error) throw new Error(`js/assembly/${SOURCE} does not compile:\n${stderr}`);
  return code;
}

/** The module of a name, from an earlier build if sources, compiler and this script were the same then. */
async function compiledOnce(root, name) {
  const names = (await readdir(join(root, "assembly"))).filter((file) => file.endsWith(".ts")).sort();
  const files = names.map((file) => join(root, "assembly", file));
  const [texts, script, { version }] = await Promise.all([
    Promise.all(files.map((file) => readFile(file, "utf8"))),
    readFile(new URL(import.meta.url)),
    readFile(join(root, "node_modules/assemblyscript/package.json"), "utf8").then(JSON.parse),
  ]);
  const sources = Object.fromEntries(names.map((file, i) => [file, texts[i]]));
  const hash = createHash("sha256")
    .update(JSON.stringify(sources))
    .update(script)
    .update(version)
    .update(name)
    .digest("hex");
  const folder = join(root, "node_modules/.cache/attnwidgets");
  const cache = join(folder, `${hash}.wasm`);
  const earlier = await readFile(cache).catch(() => null);
  if (earlier) return { code: earlier, files };
  const code = await compiled(name, sources);
  await mkdir(folder, { recursive: true });
  await writeFile(`${cache}.${process.pid}`, code);
  await rename(`${cache}.${process.pid}`, cache);
  return { code, files };
}

export function assembly(root) {
  return {
    name: "assembly",
    setup(plugin) {
      plugin.onResolve({ filter: /^assembly:/ }, ({ path }) => ({ path: path.slice(9), namespace: "assembly" }));
      plugin.onLoad({ filter: /^(simd|fused)$/, namespace: "assembly" }, async ({ path }) => {
        const { code, files } = await compiledOnce(root, path);
        return { contents: code, loader: "binary", watchFiles: files };
      });
    },
  };
}
