/**
 * Writes a standalone page of made-up attention, to look at the views without a model or a kernel.
 *
 *   node dev/page.mjs OUT.html [--n 24] [--layers 6] [--heads 8] [--causal] [--signed] [--missing] [--views Heatmap,HeadGrid]
 *
 * `--missing` omits every other layer from the file, to see how views report that.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { deflateSync } from "node:zlib";

const WORDS =
  "The animal didn't cross the street because it was too tired ; Ελληνικά 猫が mat [SEP] שלום un-believ-able 🙂".split(
    " ",
  );

/** Deterministic numbers in [0, 1). */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Softmax rows with a local peak, a sink and a few distant peaks, mixed differently in each head. */
function attention(n, layer, head, causal) {
  const next = random(1 + 97 * layer + head);
  const [reach, sink, far] = [0.3 + 3 * next(), 4 * next(), 3 * next()];
  const values = new Float64Array(n * n);
  for (let q = 0; q < n; q += 1) {
    let sum = 0;
    const last = causal ? q : n - 1;
    for (let k = 0; k <= last; k += 1) {
      const score = Math.exp(
        -Math.abs(q - k) / reach + (k === 0 ? sink : 0) + (next() < 0.04 ? far : 0) + 0.6 * next(),
      );
      values[q * n + k] = score;
      sum += score;
    }
    for (let k = 0; k <= last; k += 1) values[q * n + k] /= sum;
  }
  return values;
}

function quantise(values, scale, signed) {
  const top = signed ? 127 : 255;
  const out = signed ? new Int8Array(values.length) : new Uint8Array(values.length);
  for (let i = 0; i < values.length; i += 1) {
    out[i] = Math.sign(values[i]) * Math.round(top * Math.sqrt(Math.min(1, Math.abs(values[i]) / scale)));
  }
  return out;
}

function pool(values, n, side) {
  const out = new Float64Array(side * side);
  for (let q = 0; q < n; q += 1) {
    for (let k = 0; k < n; k += 1) {
      const at = Math.floor((q * side) / n) * side + Math.floor((k * side) / n);
      if (Math.abs(values[q * n + k]) > Math.abs(out[at])) out[at] = values[q * n + k];
    }
  }
  return out;
}

const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    n: { type: "string", default: "24" },
    layers: { type: "string", default: "6" },
    heads: { type: "string", default: "8" },
    causal: { type: "boolean", default: false },
    signed: { type: "boolean", default: false },
    missing: { type: "boolean", default: false },
    views: { type: "string", default: "LayerSlider,Heatmap,HeadGrid,TokenStrip" },
  },
});
const [n, layers, heads] = [Number(args.n), Number(args.layers), Number(args.heads)];
const { causal, signed } = args;
const labels = Array.from({ length: n }, (_, i) => (i === 0 ? "[CLS]" : WORDS[(i - 1) % WORDS.length]));
const source = `attention/token/self`;
const side = Math.min(64, n);
const [eager, archive, packed, tiles, scales] = [[], [], [], [], []];
let [eagerAt, packedAt] = [0, 0];

function addEager(codes) {
  eager.push(Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength));
  eagerAt += codes.byteLength;
  return { offset: eagerAt - codes.byteLength, length: codes.byteLength };
}

function addTile(layer, head, values) {
  const scale = signed ? Math.max(...values.map(Math.abs)) : 1;
  const meta = { source, layer, head, rows: n, cols: n, codec: signed ? "i8" : "u8", gamma: 0.5, scale };
  const codes = quantise(values, scale, signed);
  if (layer === 0) {
    tiles.push({ ...meta, ...addEager(codes) });
    return;
  }
  if (args.missing && layer % 2 === 1) return;
  const bytes = deflateSync(codes);
  archive.push({ ...meta, offset: packedAt, length: bytes.length });
  packed.push(bytes);
  packedAt += bytes.length;
}

