/** What a SourcesView shows: parts of a text, sentences and words of an answer, and nats. */
import { colourAt, cssOf, heatMap, inkOn, type Theme } from "../../../colour.ts";
import { setStyles } from "../../../dom.ts";
import type { ViewOptions } from "../../../wire/viewState.ts";

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
  /** Nats lost with each part hidden. */
  values: number[];
  /** The parts that are shown at first. */
  unfolded: number[];
  strongest: number | null;
  /** On which part it rests, in words. */
  rests: string;
}

/** The twin of `described` in attnwidgets/views/circuits/sources_shown.py. */
export interface ShownSources {
  unit: string;
  parts: Part[];
  answer: Sentence[];
  /** The largest size of a number: the end of the one scale. */
  top: number;
  weak: number;
  cover: string;
}

export interface SourcesOptions extends ViewOptions {
  sentence: number;
  /** The word in the sentence; null: all of it. */
  word: number | null;
  part: number | null;
  /** Whether a model is there that can write the answer again. */
  writes: boolean;
  /** The parts without which it was written. */
  written: number[];
}

/** A card, or a run of cards that is folded: [first, after the last). */
export type Row = number | readonly [number, number];

/** What is drawn at once. */
export interface Picture {
  shown: ShownSources;
  sentence: number;
  word: number | null;
  /** The chosen part, and the one that is meant if none is chosen. */
  part: number | null;
  meant: number | null;
  /** The nats of each part, of what is chosen in the answer. */
  values: readonly number[];
  theme: Theme;
}

/** A part by its unit and number: "message 3"; the twin of `named` in sources_shown.py. */
export function named({ unit, parts }: ShownSources, part: number): string {
  const { name = "", role = "" } = parts[part] ?? {};
  return name ? `${unit} ${name}` : role;
}

/** Cards and folded runs in their order; the answer's own words come only where there are some. */
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
  // A row that says "1 message" takes the room of the message.
  return rows.map((row) => (Array.isArray(row) && row[1] - row[0] === 1 ? row[0] : row));
}

/** The part with the largest number, of those that do not stand apart; null: there is none. */
export function largest({ shown: { parts }, values }: Pick<Picture, "shown" | "values">): number | null {
  let best: number | null = null;
  for (const [at, { kind }] of parts.entries())
    if (!kind && (best === null || (values[at] ?? 0) > (values[best] ?? 0))) best = at;
  return best;
}

/** Words with the text between them; words that the text lacks stand as they are. */
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

/** Colour an element by a number on the one scale; what is near zero stays as the page. */
export function shade(el: HTMLElement, value: number, { shown: { top }, theme }: Picture): void {
  const share = top > 0 ? value / top : 0;
  const colour = colourAt(heatMap(true, theme), 0.5 + share / 2);
  const isPlain = Math.abs(share) < 0.02;
  setStyles(el, { background: isPlain ? "" : cssOf(colour), color: isPlain ? "" : inkOn(colour) });
}
