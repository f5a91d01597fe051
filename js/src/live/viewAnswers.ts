/**
 * Answers to what views ask of their Python side, by topic. Each is the twin of a handler in attnwidgets/views: the same
 * arguments, the same fields. What is not here needs a kernel.
 */
import type { Spec } from "../wire/wire.ts";
import { rowOf } from "./changes.ts";
import type { LiveModel, LiveText } from "./liveText.ts";
import {
  continued,
  largest,
  outcomesAt,
  predicted,
  probabilities,
  restOf,
  type Sampling,
  surprisals,
} from "./predictions.ts";
import { Unreadable } from "./reader.ts";
import { bytesOf } from "./storeAnswers.ts";

type Args = Record<string, unknown>;
type Answer = [meta: unknown, numbers: (Float32Array | Float64Array)[]];

/** What an answer is about: the text of the view that asks, and the method that is selected in it. */
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

interface Place {
  layer: number;
  head: number;
  query: number;
  key: number;
}

/** Predictions before and after a change: `Changed` of js/src/views/interventions/change.ts. */
function changed({ live, text, args }: ViewRequest): Answer {
  const { predicts } = live;
  const [before, after] = [text.pass(), text.changed(args.interventions as Spec[])];
  const [was, is] = [predicted(predicts, before), predicted(predicts, after)];
  const none = { title: "", count: 0, likeness: null, distance: null, rows: [] };
  if (!was || !is)
    return [
      live.model.reads === "none" ? { ...none, ...moved(before.states, after.states) } : { ...none, kind: "" },
      [],
    ];
  const values = ({ logits }: { logits: Float32Array }): Float64Array =>
    predicts.numbers ? Float64Array.from(logits) : probabilities(predicts, logits);
  const [p, q] = [values(was), values(is)];
  const gaps = p.map((share, i) => Math.abs((q[i] as number) - share));
  const target = typeof args.target === "number" ? [args.target] : [];
  const ids = [...new Set([...largest(p, FEW), ...largest(q, FEW), ...target])].sort((a, b) => a - b);
  const size = (id: number): number => (predicts.numbers ? 0 : Math.max(p[id] as number, q[id] as number));
  const rows = ids.sort((a, b) => size(b) - size(a)).map((id) => [id, predicts.labels[id], p[id], q[id]]);
  const apart = predicts.several || predicts.numbers;
  const distance = apart ? Math.max(...gaps) : gaps.reduce((sum, gap) => sum + gap, 0) / 2;
  const kind = predicts.numbers ? "score" : predicts.several ? "several" : "distribution";
  return [{ kind, title: was.title, count: p.length, distance, likeness: null, rows }, []];
}

/** How far the last states moved, of a model that predicts nothing. */
function moved(before: Float32Array, after: Float32Array): { kind: "states"; distance: number } {
  const size = (values: Float32Array): number => Math.hypot(...values);
  return {
    kind: "states",
    distance: size(after.map((value, i) => value - (before[i] as number))) / (size(before) || 1),
  };
}

/** The sum of products of a query and a key. */
function product({ live: { model }, text }: ViewRequest, { layer, head, query, key }: Place): number {
  const { heads, sources, size } = model;
  const { queries, keys } = text.pass();
  const [q, k] = [(query * heads + head) * size, (key * sources + Math.floor((head * sources) / heads)) * size];
  let sum = 0;
  for (let i = 0; i < size; i += 1) sum += (queries[layer]?.[q + i] as number) * (keys[layer]?.[k + i] as number);
  return sum;
}

const MASKED = "This key comes later than the query: it is masked.";

/** From a query and a key to a weight of attention: the steps, each with its number. */
function computed(request: ViewRequest): Answer {
  const { live, text, args } = request;
  const place = args as unknown as Place;
  const { layer, head, query, key } = place;
  const row = rowOf(text.pass(), layer, head, query);
  if (live.model.causal && key > query) return [{ steps: [], note: MASKED }, []];
  const [dot, scale] = [product(request, place), live.model.scales[layer] as number];
  const { size } = live.model;
  const isRoot = Math.abs(scale - size ** -0.5) < 1e-9;
  const readable = live.model.causal ? query + 1 : row.length;
  const steps = [
    [`q · k, over ${size} dimensions`, dot],
    [isRoot ? `× 1 / √${size}` : `× ${Number(scale.toPrecision(4))}`, dot * scale],
    [`softmax over ${readable} keys`, row[key]],
  ];
  return [{ steps, note: "" }, []];
}

