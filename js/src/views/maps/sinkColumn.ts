/**
 * The column before the first token of a map: the weight of each row on a sink, and so on no token. Including it, a row
 * sums to one. It is hatched, has its own range from 0 to 1, and stays in view when a window of a long text moves.
 */

import { colourAt, type MapName, type Mode, scalePosition } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { h, setBox, setSizes } from "../../dom.ts";
import { SINK_NAME } from "../base/rowFacts.ts";
import { styleValue } from "../base/styleValue.ts";
import { cellText, inkOn, sharpCanvas } from "./ink.ts";
import { createLabels, textWidth } from "./labels.ts";
import type { Size } from "./size.ts";

/** px of the column at least, so that the pointer finds it and its label does not touch the first token's. */
const LEAST = 18;
/** px between it and the map. */
const GAP = 3;
const HATCH = 5; // px between the lines
const LINED = 12; // px of a cell from which lines divide the cells
const NUMBERED = 22; // px of a cell that has room for a number

export interface SinkColumn {
  /** The cells, which take the pointer. */
  element: HTMLElement;
  name: HTMLElement;
  /** px that it takes next to cells of a width. */
  room(cellWidth: number): number;
  /** Lay it out next to a map whose labels take `room` px. */
  layout(size: Size, room: number): void;
  draw(size: Size, shares: readonly number[], map: MapName, mode: Mode): void;
  /** Outline the cell of the hovered and of the pinned row; -1: none. */
  mark(size: Size, hovered: number, pinned: number): void;
}

export function createSinkColumn(ctx: ViewContext): SinkColumn {
  const canvas = h("canvas");
  const [over, pin] = [h("div.sink-over"), h("div.sink-pin")];
  const label = createLabels("top");
  const name = h("div.sink-name", label.element);
  const element = h("div.sink", canvas, over, pin);
  let width = 0;
  const wide = (cellWidth: number): number => Math.max(LEAST, cellWidth);
  return {
    element,
    name,
    room: (cellWidth) => wide(cellWidth) + GAP,
    layout(size, room) {
      width = wide(size.cellWidth);
      const font = ["font-size", "font-family"].map((style) => styleValue(ctx, name, style)).join(" ");
      // The legend has the whole name.
      const labels = [textWidth(SINK_NAME, font) < room ? SINK_NAME : "sink"];
      label.layout({ labels, special: [0], cell: width, room, slant: true });
      for (const part of [element, name]) setSizes(part, { "sink-width": width });
    },
    draw({ cellHeight, height }, shares, map, mode) {
      const pen = sharpCanvas(canvas, width, height);
      if (!pen) return;
      const line = styleValue(ctx, ctx.el, "--aw-apart") || "#98a2ae";
      // Where several rows share a pixel, it shows the largest of them.
      const step = Math.max(1, Math.ceil(1 / cellHeight));
      for (let row = 0; row < shares.length; row += step) {
        const share = Math.max(...shares.slice(row, row + step));
        const [red, green, blue] = colourAt(map, scalePosition(share, [0, 1], mode));
        pen.fillStyle = `rgb(${red} ${green} ${blue})`;
        const high = Math.min(step, shares.length - row) * cellHeight - (cellHeight >= LINED ? 1 : 0);
        pen.fillRect(0, row * cellHeight, width, high);
        pen.save();
        hatch(pen, row * cellHeight, width, high, line);
        pen.restore();
        if (width < NUMBERED || cellHeight < NUMBERED) continue;
        const text = cellText(share, true);
        pen.font = `12px ${styleValue(ctx, element, "font-family")}`;
        [pen.textAlign, pen.textBaseline] = ["center", "middle"];
        const room = pen.measureText(text).width + 4;
        pen.fillRect((width - room) / 2, (row + 0.5) * cellHeight - 8, room, 15);
        pen.fillStyle = inkOn(red | (green << 8) | (blue << 16));
        pen.fillText(text, width / 2, (row + 0.5) * cellHeight + 1);
      }
    },
    mark({ cellHeight }, hovered, pinned) {
      setBox(over, 0, hovered * cellHeight, width, cellHeight);
      setBox(pin, 0, pinned * cellHeight, width, cellHeight);
    },
  };
}

/** Hatch a cell in a colour that is neither end of a range; the lines of cells meet. */
function hatch(pen: CanvasRenderingContext2D, top: number, width: number, height: number, colour: string): void {
  pen.beginPath();
  pen.rect(0, top, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  // Lines from the upper left to the lower right: those of cells that hold nothing rise.
  for (let at = (top % HATCH) - HATCH * Math.ceil(height / HATCH + 1); at < width; at += HATCH) {
    pen.moveTo(at, top);
    pen.lineTo(at + height, top + height);
  }
  pen.stroke();
}
