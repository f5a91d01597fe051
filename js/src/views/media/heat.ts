/** Maps over a picture: their colours, and the line around the patches that hold a share of them. */
import { LAST_COLOUR, type MapName, type Mode, mapTable, place } from "../../colour.ts";

/** Share of the range from which a map covers the picture, how much of it at most, and how fast; as in figures/parts/picture.py. */
const [LEAST, MOST, RISE] = [0.04, 0.94, 1.6];

/** How opaque a map is at a share of its range, 0 to 1. */
export const opacityAt = (share: number): number => Math.min(MOST, Math.max(0, (Math.abs(share) - LEAST) * RISE));

export interface Shade {
  map: MapName;
  mode: Mode;
  range: readonly [number, number];
}

/** Colours of values as RGBA: transparent at zero, and where there is no number. */
export function shades(values: ArrayLike<number>, { map, mode, range }: Shade): Uint8ClampedArray<ArrayBuffer> {
  const table = mapTable(map);
  const out = new Uint8ClampedArray(4 * values.length);
  const signed = range[0] < 0;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] as number;
    if (Number.isNaN(value)) continue;
    const at = place(value, range, mode);
    const from = 3 * Math.round(LAST_COLOUR * at);
    out[4 * i] = table[from] as number;
    out[4 * i + 1] = table[from + 1] as number;
    out[4 * i + 2] = table[from + 2] as number;
    out[4 * i + 3] = Math.round(255 * opacityAt(signed ? 2 * at - 1 : at));
  }
  return out;
}

/** Paint a map on a canvas of one pixel a patch. */
export function paintHeat(
  canvas: HTMLCanvasElement | OffscreenCanvas,
  values: ArrayLike<number>,
  [rows, cols]: readonly [number, number],
  shade: Shade,
): void {
  if (canvas.width !== cols || canvas.height !== rows) [canvas.width, canvas.height] = [cols, rows];
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D | null;
  if (rows && cols) pen?.putImageData(new ImageData(shades(values, shade), cols, rows), 0, 0);
}

/** The fewest patches, the largest first, that hold a share of what all of them hold, by magnitude. */
export function topPatches(values: ArrayLike<number>, share: number): boolean[] {
  const sizes = Array.from(values, (value) => Math.abs(value) || 0);
  let left = share * sizes.reduce((sum, size) => sum + size, 0) * (1 - 1e-6);
  const chosen = sizes.map(() => false);
  for (const i of [...sizes.keys()].sort((a, b) => (sizes[b] as number) - (sizes[a] as number))) {
    if (left <= 0) break;
    chosen[i] = true;
    left -= sizes[i] as number;
  }
  return chosen;
}

/** The line around chosen patches as an SVG path in units of a patch. */
export function outline(chosen: readonly boolean[], [rows, cols]: readonly [number, number]): string {
  const is = (row: number, col: number): boolean =>
    row >= 0 && col >= 0 && row < rows && col < cols && (chosen[row * cols + col] as boolean);
  let path = "";
  for (let row = 0; row <= rows; row += 1) {
    for (let col = 0; col <= cols; col += 1) {
      if (col < cols && is(row, col) !== is(row - 1, col)) path += `M${col} ${row}h1`;
      if (row < rows && is(row, col) !== is(row, col - 1)) path += `M${col} ${row}v1`;
    }
  }
  return path;
}
