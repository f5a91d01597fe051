/** A long text as one line of colour, one cell per element: stands in for a strip if there is no room for words. */
import { density, h, on, place, watchWidth } from "../../dom.ts";
import type { StripEvents } from "./strip.ts";
import { type Fill, NOTHING } from "./stripColour.ts";

export interface Band {
  box: HTMLElement;
  paint(fill: (index: number) => Fill): void;
  mark(name: "aw-query" | "aw-key", index: number): void;
}

const HEIGHT = 20;

/** A band of `count` elements under a caption. It reacts to the pointer only; the text beside it handles the keys. */
export function createBand(count: number, caption: string, events: StripEvents, signal: AbortSignal): Band {
  const canvas = h("canvas");
  const marks = { "aw-query": h("div.band-mark.band-query"), "aw-key": h("div.band-mark") };
  const line = h("div.band-line", canvas, ...Object.values(marks));
  const box = h("div.strip.strip-band", h("div.strip-name", caption), line);
  const at = { "aw-query": -1, "aw-key": -1 };
  let fillOf: (index: number) => Fill = () => NOTHING;
  let width = 0;

  const draw = (): void => {
    const pen = canvas.getContext("2d");
    if (width <= 0 || !pen) return;
    canvas.width = Math.round(width * density());
    canvas.height = HEIGHT;
    const size = canvas.width / count;
    for (let i = 0; i < count; i += 1) {
      const { css } = fillOf(i);
      if (!css) continue;
      pen.fillStyle = css;
      pen.fillRect(Math.floor(i * size), 0, Math.max(1, Math.ceil(size)), HEIGHT);
    }
  };
  const follow = (): void => {
    const size = width / count;
    for (const name of ["aw-query", "aw-key"] as const) place(marks[name], at[name] * size, 0, size, HEIGHT);
  };
  const indexOf = (event: MouseEvent): number => {
    const { left, width: wide } = line.getBoundingClientRect();
    return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - left) / wide) * count)));
  };
  on(line, signal, {
    pointermove: (event) => events.hover(indexOf(event)),
    pointerleave: () => events.hover(-1),
    click: (event) => events.pin(indexOf(event)),
  });
  watchWidth(line, signal, (now) => {
    width = now;
    draw();
    follow();
  });
  return {
    box,
    paint(fill) {
      fillOf = fill;
      draw();
    },
    mark(name, index) {
      at[name] = index;
      follow();
    },
  };
}
