/**
 * Two rows of cells over aligned columns, and the bars of their difference below: corresponding elements of both texts
 * share a column, and the columns in which they differ are framed. Of long texts only the visible columns are drawn.
 */

import type { Theme } from "../../../colour.ts";
import { barColours, SCALE } from "../../../colour.ts";
import {
  h,
  keyboard,
  on,
  onResize,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
  shortLabel,
} from "../../../dom.ts";
import type { Filters } from "../../../wire/viewState.ts";
import { fills } from "../../text/stripColour.ts";
import type { Columns, Rows } from "./texts.ts";
import { cellText, signedText } from "./words.ts";

/** The data of the rows. */
export interface Shown {
  columns: Columns;
  names: readonly [string, string];
  /** The original values, and the values with NaN where they are hidden. */
  rows: Rows;
  filtered: Rows;
  /** Columns without colour and without a part in the scale. */
  apart: readonly boolean[];
  top: number;
  isSigned: boolean;
  theme: Theme;
  filters: Filters;
  /** At the right: the headings of the columns, and the totals of A, of B and of their difference. */
  totals: { heads: readonly string[]; rows: readonly (readonly string[])[] };
}

export interface RowsEvents {
  hover(column: number): void;
  pin(column: number): void;
  /** Pin the next column that differs (1), or the previous (-1). */
  step(by: number, differing: boolean): void;
}

export interface RowsPicture {
  element: HTMLElement;
  draw(shown: Shown): void;
  /** Mark the pinned column, that under the pointer and that of the query; -1: none. */
  mark(pinned: number, over: number, query: number): void;
  /** Scroll a column into sight. */
  reveal(column: number): void;
}

/** px: the narrowest and the widest column, and that from which the numbers of bars have three digits. */
const [NARROWEST, WIDEST, LONG] = [34, 76, 46];
/** Number of columns drawn beyond the visible ones. */
const BEYOND = 3;
/** Share of the scale below which a difference is described only as small. */
const LEAST = 1e-3;
/** px: the margin of a bar's number above or below it. */
const NUMBER = 16;

/** Its elements, and the state that they show. */
interface RowsState {
  readonly layer: HTMLDivElement;
  readonly spacer: HTMLDivElement;
  readonly scroll: HTMLDivElement;
  readonly first: HTMLElement;
  readonly second: HTMLElement;
  readonly minus: HTMLElement;
  readonly totals: HTMLDivElement;
  readonly element: HTMLDivElement;
  /** The drawn data; null before the first. */
  shown: Shown | null;
  /** The columns that are pinned, hovered and opened; -1: none. */
  marks: readonly [number, number, number];
  /** The column to scroll to once there is room; -1: none. */
  revealed: number;
  /** The elements of the visible columns. */
  drawn: Map<number, HTMLElement>;
  readonly size: {
    width: number;
    height: number;
    room: number;
    cell: number;
    bars: number;
    zero: number;
    unit: number;
  };
}

export function createRows(signal: AbortSignal, events: RowsEvents): RowsPicture {
  const layer = h("div.two-columns");
  const spacer = h("div.two-spacer", layer);
  const scroll = h("div.two-scroll", { tabindex: "0", role: "group" }, spacer);
  const [first, second, minus] = [h("b"), h("b"), h("b")];
  const names = h("div.two-names", first, second, minus);
  const totals = h("div.two-totals");
  const element = h("div.two-rows", names, scroll, totals);
  const size = { width: 0, height: 0, room: 0, cell: WIDEST, bars: 100, zero: 50, unit: 0 };

  const state: RowsState = {
    layer,
    spacer,
    scroll,
    first,
    second,
    minus,
    totals,
    element,
    shown: null,
    marks: [-1, -1, -1],
    revealed: -1,
    drawn: new Map<number, HTMLElement>(),
    size,
  };
  on(scroll, signal, {
    scroll: () => fillSight(state),
    pointermove: (event) => events.hover(columnAt(state, event)),
    pointerleave: () => events.hover(-1),
    click(event) {
      const column = columnAt(state, event);
      if (column >= 0) events.pin(column);
    },
  });
  keyboard(
    scroll,
    signal,
    {
      ArrowLeft: () => events.step(-1, false),
      ArrowRight: () => events.step(1, false),
      n: () => events.step(1, true),
      p: () => events.step(-1, true),
      Escape: () => state.marks[0] >= 0 && events.pin(state.marks[0]),
    },
    "← →: column · n p: next, previous difference · Esc: unpin",
  );
  // The room of the bars: elements below or next to them may grow at any time.
  onResize(scroll, signal, ({ width, height }) => {
    if (size.width === Math.floor(width) && size.height === Math.floor(height)) return;
    [size.width, size.height] = [Math.floor(width), Math.floor(height)];
    if (state.shown) draw(state, state.shown);
  });
  return {
    element,
    draw: (now) => draw(state, now),
    mark(...now) {
      state.marks = now;
      showMarks(state);
    },
    reveal: (column) => reveal(state, column),
  };
}

