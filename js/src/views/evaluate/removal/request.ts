/** The row of an explanation that ranks the tokens: as a request, and in words. */

import type { ViewContext } from "../../../context.ts";
import { nameOf } from "../../base/cellValues.ts";
import { shownTargets } from "../../base/methodChoice.ts";
import { addressWords } from "../../base/navigation.ts";

/** The row that ranks the tokens; -1: the mean over the rows of a map, or the only row. */
export function rowOf(ctx: ViewContext): number {
  const { kind, query } = ctx.source();
  if (kind === "attributions" && ctx.axisOf(query).labels.length < 2) return -1;
  return ctx.cell("pinned")?.query ?? -1;
}

/**
 * The arguments of the request for the shown source. The twin of `Removals._shown` in
 * attnwidgets/views/evaluate/handlers.py.
 */
export function requestOf(ctx: ViewContext): Record<string, unknown> {
  const { source, layer, head } = ctx.resolved();
  const target = ctx.options.method ? null : (shownTargets(ctx)[0]?.id ?? null);
  const operator = (ctx.options as { operator?: string }).operator ?? null;
  return { source: source.id, layer, head, row: rowOf(ctx), target, operator };
}

/** "layer 3, head 2, row of “cat”" */
export function rowWords(ctx: ViewContext): string {
  const { source, layer, head } = ctx.resolved();
  const row = rowOf(ctx);
  if (source.kind === "attributions") {
    const many = ctx.axisOf(source.query).labels.length > 1;
    const inside = source.layers.length > 1 ? [addressWords(ctx, layer, head)] : [];
    return [...inside, ...(many ? [`row of ${nameOf(ctx, source.query, Math.max(0, row))}`] : [])].join(", ");
  }
  const which =
    row < 0 ? "mean over its rows (pin a token for its own row)" : `row of ${nameOf(ctx, source.query, row)}`;
  return `${addressWords(ctx, layer, head)}, ${which}`;
}
