/** The maps of both texts side by side over the same columns, and their difference. */

import { colourAt, heatMap, SCALE, scalePosition, type Theme } from "../../../colour.ts";
import {
  density,
  h,
  on,
  onResize,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
  shortLabel,
  spotAt,
} from "../../../dom.ts";
import { tickText } from "../../../numbers.ts";
import type { Filters } from "../../../wire/viewState.ts";
import type { Columns, Rows } from "./texts.ts";

export interface ShownMaps {
  names: readonly [string, string];
  matrices: Rows;
  shape: readonly [number, number];
  /** The first columns of queries and keys in the matrices. */
  first: readonly [number, number];
  queries: Columns;
  keys: Columns;
  /** Whether special tokens are left out. */
  leavesOut: boolean;
  theme: Theme;
  filters: Filters;
}

export interface MapsEvents {
  /** -1, -1: nothing. */
  hover(query: number, key: number): void;
  pin(query: number, key: number): void;
}

export interface MapsPicture {
  element: HTMLElement;
  draw(shown: ShownMaps): void;
  mark(query: number, key: number): void;
}

/**
 * px: the room of the queries' and of the keys' names, the least side of a cell with a name, the gap between maps and
 * their headings.
 */
const [NAMES, OVER, NAMED, GAP, HEADING] = [76, 64, 12, 12, 20];

/** Its elements, and the state that they show. */
interface MapsState {
  readonly sides: {
    keys: HTMLDivElement;
    canvas: HTMLCanvasElement;
    mark: HTMLDivElement;
    heading: HTMLElement;
    scale: HTMLSpanElement;
    plot: HTMLDivElement;
    element: HTMLDivElement;
  }[];
  readonly names: HTMLDivElement;
  readonly element: HTMLDivElement;
  /** The drawn maps; null before the first. */
  shown: ShownMaps | null;
  /** The rows and columns that are drawn, of those that are aligned. */
  rows: number[];
  cols: number[];
  /** The marked row and column; -1: none. */
  marked: readonly [number, number];
  readonly size: { width: number; height: number };
}

export function createMaps(signal: AbortSignal, events: MapsEvents): MapsPicture {
  const sides = [0, 1, 2].map(() => {
    const [canvas, mark, heading, scale] = [h("canvas"), h("div.two-cross"), h("b"), h("span.dim")];
    const plot = h("div.two-plot", canvas, mark);
    const keys = h("div.two-keys", { "aria-hidden": "true" });
    return {
      keys,
      canvas,
      mark,
      heading,
      scale,
      plot,
      element: h("div.two-map", h("div.two-heading", heading, scale), keys, plot),
    };
  });
  const names = h("div.two-queries");
  const element = h("div.two-maps", names, ...sides.map((side) => side.element));
  const size = { width: 0, height: 0 };

  const state: MapsState = {
    sides,
    names,
    element,
    shown: null,
    rows: [],
    cols: [],
    marked: [-1, -1],
    size,
  };

  for (const { plot } of sides) {
    const at = (event: MouseEvent): [number, number] => {
      const spot = spotAt(event, plot, state.rows.length, state.cols.length);
      if (!spot || !state.shown) return [-1, -1];
      return [state.shown.first[0] + (state.rows[spot[0]] ?? 0), state.shown.first[1] + (state.cols[spot[1]] ?? 0)];
    };
    on(plot, signal, {
      pointermove: (event) => events.hover(...at(event)),
      pointerleave: () => events.hover(-1, -1),
      click(event) {
        const [query, key] = at(event);
        if (query >= 0) events.pin(query, key);
      },
    });
  }
  onResize(element, signal, ({ width, height }) => {
    if (size.width === Math.floor(width) && size.height === Math.floor(height)) return;
    [size.width, size.height] = [Math.floor(width), Math.floor(height)];
    if (state.shown) draw(state, state.shown);
  });
  return {
    element,
    draw: (now) => draw(state, now),
    mark(...at) {
      state.marked = at;
      showMark(state);
    },
  };
}

/** Columns that are drawn, as numbers within the matrices. */
function shownElements({ special }: Columns, first: number, count: number, leavesOut: boolean): number[] {
  const all = Array.from({ length: count }, (_, i) => i);
  const content = all.filter((i) => !special[first + i]);
  return leavesOut && content.length > 0 ? content : all;
}

function nameOf({ labels: [first, other], same }: Columns, column: number): HTMLElement {
  const label = first[column] || other[column] || "";
  const name = h("span", h("bdi", shortLabel(label.replace(/^[␣▁]/, ""), 16)));
  setFlag(name, "data-differs", !same[column]);
  return name;
}

