/** The tokens of one side as a scrolling column; only visible rows are nodes. */
import { assign, h, on, setFlag, setStyles, setText, shortLabel } from "../../dom.ts";
import { createChosen } from "../base/chosen.ts";
import { createPicking } from "../base/gestures.ts";
import type { Side } from "./pairs.ts";
import type { Rows } from "./rows.ts";

/** Rows kept beyond the visible ones, so that small scrolls create none. */
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
  /** The element some rows further than another one; from none, counted from the top of what is in view. */
  neighbour(index: number, by: number): number;
  /** First row in view, and the one after the last. */
  range(): [number, number];
  /** Write a value next to every element, the `strong` one bold; null: none has one. */
  tell(textOf: ((index: number) => string) | null, strong: number): void;
  /** Mark the current and pinned elements (-1: none), and those that were not compared with the current one of the other side. */
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

export function createColumn(side: Side, signal: AbortSignal, events: ColumnEvents): Column {
  const [masked, pin, look] = [h("div.hv-hatched"), h("div.hv-pin"), h("div.hv-look")];
  const list = h("div.hv-rows", masked, pin, look);
  const element = h(`div.hv-column.hv-${side}`, { role: "group", "aria-label": side }, list);
  const lines: { line: HTMLElement; name: HTMLElement; value: HTMLElement }[] = [];
  let shown: { rows: Rows; off: Uint8Array } | null = null;
  let values: { textOf: (index: number) => string; strong: number } | null = null;
  let hides: (index: number) => boolean = () => false;
  let [row, height, count, lane] = [20, 0, 0, 0];
  /** Scroll position in px: cached, since reading it forces layout. */
  let top = 0;
  let drawnRows = "";

  const range = (): [number, number] => [
    Math.max(0, Math.floor(top / row)),
    Math.min(count, Math.ceil((top + height) / row)),
  ];
  /** The first row in the document, and the one after the last. */
  const kept = (): [number, number] => {
    const [first, last] = range();
    return [Math.max(0, first - MORE), Math.min(count, last + MORE)];
  };
  const write = (): void => {
    if (!shown) return;
    const [from, to] = kept();
    const name = `${from} ${to}`;
    if (name === drawnRows) return;
    drawnRows = name;
    const { rows, off } = shown;
    const { labels, special, segment, boundary } = rows.axis;
    while (lines.length < to - from) {
      const [label, value] = [h("span.hv-name"), h("span.hv-value")];
      const line = side === "query" ? h("div.hv-row", value, label) : h("div.hv-row", label, value);
      lines.push({ line, name: label, value });
      list.append(line);
    }
    lines.forEach(({ line, name: label }, i) => {
      const place = from + i;
      line.hidden = place >= to;
      if (line.hidden) return;
      const at = rows.shown[place] as number;
      const text = labels[at] as string;
      line.style.top = `${place * row}px`;
      setText(label, shortLabel(text, 48));
      line.title = shortLabel(text, 400);
      setFlag(line, "data-special", Boolean(special[at]));
      setFlag(line, "data-off", !off[at]);
      setFlag(line, "data-begins", at > 0 && (segment[at] !== segment[at - 1] || boundary === at));
    });
    writeValues();
    hatch();
  };
  const writeValues = (): void => {
    const [from, to] = kept();
    lines.forEach(({ line, value }, i) => {
      if (from + i >= to) return;
      const index = shown?.rows.shown[from + i] as number;
      setText(value, values?.textOf(index) ?? "");
      setFlag(line, "data-strong", index === values?.strong);
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
  /** The row of an element. */
  const placeOf = (index: number): number => shown?.rows.place[index] ?? -1;
  /** How many rows there are before an element. */
  const before = (index: number): number => {
    let at = 0;
    while (at < count && (shown?.rows.shown[at] as number) < index) at += 1;
    return at;
  };
  const band = (el: HTMLElement, from: number, to = from + 1): void => {
    assign(el, { hidden: from < 0 || to <= from });
    setStyles(el, { top: `${from * row}px`, height: `${(to - from) * row}px` });
  };
  /** Hatch the masked rows in the document, one box for rows that follow each other. */
  const hatch = (): void => {
    const [first, end] = kept();
    const is = (place: number): boolean => place < end && hides(shown?.rows.shown[place] as number);
    let made = 0;
    for (let from = first; from < end; from += 1) {
      if (!is(from)) continue;
      const start = from;
      while (is(from + 1)) from += 1;
      while (masked.childElementCount <= made) masked.append(h("div.hv-masked"));
      band(masked.children[made] as HTMLElement, start, from + 1);
      made += 1;
    }
    for (let i = made; i < masked.childElementCount; i += 1) band(masked.children[i] as HTMLElement, -1);
  };
  const find = (event: MouseEvent): number => {
    const at = Math.floor((event.clientY - element.getBoundingClientRect().top + top) / row);
    return at >= 0 && at < count ? (shown?.rows.shown[at] as number) : -1;
  };
  const elementAt = (at: number): number => shown?.rows.shown[at] ?? -1;
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
  createPicking(element, { element: list, size: () => [count, 1] }, signal, {
    along: "rows",
    toggle: ([at]) => events.toggle(elementAt(at)),
    drag: ([from], [to]) => events.span(elementAt(from), elementAt(to)),
  });
  const end = h("i");
  list.append(end);
  const chosen = createChosen(end);
  return {
    element,
    choose(tokens, span) {
      const from = side === "query" ? lane : 0;
      const wide = tokens.length > 0 ? element.clientWidth - lane : 0;
      const boxes = tokens.flatMap((index) => {
        const at = placeOf(index);
        return at < 0 ? [] : [[from - 2, at * row + 1, wide - 4, row - 2] as const];
      });
      chosen.draw(boxes, span ? [[before(span[0]) * row, before(span[1]) * row]] : []);
    },
    layout(rows, off, sizes) {
      [row, height, lane, count] = [sizes.row, sizes.height, sizes.lane, rows.shown.length];
      shown = { rows, off };
      drawnRows = "";
      top = Math.min(top, Math.max(0, row * count - height));
      setStyles(element, { width: `${sizes.width}px`, height: `${height}px`, "--aw-lane": `${lane}px` });
      setStyles(list, { height: `${row * count}px`, "--aw-row": `${row}px` });
      if (row * count > height) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
      write();
    },
    top: () => top,
    scrollTo,
    reveal(index) {
      const at = placeOf(index);
      if (at < 0) return;
      if (at * row < top) scrollTo((at - 2) * row);
      else if ((at + 1) * row > top + height) scrollTo((at + 3) * row - height);
    },
    neighbour(index, by) {
      const at = index < 0 ? range()[0] - 1 : placeOf(index);
      return elementAt(Math.max(0, Math.min(count - 1, at + by)));
    },
    range,
    tell(textOf, strong) {
      values = textOf && { textOf, strong };
      writeValues();
    },
    mark(looked, pinned, isMasked) {
      band(look, placeOf(looked));
      band(pin, placeOf(pinned));
      hides = isMasked;
      hatch();
    },
  };
}
