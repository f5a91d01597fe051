/** Several explanations described in words: for an element, for two explanations, or for all. */

import type { ViewContext } from "../../context.ts";
import { printed } from "../../numbers.ts";
import { nameOf } from "../base/cellValues.ts";
import { filtersOf, hidesValues } from "../base/filters.ts";
import { largestOf, peak } from "../text/rowValues.ts";
import { byRank, difference, rankOf } from "./differences.ts";
import type { Compared, Pair } from "./picture.ts";
import type { ExplanationRows } from "./rows.ts";

/** The ranks in each row, computed once. */
const RANKS = new WeakMap<Float32Array, number[]>();

const largest = (row: Float32Array, most: number): number[] => largestOf(row, most).filter((key) => row[key]);

export interface CompareWords {
  /** An element's value in the row with number `i`, and its rank there; -1: its largest value. */
  value(i: number, key: number): string;
  /** The values of an element in all rows, row `open` first; -1: the largest differences of two. */
  read(key: number, pair: Pair, open: number): string;
  /** The number of explanations, and how the maps among them are read. */
  heading(): string;
}

export function createCompareWords(ctx: ViewContext, explanations: ExplanationRows<Compared>): CompareWords {
  const named = (key: number): string => nameOf(ctx, ctx.source().key, key);
  const number = (value: number): string =>
    Number.isNaN(value) && hidesValues(filtersOf(ctx)) ? "left out" : printed(value, true);
  return {
    value(i, key) {
      const row = explanations.shown[i];
      if (key < 0) return printed(peak(explanations.content[i] ?? []), false);

      const value = row?.[key];
      if (!row || value === undefined) return "";
      const ranks = RANKS.get(row) ?? rankOf(row);
      RANKS.set(row, ranks);
      const rank = ranks[key];
      return number(value) + (rank ? ` · ${byRank(rank)}` : "");
    },
    read(key, pair, open) {
      const { shown, content } = explanations;
      const { names } = explanations.meta as Compared;
      if (key >= 0) {
        const order = [open, ...[...shown.keys()].filter((row) => row !== open)];
        const values = order.map((row) => `${names[row]} ${number(shown[row]?.[key] ?? NaN)}`);
        return `${named(key)}: ${values.join(", ")}`;
      }
      const [first, second] = pair;
      const differences = difference(content[first] as Float32Array, content[second] as Float32Array);
      const elements = largest(differences, 3).map((key) => `${named(key)} ${printed(differences[key] ?? 0, true)}`);
      return `${names[first]} minus ${names[second]}, in shares: ${elements.join(", ") || "no difference"}.`;
    },
    heading() {
      const { names, maps, how, query } = explanations.meta as Compared;
      const row = query === null ? "" : `the row of ${named(query)}`;
      const read = how === "row" ? row : how.replace("_", " of ").replace("of mean", "mean").replace("_", " ");
      const asMaps = maps.some(Boolean) ? ` · maps read as ${read}` : "";
      return `${names.length} explanations${asMaps}`;
    },
  };
}