function attentionRow(request: ViewRequest): Answer {
  const { live, text, args } = request;
  const { layer, head, query } = args as unknown as Place;
  const { causal, heads, sources, size, scales } = live.model;
  const weights = rowOf(text.pass(), layer, head, query);
  const scaling = scales[layer] as number;
  const dot = weights.map((_, key) => product(request, { layer, head, query, key }));
  const scaled = dot.map((value) => value * scaling);
  const masked = scaled.map((value, key) => (causal && key > query ? Number.NEGATIVE_INFINITY : value));
  const series = { dot, scaled, masked, softmax: weights, recorded: weights };
  const kvHead = Math.floor((head * sources) / heads);
  const at = (query * heads + head) * size;
  const own = text.pass().queries[layer]?.slice(at, at + size) as Float32Array;
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
  return [meta, [own, ...Object.values(series)]];
}

function attentionKeys({ live: { model }, text, args }: ViewRequest): Answer {
  const { layer, head } = args as unknown as Place;
  const { keys, tokens } = text.pass();
  const [{ sources, size }, all] = [model, keys[layer]];
  if (!all || !(head < sources)) throw new Unreadable("this layer or head does not exist.");
  const own = tokens.flatMap((_, key) => [
    ...all.slice((key * sources + head) * size, (key * sources + head + 1) * size),
  ]);
  return [{ keys: tokens.length, dim: size }, [Float32Array.from(own)]];
}

/** What a query reads in every head, or who reads a key [head, element]. */
function token({ text, args }: ViewRequest): Answer {
  const { source: name, layer, side, index } = args as { source: string; layer: number; side: string; index: number };
  const source = text.source(name);
  const all = text.matrices(source, layer);
  const n = Math.sqrt(all[0]?.length ?? 0);
  const lines = all.flatMap((matrix) =>
    Array.from({ length: n }, (_, i) => matrix[side === "query" ? index * n + i : i * n + index] as number),
  );
  return [{ heads: source.heads ?? ["-"] }, [Float32Array.from(lines)]];
}

/** One pair in every layer and head. */
function pair({ text, args }: ViewRequest): Answer {
  const { source: name, query, key } = args as { source: string; query: number; key: number };
  const source = text.source(name);
  const values = source.layers.flatMap((layer) =>
    text.matrices(source, layer).map((matrix) => matrix[query * Math.sqrt(matrix.length) + key] as number),
  );
  return [{}, [Float32Array.from(values)]];
}

function outcomes({ live: { predicts }, text, args }: ViewRequest): Answer {
  const position = typeof args.position === "number" ? args.position : null;
  const { title, logits, actual } = outcomesAt(predicts, text.pass(), position);
  const ids = largest(logits, MOST);
  const meta = {
    title,
    ids,
    labels: ids.map((id) => predicts.labels[id]),
    count: logits.length,
    multiple: predicts.several,
    temperatures: TEMPERATURES,
    actual,
  };
  return [meta, [Float32Array.from(ids, (id) => logits[id] as number), restOf(logits, ids, TEMPERATURES)]];
}

function surprisal({ live: { predicts }, text }: ViewRequest): Answer {
  const bits = surprisals(predicts, text.pass());
  const known = bits.filter(Number.isFinite);
  const mean = known.reduce((sum, value) => sum + value, 0) / (known.length || 1);
  const { labels, special } = text.tokens();
  return [{ labels, special, mean }, [bits]];
}

function ownRow({ text, args }: ViewRequest): Answer {
  const { layer, head, query } = args as unknown as Place;
  const row = rowOf(text.pass(), layer, head, query);
  const { labels } = text.tokens();
  return [{ query: labels[query], keys: labels }, [row]];
}

/** By topic. Statistics and patterns of heads are not computed here: their lists are empty. */
const TOPICS: Record<string, (request: ViewRequest) => Answer> = {
  interventions: () => [{ refusal: "" }, []],
  changed,
  computed,
  pair,
  token,
  outcomes,
  surprisal,
  own_row: ownRow,
  attention_row: attentionRow,
  attention_keys: attentionKeys,
  follow: ({ text, method, args }) => [{ method: text.follow(args.interventions as Spec[], method) }, []],
  continuations: ({ live, text, args }) => [
    { items: continued(live.model, live.predicts, text.pass(), live.longest, args as unknown as Sampling) },
    [],
  ],
  statistics: () => [[], []],
  head_statistics: () => [{ names: [], heads: 0 }, []],
  patterns: () => [{ patterns: [], own: [], heads: 0 }, [new Float32Array()]],
};

/** The answer to a view, and its buffers; throws `Unreadable` where a page has none. */
export function answerView(topic: string, request: ViewRequest): [meta: unknown, buffers: Uint8Array<ArrayBuffer>[]] {
  const answer = TOPICS[topic];
  if (!answer) throw new Unreadable("not in this file; it needs a running kernel");
  const [meta, numbers] = answer(request);
  return [meta, numbers.map(bytesOf)];
}
