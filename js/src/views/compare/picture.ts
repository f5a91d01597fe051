/**
 * Explanations as rows of cells over a common axis, so that their values for the same element are in the same column:
 * with numbers where they fit, values and sums at the right, and below them the difference of two as bars.
 */

import { barColours, SCALE } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  on,
  onResize,
  setBox,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
} from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Cells } from "../base/chosen.ts";
import { filtersOf } from "../base/filters.ts";
import type { Picture as Columns } from "../base/gestures.ts";
import { amountText } from "../base/meters.ts";
import { styleValue } from "../base/styleValue.ts";
import { sharpCanvas } from "../maps/ink.ts";
import { type AxisLabels, createLabels, labelRoom, slantHeight, textWidth } from "../maps/labels.ts";
import { peak } from "../text/rowValues.ts";
import { fills, NOTHING } from "../text/stripColour.ts";
import { difference } from "./differences.ts";
import type { ExplanationRows } from "./rows.ts";
import { createStretch, type Stretch } from "./stretch.ts";

/** The answer of `CompareView._strips`, without the values. */
export interface Compared {
  names: string[];
  remarks: string[];
  maps: boolean[];
  signed: boolean[];
  shares: boolean[];
  alike: boolean;
  how: string;
  query: number | null;
  follows: boolean;
}

/** Two explanations that are compared. */
export type Pair = readonly [number, number];

export interface PictureEvents {
  /** The overlay of the cells has to be drawn again. */
  resized(): void;
  /** The element under the pointer; -1: none. */
  hover(index: number): void;
  pin(index: number): void;
  /** Another row is shown in the text. */
  open(row: number): void;
}

export interface Picture {
  element: HTMLElement;
  /** Draw all rows, and the difference of a pair; `open` is the row that the text shows. */
  draw(pair: Pair, open: number): void;
  /** Mark an element in all rows, and the query of maps; `words` describe a row's value of it. */
  mark(key: number, query: number, words: (row: number) => string): void;
  /** Highlight rows; -1: none. */
  point(first: number, second: number): void;
  /** The rows as a picture of columns, and their size. */
  columns: Columns;
  cells(): Cells;
  /** The canvas of the cells. */
  canvas: HTMLCanvasElement;
}

/** px: height of a row, of its cells; the widest cell, and the narrowest with a number. */
const [ROW, CELL, WIDEST, NUMBERED] = [30, 26, 64, 24];
/** px of the bars: the least and the largest height, and the margin of their numbers above and below. */
const [LOWEST, TALLEST, MARGIN] = [72, 170, 16];
/** px: the names at the left, and at the right the value, the share of special tokens, and the sum. */
const [NAMES, VALUE, APART, SUM] = [150, 84, 56, 48];
/** px below which there are fewer columns at the right. */
const NARROW = 460;
const MOST_LABEL = 76;
/** Sums of shares below this are rounding errors. */
const LEAST = 1e-6;

type Pen = CanvasRenderingContext2D;

/** A number without the zero before its point: for narrow cells. */
export const shortForm = (text: string): string => text.replace(/(?<!\d)0\./, ".");

/** Its elements, and the state that they show. */
interface PictureState {
  readonly ctx: ViewContext;
  readonly explanations: ExplanationRows<Compared>;
  readonly labels: AxisLabels;
  readonly stretch: Stretch;
  readonly names: HTMLDivElement;
  readonly cells: HTMLCanvasElement;
  readonly bars: HTMLCanvasElement;
  readonly plot: HTMLDivElement;
  readonly values: HTMLDivElement;
  readonly heads: HTMLElement;
  readonly sums: HTMLElement;
  readonly minus: HTMLElement;
  readonly mark: HTMLDivElement;
  readonly element: HTMLDivElement;
  readonly isBuilt: (...values: unknown[]) => boolean;
  readonly isRemarked: (...values: unknown[]) => boolean;
  readonly isLaidOut: (...values: unknown[]) => boolean;
  readonly size: {
    width: number;
    height: number;
    cell: number;
    left: number;
    plot: number;
    rows: number;
    bars: number;
  };
  /** The elements of the numbers at the end of each row. */
  lines: HTMLElement[];
  /** The drawn pair and open row; null until there is a pair. */
  drawn: [Pair, number] | null;
  /** The current marks; null before the first. */
  marked: Parameters<Picture["mark"]> | null;
}

