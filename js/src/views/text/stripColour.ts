/**
 * Colours behind running text. Zero is the page's background, over which one hue grows; signed values have two hues,
 * those of the heatmaps. Every shade lies between the background and a fixed end, chosen so that the theme's text stays
 * readable on all of them (WCAG contrast >= 4.5, held by a test).
 */

import type { Theme } from "../../colour.ts";
import { heatMap, type Mode, mapTable, place, type Rgb } from "../../colour.ts";

/** Text colour on the strip. Fixed per theme, so that recolouring never touches the text nodes. */
export const INK: Record<Theme, Rgb> = { light: [27, 27, 27], dark: [242, 242, 242] };

/** The end of the map for unsigned weights, for palettes that differ and for all others. */
const WEIGHT: Record<string, Record<Theme, Rgb>> = {
  cividis: { light: [104, 152, 232], dark: [40, 92, 160] },
  greys: { light: [150, 150, 150], dark: [92, 92, 92] },
};
const ORANGE: Record<Theme, Rgb> = { light: [240, 138, 36], dark: [150, 88, 12] };

/** The used part of the diverging map, from its middle: beyond it text would be illegible. */
const REACH: Record<Theme, number> = { light: 0.3, dark: 0.25 };

/** The colour of the largest value; signed values use the hues of the heatmaps, negative and positive. */
export function end(theme: Theme, sign: number, palette = ""): Rgb {
  if (!sign) return (WEIGHT[palette] ?? ORANGE)[theme];
  const at = 3 * Math.round(255 * (0.5 + Math.sign(sign) * REACH[theme]));
  const [r = 0, g = 0, b = 0] = mapTable(heatMap(true, theme, palette)).subarray(at, at + 3);
  return [r, g, b];
}

/** The share of the hue for a value of `t` in [-1, 1]; steeper near zero, so that small weights are visible. */
export function opacity(t: number): number {
  return Math.min(1, Math.abs(t)) ** 0.8;
}

/**
 * CSS colour of a value `t` in [-1, 1] (the value divided by the top of the scale); "": nothing is drawn. NaN is not
 * drawn as zero.
 */
export function shade(t: number, theme: Theme, signed: boolean, palette = "", scale: Mode = "linear"): string {
  if (Number.isNaN(t)) return "rgb(128 128 128 / 0.2)";
  const alpha = opacity(place(Math.abs(t), [0, 1], scale));
  if (alpha < 0.004) return "";
  const [r, g, b] = end(theme, signed ? t : 0, palette);
  return `rgb(${r} ${g} ${b} / ${alpha.toFixed(3)})`;
}

type Look = readonly [theme: Theme, signed: boolean, palette?: string, scale?: Mode];

const MADE = new Map<string, Map<number, string>>();

/** The same from a cached table, for thousands of values. */
export function shades(...look: Look): (t: number) => string {
  const name = look.join();
  const cache = MADE.get(name) ?? new Map<number, string>();
  MADE.set(name, cache);
  return (t) => {
    const level = Math.round(Math.max(-1, Math.min(1, t)) * LEVELS);
    let css = cache.get(level);
    if (css === undefined) {
      css = shade(level / LEVELS, ...look);
      cache.set(level, css);
    }
    return css;
  };
}

const LEVELS = 1000;

/** CSS gradient for the legend, from the bottom to the top of the scale. */
export function gradient(...look: Look): string {
  const stops: string[] = [];
  for (let i = 0; i <= 8; i += 1) {
    const t = look[1] ? i / 4 - 1 : i / 8;
    stops.push(shade(t, ...look) || "transparent");
  }
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
