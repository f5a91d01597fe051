/**
 * Answers to requests of views to their Python side, by topic. Each is the twin of a handler in attnwidgets/views: the
 * same arguments, the same fields. All other topics need a kernel.
 */
import type { Pass, Shape } from "../engine/types.ts";
import type { Spec } from "../wire/wire.ts";
import { rowOf } from "./changes.ts";
import type { LiveText } from "./liveText.ts";
import type { LiveModel } from "./model.ts";
import { patternsOf } from "./patterns.ts";
import {
  type Continued,
  continued,
  largest,
  outcomesAt,
  predicted,
  probabilities,
  restOf,
  surprisals,
} from "./predictions.ts";
import { Unreadable } from "./reader.ts";
import { bytesOf } from "./storeAnswers.ts";

type Args = Record<string, unknown>;
type Answer = [meta: unknown, numbers: (Float32Array | Float64Array)[]];

/** The subject of an answer: the text of the requesting view, and its selected method. */
export interface ViewRequest {
  live: LiveModel;
  text: LiveText;
  method: string;
  args: Args;
}

const MOST = 200;
const FEW = 10;
/** Temperatures at which the other outcomes are summed; as in attnwidgets/tracing/predictions.py. */
const TEMPERATURES = Array.from({ length: 40 }, (_, i) => Number((0.05 * (i + 1)).toFixed(2)));

