/** A training as Python sends it. The twin of attnwidgets/views/training/run_view.py. */
import type { Answer } from "../../wire/embeddedAnswers.ts";
import type { ViewOptions } from "../../wire/viewState.ts";

type Row = (number | null)[];

interface RunMeta {
  steps: number[];
  /** By step, the parameter that is not finite; "": all are. */
  gaps: string[];
  /** Where training ended before its last step; "". */
  ended: string;
  /** Number of heads of every layer. */
  heads: number[];
  /** The tokens of the text. */
  labels: string[];
  special: number[];
  /** Steps, by index, whose maps a page holds. */
  held: number[];
  /** Why behaviour and cause are missing; "": they are not. */
  why: string;
  behaviour: Row | null;
  /** Loss at the second copy of a text less loss at the first. */
  loss: Row | null;
  /** Sentence, when it holds, and the first letter of the verdict at every step. */
  claims: [claim: string, when: string, verdicts: string][];
}

export interface Run extends RunMeta {
  /** Share of a head's attention by [step, layer, head, pattern]; NaN at gaps. */
  patterns: Float32Array;
  /** Behaviour that is lost without a head [step, layer, head]; empty if it was not measured. */
  cause: Float32Array;
}

/** Additional options of a RunView. */
export interface RunOptions extends ViewOptions {
  step: number;
  layer: number;
  head: number;
  pattern: Pattern;
}

/** Where a head may look, from a token of the second copy. */
export const PATTERNS = {
  previous: "previous token",
  "-1": "before the copy",
  "+0": "the copy",
  "+1": "after the copy",
  "+2": "2 after the copy",
  "+3": "3 after the copy",
};
export type Pattern = keyof typeof PATTERNS;
const ORDER = ["previous", "-1", "+0", "+1", "+2", "+3"] as const;

const LARGEST = 65_534;

export function readRun({ meta, buffers }: Answer<RunMeta>): Run {
  const [shares, lost] = buffers;
  const patterns = Float32Array.from({ length: (shares?.byteLength ?? 0) / 2 }, (_, i) => {
    const code = shares?.getUint16(2 * i, true) ?? 0;
    return code > LARGEST ? Number.NaN : code / LARGEST;
  });
  const cause = Float32Array.from(
    { length: (lost?.byteLength ?? 0) / 4 },
    (_, i) => lost?.getFloat32(4 * i, true) ?? 0,
  );
  return { ...meta, patterns, cause };
}

/** The index of a head at a step in arrays of [step, layer, head]. */
function indexOfHead({ heads }: Run, step: number, layer: number, head: number): number {
  return (step * heads.length + layer) * Math.max(...heads) + head;
}

/** The share of attention that a head gives to a pattern, by step. */
export function patternOf(run: Run, layer: number, head: number, pattern: Pattern): number[] {
  const at = ORDER.indexOf(pattern);
  return run.steps.map(
    (_, step) => run.patterns[ORDER.length * indexOfHead(run, step, layer, head) + at] ?? Number.NaN,
  );
}

/** The behaviour that is lost without a head, by step. */
export function causeOf(run: Run, layer: number, head: number): number[] {
  return run.steps.map((_, step) => run.cause[indexOfHead(run, step, layer, head)] ?? Number.NaN);
}

/** Fewest steps at which a curve is searched for a step of appearance. */
const FEWEST = 5;

/** The share of its range by which a curve must end away from where it began, to be half way anywhere. */
const RETURNED = 0.1;

/** The first index at half way between the first and the last value; -1 where there are too few, or the curve came back. */
export function halfWay(values: readonly number[]): number {
  const finite = values.filter(Number.isFinite);
  const [first, last] = [finite[0] ?? 0, finite.at(-1) ?? 0];
  const range = Math.max(...finite) - Math.min(...finite);
  if (finite.length < FEWEST || Math.abs(last - first) <= RETURNED * range) return -1;
  return values.findIndex((value) => (value - first) * Math.sign(last - first) >= Math.abs(last - first) / 2);
}

/** Positions from 0 to `count` - 1 of the steps on an axis: by their number, or its logarithm if that spaces them more evenly. */
export function positionsOf(steps: readonly number[]): number[] {
  const scaled = [steps, steps.map((step) => Math.log1p(step))].map((values) => {
    const [low, high] = [values[0] ?? 0, values.at(-1) ?? 1];
    return values.map((value) => ((value - low) / (high - low || 1)) * (steps.length - 1));
  });
  const least = (positions: number[]): number =>
    Math.min(...positions.slice(1).map((position, i) => position - (positions[i] ?? 0)));
  const [even = [], logarithmic = []] = scaled;
  return least(logarithmic) > least(even) ? logarithmic : even;
}
