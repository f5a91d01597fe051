/** Numbers in the cells of a map, drawn once per paint on a canvas over it. */

import { luminance } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { density, h, setStyles } from "../../dom.ts";
import { HIDDEN } from "../../wire/codec.ts";
import { styleValue } from "../base/styleValue.ts";
import type { Size } from "./size.ts";

/** px of a cell that has room for a number. */
const ROOM = 22;
/** Smaller shares of the largest number are left to their colour. */
const WORTH = 0.05;
const DARK = "#1a1a1a";
const LIGHT = "#fff";

/** A value in a cell: ".57", "1.0", "−0.39", "12"; `short` drops the zero before the point. */
export function cellText(value: number, short: boolean, error = 0): string {
  const size = Math.abs(value);
  const decimals = (size >= 0.995 && short) || error > 0.005 ? 1 : 2; // no more than its byte supports
  const digits = size >= 9.995 ? size.toPrecision(2) : size.toFixed(decimals);
  const text = size >= 9.995 ? String(Number(digits)) : short ? digits.replace(/^0\./, ".") : digits;
  return `${value < 0 ? "−" : ""}${text}`;
}

/** Whichever of dark and light has more contrast with a pixel (WCAG). */
export function inkOn(pixel: number): string {
  const light = luminance([pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255]);
  return (light + 0.05) / (0.0103 + 0.05) > 1.05 / (light + 0.05) ? DARK : LIGHT;
}

/** A canvas with the screen's pixels for a box, cleared; null if unavailable. */
export function sharpCanvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const dots = density();
  const [across, down] = [Math.round(width * dots), Math.round(height * dots)];
  const pen = canvas.getContext("2d");
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  else pen?.clearRect(0, 0, across, down);
  setStyles(canvas, { width: `${width}px`, height: `${height}px` });
  pen?.setTransform(dots, 0, 0, dots, 0, 0);
  return pen;
}

export interface Ink {
  element: HTMLCanvasElement;
  /**
   * Write the numbers of rows x cols codes. `value` decodes a byte, `table` holds the colours, `end` is the end of the
   * range; `shares`: without the zero before the point.
   */
  write(
    size: Size,
    codes: Int16Array,
    table: Uint32Array,
    value: (byte: number) => number,
    end: number,
    shares: boolean,
  ): void;
  clear(): void;
}

export function createInk(ctx: ViewContext): Ink {
  const element = h("canvas.ink");
  let written = false;
  const clear = (): void => {
    if (written) element.width = 0;
    written = false;
  };
  return {
    element,
    clear,
    write({ rows, cols, cellWidth, cellHeight, width, height }, codes, table, value, end, shares) {
      if (cellWidth < ROOM || cellHeight < ROOM) {
        clear();
        return;
      }
      const pen = sharpCanvas(element, width, height);
      if (!pen) return;
      written = true;
      pen.font = `12px ${styleValue(ctx, element, "font-family")}`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      const made = new Map<number, readonly [string, string]>();
      const make = (code: number): readonly [string, string] => {
        const number = value(code & 255);
        if (!(Math.abs(number) >= WORTH * (shares ? 1 : end)) || !Number.isFinite(number)) return ["", ""];
        const fits = (text: string): boolean => pen.measureText(text).width <= cellWidth - 3;
        const error = Math.sqrt(Math.abs(number) * end) / (shares ? 255 : 127);
        const text = [cellText(number, shares, error), cellText(number, true, error)].find(fits) ?? "";
        return [text, inkOn(table[code & 255] as number)];
      };
      for (let r = 0; r < rows; r += 1) {
        for (let c = 0; c < cols; c += 1) {
          const code = codes[r * cols + c] as number;
          if (code === HIDDEN) continue;
          let look = made.get(code);
          if (!look) {
            look = make(code);
            made.set(code, look);
          }
          if (!look[0]) continue;
          pen.fillStyle = look[1];
          pen.fillText(look[0], (c + 0.5) * cellWidth, (r + 0.5) * cellHeight + 1);
        }
      }
    },
  };
}
