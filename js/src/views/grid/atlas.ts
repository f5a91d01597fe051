/** All thumbnails as one picture, wherever the arrangement puts them. */
import { decodeCode, peakCode } from "../../codec.ts";
import { lut, type MapName } from "../../colour.ts";
import type { ThumbSheet } from "../../context.ts";
import type { Source, Thumbs } from "../../wire.ts";
import { paintFrame } from "../paint.ts";
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
  /** The end of a scale for all; null: every thumbnail has its own. */
  common: number | null;
}

/** Tables of colours by what they depend on: thousands of thumbnails share a few. */
const tables = new WeakMap<ThumbSheet, Map<string, Uint32Array>>();

/** Colours of one thumbnail. */
export function tableOf({ sheet, peaks, map, common }: Atlas, { layer, head }: Spot): Uint32Array {
  const { gamma, signed, scale } = sheet.meta;
  const own = scale[layer]?.[head] ?? 0;
  const top = common ?? peaks[layer]?.[head] ?? 0;
  // Only the ratio of scale and range matters; on its own scale it is mostly 1.
  const ratio = top > 0 ? own / top : 0;
  const name = `${map} ${ratio.toPrecision(4)}`;
  const known = tables.get(sheet) ?? new Map<string, Uint32Array>();
  tables.set(sheet, known);
  let table = known.get(name);
  if (!table) {
    table = lut(map, { gamma, scale: ratio, range: [signed ? -1 : 0, 1], mode: "sqrt", signed });
    known.set(name, table);
  }
  return table;
}

/** Paint an arrangement with `px` pixels a cell; the last `foot` rows of pixels of a cell are left free. */
export function paintAtlas(
  canvas: HTMLCanvasElement,
  { cols, lines }: Arrangement,
  px: number,
  foot: number,
  atlas: Atlas,
): void {
  const gap = px < 12 ? 1 : Math.min(4, Math.floor(px / 12));
  // Its size set anew, a canvas is empty: no pixels of another map stay.
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
      if (!spot || start === undefined) continue;
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
}
