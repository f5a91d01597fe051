/** The elements outside a window of a long text, counted at its edges: a click on "122 later" moves it there. */

import { assign, h, on, setFlag, setText } from "../../dom.ts";
import type { AxisPart } from "./axisPart.ts";

export interface Edges {
  /** Above the labels of the rows, below them, and below the columns. */
  corner: HTMLElement;
  below: HTMLElement;
  foot: HTMLElement;
  /** Count the elements outside the windows of these axes; `isLong`: the whole map is too dense to be read. */
  show(query: AxisPart, key: AxisPart, isLong: boolean, isWhole: boolean): void;
}

/** `move` moves the window by pages; `whole` switches between window and whole map. */
export function createEdges(signal: AbortSignal, move: (rows: number, cols: number) => void, whole: () => void): Edges {
  const button = (rows: number, cols: number): HTMLButtonElement => {
    // The arrow keys of the map move there, too.
    const el = h("button.edge", { type: "button", tabindex: "-1" });
    on(el, signal, { click: () => move(rows, cols) });
    return el;
  };
  const [up, down, left, right] = [button(-1, 0), button(1, 0), button(0, -1), button(0, 1)];
  const all = h("button.edge.edge-all", { type: "button" });
  on(all, signal, { click: whole });
  const [corner, below, foot] = [h("div.corner", up), h("div.below", down), h("div.foot", left, all, right)];
  const say = (el: HTMLElement, count: number, words: string): void => {
    if (setText(el, words)) el.title = words;
    el.style.visibility = count > 0 ? "" : "hidden";
  };
  return {
    corner,
    below,
    foot,
    show(query, key, isLong, isWhole) {
      for (const el of [corner, below, foot]) assign(el, { hidden: !isLong });
      if (!isLong) return;
      const [above, before] = [query.start, key.start].map((n) => (isWhole ? 0 : n)) as [number, number];
      const [under, after] = [query, key].map(({ inside, start, count }) =>
        isWhole ? 0 : inside.length - start - count,
      ) as [number, number];
      say(up, above, `↑ ${above} earlier`);
      say(down, under, `↓ ${under} later`);
      say(left, before, `← ${before} earlier`);
      say(right, after, `${after} later →`);
      setText(all, isWhole ? "part of it, readable" : "whole map");
      all.title = isWhole
        ? "Show a part of the map that can be read"
        : `Show all ${query.inside.length} × ${key.inside.length} cells, each pixel the largest of several`;
      setFlag(all, "data-whole", isWhole);
    },
  };
}
