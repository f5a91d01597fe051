/** The data of a HeadView: matrices of the shown heads, or single tokens if there is too much for all. */

import type { ViewContext } from "../../context.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { filtered, filteredRow, filtersOf, hidesValues, rescales } from "../base/filters.ts";
import { type Missing, missingAnswer, missingTile } from "../base/missing.ts";
import { along, type Edge, givenApart, limited, type Pairs, type Side, strongestOfEach, type Values } from "./pairs.ts";
import type { Token } from "./token.ts";

/** For layers with more values, single tokens are requested instead of matrices. */
const MOST_VALUES = 2 ** 25;
/** Lines that every token has, from this share of the strongest one on. */
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
  /** By head, what a token reads or who reads it; exact values if the kernel sent them. */
  valuesOf(side: Side, index: number): { values: Values; exact: boolean };
  /** The strongest pairs of the queries of some rows, and by query what they give to what stands apart. */
  edges(first: number, last: number): Overview;
  /** The value of the strongest line. */
  top(token: Token | null): number;
  /** What is lacking to draw; null: nothing. */
  missing(token: Token | null): Missing | null;
  /** Why some heads are not loaded; "": all are. */
  why(): string;
  heads(): readonly HeadKey[];
  /** The map of one of the loaded heads, unfiltered: its rows are compared with the same keys in all. */
  tile(): Tile | undefined;
  /** The number of loaded heads. */
  count(): number;
  /** Whether data is available only for one token at a time. */
  huge(): boolean;
}

export function createNumbers(ctx: ViewContext, signal: AbortSignal, changed: () => void): HeadNumbers {
  const { tiles } = ctx;
  let heads: readonly HeadKey[] = [];
  let pairs: Pairs | undefined;
  let here: (Tile | undefined)[] = [];
  let isHuge = false;
  let why = "";
  let generation = 0;
  let cachedValues = { name: "", values: [] as Values, exact: false };
  let cachedOverview: { name: string; overview: Overview } | null = null;
  const answers = createAnswers(ctx, signal, () => {
    generation += 1;
    changed();
  });

  const exactValues = (side: Side, index: number): Values | undefined => {
    if (isReduced()) return undefined;
    const { source } = ctx.resolved();
    const answer = answers.get<{ heads: HeadKey[] }>("token", argsOf(side, index));
    const bytes = answer?.buffers[0];
    if (!answer || !bytes) return undefined;
    const filters = filtersOf(ctx);
    const count = bytes.byteLength / 4 / answer.meta.heads.length;
    const { special } = ctx.axisOf(side === "query" ? source.key : source.query);
    return heads.map((head) => {
      const at = answer.meta.heads.indexOf(head) * count;
      if (at < 0) return undefined;
      const row = Float32Array.from({ length: count }, (_, i) => bytes.getFloat32(4 * (at + i), true));
      const shown = hidesValues(filters) ? filteredRow(row, special, filters, rescales(source)) : row;
      return limited(shown, pairs as Pairs, side, index);
    });
  };

  const argsOf = (side: Side, index: number): Record<string, unknown> => {
    const { source, layer } = ctx.resolved();
    return { source: source.id, layer, side, index };
  };

  /** Whether a reduction over heads is shown: single tokens come by head. */
  const isReduced = (): boolean => heads.some((head) => head === "mean" || head === "max");

  const valuesOf = (side: Side, index: number): typeof cachedValues => {
    const name = `${generation} ${side} ${index}`;
    if (cachedValues.name === name || !pairs) return cachedValues;
    const all = pairs;
    const pinned = ctx.cell("pinned")?.[side] === index && here.some(Boolean) && !hidesValues(filtersOf(ctx));
    const exact = isHuge || (pinned && !isReduced()) ? exactValues(side, index) : undefined;
    cachedValues = {
      name,
      values: exact ?? here.map((tile) => tile && along(tile, all, side, index)),
      exact: exact !== undefined,
    };
    return cachedValues;
  };

  return {
    gather(now, these) {
      const { source, layer } = ctx.resolved();
      const before = here;
      if (String(heads) !== String(now) || pairs !== these) generation += 1;
      heads = now;
      pairs = these;
      isHuge = source.coarse || pairs.rows * pairs.cols * heads.length > MOST_VALUES;
      here = heads.map((head) => {
        const tile = isHuge ? undefined : tiles.get(source.id, layer, head);
        return tile && filtered(ctx, tile);
      });
      if (here.some((tile, i) => tile !== before[i])) generation += 1;
      why = "";
      if (isHuge) return;
      const failure = (head?: HeadKey): string | undefined => tiles.failure(source.id, layer, head);
      const absent = heads.filter((_, i) => !here[i]);
      const waiting = absent.filter((head) => !failure(head));
      const at = `layer ${ctx.layerName(layer)}`;
      if (failure()) why = `${at}: ${failure()}`;
      else if (waiting.length > 0) {
        why = `loading ${at} …`;
        tiles.requestHeads(source.id, layer, waiting);
      } else if (absent.length > 0) {
        const which = absent.length < heads.length ? `, head ${absent.map(ctx.headName).join(", ")}` : "";
        why = `${at}${which}: ${failure(absent[0])}`;
      }
    },
    renew() {
      generation += 1;
    },
    valuesOf,
    edges(first, last) {
      const name = [generation, first, last].join();
      if (cachedOverview?.name !== name && pairs) {
        const queries = pairs.query.shown.subarray(first, last);
        const least = FROM * this.top(null);
        const edges = strongestOfEach(here, pairs, queries, LINES, least);
        cachedOverview = { name, overview: { edges, apart: givenApart(here, pairs, queries) } };
      }
      return cachedOverview?.overview ?? { edges: [], apart: new Map() };
    },
    top(token) {
      if (ctx.source().stochastic) return 1;
      let top = Math.max(0, ...here.map((tile) => tile?.meta.scale ?? 0));
      // The largest value of a token that was requested alone.
      if (isHuge && token) {
        for (const headValues of valuesOf(token.side, token.index).values) {
          for (const value of headValues ?? []) if (Math.abs(value) > top) top = Math.abs(value);
        }
      }
      return top || 1;
    },
    missing(token) {
      if (heads.length === 0 || here.some(Boolean)) return null;
      if (!isHuge) {
        const { source, layer } = ctx.resolved();
        const why = tiles.failure(source.id, layer);
        const missing = missingTile(ctx, { ...ctx.resolved(), head: heads[0] as HeadKey });
        return why ? { ...missing, kind: "failed", advice: why } : missing;
      }
      if (!token || valuesOf(token.side, token.index).exact) return null;
      if (isReduced()) return { kind: "none", words: "Too large for all heads at once", advice: "Choose one head." };
      return missingAnswer(answers, "token", argsOf(token.side, token.index), "values of a token");
    },
    why: () => why,
    heads: () => heads,
    tile() {
      const { source, layer } = ctx.resolved();
      const at = here.findIndex(Boolean);
      return at < 0 ? undefined : tiles.get(source.id, layer, heads[at] as HeadKey);
    },
    count: () => here.filter(Boolean).length,
    huge: () => isHuge,
  };
}
