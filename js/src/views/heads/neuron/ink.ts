/** Colours of signed numbers, and a canvas at screen resolution. */

import { barColours, heatMap, mapTable } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { density } from "../../../dom.ts";
import { styleValue } from "../../base/styleValue.ts";

export interface Ink {
  /** Colours for -1 to 1: 257 triples of bytes. */
  table: Uint8Array;
  positive: string;
  negative: string;
  /** Colour of shares, which are unsigned. */
  share: string;
  line: string;
  text: string;
}

/** Index into a colour table for a share (-1 to 1) of the largest magnitude. */
export const offsetOf = (share: number): number => 3 * Math.round(128 + 128 * Math.max(-1, Math.min(1, share || 0)));

/** Colours for a theme; lines and text use those of the element. */
export function inkOf(ctx: Pick<ViewContext, "theme">, el: Element): Ink {
  const { theme } = ctx;
  const table = mapTable(heatMap(true, theme));
  const line = theme === "dark" ? "#fff4" : "#0003";
  const { amount: share, for: positive, against: negative } = barColours(theme);
  return { table, positive, negative, share, line, text: styleValue(ctx, el, "color") };
}

/** Set a canvas's size in CSS px, clear it, and return a context that draws in CSS px; null if there is none. */
export function sharpContext(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const dots = Math.max(1, Math.min(3, density()));
  const [across, down] = [Math.round(width * dots), Math.round(height * dots)];
  const pen = canvas.getContext("2d");
  // Setting the size reallocates the canvas.
  if (canvas.width !== across || canvas.height !== down) {
    [canvas.width, canvas.height] = [across, down];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  pen?.setTransform(dots, 0, 0, dots, 0, 0);
  pen?.clearRect(0, 0, width, height);
  return pen;
}

export const largest = (values: ArrayLike<number>): number => {
  let most = 0;
  for (let i = 0; i < values.length; i += 1) {
    const size = Math.abs(values[i] as number);
    if (size > most && size < Infinity) most = size;
  }
  return most;
};
