/**
 * Python's data of a sound: its words, and maps whose columns are equal parts of its seconds. The twin of views/media.
 */

import type { ViewContext } from "../../../context.ts";
import type { Source } from "../../../wire/wire.ts";

export interface SpokenWord {
  word: string;
  start: number;
  end: number;
  /** The model's probability of the word; null if its times were given. */
  p: number | null;
  /** Its index among the written words, and among the heard words; -1: none. */
  written: number;
  spoken: number;
}

/** "targets": those of attributions. */
export type Rows = "words" | "tokens" | "time" | "targets";

export interface MapChoice {
  name: string;
  label: string;
  note: string;
  rows: Rows[];
}

/** The answer to "words". */
export interface SpokenWords {
  words: SpokenWord[];
  /** Seconds of every token. */
  tokens: [number, number][];
  maps: MapChoice[];
  /** Seconds that the model heard, and of its window, the rest of which is padding. */
  seconds: number;
  window: number;
  /** Why words are missing, or a note on them. */
  why: string;
}

/** The answer to "heard"; its buffer holds float32 [row, column]. */
export interface HeardMap {
  rows: Rows;
  labels: string[];
  spans: ([number, number] | null)[];
  /** Seconds of a column. */
  step: number;
  columns: number;
  what: string;
  /** Share of every row that falls on padding. */
  outside: number[] | null;
  /** Row and second. */
  path: [number, number][];
}

export const ALIGNMENT = "alignment";

/** Whether a source of a view that shows a sound among other media is a map over its seconds. */
export const isHeard = ({ options }: ViewContext, { stack, unit }: Source): boolean =>
  ((options as { heard?: string[] }).heard ?? []).includes(stack) && unit !== "sentence";

/** Index and value of the largest number of a row. */
export function peakOf(values: Float32Array, row: number, columns: number): [at: number, value: number] {
  let at = 0;
  for (let i = 1; i < columns; i += 1) {
    if ((values[row * columns + i] as number) > (values[row * columns + at] as number)) at = i;
  }
  return [at, values[row * columns + at] ?? NaN];
}

/** The first and the last row of a map that a word is; null if none is. */
export function rowsOf(map: HeardMap, { word, start, end }: SpokenWord): [number, number] | null {
  // Times come from the same numbers, so that equal times are exactly equal.
  const exact = map.spans.findIndex((span, i) => span?.[0] === start && span[1] === end && map.labels[i] === word);
  if (exact >= 0) return [exact, exact];
  const inside = map.spans.flatMap((span, i) => {
    const middle = span ? (span[0] + span[1]) / 2 : -1;
    return middle >= start && middle < end ? [i] : [];
  });
  return inside.length ? [inside[0] as number, inside.at(-1) as number] : null;
}

/** The number of the word at a second; -1: silence. */
export const wordAt = (words: readonly SpokenWord[], second: number): number =>
  words.findIndex(({ start, end }) => second >= start && second < end);

/** Seconds as they are written on the axis and in the footer. */
export const seconds = (value: number): string => value.toFixed(2);