export function createPicture(
  ctx: ViewContext,
  signal: AbortSignal,
  explanations: ExplanationRows<Compared>,
  events: PictureEvents,
): Picture {
  const labels = createLabels("top");
  const stretch = createStretch();
  const names = h("div.compare-names");
  const [cells, bars] = [h("canvas"), h("canvas")];
  const [plot, barPlot] = [h("div.compare-plot", cells), h("div.compare-plot", bars)];
  const values = h("div.compare-ends");
  const [heads, sums, minus] = [ends(), ends(), h("b")];
  const scroll = h("div.compare-scroll", line(names, plot, values));
  const apartName = h("div.compare-names", minus, h("span.dim", "in shares"));
  const foot = h("div.compare-foot", line(apartName, barPlot, sums));
  const mark = h("div.compare-mark");
  const element = h("div.compare-main.column", line(h("span"), labels.element, heads), scroll, foot, mark);
  const [isBuilt, isRemarked, isLaidOut] = [createWatch(), createWatch(), createWatch()];
  const size = { width: 0, height: 0, cell: 0, left: 0, plot: 0, rows: 0, bars: 0 };

  const state: PictureState = {
    ctx,
    explanations,
    labels,
    stretch,
    names,
    cells,
    bars,
    plot,
    values,
    heads,
    sums,
    minus,
    mark,
    element,
    isBuilt,
    isRemarked,
    isLaidOut,
    size,
    lines: [],
    drawn: null,
    marked: null,
  };
  for (const target of [plot, barPlot]) {
    on(target, signal, {
      pointermove: (event) => events.hover(indexOf(state, event)),
      pointerleave: () => events.hover(-1),
      click: (event) => events.pin(indexOf(state, event)),
    });
  }
  on(names, signal, {
    click({ target }) {
      const row = [...names.children].indexOf((target as Element).closest("button") as Element);
      if (row >= 0) events.open(row);
    },
  });

  onResize(element, signal, ({ width, height }) => {
    const box = [Math.floor(width), Math.floor(height)] as const;
    if (box[0] === size.width && box[1] === size.height) return;
    [size.width, size.height] = box;
    draw(state);
    showMarks(state);
    events.resized();
  });

  return {
    element,
    draw(pair, open) {
      state.drawn = [pair, open];
      draw(state);
    },
    mark(...at) {
      state.marked = at;
      showMarks(state);
    },
    columns: { element: plot, size: () => (size.cell ? [1, explanations.axis().labels.length] : null) },
    cells: () => ({ rows: 1, cols: 1, cellWidth: size.cell, cellHeight: size.rows }),
    canvas: cells,
    point(first, second) {
      for (const [i, name] of [...names.children].entries()) setFlag(name, "data-pointed", i === first || i === second);
    },
  };
}

function line(...parts: HTMLElement[]): HTMLElement {
  return h("div.compare-line", ...parts);
}

function ends(): HTMLElement {
  return h("div.compare-end", h("span.compare-value"), h("span.compare-apart"), h("span.compare-sum"));
}

function indexOf(state: PictureState, event: MouseEvent): number {
  const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
  const { length } = state.explanations.axis().labels;
  return Math.max(0, Math.min(length - 1, Math.floor(((event.clientX - left) / width) * length)));
}

function font(state: PictureState): string {
  return `12px ${styleValue(state.ctx, state.element, "font-family")}`;
}

function build(state: PictureState, { names: all, remarks }: Compared): void {
  const { names } = state;
  if (state.isBuilt(all.join("\n"))) {
    setChildren(
      names,
      ...all.map((name, i) =>
        h("button.compare-name.clip.ghost", { type: "button" }, h("b", String(i + 1)), ` ${name} `, h("span.dim")),
      ),
    );
    state.lines = all.map(ends);
    setChildren(state.values, ...state.lines);
  }
  if (state.isRemarked(state.lines, remarks.join("\n")))
    [...names.children].forEach((button, i) => {
      const title = [`${i + 1} ${all[i]}`, remarks[i]].filter(Boolean).join(", ");
      assign(button as HTMLElement, { title, ariaLabel: title });
      setText(button.lastElementChild as Element, remarks[i] ?? "");
    });
}

