/**
 * The elements apart from the rows of a map: for each row a bar with the share of special tokens, and where rows do not
 * sum to one also its number and the row's sum.
 */

import type { ViewContext } from "../../context.ts";
import { assign, h, on, setBox, setSizes, setText } from "../../dom.ts";
import { inColumn } from "../../numbers.ts";
import { styleValue } from "../base/styleValue.ts";
import { sharpCanvas } from "./ink.ts";
import { textWidth } from "./labels.ts";
import type { Size } from "./size.ts";

/** The weight of a row on the elements apart, and the sum of the whole row; the error of both. */
export interface RowShare {
  part: number;
  all: number;
  error: number;
}

const BAR = 68; // px of a bar that holds a whole row
const NARROW_BAR = 32;
const NUMBER = 50; // px of the number next to it
/** px of the heading above the bars, which is next to slanted labels. */
export const HEADING = 72;
/** px of its height: two lines. */
export const HEADING_HEIGHT = 32;
const GAP = 8;
const THICKEST = 8;

/** The names of the elements apart: "[CLS] [SEP]". */
export function namesApart(labels: readonly string[], apart: readonly number[]): string {
  const names = [...new Set(apart.map((i) => labels[i] ?? ""))];
  const short = names.slice(0, 3).join(" ");
  return names.length > 3 || short.length > 24 ? "special tokens" : short;
}

/** The weight of a row on the columns `apart`, and its total; NaN cells count as zero. */
export function rowShare(values: ArrayLike<number>, apart: readonly number[], scale: number, top: number): RowShare {
  let [part, all, size] = [0, 0, 0];
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] as number;
    if (Number.isNaN(value)) continue;
    all += value;
    size += Math.abs(value);
  }
  for (const i of apart) part += (values[i] as number) || 0;
  // Errors of a square-root code: sqrt(value x scale) / top each, and independent of one another.
  return { part, all, error: Math.sqrt(scale * size) / top };
}

/** Whether bars have numbers, where rows do not sum to one; "always": rows have sums also without elements apart. */
export type Numbers = boolean | "always";

export interface Shares {
  element: HTMLElement;
  /** The area of the bars, which takes the pointer. */
  bars: HTMLElement;
  /** Width in px next to a plot; 0 without separate tokens and without sums of rows. */
  room(names: string, numbers: Numbers, narrow: boolean): number;
  /** Name the heading; "": no elements apart. `overhang` px of slanted labels extend past the plot. */
  layout(names: string, numbers: Numbers, size: Size, overhang: number, narrow: boolean): void;
  draw(size: Size, rows: readonly RowShare[]): void;
  /** Outline the bar of the hovered and of the pinned row; -1: none. */
  mark(size: Size, hovered: number, pinned: number): void;
}

/** `back` brings the elements apart back into the map. */
export function createShares(ctx: ViewContext, signal: AbortSignal, back: () => void): Shares {
  const canvas = h("canvas");
  const [over, pin] = [h("div.band"), h("div.band.band-pin")];
  const bars = h("div.shares", canvas, over, pin);
  const button = h("button.share-names", { type: "button" });
  const all = h("span.share-all", "total");
  const element = h("div.apart", h("div.share-head", button, all), bars);
  let now = { numbers: false as Numbers, names: "", bar: BAR, width: 0 };
  on(button, signal, { click: back });
  const room = (names: string, numbers: Numbers, narrow: boolean): number => {
    if (!names) return numbers === "always" ? GAP + NUMBER : 0;
    return GAP + (narrow ? NARROW_BAR : BAR) + (numbers ? 2 * NUMBER : 0);
  };
  return {
    element,
    bars,
    room,
    layout(names, numbers, size, overhang, narrow) {
      const wide = room(names, numbers, narrow);
      assign(element, { hidden: !wide });
      if (!wide) return;
      now = { numbers, names, bar: names ? (narrow ? NARROW_BAR : BAR) : 0, width: wide - GAP };
      button.style.visibility = names ? "" : "hidden";
      const words = numbers ? `in ${names}` : `share to ${names}`;
      setText(button, words);
      assign(button, { title: `Show ${names} in the map` });
      all.hidden = !numbers;
      setSizes(element, { shares: Math.max(now.width, overhang + (names ? HEADING : NUMBER)), overhang });
      setSizes(bars, { rows: size.height });
    },
    draw({ cellHeight, height }, rows) {
      const pen = sharpCanvas(canvas, now.width, height);
      if (!pen) return;
      const ends = Math.max(0, ...rows.map(({ part }) => Math.abs(part) || 0));
      const unit = now.bar / (now.numbers ? ends || 1 : Math.max(1, ends));
      const thick = Math.max(1, Math.min(THICKEST, cellHeight - 2));
      const hasNumbers = Boolean(now.numbers) && cellHeight >= 12;
      const font = hasNumbers ? `12px ${styleValue(ctx, bars, "font-family")}` : "";
      const ink = hasNumbers ? styleValue(ctx, bars, "color") : "";
      const quiet = styleValue(ctx, ctx.el, "--aw-apart") || "#98a2ae";
      // Setting the font of a canvas on the page forces the page to compute its styles.
      if (font) pen.font = font;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      const error = Math.max(...rows.map((row) => row.error || 0));
      rows.forEach(({ part, all: whole }, row) => {
        const middle = (row + 0.5) * cellHeight;
        const length = now.names ? Math.abs(part) * unit : 0;
        pen.fillStyle = quiet;
        if (length > 0) pen.fillRect(0, middle - thick / 2, Math.max(1, length), thick);
        if (!hasNumbers) return;
        pen.fillStyle = ink;
        const write = (value: number, end: number): void => {
          const text = inColumn(value, error).replace(/^[<>].*/, "≈ 0");
          if (textWidth(text, font) < NUMBER - 4) pen.fillText(text, end, middle + 1);
        };
        if (now.names) write(part, now.bar + NUMBER);
        write(whole, now.width);
      });
    },
    mark({ cellHeight }, hovered, pinned) {
      setBox(over, 0, hovered * cellHeight, now.width, cellHeight);
      setBox(pin, 0, pinned * cellHeight, now.width, cellHeight);
    },
  };
}
