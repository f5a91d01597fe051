/** Draws codes as pixels: a matrix through a colour table, pooled if it has more cells than there are pixels. */

import { HIDDEN } from "../../wire/codec.ts";
import type { Codes } from "../../wire/tile.ts";

/** The position of a matrix in an array of codes. */
export interface Matrix {
  codes: Codes;
  /** Index of its first code. */
  start: number;
  rows: number;
  cols: number;
  /** Skip the cells above the diagonal. */
  causal: boolean;
}

/**
 * The codes of some rows and columns of a matrix; cells right of the diagonal of a causal matrix are hidden, since they
 * are not zeros.
 */
export function gather(
  codes: Codes,
  stride: number,
  rows: readonly number[],
  cols: readonly number[],
  causal: boolean,
): Int16Array {
  const out = new Int16Array(rows.length * cols.length).fill(HIDDEN);
  let at = 0;
  for (const row of rows) {
    const from = row * stride;
    for (let i = 0; i < cols.length; i += 1) {
      const col = cols[i] as number;
      if (causal && col > row) break;
      out[at + i] = codes[from + col] as number;
    }
    at += cols.length;
  }
  return out;
}

const POOLED = new WeakMap<Codes, readonly [number, Matrix]>();

/** A matrix whose blocks of `factor` x `factor` cells are replaced by their largest |code|, so that peaks remain. */
export function maxPool(matrix: Matrix, factor: number): Matrix {
  if (factor <= 1) return matrix;
  const { codes, start, rows, cols, causal } = matrix;
  const isWhole = codes.length === rows * cols;
  const [by, cached] = POOLED.get(codes) ?? [];
  if (cached && by === factor && isWhole) return cached;
  const outRows = Math.ceil(rows / factor);
  const outCols = Math.ceil(cols / factor);
  const out = new (codes.constructor as Int16ArrayConstructor)(outRows * outCols);
  // Hidden cells count only if all are hidden.
  if (codes instanceof Int16Array) out.fill(HIDDEN);
  for (let r = 0; r < rows; r += 1) {
    const first = start + r * cols;
    const end = first + (causal ? Math.min(cols, r + 1) : cols);
    let at = Math.floor(r / factor) * outCols;
    for (let from = first; from < end; from += factor, at += 1) {
      const to = Math.min(end, from + factor);
      let best = out[at] as number;
      for (let i = from; i < to; i += 1) {
        const code = codes[i] as number;
        if (code !== HIDDEN && (best === HIDDEN || Math.abs(code) > Math.abs(best))) best = code;
      }
      out[at] = best;
    }
  }
  const pooled = { codes: out, start: 0, rows: outRows, cols: outCols, causal };
  if (isWhole) POOLED.set(codes, [factor, pooled]);
  return pooled;
}

/** Write a matrix, a pixel per cell, into an image `width` pixels wide. */
export function paintCells(pixels: Uint32Array, matrix: Matrix, lut: Uint32Array): void {
  const { codes, start, rows, cols, causal } = matrix;
  if (codes instanceof Int16Array && !causal) {
    for (let i = 0; i < rows * cols; i += 1) {
      const code = codes[start + i] as number;
      pixels[i] = lut[code === HIDDEN ? code : code & 255] as number;
    }
    return;
  }
  // Signed codes are read as bytes, matching the layout of the table.
  const bytes =
    codes instanceof Int8Array
      ? new Uint8Array(codes.buffer, codes.byteOffset, codes.length)
      : codes instanceof Int16Array
        ? Uint16Array.from(codes, (code) => (code === HIDDEN ? code : code & 255))
        : codes;
  if (!causal) {
    for (let i = 0; i < rows * cols; i += 1) pixels[i] = lut[bytes[start + i] as number] as number;
    return;
  }
  for (let r = 0; r < rows; r += 1) {
    const row = r * cols;
    const last = Math.min(cols, r + 1);
    for (let c = 0; c < last; c += 1) pixels[row + c] = lut[bytes[start + row + c] as number] as number;
    pixels.fill(0, row + last, row + cols);
  }
}

/** The position and size of a drawn thumbnail. */
export interface Frame {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Write a matrix into a frame of a larger image; each pixel shows the largest |code| of the cells under it. */
export function paintFrame(pixels: Uint32Array, stride: number, frame: Frame, matrix: Matrix, lut: Uint32Array): void {
  const { codes, start, rows, cols, causal } = matrix;
  const { x, y, width, height } = frame;
  for (let py = 0; py < height; py += 1) {
    const r0 = Math.floor((py * rows) / height);
    const r1 = Math.max(r0 + 1, Math.floor(((py + 1) * rows) / height));
    for (let px = 0; px < width; px += 1) {
      const c0 = Math.floor((px * cols) / width);
      const c1 = Math.max(c0 + 1, Math.floor(((px + 1) * cols) / width));
      if (causal && c0 > r1 - 1) continue;
      let best = HIDDEN;
      for (let r = r0; r < r1; r += 1) {
        for (let c = c0; c < c1; c += 1) {
          const code = codes[start + r * cols + c] as number;
          if (code !== HIDDEN && (best === HIDDEN || Math.abs(code) > Math.abs(best))) best = code;
        }
      }
      if (best !== HIDDEN) pixels[(y + py) * stride + x + px] = lut[best & 255] as number;
    }
  }
}
