/**
 * The pairs of tokens in a HeadView: which are included, what a token reads and who reads it, and the strongest pairs.
 */

import { HIDDEN, valueTable } from "../../wire/codec.ts";
import type { Codes, Tile } from "../../wire/tile.ts";
import type { Axis } from "../../wire/wire.ts";

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
}

/** Whether there is more than one text on a side. */
export const isPair = (...axes: Axis[]): boolean => axes.some(({ segment }) => segment.some((text) => text > 0));

/** The pairs between these texts. */
export function pairsOf(query: Axis, key: Axis, between: Between, causal: boolean): Pairs {
  const [from, to] = between === "all" ? [] : between.split("-");
  const taking = (axis: Axis, text: string | undefined): Uint8Array =>
    Uint8Array.from(axis.labels, (_, i) => Number(!text || (text === "A") === ((axis.segment[i] ?? 0) === 0)));
  const [rows, cols] = [query.labels.length, key.labels.length];
  return { rows, cols, causal: causal && rows === cols, queries: taking(query, from), keys: taking(key, to) };
}

/** Codes are masked by this to give an index into their table: negative ones come last. */
const PLACES = 2 * HIDDEN;
const PLACE = PLACES - 1;

const TABLES = new WeakMap<Tile, Float32Array>();

/** Values of a tile's codes; hidden ones are NaN. */
function tableOf(tile: Tile): Float32Array {
  let table = TABLES.get(tile);
  if (!table) {
    const { codec, gamma, scale } = tile.meta;
    table = new Float32Array(PLACES).fill(Number.NaN);
    const signed = codec === "i8";
    const values = valueTable(signed, gamma, scale);
    if (signed) table.set(values.subarray(128), PLACES - 128);
    table.set(values.subarray(0, signed ? 128 : 256));
    TABLES.set(tile, table);
  }
  return table;
}

/** What a query reads, or who reads a key, in one head. */
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
    if (taking[i]) out[i] = table[(codes[start + i * step] as number) & PLACE] as number;
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

export interface Edges {
  shown: Edge[];
  /** How many there are. */
  of: number;
  /** The share of the sum of all magnitudes in the shown pairs; 1 if that sum is 0. */
  share: number;
  /** By head and key, the mean over these queries. */
  received: Values;
}

const BINS = 256;

interface Binned {
  top: number;
  /** The values, with hidden ones as zero. */
  plain: Float32Array;
  bins: Uint8Array;
}

const BINNED = new WeakMap<Tile, Binned>();

/** The bin of every code, with `top` in the last one; a non-zero value is never in the bin of zeros. */
function binned(tile: Tile, table: Float32Array, top: number): Binned {
  let cached = BINNED.get(tile);
  if (cached?.top !== top) {
    const plain = table.map((value) => value || 0);
    const bins = Uint8Array.from(plain, (value) =>
      Math.min(BINS - 1, Math.ceil(Math.sqrt(Math.abs(value) / top) * (BINS - 1))),
    );
    cached = { top, plain, bins };
    BINNED.set(tile, cached);
  }
  return cached;
}

/** An included query, and its number of keys. */
type Line = readonly [query: number, end: number];

/** Count codes by index, and sum what every key receives. A separate function because it is hot. */
function tally(
  codes: Codes,
  table: Float32Array,
  seen: Uint32Array,
  sum: Float32Array,
  keys: Uint8Array,
  everyKey: boolean,
  lines: readonly Line[],
): void {
  for (const [row, end] of lines) {
    const start = row * keys.length;
    for (let col = 0; col < end; col += 1) {
      if (!everyKey && !keys[col]) continue;
      const place = (codes[start + col] as number) & PLACE;
      seen[place] = (seen[place] as number) + 1;
      sum[col] = (sum[col] as number) + (table[place] as number);
    }
  }
}

/** Keys of the codes from `start` to `end` whose bin is at least `least`. Also hot. */
function strong(codes: Codes, bins: Uint8Array, least: number, start: number, end: number): number[] {
  const keys: number[] = [];
  for (let i = start; i < end; i += 1) {
    if ((bins[(codes[i] as number) & PLACE] as number) >= least) keys.push(i - start);
  }
  return keys;
}

/**
 * The strongest pairs of the queries from `first` to `last`, over all given heads, at most `budget`. Pairs are sorted
 * into 256 bins of magnitude, so that no list of all pairs is needed.
 */
export function strongest(
  tiles: readonly (Tile | undefined)[],
  pairs: Pairs,
  first: number,
  last: number,
  budget: number,
): Edges {
  const { cols, causal, queries, keys } = pairs;
  const top = Math.max(0, ...tiles.map((tile) => tile?.meta.scale ?? 0)) || 1;
  const everyKey = keys.every(Boolean);
  const counts = new Float64Array(BINS);
  const readers = new Float32Array(cols);
  const lines: Line[] = [];
  for (let row = first; row < last; row += 1) {
    if (!queries[row]) continue;
    const end = causal ? row + 1 : cols;
    lines.push([row, end]);
    for (let col = 0; col < end; col += 1) readers[col] = (readers[col] as number) + (keys[col] as number);
  }
  let [of, mass] = [0, 0];
  const all = tiles.map((tile) => {
    if (!tile) return undefined;
    const table = tableOf(tile);
    const { plain, bins } = binned(tile, table, top);
    const seen = new Uint32Array(PLACES);
    const sum = new Float32Array(cols);
    const { codes } = tile;
    tally(codes, plain, seen, sum, keys, everyKey, lines);
    for (let place = 0; place < PLACES; place += 1) {
      const count = seen[place] as number;
      if (count === 0 || place === HIDDEN) continue;
      of += count;
      mass += count * Math.abs(table[place] as number);
      const bin = bins[place] as number;
      counts[bin] = (counts[bin] as number) + count;
    }
    return { codes, table, bins, received: sum.map((value, col) => value / (readers[col] as number)) };
  });
  let [least, room] = [BINS, budget];
  while (least > 1 && room > 0) {
    least -= 1;
    room -= counts[least] as number;
  }
  // The last bin is cut to the available room.
  let partly = room < 0 ? (counts[least] as number) + room : Infinity;
  const shown: Edge[] = [];
  all.forEach((counted, head) => {
    if (!counted) return;
    const { codes, table, bins } = counted;
    for (const [query, end] of lines) {
      const start = query * cols;
      for (const key of strong(codes, bins, least, start, start + end)) {
        const place = (codes[start + key] as number) & PLACE;
        if (!keys[key]) continue;
        if (bins[place] === least) {
          partly -= 1;
          if (partly < 0) continue;
        }
        shown.push({ query, key, head, value: table[place] as number });
      }
    }
  });
  const shownSum = shown.reduce((sum, { value }) => sum + Math.abs(value), 0);
  return { shown, of, share: mass > 0 ? shownSum / mass : 1, received: all.map((one) => one?.received) };
}

export interface Relation {
  index: number;
  head: number;
  value: number;
}

/** The strongest relations of one token, each with the head where it is strongest. */
export function relations(values: Values, most: number): Relation[] {
  const strongestFirst: Relation[] = [];
  const loaded = values.map((one) => one ?? []) as Float32Array[];
  const count = Math.max(0, ...loaded.map((one) => one.length));
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
    if (best < 0) continue;
    strongestFirst.push({ index, head: best, value: (loaded[best] as Float32Array)[index] as number });
    strongestFirst.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).splice(most);
    if (strongestFirst.length === most) least = Math.abs(strongestFirst[most - 1]?.value as number);
  }
  return strongestFirst;
}
