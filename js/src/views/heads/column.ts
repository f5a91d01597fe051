/** The tokens of a side as a scrolling column; only visible rows are nodes. */
import { assign, h, on, setFlag, setStyles, setText, shortLabel } from "../../dom.ts";
import { type Chosen, createChosen } from "../base/chosen.ts";
import { createPicking } from "../base/gestures.ts";
import type { Side } from "./pairs.ts";
import type { Rows } from "./rows.ts";

/** Rows created beyond the visible ones, so that small scrolls create none. */
const MORE = 6;

export interface Column {
  element: HTMLElement;
  /**
   * Rows `row` px high in a column of `width` x `height` px, of which `lane` is for bars and values; `off` is 0 for
   * excluded elements.
   */
  layout(rows: Rows, off: Uint8Array, sizes: { row: number; width: number; height: number; lane: number }): void;
  /** Scroll position in px. */
  top(): number;
  scrollTo(top: number): void;
  /** Scroll an element into view. */
  reveal(index: number): void;
  /** The element some rows further than another element; from none, counted from the top of the visible rows. */
  neighbour(index: number, by: number): number;
  /** First visible row, and the row after the last. */
  range(): [number, number];
  /** Write a value next to every element, the `strong` element bold; null: no values. */
  tell(textOf: ((index: number) => string) | null, strong: number): void;
  /**
   * Mark the current and pinned elements (-1: none), and elements that were not compared with the current element of
   * the other side.
   */
  mark(looked: number, pinned: number, isMasked: (index: number) => boolean): void;
  /** Outline the tokens chosen together, and draw the span. */
  choose(tokens: readonly number[], span: readonly [number, number] | null): void;
}

export interface ColumnEvents {
  hover(index: number): void;
  pin(index: number): void;
  /** Shift + click. */
  toggle(index: number): void;
  /** A drag, both ends included. */
  span(first: number, last: number): void;
  scrolled(): void;
}

/** Its elements, and the state that they show. */
interface ColumnState {
  readonly side: Side;
  readonly masked: HTMLDivElement;
  readonly pin: HTMLDivElement;
  readonly look: HTMLDivElement;
  readonly list: HTMLDivElement;
  readonly element: HTMLDivElement;
  readonly lines: { line: HTMLElement; name: HTMLElement; value: HTMLElement }[];
  /** The rows that are drawn, and those that are switched off. */
  shown: { rows: Rows; off: Uint8Array } | null;
  /** The numbers next to the labels; null: none. */
  values: { textOf: (index: number) => string; strong: number } | null;
  /** Whether a row is masked. */
  hides: (index: number) => boolean;
  /** px of a row and of the column, and the number of visible labels. */
  row: number;
  height: number;
  count: number;
  lane: number;
  /** Scroll position in px: cached, since reading it forces layout. */
  top: number;
  /** The input of the written labels. */
  drawnRows: string;
  readonly chosen: Chosen;
}

export function createColumn(side: Side, signal: AbortSignal, events: ColumnEvents): Column {
  const [masked, pin, look] = [h("div.hv-hatched"), h("div.hv-pin"), h("div.hv-look")];
  const list = h("div.hv-rows", masked, pin, look);
  const element = h(`div.hv-column.hv-${side}`, { role: "group", "aria-label": side }, list);
  const lines: { line: HTMLElement; name: HTMLElement; value: HTMLElement }[] = [];
  on(element, signal, {
    pointermove: (event) => events.hover(find(state, event)),
    pointerleave: () => events.hover(-1),
    click(event) {
      const at = find(state, event);
      if (at >= 0) events.pin(at);
    },
    scroll() {
      state.top = element.scrollTop;
      write(state);
      events.scrolled();
    },
  });
  createPicking(element, { element: list, size: () => [state.count, 1] }, signal, {
    along: "rows",
    toggle: ([at]) => events.toggle(elementAt(state, at)),
    drag: ([from], [to]) => events.span(elementAt(state, from), elementAt(state, to)),
  });
  const end = h("i");
  list.append(end);
  const chosen = createChosen(end);

  const state: ColumnState = {
    side,
    masked,
    pin,
    look,
    list,
    element,
    lines,
    shown: null,
    values: null,
    hides: () => false,
    row: 20,
    height: 0,
    count: 0,
    lane: 0,
    top: 0,
    drawnRows: "",
    chosen,
  };
  return {
    element,
    choose: (tokens, span) => choose(state, tokens, span),
    layout: (rows, off, sizes) => layout(state, rows, off, sizes),
    top: () => state.top,
    scrollTo: (to) => scrollTo(state, to),
    reveal: (index) => reveal(state, index),
    neighbour(index, by) {
      const at = index < 0 ? range(state)[0] - 1 : rowOf(state, index);
      return elementAt(state, Math.max(0, Math.min(state.count - 1, at + by)));
    },
    range: () => range(state),
    tell(textOf, strong) {
      state.values = textOf && { textOf, strong };
      writeValues(state);
    },
    mark: (looked, pinned, isMasked) => mark(state, looked, pinned, isMasked),
  };
}

function range(state: ColumnState): [number, number] {
  return [
    Math.max(0, Math.floor(state.top / state.row)),
    Math.min(state.count, Math.ceil((state.top + state.height) / state.row)),
  ];
}

/** The first row in the document, and the row after the last. */
function mounted(state: ColumnState): [number, number] {
  const [first, last] = range(state);
  return [Math.max(0, first - MORE), Math.min(state.count, last + MORE)];
}

