/**
 * The pairs of tokens in a HeadView: which are included, the values that a token reads and is read with, and the
 * strongest pairs.
 */

import { HIDDEN, valueTable } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Filters } from "../../wire/viewState.ts";
import type { Axis } from "../../wire/wire.ts";
import { type Rows, rowsOf } from "./rows.ts";

/** For a pair of texts: that of the query and of the key. */
export const BETWEEN = { all: "all", "A-A": "A → A", "A-B": "A → B", "B-A": "B → A", "B-B": "B → B" };
export type Between = keyof typeof BETWEEN;

export type Side = "query" | "key";

/** Values of a token along the other side, by head; NaN: no value, undefined: the head is not loaded. */
export type Values = readonly (Float32Array | undefined)[];

/** The included pairs. */
export interface Pairs {
  rows: number;
  cols: number;
  causal: boolean;
  /** 1 for each query and key that is included. */
  queries: Uint8Array;
  keys: Uint8Array;
  /** The rows of both sides. */
  query: Rows;
  key: Rows;
}

/** Whether there is more than one text on a side. */
export const isPair = (...axes: Axis[]): boolean => axes.some(({ segment }) => segment.some((text) => text > 0));

/** The pairs between these texts; the filters determine whether special tokens stand apart. */
export function pairsOf(
  query: Axis,
  key: Axis,
  between: Between,
  causal: boolean,
  filters: Pick<Filters, "special"> = { special: "show" },
): Pairs {
  const [from, to] = between === "all" ? [] : between.split("-");
  const taking = (axis: Axis, text: string | undefined): Uint8Array =>
    Uint8Array.from(axis.labels, (_, i) => Number(!text || (text === "A") === ((axis.segment[i] ?? 0) === 0)));
  const [rows, cols] = [query.labels.length, key.labels.length];
  return {
    rows,
    cols,
    causal: causal && rows === cols,
    queries: taking(query, from),
    keys: taking(key, to),
    query: rowsOf(query, filters),
    key: rowsOf(key, filters),
  };
}

/** Size of the table of values by code. Masking a code gives its index: negative codes come last. */
const TABLE_SIZE = 2 * HIDDEN;
const MASK = TABLE_SIZE - 1;

const TABLES = new WeakMap<Tile, Float32Array>();

/** Values of a tile's codes; hidden values are NaN. */
function tableOf(tile: Tile): Float32Array {
  let table = TABLES.get(tile);
  if (!table) {
    const { codec, gamma, scale } = tile.meta;
    table = new Float32Array(TABLE_SIZE).fill(Number.NaN);
    const signed = codec === "i8";
    const values = valueTable(signed, gamma, scale);
    if (signed) table.set(values.subarray(128), TABLE_SIZE - 128);
    table.set(values.subarray(0, signed ? 128 : 256));
    TABLES.set(tile, table);
  }
  return table;
}

/** The values that a query reads, or with which a key is read, in a head. */
export function along(tile: Tile, pairs: Pairs, side: Side, index: number): Float32Array {
  const { rows, cols, causal } = pairs;
  const table = tableOf(tile);
  const isQuery = side === "query";
  const taking = isQuery ? pairs.keys : pairs.queries;
  const count = isQuery ? cols : rows;
  const out = new Float32Array(count).fill(Number.NaN);
  if (!(isQuery ? pairs.queries : pairs.keys)[index]) return out;
  const first = causal && !isQuery ? index : 0;
  const last = causal && isQuery ? Math.min(count, index + 1) : count;
  const [start, step] = isQuery ? [index * cols, 1] : [index, cols];
  const { codes } = tile;
  for (let i = first; i < last; i += 1) {
    if (taking[i]) out[i] = table[(codes[start + i * step] as number) & MASK] as number;
  }
  return out;
}

