/** Turns codes into colours: the colours of all codes for each (encoding, range, scale, map). */

import { COLORMAPS } from "./colormaps.ts";
import { HIDDEN, valueTable } from "./wire/codec.ts";

export type Theme = "light" | "dark";
export type MapName = keyof typeof COLORMAPS;
export type Mode = "linear" | "sqrt" | "log";
export type Rgb = readonly [number, number, number];

/** The default scale of every view, so that a value has the same colour in linked views. */
export const SCALE: Mode = "linear";

/** Log scales show this many decades below the top of the range. */
const DECADES = 4;

/** The last colour of a table. Tables are odd, so that the middle of a diverging map is exactly zero. */
export const LAST_COLOUR = 256;
const tables = new Map<MapName, Uint8Array>();

/** 257 RGB triples of a colour map, interpolated between the baked ones. */
export function mapTable(name: MapName): Uint8Array {
  let table = tables.get(name);
  if (!table) {
    const knots = atob(COLORMAPS[name]);
    const last = knots.length / 3 - 1;
    table = new Uint8Array(3 * LAST_COLOUR + 3);
    for (let i = 0; i < table.length; i += 1) {
      const at = (Math.floor(i / 3) / LAST_COLOUR) * last;
      const low = Math.min(last - 1, Math.floor(at));
      const [a, b] = [knots.charCodeAt(3 * low + (i % 3)), knots.charCodeAt(3 * low + 3 + (i % 3))];
      table[i] = Math.round(a + (b - a) * (at - low));
    }
    tables.set(name, table);
  }
  return table;
}

/** The colour at a position, 0 to 1, of a map. */
export function colourAt(name: MapName, at: number): Rgb {
  const i = 3 * Math.round(LAST_COLOUR * at);
  const [r = 0, g = 0, b = 0] = mapTable(name).subarray(i, i + 3);
  return [r, g, b];
}

/**
 * Palettes by name, all safe for colour-blind readers, each with a map for light pages and another for dark pages. The
 * first is the default: zero is the page, from which amounts grow to ink, or orange (for) and violet (against).
 */
export const PALETTES: readonly [Palettes, Palettes] = [
  {
    paper: ["paper", "paperNight"],
    viridis: ["viridis", "viridis"],
    cividis: ["cividis", "cividis"],
    greys: ["greys", "ink"],
  },
  { "orange-violet": ["sides", "sidesNight"], "red-blue": ["rdbu", "berlin"], "orange-purple": ["puor", "managua"] },
];

type Palettes = Record<string, readonly [light: MapName, dark: MapName]>;

/**
 * The map of a palette, for everything that draws values: signed maps diverge from a middle that looks like the page.
 */
export function heatMap(isSigned: boolean, theme: Theme, palette = ""): MapName {
  const palettes = PALETTES[isSigned ? 1 : 0];
  const [light, dark] = (palettes[palette] ?? Object.values(palettes)[0]) as Palettes[string];
  return theme === "dark" ? dark : light;
}

/** Position of a value in a range, 0 to 1 (in a signed range 0.5 is zero). */
export function scalePosition(value: number, range: readonly [number, number], mode: Mode): number {
  const [low, high] = range;
  if (low < 0) {
    const top = Math.max(-low, high);
    return 0.5 + (Math.sign(value) * scalePosition(Math.abs(value), [0, top], mode)) / 2;
  }
  if (high <= low) return 0;
  const t = Math.max(0, Math.min(1, (value - low) / (high - low)));
  if (mode === "sqrt") return Math.sqrt(t);
  if (mode === "log") return t <= 0 ? 0 : Math.max(0, 1 + Math.log10(t) / DECADES);
  return t;
}

/** The value at a position in a range: the inverse of `scalePosition`. */
export function valueAt(t: number, range: readonly [number, number], mode: Mode): number {
  const [low, high] = range;
  if (low < 0) {
    const top = Math.max(-low, high);
    return Math.sign(t - 0.5) * valueAt(Math.abs(2 * t - 1), [0, top], mode);
  }
  if (mode === "sqrt") return low + t * t * (high - low);
  if (mode === "log") return t <= 0 ? low : low + 10 ** ((t - 1) * DECADES) * (high - low);
  return low + t * (high - low);
}

export interface LutOptions {
  gamma: number;
  scale: number;
  range: readonly [number, number];
  mode: Mode;
  signed?: boolean;
}

/** Colours of the 256 code bytes as canvas pixels (RGBA in memory, little-endian words). */
export function lut(name: MapName, options: LutOptions): Uint32Array {
  const { gamma, scale, range, mode } = options;
  const values = valueTable(options.signed ?? false, gamma, scale);
  const rgb = mapTable(name);
  const out = new Uint32Array(HIDDEN + 1); // hidden cells have no colour
  for (let byte = 0; byte < 256; byte += 1) {
    const at = 3 * Math.round(LAST_COLOUR * scalePosition(values[byte] ?? 0, range, mode));
    out[byte] = (0xff000000 | ((rgb[at + 2] ?? 0) << 16) | ((rgb[at + 1] ?? 0) << 8) | (rgb[at] ?? 0)) >>> 0;
  }
  return out;
}

const ramps = new Map<MapName, string>();

/** CSS gradient of a colour map, for legends. */
export function rampCss(name: MapName): string {
  const cached = ramps.get(name);
  if (cached) return cached;
  const stops: string[] = [];
  for (let i = 0; i <= 16; i += 1) {
    stops.push(cssOf(colourAt(name, i / 16)));
  }
  const css = `linear-gradient(90deg, ${stops.join(", ")})`;
  ramps.set(name, css);
  return css;
}

/** Relative luminance (WCAG 2) of a colour in 0..255. */
export function luminance([r, g, b]: Rgb): number {
  const linear = (channel: number): number => {
    const c = channel / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/** Black or white, whichever contrasts more with a colour: always 4.5 or more. */
export function inkOn(rgb: Rgb): "#000" | "#fff" {
  return luminance(rgb) > 0.179 ? "#000" : "#fff";
}

/** How far along a ramp the colours of bars and lines are, which have no length of ramp to be compared with. */
const BAR = 0.7;

export interface BarColours {
  amount: string;
  for: string;
  against: string;
}

/** Colours of bars and lines: on the ramps, with a contrast to the page of 3 or more. */
export function barColours(theme: Theme, palette = ""): BarColours {
  const css = (signed: boolean, at: number): string => cssOf(colourAt(heatMap(signed, theme, palette), at));
  return { amount: css(false, BAR), for: css(true, (1 + BAR) / 2), against: css(true, (1 - BAR) / 2) };
}

export const cssOf = (rgb: Rgb): string => `rgb(${rgb.join(" ")})`;
