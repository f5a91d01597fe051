/** Tokens along the bottom, layers up the left side, and two canvases between: the front one for the followed token. */

import { assign, density, h, setFlag, setStyles } from "../../../dom.ts";
import type { Axis } from "../../../wire/wire.ts";
import { createLabels, labelRoom } from "../../maps/labels.ts";
import { BARS, type Grid } from "./paint.ts";

const NARROWEST = 6; // least width of a token in px: longer texts scroll
const WIDEST = 64;
const TALLEST = 600;
/** The largest side of a canvas, in dots, that browsers draw. */
const MOST_DOTS = 16000;
/** Distance in px that the current token keeps from the edge. */
const MARGIN = 40;

/** A token at a level: after that many layers. */
export interface Spot {
  level: number;
  token: number;
}

export interface Figure {
  element: HTMLElement;
  plot: HTMLElement;
  base: HTMLCanvasElement;
  front: HTMLCanvasElement;
  /** As of the last layout. */
  grid: Grid;
  /**
   * Fit the figure into a width; `names` are those of the levels, the last first. Returns whether everything has to be
   * redrawn.
   */
  layout(names: readonly string[], axis: Axis, width: number): boolean;
  /** The token at a position on the page. */
  find(event: MouseEvent): Spot | null;
  /**
   * Show the front canvas with a mark on a token; label its layer and token, the selected layer and the pinned token.
   */
  follow(spot: Spot | null, layer: number, over: number | undefined, pinned: number | undefined): void;
  /** Scroll a token into view. */
  reach(token: number): void;
}

export function createFigure(): Figure {
  const [base, front] = [h("canvas.flow-base"), h("canvas.flow-front")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "graph of tokens by layers" };
  const mark = h("div.flow-spot");
  const plot = h("div.flow-plot", role, base, front, mark);
  const [left, bottom] = [createLabels("left"), createLabels("top")];
  const figure = h("div.flow-figure", left.element, plot, h("i"), bottom.element);
  const element = h("div.flow-scroll", figure);
  let laidOut = "";
  let [levels, tokens, gap] = [0, 0, 0];
  const grid = {
    cell: 0,
    x: (token: number): number => (token + 0.5) * grid.cell,
    y: (level: number): number => (levels - level + 0.5) * gap,
  };

  return {
    element,
    plot,
    base,
    front,
    grid,
    layout(names, axis, width) {
      const name = JSON.stringify([names, axis, width]);
      if (width <= 0 || name === laidOut) return false;
      laidOut = name;
      const style = getComputedStyle(left.element);
      const font = `${style.fontSize} ${style.fontFamily}`;
      levels = names.length - 1;
      tokens = axis.labels.length;
      gap = Math.round(Math.max(16, Math.min(56, TALLEST / names.length)));
      const leftRoom = labelRoom(names, gap, font, 90);
      let cell = Math.max(NARROWEST, Math.min(WIDEST, (width - leftRoom - 4) / tokens));
      if (cell > 12) cell = Math.floor(cell);
      const bottomRoom = labelRoom(axis.labels, cell, font, 120);
      left.layout({ labels: names, special: [], cell: gap, room: leftRoom });
      bottom.layout({ ...axis, cell, room: bottomRoom });
      const high = gap * names.length + BARS;
      const sizes = {
        left: leftRoom,
        width: Math.round(cell * tokens),
        height: high,
        below: bottom.flat() ? 18 : bottomRoom,
      };
      for (const [key, size] of Object.entries(sizes)) figure.style.setProperty(`--aw-flow-${key}`, `${size}px`);
      for (const canvas of [base, front]) {
        const dots = Math.min(density(), MOST_DOTS / sizes.width, MOST_DOTS / high);
        canvas.width = Math.round(sizes.width * dots);
        canvas.height = Math.round(high * dots);
        canvas.getContext("2d")?.setTransform(dots, 0, 0, dots, 0, 0);
      }
      grid.cell = cell;
      return true;
    },
    find(event) {
      const box = plot.getBoundingClientRect();
      const token = Math.floor((event.clientX - box.left) / grid.cell);
      const level = levels - Math.floor((event.clientY - box.top) / gap);
      return token < 0 || token >= tokens || level > levels ? null : { level: Math.max(0, level), token };
    },
    follow(spot, layer, over, pinned) {
      left.mark(spot ? levels - spot.level : undefined, levels - 1 - layer);
      bottom.mark(spot?.token ?? over, pinned);
      setFlag(plot, "data-followed", spot !== null);
      assign(front, { hidden: !spot });
      assign(mark, { hidden: !spot });
      if (spot) setStyles(mark, { transform: `translate(${grid.x(spot.token) - 6}px, ${grid.y(spot.level) - 6}px)` });
    },
    reach(token) {
      const [from, until] = [element.scrollLeft, element.scrollLeft + element.clientWidth];
      const place = grid.x(token) + plot.offsetLeft;
      if (place < from + MARGIN || place > until - MARGIN) element.scrollLeft = place - element.clientWidth / 2;
    },
  };
}
