/**
 * Matrices as they travel: the twin of attnwidgets/views/wire/thumbnails.py for shares of a row, and for a single row.
 */
import { codesOf } from "../wire/matrices.ts";
import type { Axis, Thumbs, TileMeta } from "../wire/wire.ts";

const GAMMA = 0.5;
const SIDE = 64;

const peak = (values: Float32Array): number => values.reduce((top, value) => Math.max(top, Math.abs(value)), 0);

type TileAddress = Pick<TileMeta, "source" | "layer" | "head">;

/** A square matrix of shares as a tile, or a row of signed values. */
export function tileOf(
  address: TileAddress,
  values: Float32Array,
  signed = false,
): [TileMeta, Uint8Array<ArrayBuffer>] {
  const rows = signed ? 1 : Math.sqrt(values.length);
  const scale = signed ? peak(values) : 1;
  const shape = { rows, cols: values.length / rows, codec: signed ? "i8" : "u8" } as const;
  return [{ ...address, ...shape, gamma: GAMMA, scale }, codesOf(values, scale, signed)];
}

/** The strongest value of every block of cells among some elements [row, col]; a single row has blocks of columns. */
function pooled(values: Float32Array, elements: readonly number[], side: number, signed: boolean): Float32Array {
  const n = signed ? values.length : Math.sqrt(values.length);
  const out = new Float32Array(signed ? side : side * side);
  const blockOf = (position: number): number => Math.ceil(((position + 1) * side) / elements.length) - 1;
  (signed ? [0] : elements).forEach((row, i) => {
    elements.forEach((col, j) => {
      const at = (signed ? 0 : blockOf(i)) * side + blockOf(j);
      const value = values[row * n + col] as number;
      if (Math.abs(value) > Math.abs(out[at] as number)) out[at] = value;
    });
  });
  return out;
}

/** Thumbnails of a source [layer][head], with the tokens that stand apart or without. */
export function thumbsOf(
  source: string,
  matrices: readonly (readonly Float32Array[])[],
  { special: flags }: Axis,
  special: boolean,
  signed = false,
): [Thumbs, Uint8Array<ArrayBuffer>] {
  const areAll = flags.every(Boolean);
  const shows = special && !areAll && flags.some(Boolean);
  const elements = flags.flatMap((flag, i) => (flag && !shows && !areAll ? [] : [i]));
  const side = Math.min(SIDE, elements.length);
  const small = matrices.map((heads) => heads.map((values) => pooled(values, elements, side, signed)));
  const scale = small.map((heads) => heads.map(peak));
  const all = small.flatMap((heads, layer) =>
    heads.map((values, head) => codesOf(values, scale[layer]?.[head] ?? 0, signed)),
  );
  const rows = signed ? 1 : side;
  const data = new Uint8Array(all.length * rows * side);
  for (const [i, part] of all.entries()) data.set(part, i * rows * side);
  return [{ source, rows, cols: side, gamma: GAMMA, signed, scale, special: shows }, data];
}
