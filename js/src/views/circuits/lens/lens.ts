/** A lens as Python sends it. The twin of `lens_answer` in attnwidgets/views/circuits/circuit_view.py. */
import { floatsOf, wholesOf } from "../../../wire/buffers.ts";
import type { Answer } from "../../../wire/embeddedAnswers.ts";
import type { ViewOptions } from "../../../wire/viewState.ts";

export type Measure = "probability" | "rank" | "entropy" | "kl";

export const MEASURES: Readonly<Record<Measure, string>> = {
  probability: "p of the answer",
  rank: "rank of the answer",
  entropy: "entropy",
  kl: "KL to the output",
};

interface Meta {
  answer: string;
  tokens: string[];
  /** Number of blocks: rows are the inputs of these, and the output. */
  layers: number;
  /** The distinct names of top tokens. */
  labels: string[];
  /** Number of top tokens. */
  k: number;
  title: string;
  warning: string;
  predicted: readonly (readonly [label: string, probability: number])[];
}

export interface Lens extends Meta {
  /** [row, token], row by row. */
  numbers: Readonly<Record<Measure, readonly number[]>>;
  /** Indices into `labels`, ids, and probabilities [row, token, k]. */
  names: readonly number[];
  ids: readonly number[];
  shares: readonly number[];
}

export interface LensOptions extends ViewOptions {
  fitted: boolean;
  /** Id of the answer that the reader chose; null: the given answer. */
  answer: number | null;
  color: Measure;
  cell: [row: number, token: number];
  /** Which lenses were given, and which can be shown. */
  held: boolean[];
  kinds: boolean[];
  runs: boolean;
}

export interface TopToken {
  label: string;
  id: number;
  p: number;
}

const READ = new WeakMap<object, Lens>();

export function readLens({ meta, buffers }: Answer<Meta>): Lens {
  let read = READ.get(meta);
  if (!read) {
    const [p, entropy, kl, rank, names, ids, shares] = buffers as DataView[];
    const numbers = {
      probability: floatsOf(p as DataView),
      entropy: floatsOf(entropy as DataView),
      kl: floatsOf(kl as DataView),
      rank: wholesOf(rank as DataView),
    };
    const top = { names: wholesOf(names as DataView), ids: wholesOf(ids as DataView) };
    read = { ...meta, numbers, ...top, shares: floatsOf(shares as DataView) };
    READ.set(meta, read);
  }
  return read;
}

export const valueAt = (lens: Lens, measure: Measure, row: number, token: number): number =>
  lens.numbers[measure][row * lens.tokens.length + token] ?? Number.NaN;

/** The most probable tokens of a cell. */
export function topOf({ tokens, k, labels, names, ids, shares }: Lens, row: number, token: number): TopToken[] {
  const start = (row * tokens.length + token) * k;
  return Array.from({ length: k }, (_, i) => ({
    label: labels[names[start + i] ?? -1] ?? "",
    id: ids[start + i] ?? -1,
    p: shares[start + i] ?? Number.NaN,
  }));
}

/** Ranks of the answer at a token, by row. */
export const ranksAt = (lens: Lens, token: number): number[] =>
  Array.from({ length: lens.layers + 1 }, (_, row) => valueAt(lens, "rank", row, token));

/** How dark a cell is, 0 to 1: shares as they are, ranks and distances as parts of the largest. */
export function darkness(lens: Lens, measure: Measure, row: number, token: number): number {
  const value = valueAt(lens, measure, row, token);
  if (measure === "probability") return value;
  const top = topValue(lens, measure);
  if (measure === "rank") return 1 - Math.log10(value + 1) / Math.log10(top + 1 || 10);
  return top > 0 ? value / top : 0;
}

const TOPS = new WeakMap<Lens, Partial<Record<Measure, number>>>();

/** The largest value of a measure. */
export function topValue(lens: Lens, measure: Measure): number {
  const cached = TOPS.get(lens) ?? {};
  TOPS.set(lens, cached);
  cached[measure] ??= lens.numbers[measure].reduce((top, value) => (value > top ? value : top), 0);
  return cached[measure] ?? 0;
}
