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
  let cells: HTMLElement[] = [];
  let heads: HTMLElement[] = [];
  let names: HTMLElement[] = [];
  let last: TableState | null = null;
  let start = 0;
  const isOther = createWatch();
  const isPainted = createWatch();
  const cellOf = (event: MouseEvent): readonly [number, number] | null => {
    const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
    if (!at || !last) return null;
    const [row = 0, token = 0] = at.split(" ").map(Number);
    return [row, token];
  };
  on(plot, signal, {
    click(event) {
      const cell = cellOf(event);
      if (!cell || !last) return;
      events.choose(cell[0] < 0 ? last.cell[0] : cell[0], cell[1] < 0 ? last.cell[1] : cell[1]);
    },
    pointermove: (event) => {
      const cell = cellOf(event);
      events.hover(cell && cell[0] >= 0 && cell[1] >= 0 ? cell : null);
    },
    pointerleave: () => events.hover(null),
  });
  keyboard(plot, signal, keys, "← → ↑ ↓: another cell, folded layers too · Home, End: first and last layer");

  const window = (lens: Lens, token: number): readonly [number, number] => {
    const count = lens.tokens.length;
    if (count <= MOST) return [0, count];
    const from = Math.max(0, Math.min(count - MOST, token - MOST / 2));
    return [from, from + MOST];
  };

  const build = ({ lens, rows, cell }: TableState): void => {
    const [from, to] = window(lens, cell[1]);
    start = from;
    const tokens = lens.tokens.slice(from, to);
    heads = tokens.map((label, i) =>
      h("span.lens-head", { "data-at": `-1 ${from + i}`, title: label }, h("bdi", word(label, 12))),
    );
    names = rows.map((row) =>
      h("span.lens-layer", { "data-at": `${row} -1` }, row === lens.layers ? "out" : ctx.layerName(row)),
    );
    cells = rows.flatMap((row) =>
      tokens.map((_, i) => {
        const best = topOf(lens, row, from + i)[0];
        const text = word(best?.label ?? "", 14);
        return h("span.lens-cell", { "data-at": `${row} ${from + i}` }, h("bdi", text));
      }),
    );
    setChildren(
      grid,
      h("span.lens-corner"),
      ...heads,
      ...rows.flatMap((_, i) => [names[i] as HTMLElement, ...cells.slice(i * tokens.length, (i + 1) * tokens.length)]),
    );
    grid.style.setProperty("--aw-columns", String(tokens.length));
  };
  const paint = ({ lens, rows, measure }: TableState): void => {
    const map = heatMap(false, ctx.theme);
    const count = heads.length;
    rows.forEach((row, r) => {
      for (let i = 0; i < count; i += 1) {
        const at = Math.max(0, Math.min(1, darkness(lens, measure, row, start + i) || 0));
        const colour = colourAt(map, at);
        const el = cells[r * count + i] as HTMLElement;
        setStyles(el, at < 0.004 ? { background: "", color: "" } : { background: cssOf(colour), color: inkOn(colour) });
      }
    });
  };

  return {
    element: plot,
    window,
    show(state) {
      const { lens, rows, cell, measure, row, width } = state;
      last = state;
      const [from] = window(lens, cell[1]);
      const isNew = isOther(lens, rows.join(), from);
      if (isNew) build(state);
      if (isPainted(lens, rows.join(), from, measure, ctx.theme)) paint(state);
      setSizes(grid, { row, column: Math.max(COLUMN, Math.min(110, (width - AXIS) / Math.max(1, heads.length))) });
      const count = heads.length;
      heads.forEach((el, i) => {
        el.toggleAttribute("data-chosen", start + i === cell[1]);
        el.toggleAttribute("data-over", start + i === state.column);
      });
      for (const [i, el] of names.entries()) el.toggleAttribute("data-chosen", rows[i] === cell[0]);
      cells.forEach((el, i) => {
        const at = rows[Math.floor(i / count)] === cell[0] && start + (i % count) === cell[1];
        el.toggleAttribute("data-chosen", at);
        el.toggleAttribute("data-over", start + (i % count) === state.column);
      });
      if (isNew) {
        const head = heads[cell[1] - start];
        if (head) plot.scrollLeft = Math.max(0, head.offsetLeft + head.offsetWidth - plot.clientWidth + 8);
      }
    },
  };
}
