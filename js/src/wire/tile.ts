/** Decoded matrices and thumbnails, as views read them. */
import type { AnyTileMeta, Thumbs } from "./wire.ts";

/** Filtered tiles have Int16Array. */
export type Codes = Uint8Array | Int8Array | Int16Array;
/**
 * A decoded matrix: codes unpacked to meta.rows * meta.cols, row-major (the masked part of a causal map is 0). There is
 * a code for each of rows * cols cells, unless the tile is coarse (`meta.whole`): then cells share codes.
 */
export interface Tile {
  readonly meta: AnyTileMeta;
  readonly rows: number;
  readonly cols: number;
  readonly codes: Codes;
  /** Approximate value of a cell, within the error of the encoding. */
  value(row: number, col: number): number;
  /** The value with no more digits than the encoding supports, such as "0.12". */
  text(row: number, col: number): string;
  /** Largest absolute value. */
  peak(): number;
  /** For each key, the mean over the queries, NaN cells excluded. */
  received(): Float32Array;
}

/** The thumbnails of a source: `codes` holds [layer][head][row][col]. */
export interface ThumbSheet {
  readonly meta: Thumbs;
  readonly codes: Codes;
}
