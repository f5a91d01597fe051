/** Sizes, labels, and the window of a long text: which rows and columns are drawn. */
import { assign } from "../../../dom.ts";
import type { Axis, Cell } from "../../../wire/wire.ts";
import { drawOnMap } from "../../base/chosen.ts";
import { filtersOf, standApart } from "../../base/filters.ts";
import { openingQuery } from "../../base/opening.ts";
import { type AxisPart, createAxisPart } from "../axisPart.ts";
import { namesApart } from "../shares.ts";
import type { HeatmapState } from "./state.ts";

/** Smallest width in px at which a single map has bars of the pinned row next to it, and their width. */
const WIDE = 676;
const BARS_ROOM = 180;

/** Lay out sizes and labels. Does nothing unless the box, an axis or the elements apart changed. */
export function layout(state: HeatmapState): void {
  const { ctx, figure, box, isWhole } = state;
  if (box.width <= 0) return;
  const source = ctx.source();
  const { marks } = ctx.options;
  const { special } = filtersOf(ctx);
  const axes = [ctx.axisOf(source.query), ctx.axisOf(source.key)] as const;
  // The largest values of several heads, and cells that share a code, have no common row.
  state.hasSink = source.sink && !source.coarse && ctx.resolved().head !== "max";
  if (!state.isLaidOut(source, ...axes, box, marks, special, isWhole, state.hasSink)) return;
  const settings = JSON.stringify([marks, special === "apart", isWhole, source.coarse, state.hasSink]);
  const name = [source.query, source.key, box.width, box.height, ...axes.map(fingerprint), settings].join("|");
  if (name === state.laidOut) return;
  state.laidOut = name;
  state.painted = "";
  // Cells that share a code cannot be told apart.
  const how = source.coarse ? "show" : special;
  const [query, key] = axes.map((axis) => createAxisPart(axis, standApart(axis.special, { special: how }))) as [
    AxisPart,
    AxisPart,
  ];
  const { labels } = axes[1];
  state.names = namesApart(labels, key.apart);
  const hasBars = state.root === ctx.el && box.width >= WIDE;
  const whole = isWhole || source.coarse;
  state.size = figure.layout({
    query,
    key,
    names: state.names,
    box,
    whole,
    numbers: !source.stochastic,
    sink: state.hasSink,
  });
  state.parts = [query, key];
  assign(state.bars.element, { hidden: !hasBars || box.width - figure.element.offsetWidth < BARS_ROOM });
  const opening = openingQuery(ctx);
  const [row, most = -1] = ctx.selection.get("opening")?.pair ?? [];
  if (reveal(state, { unit: source.unit, query: opening, key: row === opening ? most : -1 })) figure.label();
  follow(state);
  mark(state);
}

export function mark(state: HeatmapState): void {
  const { size, parts } = state;
  const cells = state.ctx.options.marks.filter((cell): cell is [number, number] => Array.isArray(cell));
  if (size && parts) {
    const [query, key] = parts;
    state.figure.crosshair.mark(
      size,
      cells.map(([row, col]) => [query.positionOf(row), key.positionOf(col)] as const),
    );
  }
}

/** Move the window to a cell, where a key of -1 refers to the query itself; returns whether it moved. */
export function reveal(state: HeatmapState, cell: Cell | null): boolean {
  const { parts } = state;
  if (!cell || !parts) return false;
  const { query: rows, key: cols } = state.ctx.source();
  const col = cell.key < 0 && rows === cols ? cell.query : cell.key;
  return [parts[0].reveal(cell.query), parts[1].reveal(col)].some(Boolean);
}

/** Move the window to the pinned cell, or to the cell hovered in another view; returns whether it moved. */
export function follow(state: HeatmapState): boolean {
  const { ctx } = state;
  const hover = state.isInside ? null : ctx.cell("hover");
  const moved = [reveal(state, ctx.cell("pinned")), reveal(state, hover)].some(Boolean);
  if (moved) state.figure.label();
  return moved;
}

export function outline(state: HeatmapState): void {
  const { size } = state;
  if (size)
    drawOnMap(state.chosen, state.ctx, size, (side, i) => state.parts?.[side === "query" ? 0 : 1].positionOf(i) ?? -1);
}

/** Enough of an axis to notice when it changes. */
function fingerprint(axis: Axis): string {
  return `${axis.unit} ${axis.labels.length} ${axis.labels.slice(0, 512).join("\u0001")}`;
}
