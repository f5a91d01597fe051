/** Paints tokens by layers on a canvas: edges, dots, and bars below the input. */

import { barColours } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { styleValue } from "../../base/styleValue.ts";
import type { Edge } from "./mass.ts";

/** Height in px of the bars below the input. */
export const BARS = 34;
/** Height in px of the bar of a special token. */
const APART = 6;
/** Width in px of a token from which the bar of a special token has its number. */
const NUMBERED = 34;
/** Shades of edges, from faint to full. */
const SHADES = 8;

/** Positions of tokens in px. Level 0 is the input. */
export interface Grid {
  /** Width of a token. */
  readonly cell: number;
  x(token: number): number;
  y(level: number): number;
}

/** Colours of edges, of those that lead to special tokens, and of everything else. */
export interface Inks {
  edge: string;
  apart: string;
  text: string;
  font: string;
}

export function inksOf(ctx: ViewContext, el: Element): Inks {
  return {
    edge: barColours(ctx.theme).amount,
    apart: styleValue(ctx, el, "--aw-apart"),
    text: styleValue(ctx, el, "color"),
    font: `12px ${styleValue(ctx, el, "font-family")}`,
  };
}

export function erased(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
  const pen = canvas.getContext("2d");
  pen?.save();
  pen?.setTransform(1, 0, 0, 1, 0, 0);
  pen?.clearRect(0, 0, canvas.width, canvas.height);
  pen?.restore();
  return pen;
}

/** Edges, a stroke per shade and kind; `apart` marks the special tokens. */
export function drawEdges(
  pen: CanvasRenderingContext2D,
  { x, y, cell }: Grid,
  edges: readonly Edge[],
  inks: Inks,
  strength: number,
  apart: readonly number[],
): void {
  const kinds = [inks.apart, inks.edge];
  const paths = Array.from({ length: kinds.length * SHADES }, () => new Path2D());
  for (const { level, query, key, mass } of edges) {
    const shade = Math.min(SHADES - 1, Math.floor(Math.sqrt(mass) * SHADES));
    const path = paths[shade + (apart[key] ? 0 : SHADES)] as Path2D;
    path.moveTo(x(query), y(level + 1));
    path.lineTo(x(key), y(level));
  }
  paths.forEach((path, i) => {
    const size = ((i % SHADES) + 0.7) / SHADES;
    pen.strokeStyle = kinds[Math.floor(i / SHADES)] as string;
    pen.globalAlpha = strength * (0.25 + 0.75 * size);
    pen.lineWidth = 0.6 + Math.min(5, cell / 3) * size * size;
    pen.stroke(path);
  });
  pen.globalAlpha = 1;
}

/** Dots of a given size in px, in the current colour. */
export function drawDots(
  pen: CanvasRenderingContext2D,
  { x, y }: Grid,
  levels: number,
  tokens: number,
  size: (level: number, token: number) => number,
): void {
  for (let level = 0; level <= levels; level += 1) {
    for (let token = 0; token < tokens; token += 1) {
      const radius = size(level, token);
      if (radius <= 0) continue;
      pen.beginPath();
      pen.arc(x(token), y(level), radius, 0, 7);
      pen.fill();
    }
  }
}

/**
 * Bars for the share of every input token in the followed token; bars of special tokens are horizontal, outside the
 * scale of the others, and are full at 100 %.
 */
export function drawBars(
  pen: CanvasRenderingContext2D,
  { cell, y }: Grid,
  masses: Float64Array,
  inks: Inks,
  apart: readonly number[],
): void {
  const top = Math.max(...masses.filter((_, token) => !apart[token])) || 1;
  const from = y(0) + 8;
  const room = y(-0.5) + BARS - from - 4;
  const wide = cell * 0.7;
  const isNumbered = cell >= NUMBERED && apart.some(Boolean);
  // Setting the font of a canvas on the page forces the page to compute its styles.
  if (isNumbered) pen.font = inks.font;
  pen.textAlign = "center";
  masses.forEach((mass, token) => {
    const [x, high] = [token * cell + cell * 0.15, (mass / top) * room];
    pen.fillStyle = apart[token] ? inks.apart : inks.edge;
    if (apart[token]) {
      pen.fillRect(x, from, mass * wide, APART);
      pen.fillStyle = inks.text;
      if (isNumbered) pen.fillText(`${Math.round(100 * mass)} %`, (token + 0.5) * cell, from + APART + 12);
    } else if (high > 0.3) pen.fillRect(x, from, wide, high);
  });
}
