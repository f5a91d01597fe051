/**
 * Tokens at both ends, layers up the left side, and two canvases between: the front canvas for the followed token. A
 * long text is shown in part, around the followed token.
 */

import { assign, density, h, on, setFlag, setSizes, setStyles } from "../../../dom.ts";
import type { Axis } from "../../../wire/wire.ts";
import type { Cells } from "../../base/chosen.ts";
import type { Picture } from "../../base/gestures.ts";
import { type AxisLabels, createLabels, labelRoom, slantHeight } from "../../maps/labels.ts";
import { BARS, type Grid } from "./paint.ts";

/** px: least width of a token, so that each can have a label, and the largest. */
const [NARROWEST, WIDEST] = [14, 110];
/** px: the largest distance between layers, and room for labels. */
const [HIGHEST, MOST_LABEL] = [56, 72];
/** px of a flat label, and of the gaps between the parts. */
const [FLAT, LABEL, GAPS] = [18, 14, 8];
/** The largest side of a canvas, in dots, that browsers draw. */
const MOST_DOTS = 16000;
/** Distance in px that the current token keeps from the edge. */
const MARGIN = 60;

/** A token at a level: after that many layers. */
export interface Spot {
  level: number;
  token: number;
}

export interface Figure {
  element: HTMLElement;
  plot: HTMLElement;
  base: HTMLCanvasElement;
  front: HTMLCanvasElement;
  /** As of the last layout. */
  grid: Grid;
  /**
   * Fit the figure into a width and a height; `names` are those of the levels, the last first. Returns whether
   * everything has to be redrawn.
   */
  layout(names: readonly string[], axis: Axis, width: number, height: number): boolean;
  /** The token at a position on the page. */
  find(event: MouseEvent): Spot | null;
  /**
   * Show the front canvas with a mark on a token; label its layer and token, the selected layer and the pinned token.
   */
  follow(spot: Spot | null, layer: number, over: number | undefined, pinned: number | undefined): void;
  /** All tokens as a picture of columns, and their size. */
  picture: Picture;
  cells(): Cells;
  /** Scroll a token into view. */
  reach(token: number): void;
  /** The first visible token, and the first after the visible tokens. */
  window(): [start: number, stop: number];
}

/** Its elements, and the state that they show. */
interface FlowFigureState {
  readonly base: HTMLCanvasElement;
  readonly front: HTMLCanvasElement;
  readonly mark: HTMLDivElement;
  readonly plot: HTMLDivElement;
  readonly left: AxisLabels;
  readonly top: AxisLabels;
  readonly bottom: AxisLabels;
  readonly figure: HTMLDivElement;
  readonly element: HTMLDivElement;
  /** The input of the current sizes and labels. */
  laidOut: string;
  /** The number of levels and of tokens. */
  levels: number;
  tokens: number;
  /** px between levels, and of a token. */
  gap: number;
  across: number;
  /** Scroll position in px: cached, since reading it forces layout. */
  scrolledTo: number;
  readonly grid: { cell: number; x: (token: number) => number; y: (level: number) => number };
}

/** `scrolled` is called when other tokens become visible. */
export function createFigure(signal: AbortSignal, scrolled: () => void): Figure {
  const [base, front] = [h("canvas.flow-base"), h("canvas.flow-front")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "graph of tokens by layers" };
  const mark = h("div.flow-spot.overlaid");
  const plot = h("div.flow-plot", role, base, front, mark);
  const [left, top, bottom] = [createLabels("left"), createLabels("top"), createLabels("top")];
  bottom.element.classList.add("aw-flow-bottom");
  const figure = h("div.flow-figure", h("i"), top.element, left.element, plot, h("i"), bottom.element);
  const element = h("div.flow-scroll", figure);
  const grid = {
    cell: 0,
    x: (token: number): number => (token + 0.5) * grid.cell,
    y: (level: number): number => (state.levels - level + 0.5) * state.gap,
  };

  const state: FlowFigureState = {
    base,
    front,
    mark,
    plot,
    left,
    top,
    bottom,
    figure,
    element,
    laidOut: "",
    levels: 0,
    tokens: 0,
    gap: 0,
    across: 0,
    scrolledTo: 0,
    grid,
  };
  on(element, signal, {
    scroll() {
      state.scrolledTo = element.scrollLeft;
      scrolled();
    },
  });
  return {
    element,
    plot,
    base,
    front,
    grid,
    layout: (names, axis, width, height) => layout(state, names, axis, width, height),
    find: (event) => find(state, event),
    follow: (spot, layer, over, pinned) => follow(state, spot, layer, over, pinned),
    picture: { element: plot, size: () => (state.tokens ? [1, state.tokens] : null) },
    cells: () => ({ rows: 1, cols: state.tokens, cellWidth: grid.cell, cellHeight: state.gap * (state.levels + 1) }),
    reach: (token) => reach(state, token),
    window() {
      const start = Math.max(0, Math.ceil(state.scrolledTo / grid.cell - 0.5));
      return [start, Math.min(state.tokens, Math.floor((state.scrolledTo + state.across) / grid.cell + 0.5))];
    },
  };
}

