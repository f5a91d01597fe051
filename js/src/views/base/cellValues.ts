/** Exact values, and the text under a heatmap for the hovered and the pinned cell. */

import type { ViewContext } from "../../context.ts";
import { atEnd, quoted } from "../../dom.ts";
import { approximately, printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Cell } from "../../wire/wire.ts";
import { filteredRow, filtersOf, hidesSpecial, hidesValues, rescales } from "./filters.ts";
import { absence, rowWords } from "./rowFacts.ts";

/** Milliseconds for which the pointer rests on a cell before its exact row is requested. */
const RESTS_MS = 300;
/** Number of cached exact rows: that of the pinned cell, and those of cells under the resting pointer. */
const CACHE_SIZE = 4;

export interface ExactRows {
  /** The exact row of the shown matrix if it is loaded; if `ask` is set, it is requested otherwise. */
  (row: number, ask: boolean): Float32Array | undefined;
  /**
   * Report the cell under the pointer: its row is requested when the pointer rests there. At most one such request is
   * in flight, and none is sent while the pointer moves.
   */
  rest(cell: Cell | null): void;
}

/** Caches the most recently requested rows. `arrived` is called when a row arrives. */
export function createExactRows(ctx: ViewContext, arrived: () => void): ExactRows {
  const loaded = new Map<string, Float32Array>();
  const shown = new Map<string, Float32Array>();
  const requested = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let under: { name: string; cell: Cell } | null = null;
  let resting = false;
  /** The row with the filters applied. */
  const filter = (name: string, row: number, values: Float32Array): Float32Array => {
    const filters = filtersOf(ctx);
    if (!hidesValues(filters)) return values;
    const request = JSON.stringify([name, filters]);
    let left = shown.get(request);
    if (!left) {
      const source = ctx.source();
      const { special } = ctx.axisOf(source.query);
      left =
        source.kind === "map" && hidesSpecial(filters) && special[row]
          ? values.map(() => Number.NaN)
          : filteredRow(values, ctx.axisOf(source.key).special, filters, rescales(source));
      keep(shown, request, left);
    }
    return left;
  };
  const nameOfRow = (row: number): string => {
    const { source, layer, head } = ctx.resolved();
    return [source.id, layer, head, row].join();
  };
  const fetch = async (row: number, quiet: boolean): Promise<void> => {
    const name = nameOfRow(row);
    if (loaded.has(name) || requested.has(name)) return;
    requested.add(name);
    const { source, layer, head } = ctx.resolved();
    const values = await ctx.tiles.row(source.id, layer, head, row, quiet);
    requested.delete(name); // no values: requested again on the next change
    if (ctx.signal.aborted || !values) return;
    keep(loaded, name, values);
    shown.clear();
    arrived();
  };
  /** The pointer rests. */
  const settle = async (): Promise<void> => {
    const at = under;
    if (!at || resting || ctx.signal.aborted) return;
    const { source, layer, head } = ctx.resolved();
    if (!ctx.tiles.get(source.id, layer, head)) {
      under = null; // a matrix that is not drawn yet is not computed for a pointer
      return;
    }
    resting = true;
    await fetch(at.cell.query, true);
    resting = false;
    if (under !== at) wait();
  };
  const wait = (): void => {
    clearTimeout(timer);
    if (under) timer = setTimeout(() => void settle(), RESTS_MS);
  };
  atEnd(ctx.signal, () => clearTimeout(timer));
  const rows = (row: number, ask: boolean): Float32Array | undefined => {
    const name = nameOfRow(row);
    const values = loaded.get(name);
    if (values) return filter(name, row, values);
    // A reader who pinned a cell waits for exact numbers; without a pin the drawn values suffice.
    if (ask) void fetch(row, !ctx.cell("pinned"));
    return undefined;
  };
  return Object.assign(rows, {
    rest(cell: Cell | null) {
      const name = cell && isCell(cell) ? `${nameOfRow(cell.query)},${cell.key}` : "";
      if (name === (under?.name ?? "")) return;
      under = cell && name ? { name, cell } : null;
      wait();
    },
  });
}

/** Add to the newest few of a map. */
function keep(map: Map<string, Float32Array>, name: string, values: Float32Array): void {
  map.delete(name);
  map.set(name, values);
  for (const oldest of map.keys()) if (map.size > CACHE_SIZE) map.delete(oldest);
}

/** The name of an element, quoted for use in a sentence. */
export function nameOf(ctx: ViewContext, axis: string, i: number): string {
  return quoted(ctx.axisOf(axis).labels, i, ctx.options.indexBase);
}

const isCell = (cell: Cell | null): cell is Cell => cell !== null && cell.query >= 0 && cell.key >= 0;

/** Describe the share of a row that the elements apart receive, with the exact number once its row has arrived. */
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
      sum((key) => exact[key] || 0),
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
  rows.rest(hover);
  const words = ({ query, key }: Cell): string => {
    const between = `${nameOf(ctx, source.query, query)} → ${nameOf(ctx, source.key, key)}`;
    const exact = rows(query, false)?.[key];
    const isExact = exact !== undefined && !Number.isNaN(exact);
    // The exact value may pass a filter that the rounded value does not.
    const why = absence(source, isExact ? null : tile, query, key);
    if (why) return `${between}: ${why}`;
    if (isExact) return `${between} = ${printed(exact, true)}`;
    return tile ? `${between} ${approximately(tile.text(query, key))}` : between;
  };
  const parts: string[] = [];
  if (isCell(pinned)) parts.push(`pinned ${words(pinned)}`);
  const same = hover?.query === pinned?.query && hover?.key === pinned?.key;
  if (isCell(hover) && !same) parts.push(words(hover));
  const toSink = rowWords(tile, (isCell(hover) ? hover : pinned)?.query ?? -1);
  if (parts.length > 0 && toSink) parts.push(toSink);
  if (parts.length > 0) return parts.join(" · ");
  const half = hover ?? pinned;
  if (half && half.query >= 0) {
    const name = `${source.words[0]} ${nameOf(ctx, source.query, half.query)}`;
    return [name, rowWords(tile, half.query)].filter(Boolean).join(" · ");
  }
  if (half && half.key >= 0) return `${source.words[1]} ${nameOf(ctx, source.key, half.key)}`;
  return "Hover a cell to read it, click to pin it.";
}
