/** All thumbnails as a picture, in the given arrangement. */

import { lut, type MapName, type Mode, mapTable } from "../../../colour.ts";
import { peaksOf, thumbOffsets } from "../../../wire/sheets.ts";
import type { ThumbSheet } from "../../../wire/tile.ts";
import type { Source } from "../../../wire/wire.ts";
import { paintFrame } from "../../maps/paint.ts";
import { type Arrangement, breadthAt, type Size, type Spot } from "./arrange.ts";

export interface Atlas {
  source: Source;
  sheet: ThumbSheet;
  map: MapName;
  /** The end of a common scale; null: every thumbnail has its own. */
  common: number | null;
  mode: Mode;
}

/** Colour tables by their parameters: thousands of thumbnails share a few. */
const tables = new WeakMap<ThumbSheet, Map<string, Uint32Array>>();

/** Colours of a thumbnail. */
export function tableOf({ sheet, map, common, mode }: Atlas, { layer, head }: Spot): Uint32Array {
  const { gamma, signed, scale } = sheet.meta;
  const peak = scale[layer]?.[head] ?? 0;
  const top = common ?? peaksOf(sheet)[layer]?.[head] ?? 0;
  // Only the ratio of scale and range matters; it is 1 if the thumbnail has its own scale.
  const ratio = top > 0 ? peak / top : 0;
  const name = `${map} ${mode} ${ratio.toPrecision(4)}`;
  const cached = tables.get(sheet) ?? new Map<string, Uint32Array>();
  tables.set(sheet, cached);
  let table = cached.get(name);
  if (!table) {
    table = lut(map, { gamma, scale: ratio, range: [signed ? -1 : 0, 1], mode, signed });
    cached.set(name, table);
  }
  return table;
}

/** Whether the head is missing from its layer (pruned). */
export const isPruned = (sheet: ThumbSheet | undefined, { layer, head }: Spot): boolean =>
  (sheet?.meta.scale[layer]?.[head] ?? 0) < 0;

/** Paint an arrangement with cells of `size` pixels; the last `foot` pixel rows of each cell are left empty. */
export function paintAtlas(
  canvas: HTMLCanvasElement,
  { cols, lines }: Arrangement,
  size: Size,
  foot: number,
  atlas: Atlas,
): void {
  const { width, height } = size;
  const gap = gapOf(size);
  // Setting the size clears the canvas: no pixels of another map remain.
  [canvas.width, canvas.height] = [Math.max(1, width * cols), Math.max(1, height * lines.length)];
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
      const breadth = breadthAt(spots, col);
      if (!spot || !breadth || start === undefined || isPruned(atlas.sheet, spot)) continue;
      const frame = { x: col * width, y: row * height, width: breadth * width - gap, height: height - gap - foot };
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
      const breadth = breadthAt(spots, col);
      if (spot && isPruned(atlas.sheet, spot)) hatch(pen, col * width, row * height, width - gap);
      // Not loaded yet: an empty frame.
      else if (spot && breadth && starts[spot.layer]?.[spot.head] === undefined)
        pen.strokeRect(col * width + 0.5, row * height + 0.5, breadth * width - gap - 1, height - gap - foot - 1);
    }
  }
}

/** Space between cells, in pixels. */
const gapOf = ({ width }: Size): number => (width < 12 ? 1 : Math.min(4, Math.floor(width / 12)));

/** Paint the value of every head of an arrangement, 0 to 1; heads without a value stay empty. */
export function paintTable(
  canvas: HTMLCanvasElement,
  { cols, lines }: Arrangement,
  size: Size,
  map: MapName,
  share: (spot: Spot) => number,
): void {
  const { width, height } = size;
  [canvas.width, canvas.height] = [Math.max(1, width * cols), Math.max(1, height * lines.length)];
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const rgb = mapTable(map);
  for (const [row, { spots }] of lines.entries()) {
    for (const [col, spot] of spots.entries()) {
      const value = spot ? share(spot) : NaN;
      if (Number.isNaN(value)) continue;
      const at = 3 * Math.round(255 * Math.max(0, Math.min(1, value)));
      pen.fillStyle = `rgb(${rgb[at]} ${rgb[at + 1]} ${rgb[at + 2]})`;
      pen.fillRect(col * width, row * height, width - 1, height - 1);
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
