/** All thumbnails as one picture, in the given arrangement. */

import { lut, type MapName, type Mode } from "../../../colour.ts";
import { decodeCode, peakCode } from "../../../wire/codec.ts";
import type { ThumbSheet } from "../../../wire/tile.ts";
import type { Source, Thumbs } from "../../../wire/wire.ts";
import { paintFrame } from "../../maps/paint.ts";
import type { Arrangement, Spot } from "./arrange.ts";

/** Index of the first code of every thumbnail; layers may differ in their number of heads. */
export function thumbOffsets(meta: Thumbs): number[][] {
  let at = -meta.rows * meta.cols;
  const next = (): number => {
    at += meta.rows * meta.cols;
    return at;
  };
  return meta.scale.map((heads) => heads.map(next));
}

/** Largest absolute value of every thumbnail. */
export function peaksOf({ meta, codes }: ThumbSheet): number[][] {
  const length = meta.rows * meta.cols;
  return thumbOffsets(meta).map((heads, row) =>
    heads.map((at, col) => {
      const code = peakCode(codes.subarray(at, at + length));
      return decodeCode(code, meta.signed ? 127 : 255, meta.gamma, meta.scale[row]?.[col] ?? 0);
    }),
  );
}

export interface Atlas {
  source: Source;
  sheet: ThumbSheet;
  peaks: number[][];
  map: MapName;
  /** The end of a common scale; null: every thumbnail has its own. */
  common: number | null;
  mode: Mode;
}

/** Colour tables by their parameters: thousands of thumbnails share a few. */
const tables = new WeakMap<ThumbSheet, Map<string, Uint32Array>>();

/** Colours of one thumbnail. */
export function tableOf({ sheet, peaks, map, common, mode }: Atlas, { layer, head }: Spot): Uint32Array {
  const { gamma, signed, scale } = sheet.meta;
  const peak = scale[layer]?.[head] ?? 0;
  const top = common ?? peaks[layer]?.[head] ?? 0;
  // Only the ratio of scale and range matters; it is 1 if the thumbnail has its own scale.
  const ratio = top > 0 ? peak / top : 0;
  const name = `${map} ${mode} ${ratio.toPrecision(4)}`;
  const known = tables.get(sheet) ?? new Map<string, Uint32Array>();
  tables.set(sheet, known);
  let table = known.get(name);
  if (!table) {
    table = lut(map, { gamma, scale: ratio, range: [signed ? -1 : 0, 1], mode, signed });
    known.set(name, table);
  }
  return table;
}

/** Whether the head is missing from its layer (pruned). */
export const isPruned = (sheet: ThumbSheet | undefined, { layer, head }: Spot): boolean =>
  (sheet?.meta.scale[layer]?.[head] ?? 0) < 0;

/** Paint an arrangement with `px` pixels per cell; the last `foot` pixel rows of each cell stay free. */
export function paintAtlas(
  canvas: HTMLCanvasElement,
  { cols, lines }: Arrangement,
  px: number,
  foot: number,
  atlas: Atlas,
): void {
  const gap = px < 12 ? 1 : Math.min(4, Math.floor(px / 12));
  // Setting the size clears the canvas: no pixels of another map remain.
  [canvas.width, canvas.height] = [Math.max(1, px * cols), Math.max(1, px * lines.length)];
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const image = new ImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const { meta, codes } = atlas.sheet;
  const starts = thumbOffsets(meta);
  const causal = atlas.source.causal && meta.rows === meta.cols;
  for (const [row, { spots }] of lines.entries()) {
    for (const [col, spot] of spots.entries()) {
      const start = spot ? starts[spot.layer]?.[spot.head] : undefined;
      if (!spot || start === undefined || isPruned(atlas.sheet, spot)) continue;
      const frame = { x: col * px, y: row * px, width: px - gap, height: px - gap - foot };
      paintFrame(
        pixels,
        canvas.width,
        frame,
        { codes, start, rows: meta.rows, cols: meta.cols, causal },
        tableOf(atlas, spot),
      );
    }
  }
  pen.putImageData(image, 0, 0);
  pen.strokeStyle = "#888";
  for (const [row, { spots }] of lines.entries()) {
    for (const [col, spot] of spots.entries()) {
      if (spot && isPruned(atlas.sheet, spot)) hatch(pen, col * px, row * px, px - gap);
      // Not loaded yet: an empty frame.
      else if (spot && starts[spot.layer]?.[spot.head] === undefined)
        pen.strokeRect(col * px + 0.5, row * px + 0.5, px - gap - 1, px - gap - 1);
    }
  }
}

/** Pruned heads are hatched. */
function hatch(pen: CanvasRenderingContext2D, x: number, y: number, size: number): void {
  pen.beginPath();
  for (let at = 0; at < 2 * size; at += 5) {
    pen.moveTo(x + Math.max(0, at - size), y + Math.min(size, at));
    pen.lineTo(x + Math.min(size, at), y + Math.max(0, at - size));
  }
  pen.stroke();
}