function columnAt(state: RowsState, event: MouseEvent): number {
  const { shown } = state;
  const { left } = state.spacer.getBoundingClientRect();
  const column = Math.floor((event.clientX - left) / state.size.cell);
  return shown && column >= 0 && column < shown.columns.same.length ? column : -1;
}

function layout(state: RowsState, now: Shown): void {
  const { scroll, size } = state;
  const count = now.columns.same.length;
  const room = scroll.clientWidth;
  const middle = (scroll.scrollLeft + size.room / 2) / size.cell;
  // If the columns do not all fit, only whole columns are visible.
  const most = Math.max(1, Math.min(count, Math.floor(room / (count * NARROWEST <= room ? NARROWEST : LONG))));
  size.cell = Math.min(WIDEST, room / most);
  const finite = now.filtered[2].filter((value, i) => !Number.isNaN(value) && !now.apart[i]);
  let [low, high] = [0, 0];
  for (const value of finite) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const top = 20 + 30 + 22 + 30 + 8;
  size.bars = Math.max(64, scroll.clientHeight - top - 4);
  const inside = size.bars - 2 * NUMBER;
  size.unit = high > low ? inside / (high - low) : 0;
  size.zero = NUMBER + (high > low ? high * size.unit : inside / 2);
  setSizes(state.element, { cell: size.cell, wide: size.cell * count, bars: size.bars, zero: top + size.zero });
  // Columns of another width, or further columns: the columns in the middle stay in the middle.
  if (room !== size.room) scroll.scrollLeft = size.cell * Math.round(middle - room / size.cell / 2);
  size.room = room;
}

function label(now: Shown, side: 0 | 1, column: number): HTMLElement {
  const has = (now.columns.elements[column]?.[side] ?? -1) >= 0;
  const text = now.columns.labels[side][column] ?? "";
  const el = h("span.two-label.clip.fine", has ? h("bdi", shortLabel(text.replace(/^[␣▁]/, "") || text, 24)) : "–");
  if (has) el.title = shortLabel(text, 200);
  setFlag(el, "data-none", !has);
  return el;
}

function cell(now: Shown, side: 0 | 1, column: number): HTMLElement {
  const has = (now.columns.elements[column]?.[side] ?? -1) >= 0;
  const value = now.filtered[side][column] ?? Number.NaN;
  const el = h("span.two-cell", has ? cellText(value, now.top) : "");
  setFlag(el, "data-none", !has);
  setFlag(el, "data-apart", Boolean(now.apart[column]));
  if (!has || now.apart[column] || Number.isNaN(value)) return el;
  const fill = fills(now.theme, now.isSigned, now.filters.palette, now.filters.scale || SCALE)(value / (now.top || 1));
  setStyles(el, { background: fill.css || "none" });
  setFlag(el, "data-flips", fill.flips);
  return el;
}

