/** The values at a layer and the peak of every line, for screen readers. */

import type { ViewContext } from "../../../context.ts";
import { printed } from "../../../numbers.ts";
import { nameOf } from "../../base/cellValues.ts";
import { filtersOf, hidesValues } from "../../base/filters.ts";
import type { ExplanationRows } from "../rows.ts";
import type { Profile, Sources } from "./sources.ts";

/**
 * The subject of the lines, their values at the layer with index `at` (-1: none), and where each peaks. `sums` are the
 * values [line][layer], over `some` sources.
 */
export function wordsAt(
  ctx: ViewContext,
  { meta, rows }: ExplanationRows<Profile>,
  sources: Sources,
  sums: readonly number[][],
  some: readonly number[],
  at: number,
): [about: string, here: string, highest: string] {
  const { names, layers, beside, query, rows: isRow } = meta as Profile;
  const named = (key: number): string => nameOf(ctx, ctx.source().key, key);
  const from = some.map(named).join(" + ");
  const unchosen = sources.isStrongest() ? " (the strongest source)" : "";
  const kind = some.length > 1 ? " (sum)" : unchosen;
  const here = at >= 0 ? `layer ${ctx.layerName(layers[at] as number)}: ` : "";
  const values = names.map((name, line) => {
    const value = sums[line]?.[at] ?? NaN;
    if (!Number.isNaN(value)) return `${name} ${printed(value, true)}`;
    const row = rows[line * layers.length + at];
    const isOut = hidesValues(filtersOf(ctx)) && row && !Number.isNaN(row[some[0] ?? 0]);
    return `${name} ${isOut ? "left out" : "no such layer"}`;
  });
  for (const [name, line] of beside) values.push(`${name} ${printed(line[at] ?? NaN, true)}`);
  const highest = names.map((name, line) => {
    const row = sums[line] ?? [];
    if (row.every(Number.isNaN)) return `${name} nowhere`;
    const best = row.reduce((top, value, i) => (Math.abs(value) > (Math.abs(row[top] ?? 0) || 0) ? i : top), 0);
    return `${name} in layer ${ctx.layerName(layers[best] as number)}`;
  });
  const about = isRow ? `${named(query ?? -1)} → ${from}` : `source ${from}`;
  return [about, `${kind}, ${here}${values.join(", ")}`, highest.join(", ")];
}
