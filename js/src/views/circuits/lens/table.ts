/** Top tokens, layers by tokens, each cell in the colour of the chosen measure. */
import { colourAt, cssOf, heatMap, inkOn } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { createWatch, h, type KeyHandlers, keyboard, on, setChildren, setSizes, setStyles } from "../../../dom.ts";
import { word } from "../words.ts";
import { darkness, type Lens, type Measure, topOf } from "./lens.ts";

/** px of a column at least, and of the layers' numbers. */
const COLUMN = 52;
export const AXIS = 44;
/** Most tokens in the table; of a longer text, those around the chosen token. */
const MOST = 64;

export interface TableState {
  lens: Lens;
  rows: readonly number[];
  measure: Measure;
  cell: readonly [row: number, token: number];
  column: number;
  row: number;
  width: number;
}

export interface Table {
  element: HTMLElement;
  show(state: TableState): void;
  /** The tokens that are shown, [start, stop). */
  window(lens: Lens, token: number): readonly [number, number];
}

/** Its elements, and the state that they show. */
interface LensTable {
  readonly ctx: ViewContext;
  readonly grid: HTMLDivElement;
  readonly plot: HTMLDivElement;
  /** The elements of the table, row by row, and its headings. */
  cells: HTMLElement[];
  heads: HTMLElement[];
  names: HTMLElement[];
  /** The state that was drawn last, for updates that only mark a cell. */
  last: TableState | null;
  /** The first token that is shown: a text may begin with folded tokens. */
  start: number;
  readonly isOther: (...values: unknown[]) => boolean;
  readonly isPainted: (...values: unknown[]) => boolean;
}

export function createTable(
  ctx: ViewContext,
  signal: AbortSignal,
  events: { choose(row: number, token: number): void; hover(cell: readonly [number, number] | null): void },
  keys: KeyHandlers,
): Table {
  const grid = h("div.lens-grid");
  const plot = h(
    "div.lens-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "table of top tokens" },
    grid,
  );
  const isOther = createWatch();
  const isPainted = createWatch();

  const view: LensTable = {
    ctx,
    grid,
    plot,
    cells: [],
    heads: [],
    names: [],
    last: null,
    start: 0,
    isOther,
    isPainted,
  };
  on(plot, signal, {
    click(event) {
      const cell = cellOf(view, event);
      if (!cell || !view.last) return;
      events.choose(cell[0] < 0 ? view.last.cell[0] : cell[0], cell[1] < 0 ? view.last.cell[1] : cell[1]);
    },
    pointermove: (event) => {
      const cell = cellOf(view, event);
      events.hover(cell && cell[0] >= 0 && cell[1] >= 0 ? cell : null);
    },
    pointerleave: () => events.hover(null),
  });
  keyboard(plot, signal, keys, "← → ↑ ↓: another cell, folded layers too · Home, End: first and last layer");
  return {
    element: plot,
    window,
    show: (state) => show(view, state),
  };
}

function cellOf(view: LensTable, event: MouseEvent): readonly [number, number] | null {
  const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
  if (!at || !view.last) return null;
  const [row = 0, token = 0] = at.split(" ").map(Number);
  return [row, token];
}

function window(lens: Lens, token: number): readonly [number, number] {
  const count = lens.tokens.length;
  if (count <= MOST) return [0, count];
  const from = Math.max(0, Math.min(count - MOST, token - MOST / 2));
  return [from, from + MOST];
}

function build(view: LensTable, { lens, rows, cell }: TableState): void {
  const { grid } = view;
  const [from, to] = window(lens, cell[1]);
  view.start = from;
  const tokens = lens.tokens.slice(from, to);
  view.heads = tokens.map((label, i) =>
    h("span.lens-head", { "data-at": `-1 ${from + i}`, title: label }, h("bdi", word(label, 12))),
  );
  view.names = rows.map((row) =>
    h("span.lens-layer", { "data-at": `${row} -1` }, row === lens.layers ? "out" : view.ctx.layerName(row)),
  );
  view.cells = rows.flatMap((row) =>
    tokens.map((_, i) => {
      const best = topOf(lens, row, from + i)[0];
      const text = word(best?.label ?? "", 14);
      return h("span.lens-cell", { "data-at": `${row} ${from + i}` }, h("bdi", text));
    }),
  );
  setChildren(
    grid,
    h("span.lens-corner"),
    ...view.heads,
    ...rows.flatMap((_, i) => [
      view.names[i] as HTMLElement,
      ...view.cells.slice(i * tokens.length, (i + 1) * tokens.length),
    ]),
  );
  grid.style.setProperty("--aw-columns", String(tokens.length));
}

function paint(view: LensTable, { lens, rows, measure }: TableState): void {
  const map = heatMap(false, view.ctx.theme);
  const count = view.heads.length;
  rows.forEach((row, r) => {
    for (let i = 0; i < count; i += 1) {
      const at = Math.max(0, Math.min(1, darkness(lens, measure, row, view.start + i) || 0));
      const colour = colourAt(map, at);
      const el = view.cells[r * count + i] as HTMLElement;
      setStyles(el, at < 0.004 ? { background: "", color: "" } : { background: cssOf(colour), color: inkOn(colour) });
    }
  });
}

function show(view: LensTable, state: TableState): void {
  const { plot } = view;
  const { lens, rows, cell, measure, row, width } = state;
  view.last = state;
  const [from] = window(lens, cell[1]);
  const isNew = view.isOther(lens, rows.join(), from);
  if (isNew) build(view, state);
  if (view.isPainted(lens, rows.join(), from, measure, view.ctx.theme)) paint(view, state);
  setSizes(view.grid, {
    row,
    column: Math.max(COLUMN, Math.min(110, (width - AXIS) / Math.max(1, view.heads.length))),
  });
  const count = view.heads.length;
  view.heads.forEach((el, i) => {
    el.toggleAttribute("data-chosen", view.start + i === cell[1]);
    el.toggleAttribute("data-over", view.start + i === state.column);
  });
  for (const [i, el] of view.names.entries()) el.toggleAttribute("data-chosen", rows[i] === cell[0]);
  view.cells.forEach((el, i) => {
    const at = rows[Math.floor(i / count)] === cell[0] && view.start + (i % count) === cell[1];
    el.toggleAttribute("data-chosen", at);
    el.toggleAttribute("data-over", view.start + (i % count) === state.column);
  });
  if (isNew) {
    const head = view.heads[cell[1] - view.start];
    if (head) plot.scrollLeft = Math.max(0, head.offsetLeft + head.offsetWidth - plot.clientWidth + 8);
  }
}
