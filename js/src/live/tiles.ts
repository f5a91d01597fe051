/** Matrices as they travel: the twin of attnwidgets/views/wire/thumbnails.py for shares of a row. */
import type { Axis, Thumbs, TileMeta } from "../wire/wire.ts";

const GAMMA = 0.5;
const SIDE = 64;

/** Codes of shares, after a square root; `scale` has the largest code. */
function codes(values: Float32Array, scale: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(values, (value) =>
    Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, value / (scale || 1))))),
  );
}

type Place = Pick<TileMeta, "source" | "layer" | "head">;

/** A square matrix of shares as a tile. */
export function tileOf(place: Place, values: Float32Array): [TileMeta, Uint8Array<ArrayBuffer>] {
  const side = Math.sqrt(values.length);
  const meta: TileMeta = { ...place, rows: side, cols: side, codec: "u8", gamma: GAMMA, scale: 1 };
  return [meta, codes(values, 1)];
}

/** The strongest value of every block of cells among some elements [row, col]. */
function pooled(values: Float32Array, kept: readonly number[], side: number): Float32Array {
  const n = Math.sqrt(values.length);
  const out = new Float32Array(side * side);
  const blockOf = (place: number): number => Math.ceil(((place + 1) * side) / kept.length) - 1;
  kept.forEach((row, i) => {
    kept.forEach((col, j) => {
      const at = blockOf(i) * side + blockOf(j);
      out[at] = Math.max(out[at] as number, values[row * n + col] as number);
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
): [Thumbs, Uint8Array<ArrayBuffer>] {
  const areAll = flags.every(Boolean);
  const shows = special && !areAll && flags.some(Boolean);
  const kept = flags.flatMap((flag, i) => (flag && !shows && !areAll ? [] : [i]));
  const side = Math.min(SIDE, kept.length);
  const small = matrices.map((heads) => heads.map((values) => pooled(values, kept, side)));
  const scale = small.map((heads) => heads.map((values) => Math.max(0, ...values)));
  const all = small.flatMap((heads, layer) => heads.map((values, head) => codes(values, scale[layer]?.[head] ?? 0)));
  const data = new Uint8Array(all.length * side * side);
  for (const [i, part] of all.entries()) data.set(part, i * side * side);
  return [{ source, rows: side, cols: side, gamma: GAMMA, signed: false, scale, special: shows }, data];
}
