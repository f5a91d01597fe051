/**
 * Build the committed bundles in attnwidgets/static, print their sizes and limits, and fail above a limit.
 * `--check` writes nothing and fails if the bundles differ from the committed ones; `--watch` builds again on every save,
 * with larger style sheets, since packing them is slow: build once more before a commit.
 */
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, watch, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { assembly } from "./assembly.mjs";
import { isolated } from "./isolate.mjs";
import { packed } from "./pack.mjs";
import { planned } from "./parts.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../../attnwidgets/static/", import.meta.url));
const [checks, watches] = ["--check", "--watch"].map((flag) => process.argv.includes(flag));
/** In bytes, read by tests/repo/test_package.py as well: a notebook that saves its widgets carries this code. */
const limits = JSON.parse(await readFile(new URL("limits.json", import.meta.url), "utf8"));

const shared = {
  absWorkingDir: root,
  bundle: true,
  charset: "utf8",
  legalComments: "none",
  loader: { ".css": "text" },
  logLevel: "warning",
  minify: true,
  outdir: out,
  plugins: [minifiedCss(), assembly(root)],
  target: ["es2022"],
  write: false,
};

/** A promise of a JavaScript expression for each style sheet: packing is slow, and several builds share a sheet. */
const expressions = new Map();
const packer = await readFile(new URL("pack.mjs", import.meta.url));

/** The packed expression of a style sheet, from an earlier build if the sheet and the packer were the same then. */
async function packedOnce(text) {
  const name = createHash("sha256").update(packer).update(text).digest("hex");
  const folder = join(root, "node_modules/.cache/attnwidgets");
  const file = join(folder, name);
  const cached = await readFile(file, "utf8").catch(() => null);
  if (cached !== null) return cached;
  const expression = packed(text);
  await mkdir(folder, { recursive: true });
  await writeFile(`${file}.${process.pid}`, expression);
  await rename(`${file}.${process.pid}`, file);
  return expression;
}

/** Style sheets travel as a minified string that refers back to its own repetitions. */
function minifiedCss() {
  return {
    name: "minified-css",
    setup(plugin) {
      plugin.onLoad({ filter: /\.css$/ }, async ({ path }) => {
        const { outputFiles } = await build({ entryPoints: [path], bundle: true, minify: true, write: false });
        const text = isolated(outputFiles[0].text.trim());
        if (!expressions.has(text)) expressions.set(text, watches ? JSON.stringify(text) : packedOnce(text));
        return { contents: `export default ${await expressions.get(text)}`, loader: "js" };
      });
    },
  };
}

/** The text of every bundle, by name. */
async function bundles() {
  const plan = await planned(root, shared);
  const bundle = async (entry, format) => {
    const plugins = [plan.plugin, ...shared.plugins];
    const { outputFiles } = await build({ ...shared, plugins, entryPoints: [entry], format });
    return outputFiles[0].text;
  };
  return Object.fromEntries(
    await Promise.all(
      [
        ["attnwidgets", bundle("src/runtime.ts", "esm")],
        ["standalone", bundle("src/host/standalone.ts", "iife")],
        ["engine", bundle("src/engine/worker.ts", "iife")],
        ...plan.names.map((name) => [name, plan.part(name)]),
      ].map(async ([name, text]) => [name, await text]),
    ),
  );
}

/** Print a size beside its limit; returns whether it is within the limit. */
function fits(name, size, limit) {
  const line = `${name}: ${size} of ${limit} bytes`;
  if (size <= limit) console.log(line);
  else console.error(`${line}: too large`);
  return size <= limit;
}

/** Build once; returns whether all bundles are within their limits and, with `--check`, as committed. */
async function run() {
  const texts = await bundles();
  const sizes = Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, Buffer.byteLength(text)]));
  const { core, standalone, engine, live } = limits;
  // Both parts hold the engine of small models: only pages and notebooks with such a model carry them.
  const limitOf = { attnwidgets: core, standalone, engine, live, standin: live };
  let good = true;
  for (const [name, text] of Object.entries(texts)) {
    const file = join(out, `${name}.js`);
    const isSame = (await readFile(file, "utf8").catch(() => null)) === text;
    good = fits(`${name}.js`, sizes[name], limitOf[name] ?? limits.part) && good;
    if (checks && !isSame) {
      console.error(`${name}.js differs from what the sources give: run \`npm run build\` and commit it`);
      good = false;
    } else if (!isSame) await writeFile(file, text);
  }
  const { bytes, parts } = limits.explorer;
  const needed = ["attnwidgets", ...parts].reduce((total, name) => total + sizes[name], 0);
  return fits(`an Explorer: the core with ${parts.join(", ")}`, needed, bytes) && good;
}

process.exitCode = (await run()) ? 0 : 1;
if (watches) {
  const SETTLED_MS = 100; // editors save in several steps
  let timer;
  for await (const { filename } of watch(join(root, "src"), { recursive: true })) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      console.log(`\n${filename} changed`);
      run().catch(({ message }) => console.error(message));
    }, SETTLED_MS);
  }
}
