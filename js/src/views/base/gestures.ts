/**
 * Choosing several elements of a picture or text: Shift + click (or Ctrl, Cmd) adds and removes, dragging takes all
 * elements that it covers. A drag begins after a few px, so that clicks stay clicks; touch scrolls as before.
 */
import type { ViewContext } from "../../context.ts";
import { h, on, setFlag, setStyles, spotAt } from "../../dom.ts";
import { joined, MOST_PINS, rectangle, toggled } from "../../selection.ts";
import type { Cell, Span } from "../../wire/wire.ts";

/** px that the pointer moves before it drags. */
const FAR = 4;

/** Row and column. */
export type Spot = readonly [number, number];

/** A picture of equal cells in which several can be chosen. */
export interface Picture {
  /** The element that the cells fill. */
  element: HTMLElement;
  /** Its rows and columns; null while nothing is drawn. */
  size(): Spot | null;
}

export interface Picks {
  /** Shift + click on a cell. */
  toggle(at: Spot): void;
  /** A drag from corner to corner; `adds`: to the cells chosen already. */
  drag(from: Spot, to: Spot, adds: boolean): void;
  /** Whether a drag covers whole rows or columns. */
  along?: "rows" | "cols";
  /** The largest number of cells that a drag can take. */
  most?: number;
}

const adds = (event: MouseEvent): boolean => event.shiftKey || event.ctrlKey || event.metaKey;

/** Listen to an element for choices in a picture: the picture itself, or its labels. */
export function createPicking(el: HTMLElement, picture: Picture, signal: AbortSignal, picks: Picks): void {
  const { along, most = Number.POSITIVE_INFINITY } = picks;
  const band = h("div.picking");
  let start: { at: Spot; x: number; y: number } | null = null;
  let to: Spot | null = null;
  let hasDragged = false;

  /** The cell under the pointer, or the nearest cell. */
  const nearest = (event: MouseEvent): Spot | null => {
    const [rows, cols] = picture.size() ?? [0, 0];
    const box = picture.element.getBoundingClientRect();
    if (!rows || !cols || !box.width || !box.height) return null;
    const within = (i: number, count: number): number => Math.max(0, Math.min(count - 1, Math.floor(i * count)));
    return [within((event.clientY - box.top) / box.height, rows), within((event.clientX - box.left) / box.width, cols)];
  };
  const corners = (from: Spot, now: Spot): [Spot, Spot] => {
    const [rows, cols] = picture.size() ?? [1, 1];
    if (along === "rows")
      return [
        [from[0], 0],
        [now[0], cols - 1],
      ];
    if (along === "cols")
      return [
        [0, from[1]],
        [rows - 1, now[1]],
      ];
    return [from, now];
  };
  const isTooMuch = (from: Spot, now: Spot): boolean =>
    !along && (Math.abs(from[0] - now[0]) + 1) * (Math.abs(from[1] - now[1]) + 1) > most;
  const show = (from: Spot, now: Spot): void => {
    const [rows, cols] = picture.size() ?? [1, 1];
    const [a, b] = corners(from, now);
    const [high, wide] = [Math.abs(a[0] - b[0]) + 1, Math.abs(a[1] - b[1]) + 1];
    setStyles(band, {
      left: `${(100 * Math.min(a[1], b[1])) / cols}%`,
      top: `${(100 * Math.min(a[0], b[0])) / rows}%`,
      width: `${(100 * wide) / cols}%`,
      height: `${(100 * high) / rows}%`,
    });
    setFlag(band, "data-over", isTooMuch(from, now));
    const size = along === "rows" ? `${high}` : along === "cols" ? `${wide}` : `${high} × ${wide}`;
    band.dataset.words = isTooMuch(from, now) ? `${size}: at most ${most} cells` : size;
  };
  const stop = (): void => {
    band.remove();
    [start, to] = [null, null];
  };

  el.classList.add("aw-picks");
  keepFromNotebook(el, signal);
  on(el, signal, {
    pointerdown(event) {
      stop();
      hasDragged = false;
      const at = event.button === 0 && event.isPrimary && event.pointerType !== "touch" ? nearest(event) : null;
      if (at) start = { at, x: event.clientX, y: event.clientY };
    },
    pointermove(event) {
      if (!start) return;
      if (!to && Math.hypot(event.clientX - start.x, event.clientY - start.y) < FAR) return;
      if (!to) {
        el.setPointerCapture(event.pointerId);
        picture.element.append(band);
      }
      to = nearest(event) ?? to;
      if (to) show(start.at, to);
    },
    pointerup(event) {
      const [from, now] = [start?.at, to];
      stop();
      if (!from || !now) return;
      // A drag that stays in its cell is a click with an unsteady hand.
      hasDragged = along !== undefined || String(from) !== String(now);
      if (hasDragged && !isTooMuch(from, now)) picks.drag(from, now, adds(event));
    },
    pointercancel: stop,
    lostpointercapture: stop,
  });
  on(el.ownerDocument, signal, {
    keydown(event) {
      if (!to || event.key !== "Escape") return;
      stop();
      hasDragged = true;
    },
  });
  onClick(el, signal, (event) => {
    const wasDrag = hasDragged;
    hasDragged = false;
    if (wasDrag) return true;
    const [rows, cols] = picture.size() ?? [0, 0];
    const at = adds(event) ? (along ? nearest(event) : spotAt(event, picture.element, rows, cols)) : null;
    if (at) picks.toggle(at);
    return at !== null;
  });
}

