/**
 * What a view leaves out of its maps, and how it colours them. It acts on the decoded values in the browser; what is left
 * out is not a number, never a zero.
 */
import { codeError, HIDDEN } from "./codec.ts";
import type { Tile, ViewContext } from "./context.ts";
import { h } from "./dom.ts";
import { withinError } from "./numbers.ts";
import { peak } from "./views/reading.ts";
import type { Filters } from "./wire.ts";

const NONE: Filters = { special: "show", mass: 1, least: 0, scale: "", extent: "", palette: "" };

/** The filters of a view, and of all that it holds. */
export const filtersOf = (ctx: ViewContext): Filters => ({ ...NONE, ...ctx.options.filters });

/** Change some of them; `save` also tells Python. */
export function setFilters(ctx: ViewContext, values: Partial<Filters>, save = true): void {
  const options = ctx.model.get("options");
  ctx.model.set("options", { ...options, filters: { ...options.filters, ...values } });
  if (save) ctx.model.save_changes();
}

/** Where a view's own form stands, in a heading: of the part "filters". */
export function filterPlace(ctx: ViewContext): HTMLElement {
  const element = h("span.filters");
  ctx.views.Filters?.(ctx, element);
  return element;
}

/** Whether anything is left out. */
export const leavesOut = ({ special, mass, least }: Filters): boolean => special !== "show" || mass < 1 || least > 0;

/** A row with what is left out as NaN. `special` tells special tokens, `shares` that rows sum to one. */
export function trimmed(
  row: Float32Array,
  special: readonly number[],
  { special: how, mass, least }: Filters,
  shares: boolean,
): Float32Array {
  const out = row.slice();
  if (how !== "show") for (let i = 0; i < out.length; i += 1) if (special[i]) out[i] = Number.NaN;
  const sizes = out.map(Math.abs).filter((size) => size > 0);
  const sum = sizes.reduce((total, size) => total + size, 0);
  if (how === "renormalise" && shares) for (let i = 0; i < out.length; i += 1) out[i] = (out[i] as number) / sum;
  let cut = least;
  if (mass < 1) {
    const unit = how === "renormalise" && shares ? sum : 1;
    let rest = mass * sum * (1 - 1e-6);
    let smallest = Infinity;
    for (const size of sizes.sort().reverse()) {
      if (rest <= 0) break;
      rest -= size;
      smallest = size;
    }
    // The quotients below are rounded as those above.
    cut = Math.max(cut, Math.fround(smallest / unit));
  }
  if (cut > 0) for (let i = 0; i < out.length; i += 1) if (Math.abs(out[i] as number) < cut) out[i] = Number.NaN;
  return out;
}

const MADE = new WeakMap<Tile, { look: string; tile: Tile }>();

/** A tile without what is left out; the same one as long as tile and filters are. */
export function filtered(ctx: ViewContext, tile: Tile, filters = filtersOf(ctx), source = ctx.source()): Tile {
  if (!leavesOut(filters)) return tile;
  const look = JSON.stringify(filters);
  let made = MADE.get(tile);
  if (made?.look !== look) {
    const [query, key] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    const drops = (row: number): boolean =>
      source.kind === "map" && filters.special !== "show" && Boolean(query.special[row]);
    made = { look, tile: filteredTile(tile, key.special, drops, filters, source.stochastic) };
    MADE.set(tile, made);
  }
  return made.tile;
}

/** The same without a view: `drops` tells which rows are left out whole. */
export function filteredTile(
  tile: Tile,
  special: readonly number[],
  drops: (row: number) => boolean,
  filters: Filters,
  shares: boolean,
): Tile {
  const { rows, cols } = tile;
  const { codec, gamma } = tile.meta;
  const isSigned = codec === "i8";
  const values = new Float32Array(rows * cols);
  for (let r = 0; r < rows; r += 1) {
    const to = values.subarray(r * cols, (r + 1) * cols);
    if (drops(r)) to.fill(Number.NaN);
    else {
      for (let c = 0; c < cols; c += 1) to[c] = tile.value(r, c);
      to.set(trimmed(to, special, filters, shares));
    }
  }
  const most = peak(values);
  const top = isSigned ? 127 : 255;
  const scale = Math.max(tile.meta.scale, most);
  const codes = Int16Array.from(values, (value) =>
    Number.isNaN(value) ? HIDDEN : Math.sign(value) * Math.round(top * (Math.abs(value) / scale) ** gamma),
  );
  return {
    meta: { ...tile.meta, scale },
    rows,
    cols,
    codes,
    value: (row, col) => values[row * cols + col] as number,
    text(row, col) {
      const [value, code] = [values[row * cols + col] as number, codes[row * cols + col] as number];
      // What was divided was rounded twice.
      const rounded = filters.special === "renormalise" ? 2 : 1;
      return Number.isNaN(value) ? "left out" : withinError(value, rounded * codeError(code, top, gamma, scale));
    },
    peak: () => most,
  };
}
