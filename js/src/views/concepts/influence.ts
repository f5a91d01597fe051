/** Influence as Python sends it. The twin of attnwidgets/views/concepts/influence_view.py. */

import type { Offer } from "../../wire/wire.ts";
import type { TextsOptions } from "../base/openText.ts";
import { decimal } from "../circuits/words.ts";
import type { Row } from "./concepts.ts";
import type { Part } from "./texts.ts";

export interface Taught {
  tests: string[];
  labels: string[];
  /** The measure of every test under the fitted head; null: no head was fitted. */
  measured: Row | null;
  /** Of a margin less is worse, of the others more is. */
  measure: "loss" | "margin" | "output";
  of: "head" | "gradients";
  /** Number of training texts. */
  train: number;
  agreement: number | null;
  model: string;
  notes: string[];
  /** Methods whose attributions can colour words; none without a model to run. */
  methods: Offer[];
  /** Whether labels are classes, which words speak for; otherwise they speak for the model's prediction. */
  classes: boolean;
}

/** The training texts of a test. */
export interface Influential {
  /** Numbers of training texts, the strongest first. */
  helpful: number[];
  harmful: number[];
  /** The text of the test. */
  test: string;
  /** Indices of the training texts with numbers; the following fields are in their order. */
  points: number[];
  texts: string[];
  labels: string[];
  influence: Row;
  change: Row | null;
  distance: Row | null;
  losses: Row;
}

/** A measure of a test with and without a training text. */
export interface Refitted {
  before: number | null;
  after: number | null;
  change: number | null;
}

/** The words of a test and of the texts in its lists, with their effect on the label of each text. */
export interface Coloured {
  test: Part[];
  /** By the number of the training text. */
  train: Record<string, Part[]>;
}

export interface InfluenceOptions extends TextsOptions {
  /** Number of the test that is shown. */
  test: number;
  /** The method whose attributions colour words; "": none. */
  colouredBy: string;
}

/** The effect of the training texts of a side on the test. */
export function sideWords({ of, measure }: Pick<Taught, "of" | "measure">, side: "helpful" | "harmful"): string {
  if (of === "gradients") return side === "helpful" ? "gradients like the test’s" : "gradients against the test’s";
  const does = (side === "helpful") === (measure !== "margin") ? "raises" : "lowers";
  return `leaving one out ${does} the ${measure}`;
}

/** A signed number with the decimals that the largest needs for three digits. */
export function signedWords(value: number | null | undefined, top: number): string {
  if (value === null || value === undefined) return "–";
  const digits = top > 0 ? Math.max(0, Math.min(7, 3 - Math.ceil(Math.log10(top) - 1e-9))) : 2;
  return decimal(value, digits, true);
}

/** The largest size of some numbers, 0 without any. */
export const topOf = (row: Row): number => Math.max(0, ...row.map((value) => Math.abs(value ?? 0)));

/** The index of the point nearest to a position, in px; -1 if none is within reach. */
export function nearestPoint(
  points: readonly (readonly [x: number, y: number] | null)[],
  x: number,
  y: number,
  reach = 24,
): number {
  let [best, least] = [-1, reach ** 2];
  points.forEach((point, i) => {
    if (!point) return;
    const size = (point[0] - x) ** 2 + (point[1] - y) ** 2;
    if (size < least) [best, least] = [i, size];
  });
  return best;
}
