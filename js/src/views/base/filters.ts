/**
 * A view's filters: which values of its maps are hidden, and how they are coloured. They apply to the decoded values in
 * the browser; a hidden value is NaN, never zero.
 */

import type { ViewContext } from "../../context.ts";
import { h } from "../../dom.ts";
import { withinError } from "../../numbers.ts";
import { codeError, HIDDEN, valueTable } from "../../wire/codec.ts";
import { apartOf } from "../../wire/sheets.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Filters } from "../../wire/viewState.ts";
import type { Source } from "../../wire/wire.ts";
import { meanReceived } from "../text/rowValues.ts";

/** The filters of a view unless Python or the reader sets others. */
export const DEFAULTS: Filters = { special: "apart", mass: 1, least: 0, scale: "", extent: "", palette: "" };

/**
 * The treatments of special tokens, in the reader's words. Pairs, since the build may rename names that look like
 * properties.
 */
export const SPECIAL: readonly (readonly [Filters["special"], string])[] = [
  ["apart", "apart"],
  ["show", "in the map"],
  ["hide", "left out"],
  ["renormalise", "left out, rows rescaled"],
];

/** The filters of a view, and of the views inside it. */
export const filtersOf = (ctx: ViewContext): Filters => ({ ...DEFAULTS, ...ctx.options.filters });

/** Whether anything is filtered or coloured otherwise than by default. */
export const isFiltered = (filters: Filters): boolean =>
  Object.entries({ ...DEFAULTS, ...(filters.special === "show" && { special: "show" }) }).some(
    ([name, value]) => filters[name as keyof Filters] !== value,
  );

/** The settings that the menu of a view offers. */
export interface Adjustable {
  ctx: ViewContext;
  /** Whether values can be hidden, in addition to options of colours and special tokens; or colours only. */
  hides: boolean | "colours";
  /** Further settings of the view, below the filters. */
  more: readonly HTMLElement[];
}

const ADJUSTABLE = new WeakMap<Element, Adjustable>();

/** The settings in the menu of a view, by the view's element. */
export const adjustableOf = (el: Element): Adjustable | undefined => ADJUSTABLE.get(el);

/**
 * Let the menu of a view offer special tokens, colours and, if it `hides` values, filters; a nested view leaves the
 * menu to its outer view.
 */
export function offerAdjusting(ctx: ViewContext, hides: Adjustable["hides"], ...more: HTMLElement[]): void {
  const before = ADJUSTABLE.get(ctx.el);
  if (!before || before.ctx.signal.aborted) ADJUSTABLE.set(ctx.el, { ctx, hides, more });
}

/** Change some filters; `save` also sends them to Python. */
export function setFilters(ctx: ViewContext, values: Partial<Filters>, save = true): void {
  const options = ctx.model.get("options");
  ctx.model.set("options", { ...options, filters: { ...options.filters, ...values } });
  if (save) ctx.model.save_changes();
}

/** Offer filters in the view's menu; returns the element for words about them, which the part "tools" fills. */
export function filterSlot(ctx: ViewContext, ...more: HTMLElement[]): HTMLElement {
  offerAdjusting(ctx, true, ...more);
  const element = h("span.filters");
  ctx.views.FilterWords?.(ctx, element);
  return element;
}

/** Whether special tokens are hidden. Tokens that stand apart are drawn outside the map instead. */
export const hidesSpecial = ({ special }: Pick<Filters, "special">): boolean =>
  special === "hide" || special === "renormalise";

/** Whether anything is hidden. */
export const hidesValues = (filters: Filters): boolean =>
  hidesSpecial(filters) || filters.mass < 1 || filters.least > 0;

type Flags = readonly boolean[];

/** The separate tokens of each axis: read at every pointer move, and constant for an axis. */
const [APART, NOWHERE] = [new WeakMap<readonly number[], Flags>(), new WeakMap<readonly number[], Flags>()];
const INSIDE = new WeakMap<Flags, readonly number[]>();

