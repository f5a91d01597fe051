/** The rows of one side: every element of an axis, unless special tokens stand apart. */
import type { ViewContext } from "../../context.ts";
import type { Axis } from "../../wire/wire.ts";

export interface Rows {
  axis: Axis;
  /** The element of every row, ascending. */
  shown: Int32Array;
  /** The row of every element; -1: it has none. */
  place: Int32Array;
  /** The elements that stand apart. */
  apart: readonly number[];
  /** The last element that is not a special token. */
  lastContent: number;
}

/** Whether special tokens stand apart: what a view does unless told otherwise. */
export function setsApart(ctx: ViewContext): boolean {
  const { special } = ctx.options.filters as { special?: string };
  return special === undefined || special === "apart";
}

/** The rows of an axis; `apart`: special tokens have none, unless there is nothing else. */
export function rowsOf(axis: Axis, apart: boolean): Rows {
  const { labels, special } = axis;
  const all = [...labels.keys()];
  const content = all.filter((i) => !special[i]);
  const isApart = apart && content.length > 0;
  const shown = Int32Array.from(isApart ? content : all);
  const place = new Int32Array(labels.length).fill(-1);
  shown.forEach((i, at) => {
    place[i] = at;
  });
  return {
    axis,
    shown,
    place,
    apart: isApart ? all.filter((i) => special[i]) : [],
    lastContent: lastContentOf(axis),
  };
}

/** The last element that is not a special token. */
export function lastContentOf({ special, labels }: Axis): number {
  for (let i = labels.length - 1; i >= 0; i -= 1) if (!special[i]) return i;
  return labels.length - 1;
}

/** The names of the elements that stand apart: "[CLS] [SEP]". */
export function namesApart({ axis, apart }: Rows): string {
  const names = [...new Set(apart.map((i) => axis.labels[i] as string))];
  return names.length > 2 ? "special tokens" : names.join(" ");
}
