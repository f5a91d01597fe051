/**
 * Colours behind running text. The page's own background is the zero of the map and one hue grows over it, so
 * every shade lies between the background and a fixed end; the ends are chosen so that the theme's ink stays
 * readable on all of them (WCAG contrast >= 4.5, held by a test).
 */

import type { Rgb } from "../colour.ts";
import type { Theme } from "../context.ts";

/** Text colour over the strip. Fixed per theme: recolouring never touches the text nodes. */
export const INK: Record<Theme, Rgb> = { light: [27, 27, 27], dark: [242, 242, 242] };

/** The ends of the map: warm for weight and for positive relevance, cool for negative relevance. */
export const WARM: Record<Theme, Rgb> = { light: [240, 138, 36], dark: [150, 88, 12] };
export const COOL: Record<Theme, Rgb> = { light: [92, 158, 226], dark: [32, 98, 178] };

/** Share of the hue shown for a value of `t` in [-1, 1]; steeper near zero so that small weights can be seen. */
export function opacity(t: number): number {
  return Math.min(1, Math.abs(t)) ** 0.8;
}

/** CSS colour of value `t` in [-1, 1] (the value divided by the top of the scale); "" where nothing is drawn. */
export function shade(t: number, theme: Theme): string {
  if (!Number.isFinite(t) || t === 0) return "";
  const alpha = opacity(t);
  if (alpha < 0.004) return "";
  const [r, g, b] = (t < 0 ? COOL : WARM)[theme];
  return `rgb(${r} ${g} ${b} / ${alpha.toFixed(3)})`;
}

/** CSS gradient for the legend, from the bottom of the scale to its top. */
export function gradient(theme: Theme, signed: boolean): string {
  const stops: string[] = [];
  for (let i = 0; i <= 8; i += 1) {
    const t = signed ? i / 4 - 1 : i / 8;
    stops.push(shade(t, theme) || "transparent");
  }
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
