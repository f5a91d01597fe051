/**
 * Rows of colours over a common axis, stretched to a width: a pixel for each column of the screen, however many
 * elements there are.
 */

import { density, h } from "../../dom.ts";
import type { Fill } from "../text/stripColour.ts";

/**
 * Draw rows on a canvas, `width` px wide: their values, the look of each, `gap` px between elements, and top and height
 * of a row. A column of the screen with several elements shows the largest.
 */
export type Stretch = (
  pen: CanvasRenderingContext2D,
  rows: readonly Float32Array[],
  looks: readonly (readonly Fill[])[],
  width: number,
  gap: number,
  at: (row: number) => readonly [top: number, height: number],
) => void;

/** Write the pixels of a row of `across` columns, of which `between` at the end of every element stay empty. */
export function fillColumns(out: Uint32Array, row: Float32Array, looks: readonly Fill[], between: number): void {
  const { length: count } = row;
  const across = out.length;
  if (count > across) {
    const largest = new Float32Array(across).fill(-1);
    for (let i = 0; i < count; i += 1) {
      const { pixel } = looks[i] as Fill;
      const x = Math.floor((i * across) / count);
      const size = Math.abs(row[i] as number) || 0;
      if (!pixel || size <= (largest[x] as number)) continue;
      largest[x] = size;
      out[x] = pixel;
    }
    return;
  }
  for (let i = 0; i < count; i += 1) {
    const stop = Math.round(((i + 1) * across) / count);
    out.fill((looks[i] as Fill).pixel, Math.round((i * across) / count), stop - between);
  }
}

export function createStretch(): Stretch {
  const canvas = h("canvas");
  return (pen, rows, looks, width, gap, at) => {
    const across = Math.max(1, Math.round(width * density()));
    const image = new ImageData(across, Math.max(1, rows.length));
    const pixels = new Uint32Array(image.data.buffer);
    rows.forEach((row, r) => {
      fillColumns(pixels.subarray(r * across, (r + 1) * across), row, looks[r] ?? [], Math.round(gap * density()));
    });
    if (canvas.width !== image.width || canvas.height !== image.height)
      [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d")?.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    for (const r of rows.keys()) {
      const [top, height] = at(r);
      pen.drawImage(canvas, 0, r, across, 1, 0, top, width, height);
    }
  };
}
