/** The pinned query, as an index into the elements that a view shows as its columns. */
import type { ViewContext } from "../../context.ts";
import { translateIndex } from "../../selection.ts";

/** Its index, or null if no query is pinned or it is not among them. */
export function pinnedQuery(ctx: ViewContext): number | null {
  const cell = ctx.selection.get("pinned");
  if (!cell || cell.query < 0) return null;
  const source = ctx.source();
  const axis = ctx.axisOf(source.key);
  if (cell.unit === source.unit) return cell.query < axis.labels.length ? cell.query : null;
  const header = ctx.header();
  const origin = header.sources.find(({ unit, stack }) => unit === cell.unit && stack === source.stack);
  const from = origin && header.axes[origin.query];
  const query = from ? translateIndex(cell.query, from, axis) : -1;
  return query < 0 ? null : query;
}
