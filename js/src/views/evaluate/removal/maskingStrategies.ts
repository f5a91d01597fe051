/** Masking strategies: their effect on a token, and which are available. */

import type { Item } from "../../base/menu.ts";
import type { Removal } from "./steps.ts";

/** The effect of a strategy on a removed token. */
export const EFFECTS: Record<string, string> = {
  delete: "removed; the following tokens move up",
  mask: "replaced by the mask token",
  pad: "replaced by the padding token",
  zero: "its embedding is set to zero",
  mean: "its embedding is set to the mean over the vocabulary",
  attention_mask: "nothing attends to it",
  silence: "its samples are set to zero",
};

export const strategyName = (name: string): string => name.replace("_", " ");

/** Items of the menu. A standalone page has only a single strategy. */
export function choicesOf({ operators, operator }: Removal, isPage: boolean): Item[] {
  return operators.map(([value, refusal]) => {
    const why = refusal || (isPage && value !== operator ? "needs a running kernel" : "");
    return { value, label: strategyName(value), note: why || EFFECTS[value] || "", off: Boolean(why) };
  });
}
