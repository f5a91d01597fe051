/** The canvas of a HeadView: lines between tokens, and a bar for each head behind the tokens of a side. */
import { type Mode, scalePosition, valueAt } from "../../colour.ts";
import { density } from "../../dom.ts";
import type { Edge, Side, Values } from "./pairs.ts";
import type { Rows } from "./rows.ts";
import type { Token } from "./token.ts";

/** The number of line strengths that are drawn: each is a single stroke for all lines of a head. */
const LEVELS = 10;
/** Weaker lines would be invisible. */
const FAINTEST = 0.03;
/** Height of a bar, and the width of the value next to it. */
const [BAR, VALUE] = [10, 52];

/** How long a bar can be in a lane of this width. */
export const barRoom = (lane: number): number => Math.max(0, lane - 8 - VALUE);

/** Geometry in px. */
export interface Layout {
  width: number;
  height: number;
  row: number;
  /** Lines from `left` to `right`. */
  left: number;
  right: number;
  /** Width of the bars and values beyond the tokens of each side. */
  lanes: Record<Side, number>;
  rows: Record<Side, Rows>;
}

export interface Style {
  /** By index among the shown heads. */
  colours: readonly string[];
  /** Colours of negative and positive values, if values are signed. */
  signs: readonly [string, string] | null;
  /** The value of the strongest line. */
  top: number;
  /** The colour of elements apart. */
  apart: string;
  mode: Mode | "";
  /** The only head that is drawn in full; -1: all. */
  only: number;
}

/** By strength and colour: triples of query, key and offset from the middle of their rows. */
type Lines = number[][];

interface Scroll {
  query: number;
  key: number;
}

/** Its elements, and the state that they show. */
interface LinesState {
  readonly canvas: HTMLCanvasElement;
  readonly pen: CanvasRenderingContext2D;
  /** The geometry; null until it is set. */
  layout: Layout | null;
  /** The style of the next drawing, and the range of its values. */
  style: Style;
  range: readonly [number, number];
  /** The size of the faintest line. */
  least: number;
}

export function createLines(canvas: HTMLCanvasElement) {
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;

  const state: LinesState = {
    canvas,
    pen,
    layout: null,
    style: { colours: [], signs: null, top: 1, apart: "", mode: "", only: -1 },
    range: [0, 1],
    least: 0,
  };
  return {
    layout: (now: Layout) => layout(state, now),
    /** Set the style of the next drawing. */
    style(now: Style): void {
      state.style = now;
      state.range = [0, now.top];
      state.least = valueAt(FAINTEST, state.range, now.mode || "sqrt");
    },
    clear(): void {
      if (state.layout) pen.clearRect(0, 0, state.layout.width, state.layout.height);
    },
    look: (at: Token, values: Values, scroll: Scroll, most: number) => look(state, at, values, scroll, most),
    edges: (strongest: readonly Edge[], scroll: Scroll) => edges(state, strongest, scroll),
    apart: (given: ReadonlyMap<number, number>, scroll: Scroll, most: number) => apart(state, given, scroll, most),
  };
}

function strength(state: LinesState, value: number): number {
  return scalePosition(Math.abs(value), state.range, state.style.mode || "sqrt");
}

function colours(state: LinesState): readonly string[] {
  return state.style.signs ?? state.style.colours;
}

/** Index of a value's colour. */
function colourOf(state: LinesState, head: number, value: number): number {
  return state.style.signs ? Number(value > 0) : head;
}

/** Lines of different heads start side by side. */
function shift(state: LinesState, head: number, row: number): number {
  const heads = state.style.colours.length;
  const gap = Math.min(1.8, (row - 7) / Math.max(1, heads - 1));
  return heads > 1 ? (head - (heads - 1) / 2) * gap : 0;
}

/**
 * Lines of the same strength and colour share a stroke; the weakest come first, so that none covers a stronger line.
 */
function stroke(
  state: LinesState,
  { left, right, row, rows }: Layout,
  lines: Lines,
  scroll: Scroll,
  soft: number,
): void {
  const { pen } = state;
  const bend = (right - left) * 0.42;
  lines.forEach((pairs, index) => {
    const share = (Math.floor(index / colours(state).length) + 0.5) / LEVELS;
    pen.strokeStyle = colours(state)[index % colours(state).length] as string;
    pen.globalAlpha = Math.min(1, soft * (0.1 + 0.9 * share));
    pen.lineWidth = 0.6 + 4.4 * share * share;
    pen.beginPath();
    for (let i = 0; i < pairs.length; i += 3) {
      const offset = pairs[i + 2] as number;
      const [query, key] = [rows.query.rowOf[pairs[i] as number], rows.key.rowOf[pairs[i + 1] as number]];
      const from = ((query as number) + 0.5) * row - scroll.query + offset;
      const to = ((key as number) + 0.5) * row - scroll.key + offset;
      pen.moveTo(left, from);
      pen.bezierCurveTo(left + bend, from, right - bend, to, right, to);
    }
    pen.stroke();
  });
  pen.globalAlpha = 1;
}

function add(
  state: LinesState,
  lines: Lines,
  head: number,
  value: number,
  query: number,
  key: number,
  offset: number,
): void {
  const level = Math.min(LEVELS - 1, Math.floor(strength(state, value) * LEVELS));
  const at = level * colours(state).length + colourOf(state, head, value);
  const line = lines[at];
  if (line) line.push(query, key, offset);
  else lines[at] = [query, key, offset];
}

