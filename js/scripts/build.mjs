/** Build the committed bundles. `--check` builds to memory and fails when they differ from what is committed. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { internal } from "./internal.mjs";
import { packed } from "./pack.mjs";
import { planned } from "./parts.mjs";
import * as shorthand from "./shorthand.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = fileURLToPath(new URL("../../attnwidgets/static/", import.meta.url));
/** Bytes of a bundle; beyond it a notebook that saves its widgets becomes heavy. A page also carries its host. */
const LIMITS = { "attnwidgets.js": 61_500, "standalone.js": 65_000 };
const PART_LIMIT = 24_000;
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

const plan = await planned(root, shared);
const lends = { ...shared, plugins: [plan.plugin, ...shared.plugins] };
const core = await build({ ...lends, entryPoints: { attnwidgets: "src/runtime.ts" }, format: "esm", mangleCache: {} });
// Whoever shares objects with the core calls their properties as the core does.
const { mangleCache } = core;
const page = await build({
  ...lends,
  entryPoints: { standalone: "src/host/standalone.ts" },
  format: "iife",
  mangleCache: { ...mangleCache },
});
const files = [
  ...[core, page].flatMap(({ outputFiles }) => outputFiles.map(({ path, text }) => [path.split(/[\\/]/).pop(), text])),
  ...(await Promise.all(plan.names.map(async (name) => [`${name}.js`, await plan.part(name, { ...mangleCache })]))),
];
let failed = false;
for (const [name, text] of files) {
  const limit = LIMITS[name] ?? PART_LIMIT;
  const old = await readFile(join(out, name), "utf8").catch(() => null);
  const size = Buffer.byteLength(text);
  if (size > limit) {
    console.error(`${name}: ${size} bytes, the limit is ${limit}`);
    failed = true;
  }
  if (process.argv.includes("--check")) {
    if (old !== text) console.error(`${name}: not what the sources give; run \`npm run build\` and commit it`);
    failed ||= old !== text;
  } else if (old !== text) {
    await writeFile(join(out, name), text);
  }
  console.log(`${name}: ${size} bytes`);
}
process.exitCode = failed ? 1 : 0;
