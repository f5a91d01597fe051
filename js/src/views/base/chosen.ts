/** Outlines of pinned cells and heads in a picture, and bars of spans along its axes. */
import type { ViewContext } from "../../context.ts";
import { createWatch } from "../../dom.ts";
import type { Cell, Span } from "../../wire/wire.ts";
import { setAttributes, svg } from "../charts/svg.ts";

/** Distance in px of a span's bar from the picture, and its ends. */
const [GAP, TICK] = [2, 4];

/** Left, top, width and height in px. */
export type Box = readonly [number, number, number, number];

/** A bar along an axis: [start, stop) in px. */
export type Bar = readonly [number, number];

/** Cells of equal size, in px. */
export interface Cells {
  rows: number;
  cols: number;
  cellWidth: number;
  cellHeight: number;
}

export interface Chosen {
  /** Outline boxes, and draw bars along rows and columns. The number of nodes stays the same. */
  draw(boxes: readonly Box[], rows?: readonly Bar[], cols?: readonly Bar[]): void;
}

/** Draw over an element, from its top left corner; the overlay ignores pointer events. */
export function createChosen(over: Element): Chosen {
  const outlines = svg("path");
  const [halo, bars] = ["halo", "bar"].map((name) => svg("path", { class: `aw-chosen-${name}` })) as [
    SVGElement,
    SVGElement,
  ];
  const drawing = svg("svg", { class: "aw-chosen", "aria-hidden": "true" });
  drawing.append(halo, outlines, bars);
  const isDrawn = createWatch();
  return {
    draw(boxes, rows = [], cols = []) {
      const outline = outlineOf(boxes);
      const side = TICK - GAP;
      const down = joined(rows)
        .map(([from, to]) => `M${side} ${from + 1}h${-TICK}V${to - 1}h${TICK}`)
        .join("");
      const across = joined(cols)
        .map(([from, to]) => `M${from + 1} ${side}v${-TICK}H${to - 1}v${TICK}`)
        .join("");
      if (!isDrawn(outline, down, across)) return;
      // Most pictures show nothing chosen: they get no nodes.
      if (outline || down || across) over.after(drawing);
      else drawing.remove();
      setAttributes(halo, { d: outline + down + across });
      setAttributes(outlines, { d: outline });
      setAttributes(bars, { d: down + across });
    },
  };
}

/** Bars in order; adjacent bars are joined. */
function joined(bars: readonly Bar[]): Bar[] {
  const all: Bar[] = [];
  for (const [from, to] of [...bars].sort(([a], [b]) => a - b)) {
    const last = all.at(-1);
    if (last && from <= last[1] + 0.01) all[all.length - 1] = [last[0], Math.max(last[1], to)];
    else all.push([from, to]);
  }
  return all;
}

/**
 * The outline of boxes. Adjacent boxes share an outline: where cells are small, lines between them would hide their
 * values.
 */
export function outlineOf(boxes: readonly Box[]): string {
  const edges = new Set<string>();
  const round = (at: number): number => Math.round(100 * at) / 100;
  for (const [x, y, width, height] of boxes) {
    const [left, top, right, bottom] = [x, y, x + width, y + height].map(round);
    const sides = [
      `M${left} ${top}H${right}`,
      `M${left} ${bottom}H${right}`,
      `M${left} ${top}V${bottom}`,
      `M${right} ${top}V${bottom}`,
    ];
    // An edge of two boxes is between them.
    for (const side of sides) if (!edges.delete(side)) edges.add(side);
  }
  return [...edges].join("");
}

/** The box of a cell; of a whole row or column, if the other index is -1. */
export function boxOf({ query, key }: Pick<Cell, "query" | "key">, size: Cells): Box {
  const { rows, cols, cellWidth, cellHeight } = size;
  return [
    Math.max(0, key) * cellWidth,
    Math.max(0, query) * cellHeight,
    cellWidth * (key < 0 ? cols : 1),
    cellHeight * (query < 0 ? rows : 1),
  ];
}

/** The elements of a side that are pinned together; none if fewer than two cells are. */
export function pinnedTogether(ctx: ViewContext, side: Span["side"]): number[] {
  const pins = ctx.pins();
  return pins.length > 1 ? [...new Set(pins.map((cell) => cell[side]))].filter((i) => i >= 0) : [];
}

/** Outline the columns of elements that are pinned together, and draw the span above them. */
export function drawOnColumns(chosen: Chosen, ctx: ViewContext, side: Span["side"], size: Cells): void {
  const span = ctx.span(side);
  chosen.draw(
    pinnedTogether(ctx, side).map((i) => boxOf({ query: -1, key: i }, size)),
    [],
    span ? [[span[0] * size.cellWidth, span[1] * size.cellWidth]] : [],
  );
}

/** The index of an element among the drawn rows or columns; -1: it is not drawn. */
export type PositionOf = (side: Span["side"], element: number) => number;

/** Outline the cells of a map that are pinned together, and draw the span at its sides. */
export function drawOnMap(
  chosen: Chosen,
  ctx: ViewContext,
  size: Cells,
  positionOf: PositionOf = (_, element) => element,
): void {
  const { layer } = ctx.resolved();
  const pins = ctx.pins();
  const here = pins.length > 1 ? pins.filter((cell) => (cell.layer ?? layer) === layer) : [];
  const boxes = here.flatMap((cell) => {
    const at = {
      query: cell.query < 0 ? -1 : positionOf("query", cell.query),
      key: cell.key < 0 ? -1 : positionOf("key", cell.key),
    };
    const isOut = (cell.query >= 0 && at.query < 0) || (cell.key >= 0 && at.key < 0);
    return isOut ? [] : [boxOf(at, size)];
  });
  /** A bar for every element of the span that is drawn. */
  const bars = (side: Span["side"], cell: number): Bar[] => {
    const [start, stop] = ctx.span(side) ?? [0, 0];
    const positions = Array.from({ length: stop - start }, (_, i) => positionOf(side, start + i));
    return positions.filter((at) => at >= 0).map((at) => [at * cell, (at + 1) * cell]);
  };
  chosen.draw(boxes, bars("query", size.cellHeight), bars("key", size.cellWidth));
}