/** Whether each of these elements stands apart: the special tokens, unless all elements are special. */
export function standApart(special: readonly number[], filters: Pick<Filters, "special">): Flags {
  const cache = filters.special === "apart" ? APART : NOWHERE;
  const apart = cache.get(special) ?? (cache === APART ? apartOf(special) : special.map(() => false));
  cache.set(special, apart);
  return apart;
}

/** The elements that do not stand apart. */
export function insideOf(special: readonly number[], filters: Pick<Filters, "special">): readonly number[] {
  const apart = standApart(special, filters);
  const inside = INSIDE.get(apart) ?? [...apart.keys()].filter((i) => !apart[i]);
  INSIDE.set(apart, inside);
  return inside;
}

/** Whether the map shows special tokens, if a source has any that could stand apart. */
export const showsSpecial = (ctx: ViewContext, { query, key }: Pick<Source, "query" | "key">): boolean =>
  filtersOf(ctx).special === "show" && [query, key].some((id) => apartOf(ctx.axisOf(id).special).includes(true));

/** A row with hidden values as NaN. `special` marks special tokens; `shares`: rows sum to one. */
export function filteredRow(
  row: Float32Array,
  special: readonly number[],
  filters: Filters,
  shares: boolean,
): Float32Array {
  const { special: how, mass, least } = filters;
  const out = row.slice();
  const apart = standApart(special, filters);
  if (hidesSpecial(filters)) for (let i = 0; i < out.length; i += 1) if (special[i]) out[i] = Number.NaN;
  const sizes = out
    .filter((_, i) => !apart[i])
    .map(Math.abs)
    .filter((size) => size > 0);
  const sum = sizes.reduce((total, size) => total + size, 0);
  if (how === "renormalise" && shares) for (let i = 0; i < out.length; i += 1) out[i] = (out[i] as number) / sum;
  let cut = least;
  if (mass < 1) {
    const unit = how === "renormalise" && shares ? sum : 1;
    let rest = mass * sum * (1 - 1e-6);
    let smallest = 0;
    for (const size of sizes.sort().reverse()) {
      if (rest <= 0) break;
      rest -= size;
      smallest = size;
    }
    // Rounded to float32, as the quotients are.
    cut = Math.max(cut, Math.fround(smallest / unit));
  }
  const isCut = (i: number): boolean => Math.abs(out[i] as number) < cut && !apart[i];
  if (cut > 0) for (let i = 0; i < out.length; i += 1) if (isCut(i)) out[i] = Number.NaN;
  return out;
}

/** Whether rows are divided by the sum of their visible values; rows with a part that goes to a sink are not. */
export const rescales = ({ stochastic, sink }: Pick<Source, "stochastic" | "sink">): boolean => stochastic && !sink;

/** The last two filtered versions of each tile: a strip also reads means, which are filtered less. */
const MADE = new WeakMap<Tile, { look: string; tile: Tile }[]>();

/** A tile with the filters applied; the same object as long as tile and filters are the same. */
export function filtered(ctx: ViewContext, tile: Tile, filters = filtersOf(ctx), source = ctx.source()): Tile {
  if (!hidesValues(filters) || tile.meta.whole) return tile; // cells that share a code cannot be told apart
  const filtersKey = JSON.stringify(filters);
  const [first, second] = MADE.get(tile) ?? [];
  let version = first?.look === filtersKey ? first : second;
  if (version?.look !== filtersKey) {
    const [query, key] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    const drops = (row: number): boolean =>
      source.kind === "map" && hidesSpecial(filters) && Boolean(query.special[row]);
    version = { look: filtersKey, tile: filteredTile(tile, key.special, drops, filters, rescales(source)) };
    MADE.set(tile, first ? [version, first] : [version]);
  }
  return version.tile;
}

/**
 * The same without a view. `drops` says which rows are hidden entirely. A tile has only 256 different values, so rows
 * are filtered by counting them.
 */
