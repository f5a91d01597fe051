/** Concepts as Python sends them. The twin of attnwidgets/views/concepts/concept_view.py. */

import type { TextsOptions } from "../base/openText.ts";
import { decimal } from "../circuits/words.ts";

export type Row = readonly (number | null)[];

export interface Concepts {
  concepts: string[];
  layers: number[];
  target: string;
  /** How directions were computed, and where states were read. */
  about: string;
  examples: number;
  level: number;
  /** Accuracy below which no direction is called the concept's. */
  accurate: number;
  /** [concept][layer] */
  scores: Row[];
  accuracy: Row[];
  p: Row[];
  significant: boolean[][];
  /** The range of nine of ten random directions [layer]. */
  low: Row;
  high: Row;
  notes: string[];
}

/** Examples by how much their state shows a concept, the most first. */
export interface SortedTexts {
  /** Examples in between that are not listed. */
  left: number;
  numbers: number[];
  texts: string[];
  cosines: Row;
  sensitivities: Row;
}

export interface ConceptOptions extends TextsOptions {
  /** Index of the chosen concept. */
  concept: number;
  /** A layer that linked views lack; null: the selected layer. */
  layer: number | null;
}

/** The index of the layer that is nearest to a target layer. */
export function nearestIndex(layers: readonly number[], target: number): number {
  let best = 0;
  layers.forEach((layer, i) => {
    if (Math.abs(layer - target) < Math.abs((layers[best] ?? Infinity) - target)) best = i;
  });
  return best;
}

/** A p-value; a value smaller than its last digit has a bound. */
export function pWords(p: number | null | undefined): string {
  if (p === null || p === undefined) return "–";
  return p < 0.001 ? "< 0.001" : p.toFixed(3);
}

/** The score and accuracy of a concept at a layer, and why it is called significant or not. */
export function scoreWords(
  { concepts, layers, scores, accuracy, p, significant, low, high, level, accurate }: Concepts,
  concept: number,
  at: number,
): string {
  const score = scores[concept]?.[at] ?? Number.NaN;
  if (Number.isNaN(score)) return `${concepts[concept]} at layer ${layers[at]}: no score`;
  const [from, to] = [low[at], high[at]].map((end) => decimal(end ?? Number.NaN));
  const value = accuracy[concept]?.[at] ?? null;
  const chance = p[concept]?.[at] ?? null;
  const why =
    chance === null
      ? "no p"
      : chance > level
        ? `p ${pWords(chance)} is above ${level}`
        : `accuracy is below ${accurate}`;
  const verdict = significant[concept]?.[at] ? `significant, p ${pWords(chance)}` : `not significant: ${why}`;
  const words = value === null ? "" : `, accuracy ${decimal(value)}`;
  return `${concepts[concept]} at layer ${layers[at]}: raises ${decimal(score)} of the examples (random ${from} to ${to})${words}; ${verdict}`;
}