interface CellAddress {
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** Predictions before and after a change: `Changed` of js/src/views/interventions/change.ts. */
async function changed({ live, text, args }: ViewRequest): Promise<Answer> {
  const { predicts } = live;
  const [before, after] = [await text.pass(), await text.changed(args.interventions as Spec[])];
  const [was, is] = [predicted(predicts, before), predicted(predicts, after)];
  const none = { title: "", count: 0, likeness: null, distance: null, rows: [] };
  if (!was || !is)
    return [
      live.shape.reads === "none" ? { ...none, ...moved(before.states, after.states) } : { ...none, kind: "" },
      [],
    ];
  const values = ({ logits }: { logits: Float32Array }): Float64Array =>
    predicts.numbers ? Float64Array.from(logits) : probabilities(predicts, logits);
  const [p, q] = [values(was), values(is)];
  const gaps = p.map((share, i) => Math.abs((q[i] as number) - share));
  const target = typeof args.target === "number" ? [args.target] : [];
  const ids = [...new Set([...largest(p, FEW), ...largest(q, FEW), ...target])].sort((a, b) => a - b);
  const size = (id: number): number => (predicts.numbers ? 0 : Math.max(p[id] as number, q[id] as number));
  const rows = ids.sort((a, b) => size(b) - size(a)).map((id) => [id, predicts.label(id), p[id], q[id]]);
  const apart = predicts.several || predicts.numbers;
  const distance = apart ? Math.max(...gaps) : gaps.reduce((sum, gap) => sum + gap, 0) / 2;
  const kind = predicts.numbers ? "score" : predicts.several ? "several" : "distribution";
  return [{ kind, title: was.title, count: p.length, distance, likeness: null, rows }, []];
}

/** The change of the last states, for a model without predictions. */
function moved(before: Float32Array, after: Float32Array): { kind: "states"; distance: number } {
  const size = (values: Float32Array): number => Math.hypot(...values);
  return {
    kind: "states",
    distance: size(after.map((value, i) => value - (before[i] as number))) / (size(before) || 1),
  };
}

/** The sum of products of a query and a key. */
function product(
  { heads, sources, size }: Shape,
  { queries, keys }: Pass,
  { layer, head, query, key }: CellAddress,
): number {
  const [q, k] = [(query * heads + head) * size, (key * sources + Math.floor((head * sources) / heads)) * size];
  let sum = 0;
  for (let i = 0; i < size; i += 1) sum += (queries[layer]?.[q + i] as number) * (keys[layer]?.[k + i] as number);
  return sum;
}

const MASKED = "This key comes later than the query: it is masked.";

/** From a query and a key to a weight of attention: the steps, each with its number. */
async function computed({ live: { shape }, text, args }: ViewRequest): Promise<Answer> {
  const address = args as unknown as CellAddress;
  const { layer, head, query, key } = address;
  const pass = await text.pass({ heads: true });
  const row = rowOf(pass, layer, head, query);
  if (shape.causal && key > query) return [{ steps: [], note: MASKED }, []];
  const [dot, scale] = [product(shape, pass, address), shape.scales[layer] as number];
  const { size } = shape;
  const isRoot = Math.abs(scale - size ** -0.5) < 1e-9;
  const readable = shape.causal ? query + 1 : row.length;
  const steps = [
    [`q · k, over ${size} dimensions`, dot],
    [isRoot ? `× 1 / √${size}` : `× ${Number(scale.toPrecision(4))}`, dot * scale],
    [`softmax over ${readable} keys`, row[key]],
  ];
  return [{ steps, note: "" }, []];
}

async function attentionRow({ live: { shape }, text, args }: ViewRequest): Promise<Answer> {
  const { layer, head, query } = args as unknown as CellAddress;
  const { causal, heads, sources, size, scales } = shape;
  const pass = await text.pass({ heads: true });
  const weights = rowOf(pass, layer, head, query);
  const scaling = scales[layer] as number;
  const dot = weights.map((_, key) => product(shape, pass, { layer, head, query, key }));
  const scaled = dot.map((value) => value * scaling);
  const masked = scaled.map((value, key) => (causal && key > query ? Number.NEGATIVE_INFINITY : value));
  const series = { dot, scaled, masked, softmax: weights, recorded: weights };
  const kvHead = Math.floor((head * sources) / heads);
  const at = (query * heads + head) * size;
  const queryVector = pass.queries[layer]?.slice(at, at + size) as Float32Array;
  const meta = {
    dim: size,
    kvHead,
    scaling,
    softcap: null,
    series: Object.keys(series),
    additive: false,
    dtype: "float32",
    sink: null,
  };
  return [meta, [queryVector, ...Object.values(series)]];
}

async function attentionKeys({ live: { shape }, text, args }: ViewRequest): Promise<Answer> {
  const { layer, head } = args as unknown as CellAddress;
  const { keys, tokens } = await text.pass({ heads: true });
  const [{ sources, size }, all] = [shape, keys[layer]];
  if (!all || !(head < sources)) throw new Unreadable("this layer or head does not exist.");
  const keyVectors = tokens.flatMap((_, key) => [
    ...all.slice((key * sources + head) * size, (key * sources + head + 1) * size),
  ]);
  return [{ keys: tokens.length, dim: size }, [Float32Array.from(keyVectors)]];
}

/** The row of a query, or the column of a key, in every head [head, element]. */
async function token({ text, args }: ViewRequest): Promise<Answer> {
  const { source: name, layer, side, index } = args as { source: string; layer: number; side: string; index: number };
  const source = text.source(name);
  const all = await text.matrices(source, layer);
  const n = Math.sqrt(all[0]?.length ?? 0);
  const lines = all.flatMap((matrix) =>
    Array.from({ length: n }, (_, i) => matrix[side === "query" ? index * n + i : i * n + index] as number),
  );
  return [{ heads: source.heads ?? ["-"] }, [Float32Array.from(lines)]];
}

/** The value of a pair in every layer and head. */
async function pair({ text, args }: ViewRequest): Promise<Answer> {
  const { source: name, query, key } = args as { source: string; query: number; key: number };
  const source = text.source(name);
  const layers = await Promise.all(source.layers.map((layer) => text.matrices(source, layer)));
  const values = layers.flat().map((matrix) => matrix[query * Math.sqrt(matrix.length) + key] as number);
  return [{}, [Float32Array.from(values)]];
}

async function outcomes({ live: { predicts }, text, args }: ViewRequest): Promise<Answer> {
  const position = typeof args.position === "number" ? args.position : null;
  const { title, logits, actual } = outcomesAt(
    predicts,
    await text.pass({ logits: position === null ? "last" : "all" }),
    position,
  );
  const ids = largest(logits, MOST);
  const meta = {
    title,
    ids,
    labels: ids.map(predicts.label),
    count: logits.length,
    multiple: predicts.several,
    temperatures: TEMPERATURES,
    actual,
  };
  return [meta, [Float32Array.from(ids, (id) => logits[id] as number), restOf(logits, ids, TEMPERATURES)]];
}

async function surprisal({ live: { predicts }, text }: ViewRequest): Promise<Answer> {
  const bits = surprisals(predicts, await text.pass({ logits: "all" }));
  const finite = bits.filter(Number.isFinite);
  const mean = finite.reduce((sum, value) => sum + value, 0) / (finite.length || 1);
  const { labels, special } = text.tokens();
  return [{ labels, special, mean }, [bits]];
}

async function unchangedRow({ text, args }: ViewRequest): Promise<Answer> {
  const { layer, head, query } = args as unknown as CellAddress;
  const row = rowOf(await text.pass(), layer, head, query);
  const { labels } = text.tokens();
  return [{ query: labels[query], keys: labels }, [row]];
}

async function patterns({ live, text, args }: ViewRequest): Promise<Answer> {
  const source = text.source(String(args.source));
  if (source.kind !== "map" || source.signed) return [{ patterns: [], own: [], heads: 0 }, [new Float32Array()]];
  const axes = { shown: text.axis(source), words: text.words() };
  const { causal } = live.shape;
  const [meta, values] = await patternsOf(live.patterns, source, axes, causal, (layer) => text.matrices(source, layer));
  return [meta, [values]];
}

/** By topic. Statistics of heads are not computed here: their lists are empty. */
const TOPICS: Record<string, (request: ViewRequest) => Answer | Promise<Answer>> = {
  interventions: () => [{ refusal: "" }, []],
  changed,
  computed,
  pair,
  token,
  outcomes,
  surprisal,
  own_row: unchangedRow,
  attention_row: attentionRow,
  attention_keys: attentionKeys,
  follow: ({ text, method, args }) => [{ method: text.follow(args.interventions as Spec[], method) }, []],
  continuations: async ({ live, text, args }) => [
    { items: await continued(live, text.ids, args as unknown as Continued) },
    [],
  ],
  statistics: () => [[], []],
  head_statistics: () => [{ names: [], heads: 0 }, []],
  patterns,
};

export const isAnswered = (topic: string): boolean => topic in TOPICS;

/** The answer to a view, and its buffers; rejects with `Unreadable` where a page has none. */
export async function answerView(
  topic: string,
  request: ViewRequest,
): Promise<[meta: unknown, buffers: Uint8Array<ArrayBuffer>[]]> {
  const answer = TOPICS[topic];
  if (!answer) throw new Unreadable("not in this file; it needs a running kernel");
  const [meta, numbers] = await answer(request);
  return [meta, numbers.map(bytesOf)];
}
