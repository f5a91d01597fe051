/**
 * A row as answered by Python: of attention q, every k, and each step's result for every key; of a kernel its weights.
 */

import { printed } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { Answer } from "../../../wire/embeddedAnswers.ts";

export type Step = "vectors" | "product" | "dot" | "scaled" | "capped" | "biased" | "masked" | "softmax" | "weight";

/** The twin of `NeuronView._row` for kernels. */
interface KernelMeta {
  /** Number of channels, if each has a separate kernel; else 0. */
  channels: number;
  channel: number | null;
  /** The key that is shown without a pin. */
  opens: number;
}

/** The twin of `NeuronView._row` for attention. */
interface RowMeta {
  dim: number;
  kvHead: number;
  scaling: number;
  softcap: number | null;
  series: string[];
  dtype: string;
  /** Whether scores are v · tanh(q + k), and not q · k. */
  additive: boolean;
  /** An additional score of the softmax, which no key has; null without a sink. */
  sink: number | null;
}

export interface QueryAddress {
  stack: string;
  layer: number;
  head: number;
  query: number;
}

export interface Row extends RowMeta {
  /** Of a row of a kernel; null for attention. */
  kernel: KernelMeta | null;
  q: Float32Array;
  /** The weights v of additive scores; empty for products. */
  v: Float32Array;
  /** [key, dim], row-major. */
  k: Float32Array;
  count: number;
  /** A number per key, by step; "recorded" is the weight of the model. */
  by: Record<string, Float32Array>;
  /** The available steps, in order. */
  steps: Step[];
}

const floats = (view: DataView | undefined): Float32Array =>
  view ? new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)) : new Float32Array();

const rows = new WeakMap<Answer<RowMeta | KernelMeta>, Row>();

/** A row of a kernel has weights, and no vectors. */
function kernelRow(kernel: KernelMeta, weights: Float32Array): Row {
  const none = new Float32Array();
  const absent = { dim: 0, kvHead: 0, scaling: 1, softcap: null, dtype: "float64", additive: false, sink: null };
  const by = { weight: weights, recorded: weights };
  return {
    ...absent,
    kernel,
    q: none,
    v: none,
    k: none,
    count: weights.length,
    by,
    series: ["weight"],
    steps: ["weight"],
  };
}

/** The row, if it and its keys have arrived; otherwise they are requested. */
export function rowAt(answers: Answers, address: QueryAddress, channel: number | null): Row | string | undefined {
  const { stack, layer, head, query } = address;
  const args = { stack, layer, head, query, ...(channel === null ? {} : { channel }) };
  const answer = answers.get<RowMeta | KernelMeta>("attention_row", args);
  if (!answer) return answers.failure("attention_row", args);
  const cached = rows.get(answer);
  if (cached) return cached;
  const { meta, buffers } = answer;
  if ("channels" in meta) {
    const row = kernelRow(meta, floats(buffers[0]));
    rows.set(answer, row);
    return row;
  }
  const keys = { stack, layer, head: meta.kvHead };
  const keyAnswer = answers.get<{ keys: number }>("attention_keys", keys);
  if (!keyAnswer) return answers.failure("attention_keys", keys);
  const by = Object.fromEntries(meta.series.map((name, i) => [name, floats(buffers[i + 1])]));
  const steps = ["vectors", "product", ...meta.series.filter((name) => name !== "recorded")] as Step[];
  const row: Row = {
    ...meta,
    kernel: null,
    q: floats(buffers[0]),
    v: floats(meta.additive ? buffers[meta.series.length + 1] : undefined),
    k: floats(keyAnswer.buffers[0]),
    count: keyAnswer.meta.keys,
    by,
    steps,
  };
  rows.set(answer, row);
  return row;
}

/** A step's result for a key; NaN if it is not a number. */
export const numberOf = (row: Row, step: string, key: number): number => row.by[step]?.[key] ?? NaN;

/** The vector k of a key; or the numbers whose sum is its score: q × k, or v × tanh(q + k). */
export function vectorOf(row: Row, step: Step, key: number): Float32Array {
  const { q, v, dim, additive } = row;
  const k = row.k.subarray(key * dim, (key + 1) * dim);
  if (step === "vectors") return k;
  return k.map((value, i) =>
    additive ? (v[i] as number) * Math.tanh((q[i] as number) + value) : value * (q[i] as number),
  );
}

/** The names of the numbers of a score, of their sum, and of both lanes. */
export const PRODUCTS = { product: "q × k", dot: "q · k", lane: "q × k" };
const ADDITIVE = { product: "v × tanh(q + k)", dot: "v · tanh(q + k)", lane: "v tanh" };
export const namesOf = ({ additive }: Pick<Row, "additive">): typeof PRODUCTS => (additive ? ADDITIVE : PRODUCTS);

