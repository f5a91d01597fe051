/** A text on the page whose tokens can be hovered, chosen, and walked through with keys. */
import type { ViewContext } from "../../context.ts";
import { h, keyboard, on, setFlag } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { pickText, type TextPicks } from "../base/gestures.ts";
import { navigation, plural } from "../base/navigation.ts";
import { step } from "./rowValues.ts";
import { buildTokens } from "./tokens.ts";
import { createUnderlay, type Underlay } from "./underlay.ts";

export interface Strip {
  box: HTMLElement;
  underlay: Underlay;
  /** Set a class on a token, and announce the query to screen readers; -1: none. */
  mark(name: "aw-query" | "aw-key", index: number): void;
  /** Mark tokens chosen together, as queries and as keys, and the span. */
  choose(queries: readonly number[], keys: readonly number[], span: readonly [number, number] | null): void;
  /** Scroll an element into view; `chosen` also focuses it. */
  reach(index: number, chosen: boolean): void;
  /** Scroll `box` until an element is visible in it; the page does not scroll. */
  keepIn(box: HTMLElement, index: number): void;
}

export interface StripEvents extends Partial<TextPicks> {
  /** The element under the pointer or the keyboard focus; -1: none. */
  hover(index: number): void;
  pin(index: number): void;
}

/** A strip for an axis; `caption` is above it if there are several. */
export function createStrip(
  ctx: ViewContext,
  axis: Axis,
  caption: string,
  marks: ReadonlySet<number>,
  events: StripEvents,
  signal: AbortSignal,
  breaks: ReadonlySet<number> = new Set(),
): Strip {
  const name = `${caption || "text"}, ${axis.labels.length} ${plural(axis.unit)}`;
  const { list, spans, chunks, rtl, spaced } = buildTokens(axis, name, marks, breaks);
  const layer = h("div.underlay", { "aria-hidden": "true" });
  const box = h("div.strip", layer, ...(caption ? [h("div.strip-name", caption)] : []), list);
  setFlag(box, "data-spaced", spaced);
  let active = 0;
  const marked: Record<string, HTMLElement | undefined> = {};
  const chosen: Record<string, Set<number>> = {};

  const indexOf = (event: Event): number => {
    const token = (event.target as Element).closest<HTMLElement>(".aw-tok");
    return token ? Number(token.dataset.i) : -1;
  };
  /** A single token of a list is in the tab order; the arrow keys move the tab stop. */
  const move = (index: number): HTMLElement | undefined => {
    const [old, next] = [spans[active], spans[index]];
    if (!old || !next) return undefined;
    old.tabIndex = -1;
    next.tabIndex = 0;
    active = index;
    return next;
  };

  on(list, signal, {
    pointerover: (event) => events.hover(indexOf(event)),
    pointerleave: () => events.hover(-1),
    focusout: () => events.hover(-1),
    click(event) {
      // A click that ends a text selection does not choose the token under it.
      const selected = getSelection();
      if (selected && !selected.isCollapsed && list.contains(selected.anchorNode)) return;
      const index = indexOf(event);
      if (move(index)) events.pin(index);
    },
    focusin(event) {
      const index = indexOf(event);
      if (move(index)?.matches(":focus-visible")) events.hover(index);
    },
  });
  const { toggle, span } = events;
  if (toggle && span) pickText(list, spans, signal, { toggle, span });
  /** Where the span began that Shift and arrows extend. */
  let anchor: number | null = null;
  const go = (key: string): void => move(step(key, active, spans.length, rtl) ?? active)?.focus();
  const along = (key: string) => (): void => {
    anchor = null;
    go(key);
  };
  const extend = (key: string) => (): void => {
    anchor ??= active;
    go(key);
    span?.(anchor, active);
  };
  const pin = (): void => events.pin(active);
  const keys = ["ArrowLeft", "ArrowRight", "Home", "End"].map((key) => [key, along(key)]);
  const extending = ["ArrowLeft", "ArrowRight", "Home", "End"].map((key) => [`Shift+${key}`, extend(key)]);
  const several = toggle ? { "Shift+Enter": () => toggle(active), ...Object.fromEntries(extending) } : {};
  const words = `← →: token · ↑ ↓: layer · Enter: pin · ${toggle ? "Shift + Enter: pin several · Shift + ← →: span · " : ""}Escape: unpin`;
  keyboard(list, signal, { ...navigation(ctx), ...Object.fromEntries(keys), Enter: pin, " ": pin, ...several }, words);

  return {
    box,
    underlay: createUnderlay(box, layer, chunks, signal),
    reach(index, chosen) {
      if (chosen) move(index)?.focus();
      else spans[index]?.scrollIntoView({ block: "nearest" });
    },
    keepIn(box, index) {
      const [around, token] = [box.getBoundingClientRect(), spans[index]?.getBoundingClientRect()];
      if (!token) return;
      const [above, below] = [token.top - around.top, token.bottom - around.bottom];
      if (above < 0) box.scrollTop += above;
      else if (below > 0) box.scrollTop += below;
    },
    choose(queries, keys, span) {
      const [start, stop] = span ?? [0, 0];
      const covered = Array.from({ length: stop - start }, (_, i) => start + i);
      const marked = { "aw-tok-chosen": queries, "aw-tok-chosen-key": keys, "aw-in-span": covered };
      for (const [name, indices] of Object.entries(marked)) {
        const before = chosen[name] ?? new Set();
        const now = new Set(indices);
        for (const i of before) if (!now.has(i)) spans[i]?.classList.remove(name);
        for (const i of now) if (!before.has(i)) spans[i]?.classList.add(name);
        chosen[name] = now;
      }
    },
    mark(kind, index) {
      const [old, now] = [marked[kind], spans[index]];
      if (old === now) return;
      marked[kind] = now;
      old?.classList.remove(kind);
      now?.classList.add(kind);
      if (kind !== "aw-query") return;
      if (old) old.ariaSelected = "false";
      if (now) now.ariaSelected = "true";
    },
  };
}
