/** Find a token of the text by its words or its number; the map moves its window there. */
import type { ViewContext } from "../../context.ts";
import { h, keyboard, on, setText } from "../../dom.ts";
import { findHits, type Hit } from "../text/find.ts";

export interface Find {
  element: HTMLElement;
  show(): void;
}

/** Elements from which on a text has a field to search it. */
const LONG = 30;

/** `reveal` scrolls an element of the text into view. */
export function createFind(ctx: ViewContext, signal: AbortSignal, reveal: (index: number) => void): Find {
  const field = h("input.button.find-field", {
    type: "search",
    placeholder: "find",
    "aria-label": "find in the text, by words or position",
    title: "Words, or the number of a token. Enter: pin it, then the next match.",
  });
  const count = h("output.dim");
  const element = h("span.finding", field, count);
  let hits: Hit[] = [];
  let now = 0;
  const labels = (): readonly string[] => ctx.axisOf(ctx.source().key).labels;
  const cellOf = (index: number) => {
    const { unit, kind } = ctx.source();
    return kind === "map" ? { unit, query: index, key: -1 } : { unit, query: 0, key: index };
  };
  const go = (pins: boolean): void => {
    const hit = hits[now];
    const text = field.value.trim();
    setText(count, text ? (hit ? `${now + 1} of ${hits.length}` : "not found") : "");
    if (!hit) {
      ctx.selection.hover(null);
      return;
    }
    if (pins) ctx.selection.set({ pinned: cellOf(hit[0]) });
    else ctx.selection.hover(cellOf(hit[0]));
    reveal(hit[0]);
  };
  on(field, signal, {
    input() {
      const text = field.value.trim();
      now = 0;
      hits = text ? findHits(labels(), text) : [];
      const index = Number(text) - ctx.options.indexBase;
      if (hits.length === 0 && /^\d+$/.test(text) && index >= 0 && index < labels().length) hits = [[index, index]];
      go(false);
    },
    blur: () => ctx.selection.hover(null),
  });
  let pinned = -1;
  const step = (by: number) => (): void => {
    if (hits.length === 0) return;
    // The first Enter takes the match that is shown.
    if (pinned === hits[now]?.[0]) now = (now + by + hits.length) % hits.length;
    pinned = hits[now]?.[0] ?? -1;
    go(true);
  };
  keyboard(field, signal, { Enter: step(1), "Shift+Enter": step(-1) });
  return {
    element,
    show() {
      element.hidden = labels().length < LONG;
    },
  };
}