/** A number of a score: "q 0.5 × k 2 = 1". */
export function productWords(row: Row, key: number, i: number): string {
  const [q, k] = [row.q[i] as number, vectorOf(row, "vectors", key)[i] as number];
  const product = exact(vectorOf(row, "product", key)[i] as number);
  if (!row.additive) return `q ${exact(q)} × k ${exact(k)} = ${product}`;
  return `v ${exact(row.v[i] as number)} × tanh(q ${exact(q)} + k ${exact(k)}) = ${product}`;
}

/** The key with the largest weight, of those that are not special tokens if there are any. */
export function strongest({ by }: Row, special: readonly number[]): number {
  const shares = by.recorded ?? [];
  let best = -1;
  for (let i = 0; i < shares.length; i += 1) {
    const isBetter = best < 0 || (special[best] && !special[i]) || (shares[i] as number) > (shares[best] as number);
    const isWorse = best >= 0 && special[i] && !special[best];
    if (isBetter && !isWorse) best = i;
  }
  return Math.max(0, best);
}

/** A number with the decimals that the largest of its column needs for four digits. */
export function aligned(value: number, top: number): string {
  const decimals = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(top || 1))));
  const size = Math.abs(value);
  const text = size.toFixed(decimals);
  if (size > 0 && Number(text) === 0) return `< ${(10 ** -decimals).toFixed(decimals)}`;
  return value < 0 ? `−${text}` : text;
}

export const exact = (value: number): string => (value === -Infinity ? "−∞" : printed(value, true));

/** A number after an operator: "− 0.5". */
const plus = (value: number): string => `${value < 0 ? "−" : "+"} ${exact(Math.abs(value))}`;

/** A step for a key, as a formula or a sentence. */
export function wordsOf(row: Row, step: Step, key: number): string {
  const { dim, scaling, softcap, by, count } = row;
  const at = (name: string): number => numberOf(row, name, key);
  const masked = by.masked?.reduce((sum, value) => sum + Number(value === -Infinity), 0) ?? 0;
  switch (step) {
    case "vectors":
      return `q and k: ${dim} numbers each, as the model compares them (after any rotary embedding).`;
    case "product": {
      const positive = vectorOf(row, step, key).reduce((sum, value) => sum + Number(value > 0), 0);
      return `${namesOf(row).product}, number by number: ${positive} of ${dim} products speak for this key, ${dim - positive} do not.`;
    }
    case "dot":
      return `${namesOf(row).dot} = the sum of the ${dim} products = ${exact(at("dot"))}`;
    case "scaled": {
      if (scaling === 1)
        return `× 1: ${row.additive ? "additive scores are not scaled" : "this model does not scale its scores"}.`;
      const root = Math.abs(scaling * Math.sqrt(dim) - 1) < 1e-6 ? ` (1 / √${dim})` : "";
      return `${exact(at("dot"))} × ${exact(scaling)}${root} = ${exact(at("scaled"))}`;
    }
    case "weight":
      return "";
    case "capped":
      return `${exact(softcap ?? 0)} · tanh(${exact(at("scaled"))} / ${exact(softcap ?? 0)}) = ${exact(at("capped"))}`;
    case "biased": {
      const before = at(by.capped ? "capped" : "scaled");
      return `${exact(before)} ${plus(at("biased") - before)} (by position) = ${exact(at("biased"))}`;
    }
    case "masked":
      if (masked === 0) return `Nothing is masked: this query may read all ${count} keys.`;
      return `This query may read ${count - masked} of ${count} keys${at("masked") === -Infinity ? ", and not this one: −∞" : ""}.`;
    case "softmax": {
      const scores = by.masked ?? new Float32Array();
      const all = [...scores, ...(row.sink === null ? [] : [row.sink])];
      const most = all.reduce((a, b) => Math.max(a, b), -Infinity);
      const sum = all.reduce((total, score) => total + Math.exp(score - most), 0);
      const over = row.sink === null ? "keys" : `keys and the sink, whose score is ${exact(row.sink)}`;
      const score = at("masked");
      const power = score === -Infinity ? "e^−∞" : `e^(${exact(score)} ${plus(-most)})`;
      const share = `${power} / Σ over ${over} = ${exact(Math.exp(score - most))} / ${exact(sum)} = ${exact(at("softmax"))}`;
      const recorded = at("recorded");
      const same = exact(recorded) === exact(at("softmax"));
      const model = same ? "as recorded" : `recorded ${exact(recorded)}: the model computes in ${row.dtype}`;
      return `${share}, ${model}`;
    }
  }
}
