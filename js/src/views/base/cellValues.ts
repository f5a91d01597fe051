/** Exact values, and the text under a heatmap for the hovered and the pinned cell. */

import type { ViewContext } from "../../context.ts";
import { quoted } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Cell } from "../../wire/wire.ts";
import { filteredRow, filtersOf, hidesSpecial, hidesValues } from "./filters.ts";

/** The exact row of the shown matrix if it is loaded; if `ask` is set, it is requested otherwise. */
export type ExactRows = (row: number, ask: boolean) => Float32Array | undefined;

/** Keeps the most recently requested row. `arrived` is called when it arrives. */
export function createExactRows(ctx: ViewContext, arrived: () => void): ExactRows {
  let loaded = "";
  let values: Float32Array | undefined;
  let requested = "";
  let filteredFor = "";
  let shown: Float32Array | undefined;
  /** The row with the filters applied. */
  const filter = (row: number): Float32Array | undefined => {
    const filters = filtersOf(ctx);
    const source = ctx.source();
    const wanted = JSON.stringify([loaded, filters]);
    if (filteredFor !== wanted && values) {
      filteredFor = wanted;
      const { special } = ctx.axisOf(source.query);
      if (!hidesValues(filters)) shown = values;
      else if (source.kind === "map" && hidesSpecial(filters) && special[row]) shown = values.map(() => Number.NaN);
      else shown = filteredRow(values, ctx.axisOf(source.key).special, filters, source.stochastic);
    }
    return shown;
  };
  const fetch = async (name: string, row: number): Promise<void> => {
    requested = name;
    const { source, layer, head } = ctx.resolved();
    // A reader who pinned a cell waits for exact numbers; without a pin the drawn values suffice.
    const exactRow = await ctx.tiles.row(source.id, layer, head, row, !ctx.cell("pinned"));
    if (requested !== name || ctx.signal.aborted) return;
    requested = ""; // no values: requested again on the next change
    if (!exactRow) return;
    [loaded, values] = [name, exactRow];
    arrived();
  };
  return (row, ask) => {
    const { source, layer, head } = ctx.resolved();
    const name = [source.id, layer, head, row].join();
    if (name === loaded) return filter(row);
    if (ask && requested !== name) void fetch(name, row);
    return undefined;
  };
}

/** The name of an element, quoted for use in a sentence. */
export function nameOf(ctx: ViewContext, axis: string, i: number): string {
  return quoted(ctx.axisOf(axis).labels, i, ctx.options.indexBase);
}

const isCell = (cell: Cell | null): cell is Cell => cell !== null && cell.query >= 0 && cell.key >= 0;

/** Describe what a row gives to the elements apart, with the exact number when its row has arrived. */
export function describeShare(
  ctx: ViewContext,
  rows: ExactRows,
  row: number,
  apart: readonly number[],
  names: string,
): string {
  const { source, layer, head } = ctx.resolved();
  const between = `${nameOf(ctx, source.query, row)} → ${names}`;
  const exact = rows(row, true);
  const sum = (value: (key: number) => number): number => apart.reduce((total, key) => total + value(key), 0);
  if (exact)
    return `${between} = ${printed(
      sum((key) => exact[key] ?? 0),
      true,
    )}`;
  const tile = ctx.tiles.get(source.id, layer, head);
  return tile
    ? `${between} ≈ ${printed(
        sum((key) => tile.value(row, key) || 0),
        false,
      )}`
    : between;
}

/** Describe the hovered and the pinned cell. Pinning requests the exact row. */
export function describeCells(
  ctx: ViewContext,
  rows: ExactRows,
  tile: Tile | null,
  hover: Cell | null,
  pinned: Cell | null,
): string {
  const source = ctx.source();
  if (pinned && pinned.query >= 0) rows(pinned.query, true);
  const words = ({ query, key }: Cell): string => {
    const between = `${nameOf(ctx, source.query, query)} → ${nameOf(ctx, source.key, key)}`;
    if (source.causal && tile?.rows === tile?.cols && key > query) return `${between}: masked, comes later`;
    const exact = rows(query, false)?.[key];
    if (exact !== undefined && !Number.isNaN(exact)) return `${between} = ${printed(exact, true)}`;
    if (tile && Number.isNaN(tile.value(query, key))) return `${between}: ${tile.text(query, key)}`;
    return tile ? `${between} ≈ ${tile.text(query, key)}` : between;
  };
  const parts: string[] = [];
  if (isCell(pinned)) parts.push(`pinned ${words(pinned)}`);
  const same = hover?.query === pinned?.query && hover?.key === pinned?.key;
  if (isCell(hover) && !same) parts.push(words(hover));
  if (parts.length > 0) return parts.join(" · ");
  const half = hover ?? pinned;
  if (half && half.query >= 0) return `query ${nameOf(ctx, source.query, half.query)}`;
  if (half && half.key >= 0) return `key ${nameOf(ctx, source.key, half.key)}`;
  return "Hover a cell to read it, click to pin it.";
}
