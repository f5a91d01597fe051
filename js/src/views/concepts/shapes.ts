/** A distilled model as Python sends it. The twin of attnwidgets/views/concepts/shape_view.py. */

import type { TextsOptions } from "../base/openText.ts";
import type { Row } from "./concepts.ts";

export interface Slot {
  name: string;
  levels: string[];
  /** The amount that each level adds, with mean zero. */
  values: Row;
}

/** The amount that each pair of levels adds beyond its slots, by indices of the two slots. */
export interface Pair {
  slots: [number, number];
  values: Row[];
}

export interface Shapes {
  target: string;
  model: string;
  summary: string;
  mean: number | null;
  /** Share of the variance that a sum over slots explains, and a sum with pairs. */
  fidelities: [number | null, number | null];
  /** Whether the template has more texts than were run. */
  estimated: boolean;
  texts: number;
  slots: Slot[];
  /** null where a map would have too many cells. */
  pairs: (Pair | null)[];
  /** The largest first; the index of the pair, -1: a slot, or more than two. */
  shares: [name: string, share: number | null, pair: number][];
  /** Shares that are not listed. */
  others: number;
  worst: [at: number, text: string, model: number | null, student: number | null][];
  notes: string[];
}

export interface ShapeOptions extends TextsOptions {
  /** Index of the pair shown as a map; -1: none. */
  pair: number;
}

/** The text of a level; an empty level has a name. */
export const levelName = (level: string): string => (level.trim() === "" ? "(nothing)" : level.trim());

/** Slots of a share as they are read; Python joins their names with an x. */
export const slotNames = (share: string): string => share.replaceAll(" x ", " × ");

/** A share in percent; a share smaller than its last digit has a bound. */
export function percent(share: number | null): string {
  if (share === null) return "–";
  const value = 100 * share;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  return `${value.toFixed(1).replace("-", "−")} %`;
}

/** How much of the model a sum over slots loses, in words: the first line of the view. */
export function lossWords({ fidelities, estimated }: Shapes): [lost: string, rest: string] {
  const [alone, paired] = fidelities;
  if (alone === null)
    return ["", "The target is the same for every text of the template: there is nothing to explain."];
  const about = estimated ? "about " : "";
  const lost = `${about}${percent(Math.max(0, 1 - alone))}`;
  const pairs = paired === null ? "" : `; with pairs it loses ${about}${percent(Math.max(0, 1 - paired))}`;
  return [lost, `of the model’s variance is lost by a sum over slots${pairs}.`];
}
