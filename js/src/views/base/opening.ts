/** Where a view looks while nothing is pinned, so that its first picture shows something: the twin is opening.py. */
import type { ViewContext } from "../../context.ts";
import type { Axis } from "../../wire/wire.ts";

/** The last element with a letter or digit, special tokens aside; if there is none, the last that is not special. */
export function lastContent({ special, labels }: Pick<Axis, "special" | "labels">): number {
  let last = -1;
  for (let i = labels.length - 1; i >= 0; i -= 1) {
    if (special[i]) continue;
    if (/[\p{L}\p{N}]/u.test(labels[i] as string)) return i;
    if (last < 0) last = i;
  }
  return last < 0 ? labels.length - 1 : last;
}

/** The query of a map that is previewed while nothing is pinned; -1: none. */
export function openingQuery(ctx: ViewContext): number {
  const opening = ctx.selection.get("opening");
  const source = ctx.source();
  if (!opening || opening.query < 0 || source.kind !== "map" || ctx.selection.get("pinned")) return -1;
  const axis = ctx.axisOf(source.query);
  const isSame = opening.unit === source.unit && opening.query < axis.labels.length;
  return isSame ? opening.query : lastContent(axis);
}

/** What the shown head does and how it was chosen, if the view opened on it: "this head reads …"; or "". */
export function openingWords(ctx: ViewContext, withPattern = true): string {
  const opening = ctx.selection.get("opening");
  const { source, layer, head } = ctx.resolved();
  const isThere = opening?.layer === layer && opening.head === head && opening.unit === source.unit;
  const isSearched = ctx.header().sources[0]?.method === source.method;
  const words =
    isThere && isSearched && source.kind === "map"
      ? [withPattern && opening.words && `this head ${opening.words}`, opening.note]
      : [];
  return words.filter(Boolean).join("; ");
}
