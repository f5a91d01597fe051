/** The end of a map's colour range, which the text takes as well. */
import { decodeCode, HIDDEN } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";

const PEAKS = new WeakMap<Tile, readonly [size: string, peak: number]>();

/** The largest magnitude in some rows and columns of a tile: those that do not stand apart. */
export function peakInside(tile: Tile, rows: readonly number[], cols: readonly number[]): number {
  if (tile.meta.whole || (rows.length === tile.rows && cols.length === tile.cols)) return tile.peak();
  const size = `${rows.length},${cols.length}`;
  const [cachedSize, peak] = PEAKS.get(tile) ?? [];
  if (cachedSize === size) return peak as number;
  let most = 0;
  for (const row of rows) {
    for (const col of cols) {
      const code = tile.codes[row * tile.cols + col] as number;
      if (code !== HIDDEN) most = Math.max(most, Math.abs(code));
    }
  }
  const { codec, gamma, scale } = tile.meta;
  const value = decodeCode(most, codec === "i8" ? 127 : 255, gamma, scale);
  PEAKS.set(tile, [size, value]);
  return value;
}
