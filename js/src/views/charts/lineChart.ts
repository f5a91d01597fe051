/** Lines over layers or steps: an SVG picture with two axes and a label at the end of every line. */

import type { Theme } from "../../colour.ts";
import { h, setChildren, setFlag, thinned } from "../../dom.ts";
import { roundUp, tickText } from "../../numbers.ts";
import { textWidth } from "../maps/labels.ts";
import { rule, svg } from "./svg.ts";

/** Hues that colour-blind readers can distinguish, with a contrast of 3 to the page; beyond them, dashes differ. */
const HUES: Record<Theme, readonly string[]> = {
  light: ["#0072b2", "#c54e00", "#00855f", "#b0508a", "#7a6000", "#555"],
  dark: ["#5ab4ec", "#f29a4a", "#3fcfa4", "#e79fca", "#e8dc4a", "#c8c8c8"],
};
const DASHES = ["", "6 3", "2 3"];

export interface Look {
  stroke: string;
  dash: string;
}

/** The style of the line with this number. */
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
  /** Position in px of a layer (by its index) and of a value. */
  x(position: number): number;
  y(value: number): number;
}

/** The geometry of a chart whose lines end `room` px before the right edge. */
export function chartOf(width: number, room: number, count: number, low: number, high: number, height = 190): Chart {
  const [left, top] = [46, 8];
  const [right, bottom] = [Math.max(left + 20, width - room), height - 24];
  const span = high - low || 1;
  const step = (right - left - 16) / Math.max(1, count - 1);
  return {
    ...{ width, height, left, right, top, bottom, low, high },
    x: (position) => (count > 1 ? left + 8 + position * step : (left + right) / 2),
    y: (value) => bottom - ((value - low) / span) * (bottom - top),
  };
}

/** The ends of an axis that contains 0 and all of these values (NaN aside): rounded, and never equal. */
export function rangeOf(values: readonly number[]): [low: number, high: number] {
  const finite = values.filter(Number.isFinite);
  const least = Math.min(0, ...finite);
  return [least < 0 ? -roundUp(-least) : 0, roundUp(Math.max(0, ...finite)) || 1];
}

/** A vertical line across the picture at a position of the horizontal axis. */
export function drawUpright(chart: Chart, position: number, name: string): SVGElement {
  const x = chart.x(position);
  return rule(x, chart.top, x, chart.bottom, { class: name });
}

/** The sample next to a legend entry: a piece of its line. */
export function drawSwatch({ stroke, dash }: Look): SVGElement {
  const box = svg("svg", { width: 18, height: 8, "aria-hidden": "true" });
  box.append(rule(0, 4, 18, 4, { stroke, "stroke-width": 2, "stroke-dasharray": dash }));
  return box;
}

/** Minimum distance in px between names below the axis. */
const NAME_ROOM = 22;

