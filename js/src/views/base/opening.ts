/**
 * The query or key that a view previews while nothing is pinned, so that its first picture is not empty: the twin is
 * opening.py.
 */
import type { ViewContext } from "../../context.ts";
import type { Axis, Source } from "../../wire/wire.ts";

/**
 * The last element with a letter or digit, special tokens and names in brackets ("[SIL]") aside; if there is none, the
 * last that is not special.
 */
export function lastContent({ special, labels }: Pick<Axis, "special" | "labels">): number {
  let last = -1;
  for (let i = labels.length - 1; i >= 0; i -= 1) {
    if (special[i]) continue;
    if (/^(?!\[.*\]$).*[\p{L}\p{N}]/su.test(labels[i] as string)) return i;
    if (last < 0) last = i;
  }
  return last < 0 ? labels.length - 1 : last;
}

/** The query of a map that is previewed while nothing is pinned; -1: none. */
export function openingQuery(ctx: ViewContext): number {
  const source = ctx.source();
  const opens = (ctx.selection.get("opening")?.query ?? -1) >= 0;
  return !opens || source.kind !== "map" || ctx.selection.get("pinned") ? -1 : openedAt(ctx, source);
}

/** The query at which a map opens: that of the opening, if it counts the same elements. */
export function openedAt(ctx: ViewContext, { unit, query }: Source): number {
  const opening = ctx.selection.get("opening");
  const first = ctx.header().sources.find((source) => source.unit === unit);
  const isSame = opening?.unit === unit && first?.query === query;
  return isSame && opening.query >= 0 ? opening.query : lastContent(ctx.axisOf(query));
}

/** The behaviour of the shown head and how it was chosen, if the view opened on it; or "". */
export function openingWords(ctx: ViewContext): string {
  const opening = ctx.selection.get("opening");
  const { source, layer, head } = ctx.resolved();
  const isThere = opening?.layer === layer && opening.head === head && opening.unit === source.unit;
  const isSearched = ctx.header().sources[0]?.method === source.method;
  if (!isThere || !isSearched || source.kind !== "map") return "";
  const { sentence, note } = opening;
  return sentence && note ? `${sentence} (${note})` : sentence || note;
}
