/** Build the two committed bundles. `--check` builds to memory and fails when they differ from what is committed. */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { internal } from "./internal.mjs";
import { packed } from "./pack.mjs";
import * as shorthand from "./shorthand.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../../attnwidgets/static/", import.meta.url));
/** Bytes of a bundle; beyond it a notebook that saves its widgets becomes heavy. A page also carries its host. */
const LIMITS = { "attnwidgets.js": 60_000, "standalone.js": 64_000 };
/** `Math.max` is read as `Math_max`, `String` as `String_`, and so on: the minifier gives those short names. */
const define = Object.fromEntries(
  Object.keys(shorthand).map((name) => [name.replace("_", ".").replace(/\.$/, ""), name]),
);

const shared = {
  absWorkingDir: root,
  bundle: true,
  charset: "utf8",
  define,
  inject: ["scripts/shorthand.js"],
  legalComments: "none",
  loader: { ".css": "text" },
  logLevel: "warning",
  mangleProps: internal,
  minify: true,
  outdir: out,
  plugins: [minifiedCss()],
  target: ["es2022"],
  write: false,
};

/** Style sheets travel as one minified text, with a sign for what it repeats. */
function minifiedCss() {
  return {
    name: "minified-css",
    setup(plugin) {
      plugin.onLoad({ filter: /\.css$/ }, async ({ path }) => {
        const { outputFiles } = await build({ entryPoints: [path], bundle: true, minify: true, write: false });
        return { contents: `export default ${packed(outputFiles[0].text.trim())}`, loader: "js" };
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
  if (contents.length > LIMITS[name]) {
    console.error(`${name}: ${contents.length} bytes, the limit is ${LIMITS[name]}`);
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
