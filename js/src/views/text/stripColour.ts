/**
 * Fills behind running text in the colours of the maps, so that a value looks the same in text and map. A fill is as
 * transparent as its colour allows, so that zero is the page's background also where that is not plain white or night.
 */

import type { Mode, Theme } from "../../colour.ts";
import { colourAt, heatMap, inkOn, SCALE, scalePosition } from "../../colour.ts";

export interface Fill {
  /** "" where nothing is drawn. */
  css: string;
  /** The same as a pixel of a canvas (RGBA in memory, a little-endian word). */
  pixel: number;
  /** Whether the text over it changes from dark to light, or from light to dark. */
  flips: boolean;
}

/** The pages that the ramps start from, as levels of 255. */
const PAGE: Record<Theme, number> = { light: 255, dark: 17 };
/** Text where nothing is drawn. */
const INK: Record<Theme, string> = { light: "#000", dark: "#fff" };
/** Below this a fill cannot be seen. */
const FAINTEST = 0.004;

export const NOTHING: Fill = { css: "", pixel: 0, flips: false };
/** NaN is drawn in grey, so that it is not mistaken for zero. */
const NO_NUMBER: Fill = { css: "rgb(128 128 128 / 0.2)", pixel: 0x33808080, flips: false };

type Look = readonly [theme: Theme, signed: boolean, palette?: string, scale?: Mode];

/** The fill of a value `t` in [-1, 1] (the value divided by the top of the scale). */
export function fillOf(t: number, theme: Theme, signed: boolean, palette = "", scale: Mode = SCALE): Fill {
  if (Number.isNaN(t)) return NO_NUMBER;
  const at = signed ? scalePosition(t, [-1, 1], scale) : scalePosition(Math.abs(t), [0, 1], scale);
  const rgb = colourAt(heatMap(signed, theme, palette), at);
  const page = PAGE[theme];
  const alpha = Math.max(...rgb.map((c) => (c > page ? (c - page) / (255 - page) : (page - c) / page)));
  if (alpha < FAINTEST) return NOTHING;
  const over = rgb.map((c) => Math.round(page + (c - page) / alpha));
  const [red = 0, green = 0, blue = 0] = over;
  const pixel = ((Math.round(255 * alpha) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  return { pixel, css: `rgb(${over.join(" ")} / ${alpha.toFixed(3)})`, flips: inkOn(rgb) !== INK[theme] };
}

const MADE = new Map<string, Map<number, Fill>>();

/** The same from a cached table, for thousands of values. */
export function fills(...look: Look): (t: number) => Fill {
  const name = look.join();
  const cache = MADE.get(name) ?? new Map<number, Fill>();
  MADE.set(name, cache);
  return (t) => {
    const level = Math.round(Math.max(-1, Math.min(1, t)) * LEVELS);
    let fill = cache.get(level);
    if (!fill) {
      fill = fillOf(level / LEVELS, ...look);
      cache.set(level, fill);
    }
    return fill;
  };
}

const LEVELS = 1000;

const GRADIENTS = new Map<string, string>();

/** CSS gradient for the legend, from the bottom to the top of the scale. */
export function gradient(...look: Look): string {
  const name = look.join();
  const cached = GRADIENTS.get(name);
  if (cached) return cached;
  const stops: string[] = [];
  for (let i = 0; i <= 16; i += 1) stops.push(fillOf(look[1] ? i / 8 - 1 : i / 16, ...look).css || "transparent");
  const css = `linear-gradient(90deg, ${stops.join(", ")})`;
  GRADIENTS.set(name, css);
  return css;
}