export function filteredTile(
  tile: Tile,
  special: readonly number[],
  drops: (row: number) => boolean,
  filters: Filters,
  shares: boolean,
): Tile {
  const { special: how, mass, least } = filters;
  const apart = standApart(special, filters);
  const isOutside = hidesSpecial(filters) ? special.map(Boolean) : apart;
  const { rows, cols, codes: given, meta } = tile;
  const { gamma, scale, slack } = meta;
  const isSigned = meta.codec === "i8";
  const top = isSigned ? 127 : 255;
  const sizes = valueTable(isSigned, gamma, scale).map(Math.abs);
  const order = [...sizes.keys()].sort((a, b) => (sizes[b] as number) - (sizes[a] as number));
  const size = (byte: number): number => sizes[byte] as number;
  const codes = new Int16Array(rows * cols).fill(HIDDEN);
  const divisors = new Float64Array(rows).fill(1);
  const counts = new Uint32Array(256);
  const newCodes = new Int16Array(256);
  let most = 0;
  for (let r = 0; r < rows; r += 1) {
    if (drops(r)) continue;
    const start = r * cols;
    counts.fill(0);
    const skips = (c: number): boolean => given[start + c] === HIDDEN || Boolean(isOutside[c]);
    const byteOf = (c: number): number => (given[start + c] as number) & 255;
    const count = (byte: number): number => counts[byte] as number;
    for (let c = 0; c < cols; c += 1) if (!skips(c)) counts[byteOf(c)] = count(byteOf(c)) + 1;
    const sum = order.reduce((total, byte) => total + count(byte) * size(byte), 0);
    const by = how === "renormalise" && shares ? sum : 1;
    let cut = least * by;
    let rest = mass < 1 ? mass * sum * (1 - 1e-6) : 0;
    for (const byte of order) {
      if (rest <= 0) break;
      rest -= count(byte) * size(byte);
      if (rest <= 0) cut = Math.max(cut, size(byte));
    }
    divisors[r] = by;
    for (const byte of order) {
      if (!count(byte)) continue;
      const code = isSigned ? (byte << 24) >> 24 : byte;
      const value = size(byte) / by;
      if (!by || size(byte) < cut) newCodes[byte] = HIDDEN;
      else if (by === 1) newCodes[byte] = code;
      else newCodes[byte] = Math.sign(code) * Math.min(top, Math.round(top * (value / scale) ** gamma));
      if (newCodes[byte] !== HIDDEN) most = Math.max(most, value);
    }
    for (let c = 0; c < cols; c += 1) {
      if (apart[c]) codes[start + c] = given[start + c] as number;
      else if (!skips(c)) codes[start + c] = newCodes[byteOf(c)] as number;
    }
  }
  const isOut = (row: number, col: number): boolean => codes[row * cols + col] === HIDDEN;
  // In means over queries, a query that was not compared with a key counts as giving it nothing.
  const isGone = (col: number): boolean => Boolean(isOutside[col]) && !apart[col];
  const givesNothing = (row: number, col: number): boolean =>
    Boolean(meta.compared) && given[row * cols + col] === HIDDEN && !drops(row) && !isGone(col);
  const result: Tile = {
    meta,
    rows,
    cols,
    codes,
    value: (row, col) => (isOut(row, col) ? Number.NaN : tile.value(row, col) / (divisors[row] as number)),
    text(row, col) {
      const code = given[row * cols + col] as number;
      if (code === HIDDEN) return tile.text(row, col);
      if (isOut(row, col)) return "left out";
      const by = divisors[row] as number;
      return withinError(tile.value(row, col) / by, codeError(code, top, gamma, scale, slack) / by);
    },
    peak: () => most,
    received: () =>
      meanReceived({ rows, cols, value: (row, col) => (givesNothing(row, col) ? 0 : result.value(row, col)) }),
  };
  return result;
}
