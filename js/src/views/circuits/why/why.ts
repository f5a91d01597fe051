/** The data of a WhyView: the twin of `described` in attnwidgets/views/circuits/why_words.py. */

/** A part of the query's state, or of the key's. */
export interface WhyRow {
  name: string;
  /** Its share of the score. */
  value: number;
  /** "rest": all parts without a row; "constant": biases and shifts of norms; "error": the error of an SAE. */
  kind: "part" | "rest" | "constant" | "error";
  /** The token that the writing head mostly read, or "". */
  read: string;
  /** For a part of tokens: the first, and the index after the last. */
  tokens: [number, number] | null;
  /** Layer and head of a part that a head wrote. */
  head: [number, number] | null;
  /** The number of a feature. */
  feature: number | null;
  /** The sums of positive and of negative shares in it. */
  cancels: [number, number] | null;
}

export interface WhyRemoval {
  side: "query" | "key";
  parts: string[];
  before: number;
  after: number;
  /** The mean without the same number of others, drawn at random. */
  random: number;
  /** The change that the shares predict, where it differs. */
  predicted: number | null;
}

export interface ShownWhy {
  /** Query and key, in quotes. */
  words: [string, string];
  attention: number;
  total: number;
  /** The sentence, in pieces; true: stressed. */
  said: [string, boolean][];
  more: string;
  sums: string;
  /** How well an SAE describes the text, or "". */
  about: string;
  warning: string;
  asks: WhyRow[];
  offers: WhyRow[];
  /** Shares of a row of the query and a row of the key. */
  pairs: number[][];
  /** The same by groups of components; without names there is none. */
  grid: { names: string[]; values: number[][] };
  removals: WhyRemoval[];
}

/** A line between two rows. */
export interface Line {
  from: number;
  to: number;
  value: number;
}

/** Names in a row: the twin of `_together` in why_words.py. Those of features have commas themselves. */
export const together = (names: readonly string[]): string =>
  names.join(names.some((name) => name.includes(",")) ? "; " : ", ");

/** Share of the largest pair from which pairs have a line, and the largest number of lines. */
const [LEAST, MOST] = [0.06, 30];

/** The pairs that are drawn, the smallest first, and the size from which all are. */
export function linesOf(pairs: readonly (readonly number[])[]): { lines: Line[]; least: number } {
  const every = pairs.flatMap((row, from) => row.map((value, to): Line => ({ from, to, value })));
  every.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const top = Math.abs(every[0]?.value ?? 0);
  const lines = every.slice(0, MOST).filter(({ value }) => top > 0 && Math.abs(value) >= LEAST * top);
  return { lines: lines.reverse(), least: Math.abs(lines[0]?.value ?? 0) };
}

/** The `count` largest pairs of a row. */
export function largestOf(
  pairs: readonly (readonly number[])[],
  side: "asks" | "offers",
  at: number,
  count = 3,
): Line[] {
  const all =
    side === "asks"
      ? (pairs[at] ?? []).map((value, to): Line => ({ from: at, to, value }))
      : pairs.map((row, from): Line => ({ from, to: at, value: row[at] ?? 0 }));
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, count);
}

/** The number of decimals that distinguish changes of a weight; the twin of `decimals` in why_words.py. */
export const decimalsOf = (weight: number): number =>
  weight > 0 ? Math.max(2, Math.min(5, 1 - Math.floor(Math.log10(weight)))) : 2;
