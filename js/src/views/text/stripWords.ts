/** The state of a TokenStrip, and its description in words. */
import type { ViewContext } from "../../context.ts";
import { quoted, reserve, setText } from "../../dom.ts";
import { approximately, printed } from "../../numbers.ts";
import { LATER, NOT_COMPARED } from "../../wire/codec.ts";
import type { Cell, Source } from "../../wire/wire.ts";
import { type Account, detailsOf } from "../base/account.ts";
import { type ExactRows, nameOf } from "../base/cellValues.ts";
import type { CopyButton } from "../base/copyPython.ts";
import { filtered, filtersOf, hidesValues } from "../base/filters.ts";
import type { Frame } from "../base/frame.ts";
import { openingQuery, openingWords } from "../base/opening.ts";
import { absence, rowWords } from "../base/rowFacts.ts";
import type { SharedScale } from "../base/sharedScale.ts";
import type { Control } from "../base/toolbar.ts";
import type { Forgetting } from "./forgetting.ts";
import { largestOf } from "./rowValues.ts";
import type { Strip } from "./strip.ts";
import type { StripHost } from "./stripTools.ts";

const MOST_NAMED = 3;
/** The largest number of other targets mentioned with a value. */
const MOST_OTHERS = 8;

/** The shown values, and their origin. */
export interface Reading {
  values: Float32Array;
  /** The values of every strip, if every target has a strip. */
  all: Float32Array[];
  exact: boolean;
  /** Row index, or -1 for the mean over all rows. */
  query: number;
  /**
   * The end of the scale of the map that the row is from: a value has the same colour in both; 0: the values have their
   * own scale.
   */
  top: number;
  preview: boolean;
  /** The explanation of the values, if it is not the shown map. */
  explained?: Source | undefined;
}

/** Its elements, and the state that they show. */
export interface TokenStripState {
  readonly root: HTMLElement;
  readonly ctx: ViewContext;
  readonly isInside: boolean;
  readonly units: Control;
  readonly texts: HTMLDivElement;
  readonly description: HTMLSpanElement;
  readonly low: HTMLSpanElement;
  readonly ramp: HTMLSpanElement;
  readonly high: HTMLSpanElement;
  readonly grey: HTMLSpanElement;
  readonly legend: HTMLSpanElement;
  readonly sum: Account;
  readonly sums: HTMLDivElement;
  /** Whether the colour is below the text, and whether the reader wants it stronger. */
  line: boolean;
  intensity: number;
  /** Marks elements with search hits: 1, and 2 for the current hit. */
  edge: ((index: number) => number) | undefined;
  readonly host: StripHost;
  readonly copy: CopyButton | null;
  readonly shared: SharedScale;
  readonly exactRows: ExactRows;
  readonly forgetting: Forgetting;
  /** The strips of the shown texts. */
  keys: Strip[];
  /** The text whose elements are queries; null: no map. */
  queries: Strip | null;
  /** The input of the built elements. */
  builtFor: string;
  /** Ends the listeners of the elements. */
  bound: AbortController;
  /** The current reading; null before the first. */
  reading: Reading | null;
  /** Whether the page has laid out the text. */
  isShown: boolean;
  /** The key under the pointer; -1: none. */
  hoveredKey: number;
  readonly isBuilt: (...values: unknown[]) => boolean;
  readonly isRead: (...values: unknown[]) => boolean;
  readonly isPainted: (...values: unknown[]) => boolean;
  readonly isElsewhere: (...values: unknown[]) => boolean;
  readonly isOfMap: boolean;
  readonly frame: Frame;
}

/** Whether every target has a separate strip. */
export function stacked(state: TokenStripState): boolean {
  return state.keys.length > 1;
}

export function readWords(ctx: ViewContext, query: number): string {
  const opening = query === openingQuery(ctx) ? openingWords(ctx) : "";
  return `what ${nameOf(ctx, ctx.source().query, query)} ${ctx.source().words[2]}${opening ? ` · ${opening}` : ""}`;
}