function draw(state: MapsState, now: ShownMaps): void {
  const { sides, element, size } = state;
  state.shown = now;
  if (size.width <= 0) return;
  state.rows = shownElements(now.queries, now.first[0], now.shape[0], now.leavesOut);
  state.cols = shownElements(now.keys, now.first[1], now.shape[1], now.leavesOut);
  const roomy = size.width >= 560 && (size.height - HEADING) / state.rows.length >= NAMED;
  const left = roomy ? NAMES : 0;
  const wide = (size.width - left - 2 * GAP - (left ? GAP : 0)) / 3;
  const sideBelow = (over: number): number => Math.max(40, Math.floor(Math.min(wide, size.height - HEADING - over)));
  const over = roomy && sideBelow(OVER) / Math.max(state.rows.length, state.cols.length) >= NAMED ? OVER : 0;
  setSizes(element, { side: sideBelow(over), names: left, over });
  setFlag(element, "data-named", roomy);
  setChildren(state.names, ...(roomy ? state.rows : []).map((row) => nameOf(now.queries, now.first[0] + row)));
  for (const { keys } of sides)
    setChildren(keys, ...(over ? state.cols : []).map((col) => nameOf(now.keys, now.first[1] + col)));
  const top = (values: Float32Array): number => {
    let most = 0;
    for (const row of state.rows) {
      for (const col of state.cols) most = Math.max(most, Math.abs(values[row * now.shape[1] + col] ?? 0));
    }
    return most;
  };
  const tops = now.matrices.map(top) as [number, number, number];
  const common = Math.max(tops[0], tops[1]);
  sides.forEach((part, i) => {
    const values = now.matrices[i] as Float32Array;
    const signed = i === 2 || values.some((value) => value < 0);
    const most = i === 2 ? tops[2] : common;
    const name = now.names[i as 0 | 1] ?? `${now.names[0]} − ${now.names[1]}`;
    setText(part.heading, name);
    setText(part.scale, signed ? `±${tickText(most)}` : `0 to ${tickText(most)}`);
    paint(state, part.canvas, values, most, signed, sideBelow(over), now);
    part.canvas.role = "img";
    part.canvas.ariaLabel = `${name}: map of ${state.rows.length} by ${state.cols.length} columns`;
  });
  showMark(state);
}

function paint(
  state: MapsState,
  canvas: HTMLCanvasElement,
  values: Float32Array,
  top: number,
  signed: boolean,
  side: number,
  now: ShownMaps,
): void {
  const { rows, cols } = state;
  const pixels = Math.round(side * density());
  [canvas.width, canvas.height] = [pixels, pixels];
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const map = heatMap(signed, now.theme, now.filters.palette);
  const mode = now.filters.scale || SCALE;
  const [wide, high] = [pixels / cols.length, pixels / rows.length];
  rows.forEach((row, r) => {
    cols.forEach((col, c) => {
      const value = values[row * now.shape[1] + col] ?? 0;
      if (!value || !top) return;
      const at = signed ? scalePosition(value / top, [-1, 1], mode) : scalePosition(value / top, [0, 1], mode);
      pen.fillStyle = `rgb(${colourAt(map, at).join(" ")})`;
      const [x, y] = [Math.floor(c * wide), Math.floor(r * high)];
      pen.fillRect(x, y, Math.ceil((c + 1) * wide) - x, Math.ceil((r + 1) * high) - y);
    });
  });
  // Where the texts differ.
  pen.strokeStyle = getComputedStyle(state.element).color;
  pen.globalAlpha = 0.55;
  pen.setLineDash([3 * density(), 3 * density()]);
  const edge = (columns: Columns, first: number, drawn: readonly number[], line: (at: number) => void): void => {
    for (let i = 0; i <= drawn.length; i += 1) {
      const [before, after] = [drawn[i - 1], drawn[i]].map((element) =>
        element === undefined ? 1 : (columns.same[first + element] ?? 1),
      );
      if (before !== after) line(i);
    }
  };
  pen.beginPath();
  edge(now.keys, now.first[1], cols, (i) => {
    pen.moveTo(Math.round(i * wide), 0);
    pen.lineTo(Math.round(i * wide), pixels);
  });
  edge(now.queries, now.first[0], rows, (i) => {
    pen.moveTo(0, Math.round(i * high));
    pen.lineTo(pixels, Math.round(i * high));
  });
  pen.stroke();
}

function showMark(state: MapsState): void {
  const { rows, cols } = state;
  const [query, key] = state.marked;
  const first = state.shown?.first ?? [0, 0];
  const [row, col] = [rows.indexOf(query - first[0]), cols.indexOf(key - first[1])];
  for (const { mark } of state.sides) {
    mark.hidden = row < 0 && col < 0;
    setStyles(mark, {
      left: `${col < 0 ? 0 : (100 * col) / cols.length}%`,
      top: `${row < 0 ? 0 : (100 * row) / rows.length}%`,
      width: `${col < 0 ? 100 : 100 / cols.length}%`,
      height: `${row < 0 ? 100 : 100 / rows.length}%`,
    });
  }
}