function bar(state: RowsState, now: Shown, column: number): HTMLElement[] {
  const { size } = state;
  const value = now.filtered[2][column] ?? Number.NaN;
  if (Number.isNaN(value)) return [];
  // The number of an invisible bar cannot be read.
  const isTiny = value !== 0 && Math.abs(value) < LEAST * now.top;
  const text = h("span.two-amount", isTiny ? "≈ 0" : signedText(value, size.cell < LONG ? 2 : 3));
  if (now.apart[column]) {
    setFlag(text, "data-apart", true);
    setStyles(text, { top: `${size.zero - NUMBER - 1}px` });
    return [text];
  }
  const colours = barColours(now.theme, now.filters.palette);
  const height = Math.abs(value) * size.unit;
  const fill = h("i.two-bar");
  setStyles(fill, {
    background: value > 0 ? colours.for : colours.against,
    height: `${Math.max(value ? 1 : 0, height)}px`,
    top: `${value > 0 ? size.zero - height : size.zero}px`,
  });
  setStyles(text, { top: `${value < 0 ? size.zero + height + 1 : size.zero - height - NUMBER - 1}px` });
  setFlag(text, "data-least", size.unit > 0 && height < 3);
  return [fill, text];
}

function build(state: RowsState, now: Shown, column: number): HTMLElement {
  const bars = h("div.two-bars", ...bar(state, now, column));
  const el = h(
    "div.two-column",
    label(now, 0, column),
    cell(now, 0, column),
    label(now, 1, column),
    cell(now, 1, column),
    bars,
  );
  setStyles(el, { left: `${column * state.size.cell}px` });
  const { same } = now.columns;
  if (!same[column]) {
    setFlag(el, "data-differs", true);
    setFlag(el, "data-from", Boolean(same[column - 1] ?? 1));
    setFlag(el, "data-to", Boolean(same[column + 1] ?? 1));
  }
  return el;
}

function fillSight(state: RowsState): void {
  const { scroll, shown, size } = state;
  if (!shown) return;
  const count = shown.columns.same.length;
  const from = Math.max(0, Math.floor(scroll.scrollLeft / size.cell) - BEYOND);
  const to = Math.min(count, Math.ceil((scroll.scrollLeft + scroll.clientWidth) / size.cell) + BEYOND);
  const cells = new Map<number, HTMLElement>();
  for (let column = from; column < to; column += 1)
    cells.set(column, state.drawn.get(column) ?? build(state, shown, column));
  state.drawn = cells;
  setChildren(state.layer, ...cells.values());
  showMarks(state);
}

function showMarks(state: RowsState): void {
  const [pinned, over, query] = state.marks;
  for (const [column, el] of state.drawn) {
    setFlag(el, "data-pinned", column === pinned);
    setFlag(el, "data-over", column === over);
    setFlag(el, "data-query", column === query);
  }
}

function draw(state: RowsState, now: Shown): void {
  const { minus } = state;
  state.shown = now;
  setText(state.first, now.names[0]);
  setText(state.second, now.names[1]);
  setText(minus, `${now.names[0]} − ${now.names[1]}`);
  const line = (texts: readonly string[], name: string): HTMLElement =>
    h("div.two-total", h("span.two-total-name", name), ...texts.map((text) => h("span", text)));
  const { heads, rows } = now.totals;
  const all = ["", now.names[0], now.names[1], minus.textContent ?? ""];
  setChildren(state.totals, ...[heads, ...rows].map((texts, i) => line(texts, all[i] as string)));
  state.element.style.setProperty("--aw-totals", String(heads.length));
  if (!state.scroll.clientWidth) return; // hidden: drawn once there is room again
  layout(state, now);
  if (state.revealed >= 0) reveal(state, state.revealed);
  state.drawn = new Map();
  fillSight(state);
}

function reveal(state: RowsState, column: number): void {
  const { scroll, size } = state;
  const left = column * size.cell;
  const { scrollLeft, clientWidth } = scroll;
  state.revealed = clientWidth ? -1 : column;
  if (!clientWidth) return;
  if (left >= scrollLeft && left + size.cell <= scrollLeft + clientWidth) return;
  scroll.scrollLeft = size.cell * Math.max(0, column - Math.floor((clientWidth / size.cell - 1) / 2));
}