export function describe(state: TokenStripState, { query, values, exact, preview }: Reading): void {
  const { ctx, description, keys, hoveredKey, frame } = state;
  const source = ctx.source();
  const target = nameOf(ctx, source.query, query);
  const isNamed = ctx.axisOf(source.query).labels[query] !== "";
  const isMap = source.kind === "map";
  const pinnedKey = ctx.cell("pinned")?.key ?? -1;
  const key = hoveredKey >= 0 ? hoveredKey : pinnedKey;
  // The query is outlined; the key under the pointer of any linked view is underlined.
  state.queries?.mark("aw-query", query);
  for (const strip of keys) strip.mark("aw-key", key);
  const pinned = ctx.cell("pinned");
  if (state.isShown && state.isElsewhere(keys, pinned?.query, pinned?.key, query < 0))
    keepInSight(state, pinned, preview ? query : -1);
  if (state.isInside && frame.readout.isSilent) return;
  if (stacked(state)) setText(description, "one scale for all");
  else if (source.kind === "attributions") setText(description, `attribution${isNamed ? ` to target ${target}` : ""}`);
  else if (query < 0) setText(description, `weight each ${source.unit} receives: mean over all queries`);
  else {
    setText(description, readWords(ctx, query));
  }
  description.title = description.textContent ?? "";
  const { layer, head } = ctx.resolved();
  // A cell read from its tile is worded as in the heatmap.
  const unfiltered = ctx.tiles.get(source.id, layer, head);
  const left = unfiltered && filtered(ctx, unfiltered);
  const tile = exact || query < 0 ? undefined : left;
  const isOut = hidesValues(filtersOf(ctx));
  const valueWords = (i: number, sign: string): string => {
    const to = query >= 0 && isNamed ? `${target} → ` : "";
    const name = `${to}${nameOf(ctx, source.key, i)}`;
    const value = values[i] ?? Number.NaN;
    const why = query >= 0 && isMap ? absence(source, Number.isNaN(value) ? left : null, query, i) : "";
    if (why || Number.isNaN(value)) return `${name}: ${why || (isOut ? "left out" : LATER)}`;
    const number = tile ? approximately(tile.text(query, i)) : `${sign} ${printed(value, exact)}`;
    return `${name} ${number}${state.host.note(i)}${others(i)}`;
  };
  /** The values of the same element for the other targets. */
  const others = (i: number): string => {
    const { labels } = ctx.axisOf(source.query);
    if (source.kind !== "attributions" || !left || labels.length < 2) return "";
    const rows = [...labels.keys()].filter((row) => row !== query);
    const size = (row: number): number => Math.abs(left.value(row, i));
    const listed = rows.length > MOST_OTHERS ? rows.sort((a, b) => size(b) - size(a)).slice(0, MOST_OTHERS) : rows;
    const words = listed.map((row) => `${nameOf(ctx, source.query, row)} ${approximately(left.text(row, i))}`);
    return ` · ${[...words, ...(rows.length > listed.length ? ["…"] : [])].join(" · ")}`;
  };
  let words: string;
  if (key >= 0) words = valueWords(key, exact ? "=" : "≈");
  else if (query < 0) words = `Hover a ${source.unit} to preview it as the query, click to pin it.`;
  else if (exact) {
    words = `largest: ${largestOf(values, MOST_NAMED)
      .map((i) => valueWords(i, "="))
      .join(", ")}`;
  } else if (source.kind === "attributions") words = `Hover a ${source.unit} to read its value, click to pin it.`;
  else
    words = preview
      ? `Hover a ${source.unit} to preview it as the query, click to pin it.`
      : `${target}: values are approximate (≈)`;
  const toSink = isMap ? rowWords(unfiltered, query) : "";
  setText(
    state.grey,
    isMap && query >= 0 && unfiltered?.meta.compared && values.some(Number.isNaN) ? NOT_COMPARED : "",
  );
  frame.readout.show([words, toSink].filter(Boolean).join(" · "), true);
}

/** How much of its target a method accounts for that conserves it: in every strip, or in the row shown. */
function accountOf(state: TokenStripState, source: Source, query: number, lines: readonly string[]): string[] {
  const labels = state.ctx.axisOf(source.query).labels;
  return stacked(state)
    ? lines.map((line, row) => `${quoted(labels, row, 0)}: ${line}`)
    : lines.slice(query, query + 1);
}

export function showSum(state: TokenStripState, source: Source, query: number): void {
  const { sums } = state;
  const other = state.ctx.counterpart()?.source;
  const words = (of: Source): string => accountOf(state, of, query, of.accounts).join(" ");
  state.sum.show(words(source), detailsOf(source, accountOf(state, source, query, source.sums)));
  const room = other ? words(other) : "";
  reserve(sums, room && `${room} Details`);
  sums.hidden = !(words(source) || sums.dataset.room);
}

/** Scroll a long text, and not the page, to the pinned element, or to the query of the first picture. */
function keepInSight(state: TokenStripState, pinned: Cell | null, opening: number): void {
  const scroller = [state.texts, state.root].find((el) => el.scrollHeight > el.clientHeight + 1);
  if (!scroller) return;
  state.queries?.keepIn(scroller, pinned?.query ?? opening);
  state.keys[Math.max(0, stacked(state) ? (pinned?.query ?? 0) : 0)]?.keepIn(scroller, pinned?.key ?? -1);
}