/** Hide the names beneath a highlighted name. */
function clear(side: HTMLElement): void {
  const all = [...side.children] as HTMLElement[];
  const over = all.filter((label) => label.matches(".aw-lab-over:not([hidden])"));
  const near = (a: HTMLElement, b: HTMLElement): boolean =>
    Math.abs(Number.parseFloat(a.style.top) - Number.parseFloat(b.style.top)) < LABEL;
  for (const label of all) {
    const isBeneath = !label.matches(".aw-lab-over") && over.some((lifted) => near(lifted, label));
    setStyles(label, { visibility: isBeneath ? "hidden" : "visible" });
  }
}

function layout(state: FlowFigureState, names: readonly string[], axis: Axis, width: number, height: number): boolean {
  const { left } = state;
  const name = JSON.stringify([names, axis, width, height]);
  if (width <= 0 || name === state.laidOut) return false;
  state.laidOut = name;
  const style = getComputedStyle(left.element);
  const font = `${style.fontSize} ${style.fontFamily}`;
  state.levels = names.length - 1;
  state.tokens = axis.labels.length;
  const leftRoom = labelRoom(names, 24, font, 90);
  state.across = width - leftRoom - 4;
  const fitted = (wide: number): number => {
    const cell = Math.max(Math.min(NARROWEST, MOST_DOTS / state.tokens), Math.min(WIDEST, wide / state.tokens));
    return cell > 12 ? Math.floor(cell) : cell;
  };
  // Labels that are not flat extend beyond the last token.
  let cell = fitted(state.across);
  const long = labelRoom(axis.labels, cell, font, MOST_LABEL);
  const isFlat = long <= cell + 2;
  const room = isFlat ? FLAT : slantHeight(long);
  const over = isFlat ? 0 : Math.max(0, room - cell / 2);
  if (over) cell = fitted(state.across - over);
  const left_ = height - 2 * room - BARS - GAPS;
  state.gap = Math.max(4, Math.min(HIGHEST, left_ / names.length));
  left.layout({ labels: names, special: [], cell: state.gap, room: leftRoom });
  for (const side of [state.top, state.bottom]) side.layout({ ...axis, cell, room: isFlat ? cell : long, slant: true });
  const high = Math.round(state.gap * names.length) + BARS;
  const wide = Math.round(cell * state.tokens);
  setSizes(state.figure, {
    "flow-left": leftRoom,
    "flow-width": wide,
    "flow-height": high,
    "flow-labels": room,
    "flow-over": over,
  });
  for (const canvas of [state.base, state.front]) {
    const dots = Math.min(density(), MOST_DOTS / wide, MOST_DOTS / high);
    canvas.width = Math.round(wide * dots);
    canvas.height = Math.round(high * dots);
    canvas.getContext("2d")?.setTransform(dots, 0, 0, dots, 0, 0);
  }
  state.grid.cell = cell;
  return true;
}

function find(state: FlowFigureState, event: MouseEvent): { level: number; token: number } | null {
  const { levels } = state;
  const box = state.plot.getBoundingClientRect();
  const token = Math.floor((event.clientX - box.left) / state.grid.cell);
  const level = levels - Math.floor((event.clientY - box.top) / state.gap);
  return token < 0 || token >= state.tokens || level > levels ? null : { level: Math.max(0, level), token };
}

function follow(
  state: FlowFigureState,
  spot: Spot | null,
  layer: number,
  over: number | undefined,
  pinned: number | undefined,
): void {
  const { mark, left, levels, grid } = state;
  left.mark(spot ? levels - spot.level : undefined, levels - 1 - layer);
  clear(left.element);
  state.top.mark(spot?.token, pinned);
  state.bottom.mark(over, undefined);
  setFlag(state.plot, "data-followed", spot !== null);
  assign(state.front, { hidden: !spot });
  assign(mark, { hidden: !spot });
  if (spot) setStyles(mark, { transform: `translate(${grid.x(spot.token) - 6}px, ${grid.y(spot.level) - 6}px)` });
}

function reach(state: FlowFigureState, token: number): void {
  const { element, across, grid } = state;
  const at = grid.x(token) - state.scrolledTo;
  if (at >= MARGIN && at <= across - MARGIN) return;
  element.scrollLeft = grid.x(token) - across / 2;
  state.scrolledTo = element.scrollLeft;
}
