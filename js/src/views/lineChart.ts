/** Lines over the layers: a picture in SVG with an axis on each side, and a label at every line's end. */

import type { Theme } from "../context.ts";
import { thinned } from "../dom.ts";
import { tickText } from "../numbers.ts";
import { svg } from "./svg.ts";

/** Hues that colour-blind readers tell apart, with a contrast of 3 on the page; dashes tell the rest apart. */
const HUES: Record<Theme, readonly string[]> = {
  light: ["#0072b2", "#c54e00", "#00855f", "#b0508a", "#7a6000", "#555"],
  dark: ["#5ab4ec", "#f29a4a", "#3fcfa4", "#e79fca", "#e8dc4a", "#c8c8c8"],
};
const DASHES = ["", "6 3", "2 3"];

export interface Look {
  stroke: string;
  dash: string;
}

/** How the line of this number is drawn. */
export function lookOf(line: number, theme: Theme): Look {
  const hues = HUES[theme];
  return {
    stroke: hues[line % hues.length] as string,
    dash: DASHES[Math.floor(line / hues.length) % DASHES.length] as string,
  };
}

export interface Chart {
  width: number;
  height: number;
  /** Where the axes begin and end. */
  left: number;
  right: number;
  top: number;
  bottom: number;
  low: number;
  high: number;
  /** px of a layer by its place among the layers, and of a value. */
  x(place: number): number;
  y(value: number): number;
}

/** Measures for lines that end `room` px before the right edge. */
export function chartOf(width: number, room: number, count: number, low: number, high: number): Chart {
  const [left, top, height] = [46, 8, 190];
  const [right, bottom] = [Math.max(left + 20, width - room), height - 24];
  const span = high - low || 1;
  const step = (right - left - 16) / Math.max(1, count - 1);
  return {
    ...{ width, height, left, right, top, bottom, low, high },
    x: (place) => (count > 1 ? left + 8 + place * step : (left + right) / 2),
    y: (value) => bottom - ((value - low) / span) * (bottom - top),
  };
}

/** Both axes, with the names of the layers that fit. */
export function drawAxes(chart: Chart, layers: readonly string[]): SVGElement {
  const { left, right, bottom, low, high } = chart;
  const group = svg("g", { class: "aw-axes" });
  for (const value of [low, (low + high) / 2, high]) {
    const y = chart.y(value);
    group.append(svg("line", { x1: left, x2: right, y1: y, y2: y }));
    group.append(svg("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, tickText(value)));
  }
  if (low < 0 && high > 0) {
    const y = chart.y(0);
    group.append(svg("line", { class: "aw-zero", x1: left, x2: right, y1: y, y2: y }));
  }
  const step = layers.length > 1 ? chart.x(1) - chart.x(0) : right - left;
  for (const i of thinned(layers.length, step, 22)) {
    group.append(svg("text", { x: chart.x(i), y: bottom + 15, "text-anchor": "middle" }, layers[i]));
  }
  return group;
}

/** A line through what is a number, broken where there is none; a dot for every layer while they are few. */
export function drawLine(chart: Chart, values: readonly number[], { stroke, dash }: Look): SVGElement {
  const group = svg("g");
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${chart.x(i).toFixed(1)} ${chart.y(value).toFixed(1)}`;
    pen = true;
  });
  group.append(svg("path", { d: path, fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash }));
  if (values.length > 32) return group;
  values.forEach((value, i) => {
    if (Number.isFinite(value))
      group.append(svg("circle", { cx: chart.x(i), cy: chart.y(value), r: 2.5, fill: stroke }));
  });
  return group;
}

/** Heights at which labels stand, `size` px apart, as near as can be to where they would like to stand. */
export function spreadOut(wanted: readonly number[], size: number, top: number, bottom: number): number[] {
  const order = [...wanted.keys()].sort((a, b) => (wanted[a] ?? 0) - (wanted[b] ?? 0));
  const out = [...wanted];
  let last = top - size;
  for (const i of order) {
    last = Math.max(last + size, wanted[i] ?? 0);
    out[i] = last;
  }
  let next = Math.max(bottom, top + size * (wanted.length - 1)) + size;
  for (const i of order.reverse()) {
    next = Math.min(next - size, out[i] ?? 0);
    out[i] = next;
  }
  return out;
}
