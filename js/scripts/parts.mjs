/**
 * Parts: views that a notebook carries only when it shows them. A part is built without the
 * modules of the core: `shared` passes their exports by number, so that both keep their short names.
 */
import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { build } from "esbuild";

const FREE = "shared";

/** The parts' names: their files in src/parts. */
export async function partNames(root) {
  const files = await readdir(join(root, "src", "parts"));
  return files
    .filter((name) => name.endsWith(".ts"))
    .map((name) => name.replace(/\.ts$/, ""))
    .sort();
}

const entry = (root, name) => join(root, "src", "parts", `${name}.ts`);

/** Absolute paths of the modules of the core. */
async function coreModules(root, options) {
  const { metafile } = await build({ ...options, entryPoints: ["src/runtime.ts"], metafile: true, write: false });
  return new Set(
    Object.keys(metafile.inputs)
      .filter((path) => path.startsWith("src/") && path.endsWith(".ts"))
      .map((path) => join(root, path)),
  );
}

/** Resolve modules of the core by `resolved`, given their absolute paths. */
function fromCore(core, resolved) {
  return {
    name: "from-core",
    setup(plugin) {
      plugin.onResolve({ filter: /\.ts$/ }, async ({ path, resolveDir, kind }) => {
        const file = join(resolveDir, path);
        return kind !== "entry-point" && core.has(file) ? resolved(file) : null;
      });
    },
  };
}

/** The imports of each part from the core, as "file name". */
async function lent(root, core, names, options) {
  const lists = new Map();
  for (const name of names) {
    const borrowed = new Set();
    lists.set(name, borrowed);
    const { outputFiles } = await build({
      ...options,
      entryPoints: [entry(root, name)],
      format: "esm",
      minify: false,
      plugins: [fromCore(core, (path) => ({ path, external: true })), ...options.plugins],
      write: false,
    });
    for (const [, list, file] of outputFiles[0].text.matchAll(/^import \{([^}]*)\} from "([^"]+)";$/gm)) {
      for (const item of list.split(",")) {
        const imported = item.trim().split(" as ")[0];
        if (imported) borrowed.add(`${relative(root, file)} ${imported}`);
      }
    }
  }
  return lists;
}

/** Fill `src/shared.ts`. */
function lending(root, list) {
  const pairs = list.map((item) => item.split(" "));
  const imports = pairs.map(([file, name], i) => `import {${name} as s${i}} from ${JSON.stringify(join(root, file))};`);
  const contents = `${imports.join("")}export const shared=[${list.map((_, i) => `s${i}`).join(",")}];`;
  return {
    name: "lending",
    setup(plugin) {
      plugin.onLoad({ filter: /src[\\/]shared\.ts$/ }, () => ({ contents, loader: "js", resolveDir: root }));
    },
  };
}

/** Replace the imports of a part from the core by their numbers in the list of all. */
function borrowing(root, core, list, borrowed) {
  return [
    fromCore(core, (path) => ({ path, namespace: "core", sideEffects: false })),
    {
      name: "borrowing",
      setup(plugin) {
        plugin.onLoad({ filter: /.*/, namespace: "core" }, ({ path }) => {
          const file = relative(root, path);
          const constants = list.flatMap((item, i) => {
            const [from, name] = item.split(" ");
            return from === file && borrowed.has(item) ? [`export const ${name}=${FREE}[${i}];`] : [];
          });
          return { contents: constants.join(""), loader: "js" };
        });
      },
    },
  ];
}

/** What a part may export. */
const EXPORTS = new Set(["views", "style", "around", "session", "standIn"]);

/**
 * How to build the core and the parts: plugins for the first, and a function that returns a part as the text of a
 * function `shared => ({style, views})`, with `around`, a `session` and a `standIn` where a part has them.
 */
export async function planned(root, options) {
  const names = await partNames(root);
  const core = await coreModules(root, options);
  const lists = await lent(root, core, names, options);
  const list = [...new Set(names.flatMap((name) => [...lists.get(name)]))].sort();
  return {
    names,
    plugin: lending(root, list),
    async part(name) {
      const { outputFiles } = await build({
        ...options,
        entryPoints: [entry(root, name)],
        format: "esm",
        plugins: [...borrowing(root, core, list, lists.get(name)), ...options.plugins],
        write: false,
      });
      const text = outputFiles[0].text.trim();
      const returned = /export\{([^{}]*)\};$/;
      const exported = (text.match(returned)?.[1] ?? "").split(",").map((item) => item.split(" as ").reverse());
      const fields = { style: '""', ...Object.fromEntries(exported) };
      if (!fields.views || Object.keys(fields).some((field) => !EXPORTS.has(field)))
        throw new Error(`src/parts/${name}.ts may export ${[...EXPORTS].join(", ")}, and must export views`);
      const properties = Object.entries(fields).map(([key, value]) => `${key}:${value}`);
      return `${FREE}=>{${text.replace(returned, `return{${properties}}`)}}\n`;
    },
  };
}