/** JupyterLab selects cells of the notebook with Shift + click. */
function keepFromNotebook(el: HTMLElement, signal: AbortSignal): void {
  on(el, signal, { mousedown: (event) => adds(event) && event.stopPropagation() });
}

/** Handle a click with Shift, Ctrl or Cmd before the view does, unless the result is false. */
export function onAddingClick(el: HTMLElement, signal: AbortSignal, handled: (event: MouseEvent) => boolean): void {
  keepFromNotebook(el, signal);
  onClick(el, signal, (event) => adds(event) && handled(event));
}

/** Handle a click before the view does; if it is `handled`, the view does not see it. */
function onClick(el: HTMLElement, signal: AbortSignal, handled: (event: MouseEvent) => boolean): void {
  const listen = (event: MouseEvent): void => {
    if (!handled(event)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  el.addEventListener("click", listen, { signal, capture: true });
}

/** Add a cell to the pinned cells, or remove it. */
export function togglePin(ctx: ViewContext, cell: Cell): void {
  ctx.selection.pinAll(toggled(ctx.pins(), cell));
}

/** Pin all cells of a drag, replacing the pinned cells or in addition to them. */
export function pinDragged(ctx: ViewContext, cells: readonly Cell[], more: boolean): void {
  ctx.selection.pinAll(more ? joined(ctx.pins(), cells) : cells);
}

/** Choose the elements from `first` to `last`, both included, on a side of the shown source. */
export function chooseSpan(ctx: ViewContext, side: Span["side"], first: number, last: number): void {
  const [start, stop] = [Math.min(first, last), Math.max(first, last) + 1];
  ctx.selection.setSpan({ start, stop, unit: ctx.source().unit, side });
}

/** Choose cells in a map and spans along its labels. `cellAt` is the cell in a row and column of the picture. */
export function pickCells(
  ctx: ViewContext,
  figure: { plot: HTMLElement; left: { element: HTMLElement }; top: { element: HTMLElement } },
  size: () => { rows: number; cols: number } | null,
  signal: AbortSignal,
  cellAt: (at: Spot) => Cell,
  sides: readonly Span["side"][] = ["query", "key"],
): void {
  const picture: Picture = {
    element: figure.plot,
    size() {
      const now = size();
      return now && [now.rows, now.cols];
    },
  };
  createPicking(figure.plot, picture, signal, {
    most: MOST_PINS,
    toggle: (at) => togglePin(ctx, cellAt(at)),
    drag: (from, to, more) => pinDragged(ctx, rectangle(from, to).map(cellAt), more),
  });
  for (const side of sides) {
    const isQuery = side === "query";
    createPicking((isQuery ? figure.left : figure.top).element, picture, signal, {
      along: isQuery ? "rows" : "cols",
      toggle: ([query, key]) => togglePin(ctx, { ...cellAt([query, key]), [isQuery ? "key" : "query"]: -1 }),
      drag: (from, to) => chooseSpan(ctx, side, cellAt(from)[side], cellAt(to)[side]),
    });
  }
}

/**
 * Choose cells, and a span of a side, in a picture of equal rows or columns. `cellAt` is the cell of a row or column.
 */
export function pickAlong(
  ctx: ViewContext,
  el: HTMLElement,
  picture: Picture,
  along: "rows" | "cols",
  side: Span["side"],
  signal: AbortSignal,
  cellAt: (position: number) => Cell,
): void {
  const at = (spot: Spot): Cell => cellAt(spot[along === "rows" ? 0 : 1]);
  createPicking(el, picture, signal, {
    along,
    toggle: (spot) => togglePin(ctx, at(spot)),
    drag: (from, to) => chooseSpan(ctx, side, at(from)[side], at(to)[side]),
  });
}

/** Pin a neighbour of the last cell in addition to all others: Shift and arrows then move it. */
export function pinAnother(ctx: ViewContext): void {
  const { query, key } = ctx.source();
  const [rows, cols] = [query, key].map((id) => ctx.axisOf(id).labels.length) as [number, number];
  const last = ctx.cell("pinned") ?? ctx.cell("hover") ?? { unit: ctx.source().unit, query: 0, key: -1 };
  const pins = ctx.pins();
  const steps = [
    [0, 1],
    [0, -1],
    [1, 0],
    [-1, 0],
  ] as const;
  for (const [down, right] of steps) {
    const cell: Cell = { unit: last.unit, query: Math.max(0, last.query) + down, key: last.key + right };
    const isIn = cell.query >= 0 && cell.key >= 0 && cell.query < rows && cell.key < cols;
    if (!isIn || pins.some((pin) => pin.query === cell.query && pin.key === cell.key)) continue;
    ctx.selection.pinAll([...pins, cell]);
    return;
  }
}

/** Move the last pinned cell, or remove it (null); the others stay. */
export function movePinned(ctx: ViewContext, to: Cell | null): void {
  ctx.selection.pinAll(joined(ctx.pins().slice(0, -1), to ? [to] : []));
}

export interface TextPicks {
  toggle(index: number): void;
  /** From the first to the last token, both included. */
  span(first: number, last: number): void;
}

/** The choices of Shift and dragging in running text: cells, and a span of a side. */
export function textPicks(ctx: ViewContext, side: Span["side"], cellAt: (index: number) => Cell | null): TextPicks {
  return {
    toggle(index) {
      const cell = cellAt(index);
      if (cell) togglePin(ctx, cell);
    },
    span: (first, last) => chooseSpan(ctx, side, first, last),
  };
}

/**
 * Choose tokens in running text. Dragging selects text as everywhere, to be copied; its tokens become the span.
 */
export function pickText(
  list: HTMLElement,
  tokens: readonly HTMLElement[],
  signal: AbortSignal,
  picks: TextPicks,
): void {
  let from: { x: number; y: number } | null = null;
  on(list, signal, {
    pointerdown(event) {
      const isDrag = event.button === 0 && event.pointerType !== "touch" && !adds(event);
      from = isDrag ? { x: event.clientX, y: event.clientY } : null;
    },
    mousedown(event) {
      // The browser would extend its text selection to the click.
      if (adds(event) && event.button === 0) event.preventDefault();
    },
  });
  on(list.ownerDocument, signal, {
    pointerup(event) {
      const isFar = from && Math.hypot(event.clientX - from.x, event.clientY - from.y) >= FAR;
      from = null;
      const range = isFar ? selectedRange(list) : null;
      if (!range) return;
      const covered = coveredBy(range, tokens);
      if (covered) picks.span(...covered);
    },
  });
  onAddingClick(list, signal, (event) => {
    const token = (event.target as Element).closest<HTMLElement>(".aw-tok");
    if (token) picks.toggle(Number(token.dataset.i));
    return token !== null;
  });
}

/** The native selection, if it is in `list`; views in shadow roots hide it from the page. */
function selectedRange(list: HTMLElement): Range | null {
  const root = list.getRootNode() as Node & { getSelection?: () => Selection | null };
  const selection = root.getSelection?.() ?? getSelection();
  const range = selection && selection.rangeCount > 0 && !selection.isCollapsed ? selection.getRangeAt(0) : null;
  return range && list.contains(selection?.anchorNode ?? null) ? range : null;
}

/** The first and last token of which a range holds some text; null: none. */
function coveredBy(range: Range, tokens: readonly HTMLElement[]): [number, number] | null {
  const inside = (token: HTMLElement): Range => {
    const all = document.createRange();
    all.selectNodeContents(token);
    return all;
  };
  // Tokens are in the order of the text: the first that ends behind the start, the last that begins before the end.
  const first = firstWhere(
    tokens.length,
    (i) => inside(tokens[i] as HTMLElement).compareBoundaryPoints(Range.START_TO_END, range) > 0,
  );
  const after = firstWhere(
    tokens.length,
    (i) => inside(tokens[i] as HTMLElement).compareBoundaryPoints(Range.END_TO_START, range) >= 0,
  );
  return first < after ? [first, after - 1] : null;
}

/** The first of `count` indices for which `holds`, which holds from there on. */
function firstWhere(count: number, holds: (i: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
