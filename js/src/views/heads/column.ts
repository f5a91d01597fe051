/** The tokens of one side as a scrolling column; only visible rows are nodes. */
import { assign, h, on, setFlag, setStyles, setText, shortLabel } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { createChosen } from "../base/chosen.ts";
import { createPicking } from "../base/gestures.ts";
import type { Side } from "./pairs.ts";

/** Rows kept beyond the visible ones, so that small scrolls create none. */
const MORE = 6;

export interface Column {
  element: HTMLElement;
  /** Rows of an axis, `row` px high, in a column of `width` x `height` px; `off` is 0 for excluded rows. */
  layout(axis: Axis, row: number, width: number, height: number, off: Uint8Array): void;
  /** Scroll position in px. */
  top(): number;
  scrollTo(top: number): void;
  /** Scroll a row into view. */
  reveal(index: number): void;
  /** First row in view, and the one after the last. */
  range(): [number, number];
  /** Mark the current and pinned rows, and the masked range (from, to); -1: none. */
  mark(looked: number, pinned: number, masked: readonly [number, number]): void;
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

export function createColumn(side: Side, signal: AbortSignal, events: ColumnEvents): Column {
  const [masked, pin, look] = [h("div.hv-masked"), h("div.hv-pin"), h("div.hv-look")];
  const rows = h("div.hv-rows", masked, pin, look);
  const element = h(`div.hv-column.hv-${side}`, { role: "group", "aria-label": side }, rows);
  const spans: HTMLElement[] = [];
  let shown: { axis: Axis; off: Uint8Array } | null = null;
  let [row, height, count] = [20, 0, 0];
  /** Scroll position in px: cached, since reading it forces layout. */
  let top = 0;
  let drawnRows = "";

  const range = (): [number, number] => [
    Math.max(0, Math.floor(top / row)),
    Math.min(count, Math.ceil((top + height) / row)),
  ];
  const write = (): void => {
    if (!shown) return;
    const [first, last] = range();
    const from = Math.max(0, first - MORE);
    const to = Math.min(count, last + MORE);
    const name = `${from} ${to}`;
    if (name === drawnRows) return;
    drawnRows = name;
    const { axis, off } = shown;
    const { labels, special, segment, boundary } = axis;
    while (spans.length < to - from) {
      const span = h("div.hv-row");
      spans.push(span);
      rows.append(span);
    }
    spans.forEach((span, i) => {
      const at = from + i;
      span.hidden = at >= to;
      if (span.hidden) return;
      const label = labels[at] as string;
      span.style.top = `${at * row}px`;
      setText(span, shortLabel(label, 48));
      span.title = shortLabel(label, 400);
      setFlag(span, "data-special", Boolean(special[at]));
      setFlag(span, "data-off", !off[at]);
      setFlag(span, "data-begins", at > 0 && (segment[at] !== segment[at - 1] || boundary === at));
    });
  };
  const scrollTo = (to: number): void => {
    const most = Math.max(0, row * count - height);
    const now = Math.max(0, Math.min(most, Math.round(to)));
    if (now === top) return;
    top = now;
    element.scrollTop = top;
    write();
  };
  const band = (el: HTMLElement, from: number, to = from + 1): void => {
    assign(el, { hidden: from < 0 || to <= from });
    setStyles(el, { top: `${from * row}px`, height: `${(to - from) * row}px` });
  };
  const find = (event: MouseEvent): number => {
    const at = Math.floor((event.clientY - element.getBoundingClientRect().top + top) / row);
    return at >= 0 && at < count ? at : -1;
  };
  on(element, signal, {
    pointermove: (event) => events.hover(find(event)),
    pointerleave: () => events.hover(-1),
    click(event) {
      const at = find(event);
      if (at >= 0) events.pin(at);
    },
    scroll() {
      top = element.scrollTop;
      write();
      events.scrolled();
    },
  });
  createPicking(element, { element: rows, size: () => [count, 1] }, signal, {
    along: "rows",
    toggle: ([at]) => events.toggle(at),
    drag: ([from], [to]) => events.span(from, to),
  });
  const end = h("i");
  rows.append(end);
  const chosen = createChosen(end);
  return {
    element,
    choose(tokens, span) {
      const wide = element.clientWidth;
      const boxes = tokens.map((at) => [-2, at * row + 1, wide - 4, row - 2] as const);
      chosen.draw(boxes, span && [span[0] * row, span[1] * row]);
    },
    layout(axis, rowHeight, width, tall, off) {
      [row, height, count] = [rowHeight, tall, axis.labels.length];
      shown = { axis, off };
      drawnRows = "";
      top = Math.min(top, Math.max(0, row * count - height));
      element.style.width = `${width}px`;
      element.style.height = `${tall}px`;
      rows.style.height = `${row * count}px`;
      if (row * count > tall) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
      rows.style.setProperty("--aw-row", `${row}px`);
      write();
    },
    top: () => top,
    scrollTo,
    reveal(index) {
      if (index < 0) return;
      if (index * row < top) scrollTo((index - 2) * row);
      else if ((index + 1) * row > top + height) scrollTo((index + 3) * row - height);
    },
    range,
    mark(looked, pinned, [from, to]) {
      band(look, looked);
      band(pin, pinned);
      band(masked, from, to);
    },
  };
}