function write(state: ColumnState): void {
  const { lines, shown } = state;
  if (!shown) return;
  const [from, to] = mounted(state);
  const name = `${from} ${to}`;
  if (name === state.drawnRows) return;
  state.drawnRows = name;
  const { rows, off } = shown;
  const { labels, special, segment, boundary } = rows.axis;
  while (lines.length < to - from) {
    const [label, value] = [h("span.hv-name"), h("span.hv-value")];
    const line = state.side === "query" ? h("div.hv-row", value, label) : h("div.hv-row", label, value);
    lines.push({ line, name: label, value });
    state.list.append(line);
  }
  lines.forEach(({ line, name: label }, i) => {
    const row = from + i;
    line.hidden = row >= to;
    if (line.hidden) return;
    const at = rows.shown[row] as number;
    const text = labels[at] as string;
    line.style.top = `${row * state.row}px`;
    setText(label, shortLabel(text, 48));
    line.title = shortLabel(text, 400);
    setFlag(line, "data-special", Boolean(special[at]));
    setFlag(line, "data-off", !off[at]);
    setFlag(line, "data-begins", at > 0 && (segment[at] !== segment[at - 1] || boundary === at));
  });
  writeValues(state);
  hatch(state);
}

function writeValues(state: ColumnState): void {
  const { values } = state;
  const [from, to] = mounted(state);
  state.lines.forEach(({ line, value }, i) => {
    if (from + i >= to) return;
    const index = state.shown?.rows.shown[from + i] as number;
    setText(value, values?.textOf(index) ?? "");
    setFlag(line, "data-strong", index === values?.strong);
  });
}

function scrollTo(state: ColumnState, to: number): void {
  const most = Math.max(0, state.row * state.count - state.height);
  const now = Math.max(0, Math.min(most, Math.round(to)));
  if (now === state.top) return;
  state.top = now;
  state.element.scrollTop = state.top;
  write(state);
}

/** The row of an element. */
function rowOf(state: ColumnState, index: number): number {
  return state.shown?.rows.rowOf[index] ?? -1;
}

/** How many rows there are before an element. */
function before(state: ColumnState, index: number): number {
  let at = 0;
  while (at < state.count && (state.shown?.rows.shown[at] as number) < index) at += 1;
  return at;
}

function band(state: ColumnState, el: HTMLElement, from: number, to: number = from + 1): void {
  const { row } = state;
  assign(el, { hidden: from < 0 || to <= from });
  setStyles(el, { top: `${from * row}px`, height: `${(to - from) * row}px` });
}

/** Hatch the masked rows in the document, a box for each run of rows. */
function hatch(state: ColumnState): void {
  const { masked } = state;
  const [first, end] = mounted(state);
  const is = (row: number): boolean => row < end && state.hides(state.shown?.rows.shown[row] as number);
  let made = 0;
  for (let from = first; from < end; from += 1) {
    if (!is(from)) continue;
    const start = from;
    while (is(from + 1)) from += 1;
    while (masked.childElementCount <= made) masked.append(h("div.hv-masked"));
    band(state, masked.children[made] as HTMLElement, start, from + 1);
    made += 1;
  }
  for (let i = made; i < masked.childElementCount; i += 1) band(state, masked.children[i] as HTMLElement, -1);
}

function find(state: ColumnState, event: MouseEvent): number {
  const at = Math.floor((event.clientY - state.element.getBoundingClientRect().top + state.top) / state.row);
  return at >= 0 && at < state.count ? (state.shown?.rows.shown[at] as number) : -1;
}

function elementAt(state: ColumnState, at: number): number {
  return state.shown?.rows.shown[at] ?? -1;
}

function choose(state: ColumnState, tokens: readonly number[], span: readonly [number, number] | null): void {
  const { row, lane } = state;
  const from = state.side === "query" ? lane : 0;
  const wide = tokens.length > 0 ? state.element.clientWidth - lane : 0;
  const boxes = tokens.flatMap((index) => {
    const at = rowOf(state, index);
    return at < 0 ? [] : [[from - 2, at * row + 1, wide - 4, row - 2] as const];
  });
  state.chosen.draw(boxes, span ? [[before(state, span[0]) * row, before(state, span[1]) * row]] : []);
}

function layout(
  state: ColumnState,
  rows: Rows,
  off: Uint8Array<ArrayBufferLike>,
  sizes: { row: number; width: number; height: number; lane: number },
): void {
  const { element } = state;
  [state.row, state.height, state.lane, state.count] = [sizes.row, sizes.height, sizes.lane, rows.shown.length];
  state.shown = { rows, off };
  state.drawnRows = "";
  state.top = Math.min(state.top, Math.max(0, state.row * state.count - state.height));
  setStyles(element, { width: `${sizes.width}px`, height: `${state.height}px`, "--aw-lane": `${state.lane}px` });
  setStyles(state.list, { height: `${state.row * state.count}px`, "--aw-row": `${state.row}px` });
  if (state.row * state.count > state.height) element.tabIndex = 0;
  else element.removeAttribute("tabindex");
  write(state);
}

function reveal(state: ColumnState, index: number): void {
  const { row, height } = state;
  const at = rowOf(state, index);
  if (at < 0) return;
  if (at * row < state.top) scrollTo(state, (at - 2) * row);
  else if ((at + 1) * row > state.top + height) scrollTo(state, (at + 3) * row - height);
}

function mark(state: ColumnState, looked: number, pinned: number, isMasked: (index: number) => boolean): void {
  band(state, state.look, rowOf(state, looked));
  band(state, state.pin, rowOf(state, pinned));
  state.hides = isMasked;
  hatch(state);
}