/** Call with every row of a side that is in view: its element, and the top of the row. */
function eachRow(
  { rows, row, height }: Layout,
  side: Side,
  scroll: Scroll,
  draw: (i: number, y: number) => void,
): void {
  const { shown } = rows[side];
  const top = scroll[side];
  const last = Math.min(shown.length, Math.ceil((top + height) / row));
  for (let at = Math.max(0, Math.floor(top / row)); at < last; at += 1) draw(shown[at] as number, at * row - top);
}

/** The values of a head as bars, full at `most`; of several heads, a bar for each in every row. */
function bars(state: LinesState, now: Layout, values: Values, side: Side, scroll: Scroll, most: number): void {
  const { pen, style } = state;
  const { width, row, lanes } = now;
  const lane = lanes[side] - 6;
  const start = side === "query" ? 0 : width - lane;
  if (values.length === 1) {
    const room = barRoom(lanes[side]);
    const [received] = values;
    eachRow(now, side, scroll, (i, y) => {
      const value = received?.[i] as number;
      if (Number.isNaN(value) || !received || room <= 0) return;
      pen.fillStyle = colours(state)[colourOf(state, 0, value)] as string;
      pen.fillRect(start, y + row / 2 - BAR / 2, Math.max(1, (Math.abs(value) / most) * room), BAR);
    });
    return;
  }
  const slot = lane / Math.max(1, values.length);
  const wide = slot > 5 ? slot - 2 : Math.max(1, slot - 0.6);
  const tall = row - 5;
  pen.fillStyle = style.apart;
  pen.globalAlpha = 0.4;
  // A bar of zero is a thin line; masked or hidden values have none.
  eachRow(now, side, scroll, (i, y) => {
    if (values.some((received) => received && !Number.isNaN(received[i] ?? Number.NaN)))
      pen.fillRect(start, y + row - 3, lane - 2, 1);
  });
  values.forEach((received, head) => {
    if (!received) return;
    pen.globalAlpha = style.only < 0 || style.only === head ? 1 : 0.15;
    eachRow(now, side, scroll, (i, y) => {
      const value = received[i] as number;
      const size = strength(state, value);
      if (!(size > 0.02)) return;
      pen.fillStyle = colours(state)[colourOf(state, head, value)] as string;
      pen.fillRect(start + head * slot, y + row - 2 - size * tall, wide, size * tall);
    });
  });
  pen.globalAlpha = 1;
}

/** Set the geometry; this clears the canvas. */
function layout(state: LinesState, now: Layout): void {
  const { canvas } = state;
  state.layout = now;
  const dots = Math.min(2, density());
  [canvas.width, canvas.height] = [Math.round(now.width * dots), Math.round(now.height * dots)];
  canvas.style.width = `${now.width}px`;
  canvas.style.height = `${now.height}px`;
  state.pen.setTransform(dots, 0, 0, dots, 0, 0);
}

/** A token: all its lines, and the bars of the other side, full at `most`. */
function look(state: LinesState, { side, index, other }: Token, values: Values, scroll: Scroll, most: number): void {
  const { layout, style } = state;
  if (!layout) return;
  const { rows, row } = layout;
  const otherSide = side === "query" ? "key" : "query";
  bars(state, layout, values, otherSide, scroll, most);
  if ((rows[side].rowOf[index] ?? -1) < 0) return;
  const [plain, strong]: [Lines, Lines] = [[], []];
  const { rowOf } = rows[otherSide];
  values.forEach((received, head) => {
    if (!received || (style.only >= 0 && style.only !== head)) return;
    const offset = shift(state, head, row);
    for (let i = 0; i < received.length; i += 1) {
      const value = received[i] as number;
      if (!(Math.abs(value) >= state.least) || (rowOf[i] as number) < 0) continue;
      const [query, key] = side === "query" ? [index, i] : [i, index];
      add(state, other === i ? strong : plain, head, value, query, key, offset);
    }
  });
  stroke(state, layout, plain, scroll, other < 0 ? 1 : 0.35);
  stroke(state, layout, strong, scroll, 1);
}

/** A few lines of every token, drawn faintly. */
function edges(state: LinesState, strongest: readonly Edge[], scroll: Scroll): void {
  const { layout, style } = state;
  if (!layout) return;
  const lines: Lines = [];
  for (const { head, value, query, key } of strongest) {
    if ((style.only < 0 || style.only === head) && Math.abs(value) >= state.least)
      add(state, lines, head, value, query, key, shift(state, head, layout.row));
  }
  stroke(state, layout, lines, scroll, 0.4);
}

/** The weight of every query on the elements apart, full at `most`. */
function apart(state: LinesState, given: ReadonlyMap<number, number>, scroll: Scroll, most: number): void {
  const { pen, layout } = state;
  if (!layout) return;
  const { lanes, row } = layout;
  const room = lanes.query - 12;
  pen.fillStyle = state.style.apart;
  eachRow(layout, "query", scroll, (i, y) => {
    const value = given.get(i);
    if (value === undefined || room <= 0) return;
    pen.fillRect(0, y + row / 2 - BAR / 2, Math.max(1, Math.min(1, Math.abs(value) / most) * room), BAR);
  });
}
