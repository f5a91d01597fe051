/** The rows of a side: every element of an axis, unless special tokens stand apart. */

import type { Filters } from "../../wire/viewState.ts";
import type { Axis } from "../../wire/wire.ts";
import { standApart } from "../base/filters.ts";

export interface Rows {
  axis: Axis;
  /** The element of every row, ascending. */
  shown: Int32Array;
  /** The row of every element; -1: it has none. */
  rowOf: Int32Array;
  /** The elements that stand apart. */
  apart: readonly number[];
}

/** The rows of an axis: elements that stand apart have no row. */
export function rowsOf(axis: Axis, filters: Pick<Filters, "special">): Rows {
  const { labels, special } = axis;
  const apart = standApart(special, filters);
  const all = [...labels.keys()];
  const shown = Int32Array.from(all.filter((i) => !apart[i]));
  const rowOf = new Int32Array(labels.length).fill(-1);
  shown.forEach((i, at) => {
    rowOf[i] = at;
  });
  return { axis, shown, rowOf, apart: all.filter((i) => apart[i]) };
}

/** The names of the elements that stand apart: "[CLS] [SEP]". */
export function namesApart({ axis, apart }: Rows): string {
  const names = [...new Set(apart.map((i) => axis.labels[i] as string))];
  return names.length > 2 ? "special tokens" : names.join(" ");
}