const thumbAt = [];
for (let layer = 0; layer < layers; layer += 1) {
  const mean = new Float64Array(n * n);
  const max = new Float64Array(n * n);
  scales.push([]);
  for (let head = 0; head < heads; head += 1) {
    const values = attention(n, layer, head, causal);
    if (signed) for (let i = 0; i < values.length; i += 3) values[i] = -values[i];
    values.forEach((v, i) => {
      mean[i] += v / heads;
      if (Math.abs(v) > Math.abs(max[i])) max[i] = v;
    });
    const small = pool(values, n, side);
    const scale = Math.max(...small.map(Math.abs));
    scales[layer].push(scale);
    thumbAt.push(addEager(quantise(small, scale, signed)));
    addTile(layer, head, values);
  }
  addTile(layer, "mean", mean);
  addTile(layer, "max", max);
}
// Thumbnails must be contiguous, but they were added between the first layer's tiles: append a copy.
const blocks = [...thumbAt.keys()].map((i) => thumbAt[i]);
const all = Buffer.concat(eager);
const sheet = Buffer.concat(blocks.map(({ offset, length }) => all.subarray(offset, offset + length)));
const eagerBytes = Buffer.concat([all, sheet]);

const axis = {
  unit: "token",
  labels,
  spans: null,
  special: labels.map((l) => Number(/^\[.*\]$/.test(l))),
  segment: labels.map(() => 0),
  boundary: null,
  grid: null,
};
const header = {
  version: 1,
  model: "made-up model",
  text: labels.join(" "),
  axes: { token: axis },
  sources: [
    {
      id: source,
      method: "attention",
      title: "attention",
      unit: "token",
      stack: "self",
      query: "token",
      key: "token",
      layers: Array.from({ length: layers }, (_, i) => i),
      heads: Array.from({ length: heads }, (_, i) => i),
      causal,
      signed,
      stochastic: !signed,
      kind: "map",
      note: "",
      warning: "",
      computed: null,
    },
  ],
  methods: [],
  thumbs: [
    { source, rows: side, cols: side, gamma: 0.5, signed, scale: scales, offset: all.length, length: sheet.length },
  ],
  tiles,
  predictions: { title: "next token", items: [{ label: " cat", probability: 0.31, id: 1 }] },
};
const options = { method: null, unit: null, stack: null, indexBase: 0, title: "", marks: [], methods: [], units: [] };
const names = args.views.split(",");
const models = {
  s: { kind: "store", state: { header } },
  x: {
    kind: "selection",
    state: { layer: 0, head: 0, unit: "token", method: "attention", stack: "self", pinned: null, hover: null },
  },
};
names.forEach((view, i) => {
  const state = { runtime: "", store: "anywidget:s", selection: "anywidget:x", options };
  models[`v${i}`] = { kind: "view", view, state };
});
const state = {
  version: 1,
  models,
  views: names.map((_, i) => `v${i}`),
  archive: { s: archive },
  thumbs: {},
  answers: {},
};
const built = new URL("../../attnwidgets/static/", import.meta.url);
const parts = readdirSync(built).filter((name) => !["attnwidgets.js", "standalone.js"].includes(name));
const code = parts.map((name) => readFileSync(new URL(name, built), "utf8").trim()).join();
const host = `globalThis.awParts=[${code}];${readFileSync(new URL("standalone.js", built), "utf8")}`;
const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>views</title>
<style>body{margin:12px;font:14px system-ui,sans-serif;background:#fff;color:#111}
body.dark{background:#111;color:#ddd;color-scheme:dark;--jp-layout-color0:#111}.aw-view{margin-bottom:20px}</style>
<body><script>if(location.hash==="#dark")document.body.classList.add("dark")</script>
${names.map((_, i) => `<div class="aw-view" data-model="v${i}"></div>`).join("\n")}
<script type="application/json" id="aw-state">${JSON.stringify(state).replaceAll("<", "\\u003c")}</script>
<script type="application/octet-stream;base64" id="aw-data-s">${deflateSync(eagerBytes).toString("base64")}</script>
<script type="application/octet-stream;base64" id="aw-tiles-s">${Buffer.concat(packed).toString("base64")}</script>
<script>${host.replaceAll("</script", "<\\/script")}</script></body></html>`;
writeFileSync(positionals[0] ?? "page.html", page);
console.log(`${positionals[0] ?? "page.html"}: ${page.length} characters`);
