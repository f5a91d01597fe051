/** The data of a HeadView: matrices of the shown heads, or single tokens if there is too much for all. */

import type { ViewContext } from "../../context.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { filtered, filteredRow, filtersOf, hidesValues, rescales } from "../base/filters.ts";
import { type Missing, missingAnswer, missingTile } from "../base/missing.ts";
import { along, type Edge, givenApart, limited, type Pairs, type Side, strongestOfEach, type Values } from "./pairs.ts";
import type { Token } from "./token.ts";

/** For layers with more values, single tokens are requested instead of matrices. */
const MOST_VALUES = 2 ** 25;
/** Number of lines that every token has, from this share of the strongest line on. */
const [LINES, FROM] = [3, 0.05];

export interface Overview {
  edges: readonly Edge[];
  apart: ReadonlyMap<number, number>;
}

export interface HeadNumbers {
  /** Read the loaded data of these heads, and request the rest. */
  gather(heads: readonly HeadKey[], pairs: Pairs): void;
  /** Everything derived is computed again. */
  renew(): void;
  /** By head, the values that a token reads, or with which it is read; exact values if the kernel sent them. */
  valuesOf(side: Side, index: number): { values: Values; exact: boolean };
  /** The strongest pairs of the queries of some rows, and by query the weight on the elements apart. */
  edges(first: number, last: number): Overview;
  /** The value of the strongest line. */
  top(token: Token | null): number;
  /** Why the drawing is missing; null: it is complete. */
  missing(token: Token | null): Missing | null;
  /** Why some heads are not loaded; "": all are. */
  why(): string;
  heads(): readonly HeadKey[];
  /** The map of a loaded head, unfiltered: its rows are compared with the same keys in all. */
  tile(): Tile | undefined;
  /** The number of loaded heads. */
  count(): number;
  /** Whether data is available only for a single token at a time. */
  huge(): boolean;
}

/** Its elements, and the state that they show. */
interface NumbersState {
  readonly ctx: ViewContext;
  /** The heads that are drawn, and their tiles. */
  heads: readonly HeadKey[];
  /** The axes of the tiles. */
  pairs: Pairs | undefined;
  tiles: (Tile | undefined)[];
  /** Whether there are too many tokens to count their values again at every step of the pointer. */
  isHuge: boolean;
  /** Why values are missing; empty: they are not. */
  why: string;
  /** Counts the values that arrive: results computed from earlier values are out of date. */
  generation: number;
  /** The values of the token that was read last. */
  cachedValues: { name: string; values: Values; exact: boolean };
  readonly answers: Answers;
}

export function createNumbers(ctx: ViewContext, signal: AbortSignal, changed: () => void): HeadNumbers {
  const { tiles } = ctx;
  let cachedOverview: { name: string; overview: Overview } | null = null;
  const answers = createAnswers(ctx, signal, () => {
    state.generation += 1;
    changed();
  });

  const state: NumbersState = {
    ctx,
    heads: [],
    pairs: undefined,
    tiles: [],
    isHuge: false,
    why: "",
    generation: 0,
    cachedValues: { name: "", values: [] as Values, exact: false },
    answers,
  };
  return {
    gather: (now, these) => gather(state, now, these),
    renew() {
      state.generation += 1;
    },
    valuesOf: (side, index) => valuesOf(state, side, index),
    edges(first, last) {
      const name = [state.generation, first, last].join();
      if (cachedOverview?.name !== name && state.pairs) {
        const queries = state.pairs.query.shown.subarray(first, last);
        const least = FROM * this.top(null);
        const edges = strongestOfEach(state.tiles, state.pairs, queries, LINES, least);
        cachedOverview = { name, overview: { edges, apart: givenApart(state.tiles, state.pairs, queries) } };
      }
      return cachedOverview?.overview ?? { edges: [], apart: new Map() };
    },
    top: (token) => top(state, token),
    missing: (token) => missing(state, token),
    why: () => state.why,
    heads: () => state.heads,
    tile() {
      const { source, layer } = ctx.resolved();
      const at = state.tiles.findIndex(Boolean);
      return at < 0 ? undefined : tiles.get(source.id, layer, state.heads[at] as HeadKey);
    },
    count: () => state.tiles.filter(Boolean).length,
    huge: () => state.isHuge,
  };
}