/** Both axes, with the layer names that fit; `positions` of the names are by default 0, 1, 2, ... */
export function drawAxes(chart: Chart, layers: readonly string[], positions?: readonly number[]): SVGElement {
  const { left, right, bottom, low, high } = chart;
  const group = svg("g", { class: "aw-axes" });
  for (const value of [low, (low + high) / 2, high]) {
    const y = chart.y(value);
    const text = svg("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, tickText(value));
    group.append(rule(left, y, right, y), text);
  }
  if (low < 0 && high > 0) {
    const y = chart.y(0);
    group.append(rule(left, y, right, y, { class: "aw-zero" }));
  }
  const step = layers.length > 1 ? chart.x(1) - chart.x(0) : right - left;
  const shown = positions
    ? withoutOverlaps(
        positions.map((position) => chart.x(position)),
        layers,
      )
    : thinned(layers.length, step, NAME_ROOM);
  for (const i of shown) {
    group.append(svg("text", { x: chart.x(positions?.[i] ?? i), y: bottom + 15, "text-anchor": "middle" }, layers[i]));
  }
  return group;
}

/** Indices of names that do not overlap; earlier names take precedence. */
function withoutOverlaps(at: readonly number[], names: readonly string[]): number[] {
  let last = -Infinity;
  return [...at.keys()].filter((i) => {
    const half = Math.max(NAME_ROOM, 8 * (names[i]?.length ?? 0)) / 2;
    const fits = (at[i] ?? 0) - half >= last;
    if (fits) last = (at[i] ?? 0) + half;
    return fits;
  });
}

/** Up to this many values, each gets a dot. */
const DOTTED = 32;

/**
 * A line through all numbers, interrupted at NaN; with a dot for every value if there are few. `positions` of the
 * values are by default 0, 1, 2, ...
 */
export function drawLine(
  chart: Chart,
  values: readonly number[],
  { stroke, dash }: Look,
  positions: readonly number[] = [...values.keys()],
): SVGElement {
  let path = "";
  let pen = "M";
  const dots: SVGElement[] = [];
  values.forEach((value, i) => {
    const [x, y] = [chart.x(positions[i] ?? i), chart.y(value)];
    const isThere = Number.isFinite(value);
    if (isThere) {
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      dots.push(svg("circle", { cx: x, cy: y, r: 2.5, fill: stroke }));
    }
    pen = isThere ? "L" : "M";
  });
  const group = svg("g");
  group.append(svg("path", { d: path, fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash }));
  if (values.length <= DOTTED) group.append(...dots);
  return group;
}

/** The area between two lines where both are numbers; a bar for an isolated value. */
export function drawBand(
  chart: Chart,
  low: readonly number[],
  high: readonly number[],
  colour: string,
  positions: readonly number[] = [...low.keys()],
): SVGElement {
  let path = "";
  let run: number[] = [];
  const end = (): void => {
    const sides = run.length > 1 ? run.map((i) => [i, 0]) : run.flatMap((i) => [-3, 3].map((side) => [i, side]));
    const along = (values: readonly number[]): string[] =>
      sides.map(
        ([i = 0, side = 0]) =>
          `${(chart.x(positions[i] ?? i) + side).toFixed(1)} ${chart.y(values[i] as number).toFixed(1)}`,
      );
    if (run.length) path += `M${[...along(high), ...along(low).reverse()].join("L")}Z`;
    run = [];
  };
  low.forEach((value, i) => {
    if (Number.isFinite(value) && Number.isFinite(high[i])) run.push(i);
    else end();
  });
  end();
  return svg("path", { class: "aw-band", d: path, fill: colour });
}

/** The name and value at the end of a line, and its position. */
export interface LineEnd {
  name: string;
  value: string;
  look: Look;
  /** Height in px of the line's last point. */
  x: number;
  y: number;
  title?: string;
}

/** In figures narrower than this (px), labels are below the picture, not next to it. */
const NARROW = 520;
const LINE = 16;

/** Whether labels are next to the ends of the lines in a figure of this width. */
export const labelsAreBeside = (width: number): boolean => width >= NARROW;

/** Width in px that the labels need next to the lines; a small margin if they are below. */
export function labelRoom(width: number, texts: readonly string[], legend: Element): number {
  if (!labelsAreBeside(width)) return 8;
  // The `font` shorthand is empty with tabular figures.
  const { fontSize, fontFamily } = getComputedStyle(legend);
  const widest = Math.max(0, ...texts.map((text) => textWidth(text, `600 ${fontSize} ${fontFamily}`)));
  return Math.min(280, Math.ceil(widest) + 56);
}

/**
 * Write the names of the lines into `legend`, at their ends without overlaps, or below; returns lines that connect
 * them.
 */
export function labelLines(chart: Chart, legend: HTMLElement, ends: readonly LineEnd[]): SVGElement[] {
  const { width, right, top, bottom } = chart;
  const isWide = labelsAreBeside(width);
  const centres = ends.map(({ y }) => y);
  const heights = spreadOut(centres, LINE, top + 4, bottom);
  setFlag(legend, "data-wide", isWide);
  setChildren(
    legend,
    ...ends.map(({ name, value, look, title = "" }, line) => {
      const item = h("li", drawSwatch(look), h("span.profile-name", { title }, name), " ", h("b", value));
      if (isWide) {
        item.style.top = `${(heights[line] ?? 0) - LINE / 2}px`;
        item.style.left = `${right + 10}px`;
        item.style.maxWidth = `${width - right - 10}px`;
      }
      return item;
    }),
  );
  if (!isWide) return [];
  return ends.map(({ x, y }, line) => {
    const points = `${x + 4},${y} ${right},${heights[line]} ${right + 8},${heights[line]}`;
    return svg("polyline", { class: "aw-leader", points, fill: "none" });
  });
}

/** Horizontal position of the pointer in the picture, in px; NaN outside the axes. */
export function pointedAt(event: MouseEvent, picture: Element, chart: Chart): number {
  const box = picture.getBoundingClientRect();
  const x = ((event.clientX - box.left) * chart.width) / box.width;
  return x < chart.left - 8 || x > chart.right + 8 ? NaN : x;
}

/** The index, of `count`, under the pointer; -1 outside the axes. */
export function indexAt(event: MouseEvent, picture: Element, chart: Chart, count: number): number {
  const step = count > 1 ? chart.x(1) - chart.x(0) : 1;
  const position = Math.round((pointedAt(event, picture, chart) - chart.x(0)) / step);
  return Number.isNaN(position) ? -1 : Math.max(0, Math.min(count - 1, position));
}

/** Heights of labels at least `size` px apart, each as near as possible to where it belongs. */
export function spreadOut(centres: readonly number[], size: number, top: number, bottom: number): number[] {
  const order = [...centres.keys()].sort((a, b) => (centres[a] ?? 0) - (centres[b] ?? 0));
  const out = [...centres];
  let last = top - size;
  for (const i of order) {
    last = Math.max(last + size, centres[i] ?? 0);
    out[i] = last;
  }
  let next = Math.max(bottom, top + size * (centres.length - 1)) + size;
  for (const i of order.reverse()) {
    next = Math.min(next - size, out[i] ?? 0);
    out[i] = next;
  }
  return out;
}
