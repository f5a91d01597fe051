/** A row of attention before and after, as two lanes of bars over the same keys. */
import type { ViewContext } from "../../context.ts";
import { directionOf, h, on, setFlag, setSizes, shortLabel, thinned } from "../../dom.ts";
import { type Box, createChosen } from "../base/chosen.ts";
import { createPicking } from "../base/gestures.ts";
import { styleValue } from "../base/styleValue.ts";
import { sharpContext } from "../heads/neuron/ink.ts";

export interface Strips {
  element: HTMLElement;
  /** Returns the value of the highest bar. */
  draw(labels: readonly string[], before: Float32Array, after: Float32Array, key: number, width: number): number;
  /** Outline keys chosen together, and draw the span. */
  choose(keys: readonly number[], span: readonly [number, number] | null): void;
}

export interface StripsEvents {
  /** The key under the pointer or the keyboard cursor; -1: none. */
  point(key: number): void;
  pin(key: number): void;
  /** Shift + click. */
  toggle(key: number): void;
  /** A drag, both ends included. */
  span(first: number, last: number): void;
}

const LANE = 28;
const GAP = 12;
const NAMES = 44;
/** px along the bars that a label needs, lying and rising. */
const [LABEL, RISING] = [44, 16];

/** The values of a lane as bars, up to `most`; the pen is left faint, for the line below them. */
function paintLane(
  pen: CanvasRenderingContext2D,
  lane: number,
  values: ArrayLike<number> & Iterable<number>,
  most: number,
  cell: number,
  column: (key: number) => number,
): void {
  const base = lane * (LANE + GAP) + LANE;
  const inset = cell > 5 ? 1 : 0;
  for (const [i, value] of [...values].entries()) {
    const high = value > 0 ? Math.max(0.75, ((LANE - 1) * value) / most) : 0;
    pen.fillRect(column(i) * cell, base - high, Math.max(0.6, cell - inset), high);
  }
  pen.globalAlpha = 0.4;
}

/** Labels below the bars, those that fit. */
function showLabels(
  below: HTMLElement,
  labels: readonly string[],
  cell: number,
  column: (key: number) => number,
): void {
  const room = cell * labels.length;
  const rises = cell < LABEL;
  setFlag(below, "data-slant", rises);
  below.replaceChildren(
    ...thinned(labels.length, cell, rises ? RISING : LABEL).map((i) => {
      const text = shortLabel(labels[i] as string, 12);
      const label = h("bdi", { title: text }, text);
      // The last lying label stays within the picture.
      if (!rises) label.style.maxWidth = `${cell}px`;
      label.style.left = `${Math.min(room - (rises ? 0 : LABEL / 2), (column(i) + 0.5) * cell)}px`;
      return label;
    }),
  );
}

export function createStrips(
  ctx: Pick<ViewContext, "theme">,
  signal: AbortSignal,
  { point, pin, toggle, span }: StripsEvents,
): Strips {
  const canvas = h("canvas");
  const cursor = h("div.lanes-cursor");
  const chosen = h("div.lanes-cursor.lanes-key");
  const plot = h(
    "div.lanes-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "row of attention" },
    canvas,
    chosen,
    cursor,
  );
  const names = h(
    "div.lanes-names",
    { "aria-hidden": "true" },
    h("span.lanes-was", "before"),
    h("span.lanes-is", "now"),
  );
  const below = h("div.lanes-labels", { "aria-hidden": "true" });
  const element = h("div.lanes", names, plot, h("i"), below);
  let [count, room, at] = [0, 0, -1];
  let isRtl = false;
  /** The column of a key, counted from the left, and the key of a column. */
  const column = (key: number): number => (isRtl ? count - 1 - key : key);
  const mark = (el: HTMLElement, key: number): void => {
    el.hidden = key < 0 || key >= count;
    el.style.left = `${(column(key) * room) / Math.max(1, count)}px`;
    el.style.width = `${Math.max(1, room / Math.max(1, count))}px`;
  };
  const go = (key: number): void => {
    at = key;
    mark(cursor, key);
    point(key);
  };
  const under = ({ clientX }: MouseEvent): number => {
    const box = plot.getBoundingClientRect();
    return column(Math.max(0, Math.min(count - 1, Math.floor(((clientX - box.left) / box.width) * count))));
  };
  const several = createChosen(canvas);
  createPicking(plot, { element: plot, size: () => (count ? [1, count] : null) }, signal, {
    along: "cols",
    toggle: ([, key]) => toggle(column(key)),
    drag: ([, first], [, last]) => span(column(first), column(last)),
  });
  on(plot, signal, {
    pointermove: (event) => go(under(event)),
    pointerleave: () => go(-1),
    blur: () => go(-1),
    click: (event) => pin(under(event)),
    keydown(event) {
      const ahead = isRtl ? -1 : 1;
      const step = { ArrowLeft: at - ahead, ArrowRight: at + ahead, Home: 0, End: count - 1 }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (step !== undefined) go(Math.max(0, Math.min(count - 1, step)));
      else if ((event.key === "Enter" || event.key === " ") && at >= 0) pin(at);
      else if (event.key === "Escape") go(-1);
      else return;
      event.preventDefault();
    },
  });
  plot.dataset.awKeys = "← →: key · Enter: pin it";
  return {
    element,
    choose(keys, span) {
      const cell = room / Math.max(1, count);
      const boxes = keys.map((key): Box => [column(key) * cell, 0, cell, 2 * LANE + GAP]);
      const [from, to] = span ? [column(span[0]), column(span[1] - 1)].sort((a, b) => a - b) : [0, -1];
      several.draw(boxes, [], span ? [[(from as number) * cell, ((to as number) + 1) * cell]] : []);
    },
    draw(labels, before, after, key, width) {
      count = labels.length;
      isRtl = directionOf(labels) === "rtl";
      room = Math.max(40, width - NAMES);
      setSizes(element, { lanes: room });
      const pen = sharpContext(canvas, room, 2 * LANE + GAP);
      let most = 0;
      for (const value of [...before, ...after]) most = Math.max(most, value);
      if (!pen) return most;
      const cell = room / count;
      [before, after].forEach((values, lane) => {
        const name = names.children[lane] as Element;
        pen.fillStyle = (lane === 0 && styleValue(ctx, name, "--aw-apart")) || styleValue(ctx, name, "color");
        paintLane(pen, lane, values, most, cell, column);
        pen.fillRect(0, lane * (LANE + GAP) + LANE, room, 1);
        pen.globalAlpha = 1;
      });
      showLabels(below, labels, cell, column);
      mark(chosen, key);
      mark(cursor, at);
      plot.ariaLabel = `row of attention over ${count} keys, before and after. Arrow keys move, Enter pins a key.`;
      return most;
    },
  };
}
