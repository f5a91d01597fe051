/** A matrix on the page: its canvas, its overlays, its labels, and the elements apart: special tokens, and a sink. */
import type { ViewContext } from "../../context.ts";
import { assign, h, setSizes } from "../../dom.ts";
import { SINK_NAME } from "../base/rowFacts.ts";
import { styleValue } from "../base/styleValue.ts";
import type { AxisPart } from "./axisPart.ts";
import { createCrosshair } from "./crosshair.ts";
import { createEdges } from "./edges.ts";
import { createInk } from "./ink.ts";
import { createLabels, labelRoom, slantHeight, slantLength, textWidth } from "./labels.ts";
import { createShares, HEADING, HEADING_HEIGHT, type Numbers } from "./shares.ts";
import { createSinkColumn, type SinkColumn } from "./sinkColumn.ts";
import { type Box, fit, type Size } from "./size.ts";

/** px of a cell from which lines divide the cells. */
export const LINED = 12;
const FOOT = 24;
const FLAT = 18;
const TALLEST_LABELS = 84;
/** px of a box below which the bars next to it are short. */
const NARROW = 420;

export interface FigureLayout {
  query: AxisPart;
  key: AxisPart;
  /** The names of the elements apart; "": none. */
  names: string;
  box: Box;
  /** Whether all cells are shown, however small. */
  whole: boolean;
  numbers: Numbers;
  /** Whether a column before the first shows the weight on no element. */
  sink?: boolean;
}

export interface FigureEvents {
  /** Bring the elements apart back into the map. */
  back(): void;
  /** Move the window by pages. */
  move(rows: number, cols: number): void;
  /** Switch between a window and the whole map. */
  whole(): void;
}

/** Insert the column of the sink before the plot, or remove it; returns its width in px. */
function layOutSink(sink: SinkColumn, plot: HTMLElement, hasSink: boolean, size: Size, topRoom: number): number {
  for (const part of [sink.name, sink.element]) {
    if (!hasSink) part.remove();
    else if (part.parentElement !== plot.parentElement) plot.before(part);
  }
  if (hasSink) sink.layout(size, topRoom);
  return hasSink ? sink.room(size.cellWidth) : 0;
}

/** `description` is its role description; `over` are overlays. */
export function createFigure(
  ctx: ViewContext,
  description: string,
  signal: AbortSignal,
  events: FigureEvents,
  ...over: HTMLElement[]
) {
  const [left, top] = [createLabels("left"), createLabels("top")];
  const canvas = h("canvas.cells");
  const crosshair = createCrosshair();
  const ink = createInk(ctx);
  const role = { tabindex: "0", role: "application", "aria-roledescription": description };
  const plot = h("div.plot", role, canvas, ink.element, ...crosshair.elements, ...over);
  const shares = createShares(ctx, signal, events.back);
  const sink = createSinkColumn(ctx);
  const edges = createEdges(signal, events.move, events.whole);
  const element = h(
    "div.figure",
    edges.corner,
    top.element,
    left.element,
    plot,
    shares.element,
    edges.below,
    edges.foot,
  );
  let now: FigureLayout | null = null;
  let sizes = { leftRoom: 0, topRoom: 0 };
  let size: Size | null = null;
  let isLong = false;

  /** Label the drawn rows and columns, and count the elements outside the window. */
  const label = (): void => {
    if (!now || !size) return;
    left.layout({ ...now.query.side(), cell: size.cellHeight, room: sizes.leftRoom });
    top.layout({ ...now.key.side(), cell: size.cellWidth, room: sizes.topRoom, slant: true });
    edges.show(now.query, now.key, isLong, now.whole);
  };

  return {
    element,
    plot,
    canvas,
    crosshair,
    ink,
    shares,
    sink,
    left,
    top,
    label,
    /** Whether the whole map is too dense to be read. */
    isLong: () => isLong,
    /** Lay out sizes and labels in a box. */
    layout(layout: FigureLayout): Size {
      now = layout;
      const { query, key, names, box, whole, numbers, sink: hasSink = false } = layout;
      const font = ["font-size", "font-family"].map((name) => styleValue(ctx, left.element, name)).join(" ");
      const [rows, cols] = [query.inside.length, key.inside.length];
      const isNarrow = box.width < NARROW;
      const sharesWidth = shares.room(names, numbers, isNarrow);
      let leftRoom = labelRoom(query.names, fit(rows, cols, box).cellHeight, font, Math.min(132, box.width * 0.28));
      const sinkRoom = hasSink ? sink.room(fit(rows, cols + 1, box).cellWidth) : 0;
      const across = (): number => Math.max(24, box.width - leftRoom - sinkRoom - sharesWidth - 4);
      // Labels are flat where all of them fit, or else slanted; the height left to the cells depends on it.
      const longest = Math.min(slantLength(Math.min(TALLEST_LABELS, box.height / 4)), 160);
      const high = (above: number): Box => ({ width: across(), height: Math.max(24, box.height - above - 4) });
      const least = sharesWidth ? HEADING_HEIGHT : FLAT;
      let above = least;
      size = fit(rows, cols, high(least), whole);
      const plain = fit(rows, cols, high(least));
      isLong = plain.rows < rows || plain.cols < cols;
      // The corner shows the number of rows hidden above, and must not overlap the labels of the columns.
      if (plain.rows < rows && !whole) leftRoom = Math.max(leftRoom, textWidth(`↑ ${rows} earlier`, font) + 8);
      const foot = isLong ? FOOT : 0;
      const columns = hasSink ? [SINK_NAME, ...key.names] : key.names;
      const topRoom = labelRoom(columns, size.cellWidth, font, longest);
      if (foot || topRoom > size.cellWidth + 2) {
        if (topRoom > size.cellWidth + 2) above = Math.max(least, slantHeight(topRoom));
        size = fit(rows, cols, high(above + foot), whole);
        // A last long label must not reach beyond the box.
        const heading = names && above > least ? HEADING + 8 : 0;
        const over = Math.max(0, overhang(key, size, font, topRoom) + heading - sharesWidth);
        if (over > 0) size = fit(rows, cols, { ...high(above + foot), width: Math.max(24, across() - over) }, whole);
      }
      sizes = { leftRoom, topRoom };
      query.open(size.rows);
      key.open(size.cols);
      label();
      const before = layOutSink(sink, plot, hasSink, size, topRoom);
      shares.layout(names, numbers, size, top.flat() ? 0 : overhang(key, size, font, topRoom), isNarrow);
      const { width, height } = size;
      setSizes(element, { left: leftRoom + before, sink: before, top: above, width, height, foot });
      setSizes(plot, { across: size.cellWidth, down: size.cellHeight });
      return size;
    },
    /** Draw an image on the canvas. */
    show(image: ImageData): void {
      // Setting a size reallocates the canvas, even if it is the same.
      assign(canvas, { width: image.width, height: image.height });
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    },
  };
}

/** px by which rising labels reach beyond the last column. */
function overhang(key: AxisPart, { cols, cellWidth, width }: Size, font: string, room: number): number {
  if (cols < key.names.length) return Math.max(0, room * Math.SQRT1_2 + 6 - cellWidth / 2);
  const last = key.names.slice(-12);
  const reach = last.map((name, i) => {
    const col = cols - last.length + i;
    return (col + 0.5) * cellWidth + Math.min(room, textWidth(name, font)) * Math.SQRT1_2 + 6;
  });
  return Math.max(0, Math.max(0, ...reach) - width);
}
