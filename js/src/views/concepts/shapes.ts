/** A distilled model as Python sends it. The twin of attnwidgets/views/concepts/shape_view.py. */

import type { TextsOptions } from "../base/openText.ts";
import type { Row } from "./concepts.ts";

export interface Slot {
  name: string;
  levels: string[];
  /** What each level adds, with mean zero. */
  values: Row;
}

/** What each pair of levels adds beyond its slots, by places of the two slots. */
export interface Pair {
  slots: [number, number];
  values: Row[];
}

export interface Shapes {
  target: string;
  model: string;
  summary: string;
  mean: number | null;
  /** Share of the variance that a sum over slots keeps, and one with pairs. */
  fidelities: [number | null, number | null];
  /** Whether the template has more texts than were run. */
  estimated: boolean;
  texts: number;
  slots: Slot[];
  /** null where a map would have too many cells. */
  pairs: (Pair | null)[];
  /** The largest first; the place of the pair, -1: a slot, or more than two. */
  shares: [name: string, share: number | null, pair: number][];
  /** Shares that are not listed. */
  others: number;
  worst: [at: number, text: string, model: number | null, student: number | null][];
  notes: string[];
}

export interface ShapeOptions extends TextsOptions {
  /** Place of the pair that is shown as a map; -1: none. */
  pair: number;
}

/** A level as it is read: an empty one is named. */
export const levelName = (level: string): string => (level.trim() === "" ? "(nothing)" : level.trim());

/** Slots of a share as they are read; Python joins their names with an x. */
export const slotNames = (share: string): string => share.replaceAll(" x ", " × ");

/** A share in percent; what is smaller than its last digit has a bound. */
export function percent(share: number | null): string {
  if (share === null) return "–";
  const value = 100 * share;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  return `${value.toFixed(1).replace("-", "−")} %`;
}

/** What a sum over slots loses of the model, in words: the first line of the view. */
export function lossWords({ fidelities, estimated }: Shapes): [lost: string, rest: string] {
  const [alone, paired] = fidelities;
  if (alone === null)
    return ["", "The target is the same for every text of the template: there is nothing to explain."];
  const about = estimated ? "about " : "";
  const lost = `${about}${percent(Math.max(0, 1 - alone))}`;
  const pairs = paired === null ? "" : `; with pairs it loses ${about}${percent(Math.max(0, 1 - paired))}`;
  return [lost, `of the model’s variance is lost by a sum over slots${pairs}.`];
}
