/** Colours of numbers with a sign, and a canvas that is as sharp as the screen. */
import { heatMap, mapTable, type Rgb } from "../../colour.ts";
import type { Theme } from "../../context.ts";
import { density } from "../../dom.ts";

export interface Ink {
  /** Colour of a share of the largest magnitude, -1 to 1. */
  of(share: number): Rgb;
  positive: string;
  negative: string;
  /** Of shares, which have no sign. */
  share: string;
  line: string;
  text: string;
}

const css = ([r, g, b]: Rgb): string => `rgb(${r} ${g} ${b})`;

/** Colours for a theme; lines and text are those of the element. */
export function inkOf(theme: Theme, el: Element): Ink {
  const table = mapTable(heatMap(true, theme));
  const of = (share: number): Rgb => {
    const at = 3 * Math.round(127.5 + 127.5 * Math.max(-1, Math.min(1, share || 0)));
    return [table[at] ?? 0, table[at + 1] ?? 0, table[at + 2] ?? 0];
  };
  const style = getComputedStyle(el);
  const line = theme === "dark" ? "#fff4" : "#0003";
  const share = style.getPropertyValue("--aw-share");
  return { of, positive: css(of(0.75)), negative: css(of(-0.75)), share, line, text: style.color };
}

/** Set a canvas to a size in px of the page, and return what draws in these; null where nothing can. */
export function sharp(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const dots = Math.max(1, Math.min(3, density()));
  [canvas.width, canvas.height] = [Math.round(width * dots), Math.round(height * dots)];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  const pen = canvas.getContext("2d");
  pen?.scale(dots, dots);
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