/** The same from exact numbers. */
export function limited(values: Float32Array, pairs: Pairs, side: Side, index: number): Float32Array {
  const isQuery = side === "query";
  const taking = isQuery ? pairs.keys : pairs.queries;
  const takes = (isQuery ? pairs.queries : pairs.keys)[index];
  const masked = (i: number): boolean => pairs.causal && (isQuery ? i > index : i < index);
  return values.map((value, i) => (takes && taking[i] && !masked(i) ? value : Number.NaN));
}

export interface Edge {
  query: number;
  key: number;
  /** Index among the given heads. */
  head: number;
  value: number;
}

/**
 * The strongest pairs of each of these queries over all given heads, at most `most` each, of a magnitude of at least
 * `least`; zeros do not count as pairs.
 */
export function strongestOfEach(
  tiles: readonly (Tile | undefined)[],
  pairs: Pairs,
  queries: ArrayLike<number>,
  most: number,
  least: number,
): Edge[] {
  const { cols, causal, key } = pairs;
  const loaded = tiles.flatMap((tile, head) => {
    if (!tile) return [];
    const table = tableOf(tile);
    return [{ head, table, sizes: table.map(Math.abs), codes: tile.codes }];
  });
  const usable = pairs.keys.map((is, i) => Number(is && (key.rowOf[i] as number) >= 0));
  const shown: Edge[] = [];
  for (let i = 0; i < queries.length; i += 1) {
    const query = queries[i] as number;
    if (!pairs.queries[query]) continue;
    const best: Edge[] = [];
    // Rounded down, so that a value of exactly `least` counts.
    let floor = least * (1 - 1e-6);
    const end = causal ? query + 1 : cols;
    for (const { head, table, sizes, codes } of loaded) {
      const start = query * cols;
      for (let at = 0; at < end; at += 1) {
        const code = (codes[start + at] as number) & MASK;
        if (!((sizes[code] as number) > floor) || !usable[at]) continue;
        best.push({ query, key: at, head, value: table[code] as number });
        best.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).splice(most);
        if (best.length === most) floor = Math.abs(best[most - 1]?.value as number);
      }
    }
    shown.push(...best);
  }
  return shown;
}

/** The weight of each of these queries on the keys that stand apart: the mean over heads; by query. */
export function givenApart(
  tiles: readonly (Tile | undefined)[],
  pairs: Pairs,
  queries: ArrayLike<number>,
): Map<number, number> {
  const loaded = tiles.filter((tile) => tile !== undefined);
  const sums = new Map<number, number>();
  if (pairs.key.apart.length === 0 || loaded.length === 0) return sums;
  for (let i = 0; i < queries.length; i += 1) {
    const query = queries[i] as number;
    let sum = 0;
    for (const tile of loaded) {
      for (const key of pairs.key.apart) if (!pairs.causal || key <= query) sum += tile.value(query, key) || 0;
    }
    sums.set(query, sum / loaded.length);
  }
  return sums;
}

export interface Relation {
  index: number;
  head: number;
  value: number;
}

/** The strongest relations of a token, each with the head where it is strongest; without the elements in `apart`. */
export function relations(values: Values, most: number, apart: readonly number[] = []): Relation[] {
  const strongestFirst: Relation[] = [];
  const loaded = values.map((row) => row ?? []) as Float32Array[];
  const count = Math.max(0, ...loaded.map((row) => row.length));
  let least = 0;
  for (let index = 0; index < count; index += 1) {
    let size = least;
    let best = -1;
    for (let head = 0; head < loaded.length; head += 1) {
      const value = Math.abs((loaded[head] as Float32Array)[index] as number);
      if (!(value > size)) continue;
      size = value;
      best = head;
    }
    if (best < 0 || apart.includes(index)) continue;
    strongestFirst.push({ index, head: best, value: (loaded[best] as Float32Array)[index] as number });
    strongestFirst.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).splice(most);
    if (strongestFirst.length === most) least = Math.abs(strongestFirst[most - 1]?.value as number);
  }
  return strongestFirst;
}
