/** Thumbnails of a source: where each begins, how strong it is, and a part of their cells. */
import { decodeCode, peakCode } from "./codec.ts";
import type { Codes, ThumbSheet } from "./tile.ts";
import type { Thumbs } from "./wire.ts";

/** Index of the first code of every thumbnail; layers may differ in their number of heads. */
export function thumbOffsets(meta: Thumbs): number[][] {
  let at = -meta.rows * meta.cols;
  const next = (): number => {
    at += meta.rows * meta.cols;
    return at;
  };
  return meta.scale.map((heads) => heads.map(next));
}

const PEAKS = new WeakMap<ThumbSheet, number[][]>();

/** Largest absolute value of every thumbnail. */
export function peaksOf(sheet: ThumbSheet): number[][] {
  const { meta, codes } = sheet;
  const length = meta.rows * meta.cols;
  const peaks =
    PEAKS.get(sheet) ??
    thumbOffsets(meta).map((heads, row) =>
      heads.map((at, col) => {
        const code = peakCode(codes.subarray(at, at + length));
        return decodeCode(code, meta.signed ? 127 : 255, meta.gamma, meta.scale[row]?.[col] ?? 0);
      }),
    );
  PEAKS.set(sheet, peaks);
  return peaks;
}

/** Which elements can stand apart from a map: the special tokens, unless all elements are special. */
export function apartOf(special: readonly number[]): boolean[] {
  const isAll = special.every(Boolean);
  return special.map((flag) => !isAll && Boolean(flag));
}

/** The same thumbnails with only these rows and columns. */
export function someOf({ meta, codes }: ThumbSheet, rows: readonly number[], cols: readonly number[]): ThumbSheet {
  const all = thumbOffsets(meta).flat();
  const some = new (codes.constructor as new (length: number) => Codes)(all.length * rows.length * cols.length);
  let at = 0;
  for (const start of all)
    for (const row of rows)
      for (const col of cols) {
        some[at] = codes[start + row * meta.cols + col] as number;
        at += 1;
      }
  return { meta: { ...meta, rows: rows.length, cols: cols.length, special: false }, codes: some };
}
