/** Maps over a picture: their colours, and the line around the patches that hold a share of them. */
import { colourAt, cssOf, heatMap, type MapName, type Mode, type Rgb, scalePosition } from "../../colour.ts";

/** Share of the range from which a map covers the picture, how much of it at most, and how fast; as in figures/parts/media.py. */
const [LEAST, MOST, RISE] = [0.04, 0.94, 1.6];

/** How opaque a map is at a share of its range, 0 to 1. */
export const opacityAt = (share: number): number => Math.min(MOST, Math.max(0, (Math.abs(share) - LEAST) * RISE));

/** The ramp of amounts over a picture, at 0, a half and 1: it gives way to the picture instead of the page; as in picture.py. */
const BEAM: readonly Rgb[] = [
  [12, 84, 190],
  [70, 165, 250],
  [228, 245, 255],
];
/** Other ramps are drawn without their first part: a dark colour would grey a dark picture that shows through. */
const SKIPPED = 0.34;
/** The grey of the legend's picture. */
const BENEATH = 58;

const mix = (a: Rgb, b: Rgb, t: number): Rgb =>
  a.map((channel, i) => channel + ((b[i] as number) - channel) * t) as unknown as Rgb;

/** The colour of a share of the range, 0 to 1, or -1 to 1 of signed values. */
export function colourOver(map: OverMap, share: number, signed: boolean): Rgb {
  const size = Math.abs(share);
  if (map === "beam") {
    const [low, middle, high] = BEAM as readonly [Rgb, Rgb, Rgb];
    return size < 0.5 ? mix(low, middle, 2 * size) : mix(middle, high, 2 * size - 1);
  }
  const at = SKIPPED + (1 - SKIPPED) * size;
  return colourAt(map, signed ? 0.5 + (Math.sign(share) * at) / 2 : at);
}

/** The ramp of a palette over a picture, the same in both themes. */
export const overMap = (signed: boolean, palette: string): OverMap => {
  const map = heatMap(signed, "dark", palette);
  return map === "paperNight" ? "beam" : map;
};

/** A ramp as it looks over a dark picture, for the legend. */
export function overlayCss({ map, range }: Pick<Shade, "map" | "range">): string {
  const signed = range[0] < 0;
  const stops = Array.from({ length: 17 }, (_, i) => {
    const share = signed ? i / 8 - 1 : i / 16;
    const colour = colourOver(map, share, signed);
    return cssOf(mix([BENEATH, BENEATH, BENEATH], colour, opacityAt(share)).map(Math.round) as unknown as Rgb);
  });
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}

export type OverMap = MapName | "beam";

export interface Shade {
  map: OverMap;
  mode: Mode;
  range: readonly [number, number];
}

const TABLES = new Map<string, Uint32Array>();
/** The last colour of a table, and the middle of a signed table. */
const [LAST, MIDDLE] = [256, 128];

/** Colours by share of the range as canvas pixels, RGBA in memory. */
function tableOf(map: OverMap, signed: boolean): Uint32Array {
  const name = `${map} ${signed}`;
  let table = TABLES.get(name);
  if (!table) {
    table = Uint32Array.from({ length: LAST + 1 }, (_, i) => {
      const share = signed ? (i - MIDDLE) / MIDDLE : i / LAST;
      const [r, g, b] = colourOver(map, share, signed).map(Math.round) as unknown as Rgb;
      return ((Math.round(255 * opacityAt(share)) << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    TABLES.set(name, table);
  }
  return table;
}

/** Colours of values as RGBA: transparent at zero, and for NaN. */
export function shades(values: ArrayLike<number>, { map, mode, range }: Shade): Uint8ClampedArray<ArrayBuffer> {
  const signed = range[0] < 0;
  const table = tableOf(map, signed);
  const out = new Uint32Array(values.length);
  const top = range[1] || 1;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] as number;
    if (Number.isNaN(value)) continue;
    const size = Math.abs(value);
    const share = Math.min(1, mode === "linear" ? size / top : scalePosition(size, [0, top], mode));
    out[i] = table[Math.round(signed ? MIDDLE + Math.sign(value) * share * MIDDLE : share * LAST)] as number;
  }
  return new Uint8ClampedArray(out.buffer);
}

/** Paint a map on a canvas with a pixel per patch. */
export function paintHeat(
  canvas: HTMLCanvasElement,
  values: ArrayLike<number>,
  [rows, cols]: readonly [number, number],
  shade: Shade,
): void {
  if (canvas.width !== cols || canvas.height !== rows) [canvas.width, canvas.height] = [cols, rows];
  if (rows && cols) canvas.getContext("2d")?.putImageData(new ImageData(shades(values, shade), cols, rows), 0, 0);
}

/** The fewest patches, the largest first, that hold a share of the total of all patches, by magnitude. */
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