function exactValues(state: NumbersState, side: Side, index: number): Values | undefined {
  const { ctx } = state;
  if (isReduced(state)) return undefined;
  const { source } = ctx.resolved();
  const answer = state.answers.get<{ heads: HeadKey[] }>("token", argsOf(ctx, side, index));
  const bytes = answer?.buffers[0];
  if (!answer || !bytes) return undefined;
  const filters = filtersOf(ctx);
  const count = bytes.byteLength / 4 / answer.meta.heads.length;
  const { special } = ctx.axisOf(side === "query" ? source.key : source.query);
  return state.heads.map((head) => {
    const at = answer.meta.heads.indexOf(head) * count;
    if (at < 0) return undefined;
    const row = Float32Array.from({ length: count }, (_, i) => bytes.getFloat32(4 * (at + i), true));
    const shown = hidesValues(filters) ? filteredRow(row, special, filters, rescales(source)) : row;
    return limited(shown, state.pairs as Pairs, side, index);
  });
}

function argsOf(ctx: ViewContext, side: Side, index: number): Record<string, unknown> {
  const { source, layer } = ctx.resolved();
  return { source: source.id, layer, side, index };
}

/** Whether a reduction over heads is shown: answers about single tokens are by head. */
function isReduced(state: NumbersState): boolean {
  return state.heads.some((head) => head === "mean" || head === "max");
}

function valuesOf(state: NumbersState, side: Side, index: number): { name: string; values: Values; exact: boolean } {
  const { ctx, pairs, tiles } = state;
  const name = `${state.generation} ${side} ${index}`;
  if (state.cachedValues.name === name || !pairs) return state.cachedValues;
  const all = pairs;
  const pinned = ctx.cell("pinned")?.[side] === index && tiles.some(Boolean) && !hidesValues(filtersOf(ctx));
  const exact = state.isHuge || (pinned && !isReduced(state)) ? exactValues(state, side, index) : undefined;
  state.cachedValues = {
    name,
    values: exact ?? tiles.map((tile) => tile && along(tile, all, side, index)),
    exact: exact !== undefined,
  };
  return state.cachedValues;
}

function gather(state: NumbersState, now: readonly HeadKey[], these: Pairs): void {
  const { ctx } = state;
  const { tiles } = ctx;
  const { source, layer } = ctx.resolved();
  const before = state.tiles;
  if (String(state.heads) !== String(now) || state.pairs !== these) state.generation += 1;
  state.heads = now;
  state.pairs = these;
  state.isHuge = source.coarse || state.pairs.rows * state.pairs.cols * state.heads.length > MOST_VALUES;
  state.tiles = state.heads.map((head) => {
    const tile = state.isHuge ? undefined : tiles.get(source.id, layer, head);
    return tile && filtered(ctx, tile);
  });
  if (state.tiles.some((tile, i) => tile !== before[i])) state.generation += 1;
  state.why = "";
  if (state.isHuge) return;
  const failure = (head?: HeadKey): string | undefined => tiles.failure(source.id, layer, head);
  const absent = state.heads.filter((_, i) => !state.tiles[i]);
  const waiting = absent.filter((head) => !failure(head));
  const at = `layer ${ctx.layerName(layer)}`;
  if (failure()) state.why = `${at}: ${failure()}`;
  else if (waiting.length > 0) {
    state.why = `loading ${at} …`;
    tiles.requestHeads(source.id, layer, waiting);
  } else if (absent.length > 0) {
    const which = absent.length < state.heads.length ? `, head ${absent.map(ctx.headName).join(", ")}` : "";
    state.why = `${at}${which}: ${failure(absent[0])}`;
  }
}

function top(state: NumbersState, token: Token | null): number {
  if (state.ctx.source().stochastic) return 1;
  let top = Math.max(0, ...state.tiles.map((tile) => tile?.meta.scale ?? 0));
  // The largest value of a token that was requested alone.
  if (state.isHuge && token) {
    for (const headValues of valuesOf(state, token.side, token.index).values) {
      for (const value of headValues ?? []) if (Math.abs(value) > top) top = Math.abs(value);
    }
  }
  return top || 1;
}

function missing(state: NumbersState, token: Token | null): Missing | null {
  const { ctx, heads } = state;
  if (heads.length === 0 || state.tiles.some(Boolean)) return null;
  if (!state.isHuge) {
    const { source, layer } = ctx.resolved();
    const why = ctx.tiles.failure(source.id, layer);
    const missing = missingTile(ctx, { ...ctx.resolved(), head: heads[0] as HeadKey });
    return why ? { ...missing, kind: "failed", advice: why } : missing;
  }
  if (!token || valuesOf(state, token.side, token.index).exact) return null;
  if (isReduced(state)) return { kind: "none", words: "Too large for all heads at once", advice: "Choose one head." };
  return missingAnswer(state.answers, "token", argsOf(ctx, token.side, token.index), "values of a token");
}