function layout(state: PictureState, count: number): void {
  const { explanations, labels, element, size } = state;
  const axis = explanations.axis();
  const some = explanations.apart.some(Boolean);
  if (!state.isLaidOut(axis, count, some, size.width, size.height, font(state))) return;
  const { labels: words, special } = axis;
  const narrow = size.width < NARROW;
  setFlag(element, "data-narrow", narrow);
  const nameRoom = Math.round(Math.min(NAMES, size.width * 0.24));
  const room = narrow ? VALUE : VALUE + SUM + (some ? APART : 0) + 16;
  const wide = Math.max(60, size.width - nameRoom - room - 20);
  let cell = Math.min(WIDEST, wide / words.length);
  if (cell > 8) cell = Math.floor(cell);
  const length = labelRoom(words, cell, font(state), MOST_LABEL);
  labels.layout({ labels: words, special, cell, room: length, slant: true });
  const top = labels.flat() ? 20 : slantHeight(length);
  const left = size.height - top;
  size.cell = cell;
  size.plot = Math.max(1, Math.round(cell * words.length));
  size.rows = count * ROW;
  size.bars = Math.round(Math.max(LOWEST, Math.min(TALLEST, left - size.rows - 8)));
  setSizes(element, { names: nameRoom, plot: size.plot, ends: room, labels: top, rows: size.rows, bars: size.bars });
  size.left = state.plot.offsetLeft;
}

/** The numbers of a row, in the middle of their cells. */
function write(
  state: PictureState,
  pen: Pen,
  row: Float32Array,
  text: (value: number, i: number) => string,
  y: (i: number) => number,
  ink: (i: number) => string,
): void {
  const { size } = state;
  pen.font = font(state);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  row.forEach((value, i) => {
    const short = shortForm(text(value, i));
    // A rounded number would differ in precision from its neighbours.
    if (textWidth(short, pen.font) > size.cell - 2) return;
    pen.fillStyle = ink(i);
    pen.fillText(short, (i + 0.5) * size.cell, y(i));
  });
}

function drawCells(state: PictureState): void {
  const { ctx, size } = state;
  const { rows, shown, apart, extents } = state.explanations;
  const { palette, scale } = filtersOf(ctx);
  const [quiet, back] = [styleValue(ctx, state.element, "--aw-apart"), ctx.theme === "dark" ? "#fff" : "#000"];
  const flipped = ctx.theme === "dark" ? "#000" : "#fff";
  const pen = sharpCanvas(state.cells, size.plot, size.rows);
  if (!pen) return;
  const gap = size.cell > 12 ? 1 : 0;
  const widest = size.cell - gap;
  const looks = shown.map((row, r) => {
    const { top, signed } = extents[r] ?? { top: 1, signed: false };
    const fill = fills(ctx.theme, signed, palette, scale || SCALE);
    return Array.from(row, (value, i) => (apart[i] ? NOTHING : fill(value / (top || 1))));
  });
  const y = (r: number): number => r * ROW + (ROW - CELL) / 2;
  state.stretch(pen, shown, looks, size.plot, gap, (r) => [y(r), CELL]);
  pen.fillStyle = quiet;
  pen.globalAlpha = 0.18;
  for (const i of [...apart.keys()].filter((i) => apart[i]))
    for (const r of shown.keys()) pen.fillRect(i * size.cell, y(r), Math.max(1, widest), CELL);
  pen.globalAlpha = 1;
  if (size.cell < NUMBERED) return;
  shown.forEach((row, r) => {
    const { top } = extents[r] ?? { top: 1 };
    const rowLooks = looks[r] ?? [];
    const whole = peak(rows[r] ?? []);
    write(
      state,
      pen,
      row,
      (value, i) => (Number.isNaN(value) ? "" : amountText(value, apart[i] ? whole : top)),
      () => r * ROW + ROW / 2,
      (i) => (!apart[i] && rowLooks[i]?.flips ? flipped : back),
    );
  });
}

