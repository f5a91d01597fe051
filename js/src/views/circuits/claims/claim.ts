/** Claims as Python sends them. The twin of `described` in attnwidgets/views/circuits/claim_view.py. */
import type { Inside } from "../../base/inside.ts";
import type { TextsOptions } from "../../base/openText.ts";

export type Verdict = "holds" | "fails" | "undecided";

export interface ShownClaim {
  claim: string;
  /** "23.4" */
  head: string;
  causal: boolean;
  unit: string;
  verdict: Verdict;
  control: string;
  mean: number | null;
  interval: [number | null, number | null];
  difference: number | null;
  differenceInterval: [number | null, number | null];
  /** By control: layer, head and mean of every other head. */
  heads: [name: string, heads: [layer: number, head: number, mean: number | null][]][];
  baselines: [name: string, value: number | null][];
  /** The measurement of the head in every text, and the amount beyond its control. */
  values: (number | null)[];
  beyond: (number | null)[];
  below: number;
  /** With the Python that opens each. */
  worst: [text: string, corrupt: string, value: number | null, control: number | null, code: string][];
  given: number;
  /** The smallest number of texts with which a verdict is reached. */
  needed: number;
  leftOut: [why: string, count: number][];
}

export interface ClaimOptions extends TextsOptions {
  /** Index of the shown claim. */
  claim: number;
  /** The claim and the index among its worst texts of the opened text; null if none is open. */
  opened: readonly [claim: number, at: number] | null;
  /** The view in which it was opened, unless in linked views. */
  inner?: readonly Inside[];
}

/** All claims of a report. */
export interface Report {
  claims: ShownClaim[];
  margin: number;
  level: number;
  model: string;
}

/** The drawing of a verdict, in a box of 20 px. */
export const SIGNS: Readonly<Record<Verdict, string>> = {
  holds: "M5.5 10.5l3 3 6-6.5",
  fails: "M6 6l8 8M14 6l-8 8",
  undecided: "M5.5 10h9",
};

/** The highest control: a head, with its mean; null without any. */
export function bestControl({ heads }: ShownClaim): readonly [name: string, mean: number] | null {
  let best: [string, number] | null = null;
  for (const [, all] of heads) {
    for (const [layer, head, mean] of all) {
      if (mean !== null && (!best || mean > best[1])) best = [`${layer}.${head}`, mean];
    }
  }
  return best;
}

/**
 * A text in parts, with the differences from another text marked: everything between their common beginning and end.
 */
export function marked(text: string, other: string): [part: string, differs: boolean][] {
  if (!other) return [[text, false]];
  // A text without spaces is compared character by character.
  const by = /\s/u.test(text) ? /(?<=\s)/u : /(?:)/u;
  const [a, b] = [text.split(by), other.split(by)];
  let start = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const parts: [string, boolean][] = [
    [a.slice(0, start).join(""), false],
    [a.slice(start, a.length - end).join(""), true],
    [a.slice(a.length - end).join(""), false],
  ];
  return parts.filter(([part]) => part !== "");
}

/** Heights of a histogram: bins of equal width over a range. */
export function bins(values: readonly number[], low: number, high: number, count: number): number[] {
  const heights = Array.from({ length: count }, () => 0);
  for (const value of values) {
    const at = Math.max(0, Math.min(count - 1, Math.floor(((value - low) / (high - low)) * count + 1e-9)));
    heights[at] = (heights[at] ?? 0) + 1;
  }
  return heights;
}

/** A range of tenths, or of larger round steps, that holds some values. */
export function rangeOf(values: readonly number[]): readonly [low: number, high: number, step: number] {
  const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
  const span = most - least || 1;
  const power = 10 ** Math.floor(Math.log10(span / 10));
  const step = [1, 2, 5, 10].map((m) => m * power).find((step) => span / step <= 14) ?? span;
  return [Math.floor(least / step + 1e-9) * step, Math.max(step, Math.ceil(most / step - 1e-9) * step), step];
}
