/** The data of a SourcesView: parts of a text or a picture, sentences and words of an answer, and nats. */
import { colourAt, cssOf, heatMap, inkOn, type Theme } from "../../../colour.ts";
import { setStyles } from "../../../dom.ts";
import type { ViewOptions } from "../../../wire/viewState.ts";
import { decimal } from "../words.ts";

/** The twin of `Part` in attnwidgets/views/circuits/sources_shown.py. */
export interface Part {
  name: string;
  role: string;
  text: string;
  kind: "system" | "question" | "answer" | "";
}

export interface Sentence {
  text: string;
  words: string[];
  /** The number of each part: nats lost with it hidden. */
  values: number[];
  /** The parts that are shown at first. */
  unfolded: number[];
  strongest: number | null;
  /** On which part it rests, in words. */
  rests: string;
}

/** Top, left, bottom and right, as shares of the sides. */
export type Box = readonly [number, number, number, number];

/** The twin of `picture` in attnwidgets/views/circuits/picture_shown.py. */
export interface PictureParts {
  /** Rows and columns of pixels. */
  size: [number, number];
  /** The box of each part. */
  boxes: Box[];
  /** The parts of each view of the picture, which do not overlap. */
  views: number[][];
  /** The text before the answer. */
  prompt: string;
  /** The words that rest on a part. */
  strong: number[];
  /** The largest number of each word. */
  most: number[];
  /** How much of each word, and of the whole answer, is the picture's and the text's, in words. */
  balance: string[];
  balanceOfAll: string;
  /** The end of the scale of the whole answer. */
  top: number;
  /** How parts were measured, in words. */
  how: string;
}

/** The twin of `described` in attnwidgets/views/circuits/sources_shown.py. */
export interface ShownSources {
  unit: string;
  /** The treatment of a removed part while the model writes: "hidden". */
  removal: string;
  /** The unit of the numbers, and the word between a number and its part. */
  measure: "nats" | "logits" | "share";
  relation: "without" | "from";
  /** Decimal places of a number. */
  places: number;
  picture?: PictureParts;
  parts: Part[];
  answer: Sentence[];
  /** The largest size of a number: the end of the common scale. */
  top: number;
  /** The least number of a part that a word rests on; also in words: "0.6 nats". */
  least: number;
  limit: string;
  cover: string;
}

export interface SourcesOptions extends ViewOptions {
  /** The beginning of a question, "Which message does", and the meaning of the numbers. */
  asks: string;
  measures: string;
  sentence: number;
  /** The word in the sentence; null: all of it. */
  word: number | null;
  part: number | null;
  /** Whether parts are of a picture. */
  isPicture: boolean;
  /** The names of the views of the picture, and the index of the shown view. */
  views: string[];
  view: number;
  /** Whether a model is available that can write the answer again. */
  writes: boolean;
  /** The parts without which it was written. */
  written: number[];
}

/** A card, or a run of cards that is folded: [first, after the last). */
export type Row = number | readonly [number, number];

/** The data of a drawing. */
export interface Picture {
  shown: ShownSources;
  sentence: number;
  word: number | null;
  /** The chosen part, and the default part if none is chosen. */
  part: number | null;
  meant: number | null;
  /** The number of each part for the chosen part of the answer. */
  values: readonly number[];
  /** Of each word [word][part], where they are drawn as well. */
  rows: readonly (readonly number[])[];
  /** The end of the scale. */
  top: number;
  /** The view of the picture. */
  view: number;
  theme: Theme;
}

/** A part by its unit and number: "message 3"; the twin of `named` in sources_shown.py. */
export function named({ unit, parts }: ShownSources, part: number): string {
  const { name = "", role = "" } = parts[part] ?? {};
  return name ? `${unit} ${name}` : role;
}

/** A number with its unit, and `more` decimal places than usual; the twin of `amount` in sources_shown.py. */
export function amount({ measure, places }: ShownSources, value = 0, more = 0): string {
  const digits = places + more;
  return measure === "share" ? `${decimal(100 * value, digits - 1)}%` : `${decimal(value, digits, true)} ${measure}`;
}

/** Cards and folded runs in their order; the answer's earlier words appear only if there are any. */
export function rowsOf(parts: readonly Part[], sentence: Sentence, opened: ReadonlySet<number>, first: boolean): Row[] {
  const rows: Row[] = [];
  const open = new Set(sentence.unfolded);
  for (const [at, { kind }] of parts.entries()) {
    const last = rows.at(-1);
    if (kind === "answer" && first) continue;
    if (open.has(at) || opened.has(at)) rows.push(at);
    else if (Array.isArray(last)) rows[rows.length - 1] = [last[0], at + 1];
    else rows.push([at, at + 1]);
  }
  // A row "1 message" would take the room of the message.
  return rows.map((row) => (Array.isArray(row) && row[1] - row[0] === 1 ? row[0] : row));
}

/** The part with the largest number, of those that do not stand apart; null: there is none. */
export function largest({ shown: { parts }, values }: Pick<Picture, "shown" | "values">): number | null {
  return largestOf(
    values,
    parts.flatMap(({ kind }, at) => (kind ? [] : [at])),
  );
}

export function largestOf(values: readonly number[], parts: readonly number[]): number | null {
  let best: number | null = null;
  for (const at of parts) if (best === null || (values[at] ?? 0) > (values[best] ?? 0)) best = at;
  return best;
}

/** The part of a picture at a position, in shares of its sides; null: there is none. */
export function partAt(boxes: readonly Box[], parts: readonly number[], x: number, y: number): number | null {
  const at = parts.find((part) => {
    const [top, left, bottom, right] = boxes[part] as Box;
    return y >= top && y < bottom && x >= left && x < right;
  });
  return at ?? null;
}

/** px of a copy of a picture: at least, at most, and between two; and of its height at most. */
const [LEAST, MOST, GAP, TALLEST] = [150, 280, 12, 300];

/** The width of copies of a picture, as large as fits in a single row, or in rows of small copies. */
export function widthOfCopies(count: number, room: number, ratio: number): number {
  const columns = Math.max(1, Math.min(count, Math.floor((room + GAP) / (LEAST + GAP))));
  const most = count === 1 ? TALLEST : MOST;
  return Math.floor(Math.min(most, TALLEST / ratio, (room - GAP * (columns - 1)) / columns));
}

/** Words with the text between them; words that the text lacks are unchanged. */
export function pieces(text: string, words: readonly string[]): [before: string, word: string][] {
  let at = 0;
  return words.map((word, i) => {
    const start = text.indexOf(word, at);
    if (start < 0) return [i ? " " : "", word];
    const before = text.slice(at, start);
    at = start + word.length;
    return [before, word];
  });
}

/** Colour an element by a number on the common scale; numbers near zero leave the page's colour. */
export function shade(el: HTMLElement, value: number, { top, theme }: Picture): void {
  const share = top > 0 ? value / top : 0;
  const colour = colourAt(heatMap(true, theme), 0.5 + share / 2);
  const isPlain = Math.abs(share) < 0.02;
  setStyles(el, { background: isPlain ? "" : cssOf(colour), color: isPlain ? "" : inkOn(colour) });
}