function drawBars(state: PictureState, [first, second]: Pair): number {
  const { ctx, size } = state;
  const { content } = state.explanations;
  const all = difference(content[first] as Float32Array, content[second] as Float32Array);
  const pen = sharpCanvas(state.bars, size.plot, size.bars);
  if (!pen) return 0;
  let [low, high, sum] = [0, 0, 0];
  for (const value of all) {
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value || 0;
  }
  const inside = size.bars - 2 * MARGIN;
  const zero = MARGIN + (high / (high - low || 1)) * inside;
  const colours = barColours(ctx.theme, filtersOf(ctx).palette);
  const gap = size.cell > 8 ? size.cell * 0.14 : 0;
  const heights = all.map((value) => ((value || 0) / (high - low || 1)) * inside);
  const wide = Math.max(1, size.cell - 2 * gap);
  // Setting a colour takes longer than drawing a bar.
  for (const sign of [1, -1]) {
    pen.fillStyle = sign > 0 ? colours.for : colours.against;
    heights.forEach((height, i) => {
      if (height * sign > 0) pen.fillRect(i * size.cell + gap, zero - Math.max(0, height), wide, Math.abs(height));
    });
  }
  const ink = styleValue(ctx, state.element, "color");
  pen.fillStyle = ink;
  pen.globalAlpha = 0.5;
  pen.fillRect(0, Math.round(zero), size.plot, 1);
  pen.globalAlpha = 1;
  const top = Math.max(high, -low);
  if (size.cell >= NUMBERED)
    write(
      state,
      pen,
      all,
      (value) => (value ? `${value > 0 ? "+" : ""}${amountText(value, top)}` : ""),
      (i) => zero - (heights[i] ?? 0) + ((all[i] ?? 0) > 0 ? -8 : 9),
      () => ink,
    );
  return sum;
}

/** The share of a row's magnitudes that elements apart hold, and the sum of the row. */
function finish(state: PictureState): void {
  const { rows, apart } = state.explanations;
  const some = apart.some(Boolean);
  setFlag(state.element, "data-apart", some);
  state.lines.forEach((end, r) => {
    const row = rows[r] ?? new Float32Array();
    const [, share, sum] = [...end.children] as [HTMLElement, HTMLElement, HTMLElement];
    const size = (keep: (i: number) => boolean): number =>
      row.reduce((total, value, i) => total + (keep(i) ? Math.abs(value) || 0 : 0), 0);
    const part = some ? size((i) => Boolean(apart[i])) / (size(() => true) || 1) : 0;
    if (!share.firstElementChild) setChildren(share, h("i"));
    setStyles(share.firstElementChild as HTMLElement, { width: `${(100 * part).toFixed(1)}%` });
    assign(share, { title: `special tokens account for ${(100 * part).toFixed(1)} % of its magnitudes` });
    setText(
      sum,
      printed(
        row.reduce((total, value) => total + (value || 0), 0),
        false,
      ),
    );
  });
  const [, share, sum] = state.heads.children;
  setText(share as Element, some ? "special" : "");
  setText(sum as Element, "sum");
}

function draw(state: PictureState): void {
  const { drawn } = state;
  const { meta } = state.explanations;
  if (!drawn || !meta || state.size.width <= 0) return;
  const [pair, open] = drawn;
  build(state, meta);
  layout(state, meta.names.length);
  drawCells(state);
  const total = drawBars(state, pair);
  setText(state.minus, `${pair[0] + 1} − ${pair[1] + 1}`);
  setText(state.sums.lastElementChild as Element, Math.abs(total) < LEAST ? "" : printed(total, false));
  finish(state);
  [...state.names.children].forEach((name, i) => {
    setFlag(name, "data-paired", pair.includes(i));
    assign(name as HTMLElement, { ariaPressed: String(i === open) });
  });
}

function showMarks(state: PictureState): void {
  const { size, marked } = state;
  if (!marked) return;
  const [key, query, words] = marked;
  state.labels.mark(key, query);
  setBox(state.mark, key < 0 ? -1 : size.left + key * size.cell, 0, Math.max(2, size.cell), size.height);
  setText(state.heads.firstElementChild as Element, key < 0 ? "largest" : "value");
  for (const [row, end] of state.lines.entries()) setText(end.firstElementChild as Element, words(row));
}
