/** Tools of a strip: a search field that unfolds, and in the menu the density and the position of colour. */
import type { ViewContext } from "../../context.ts";
import { h, iconButton, keyboard, on, setChildren, setFlag, setText } from "../../dom.ts";
import type { TokenStripOptions } from "../../wire/viewState.ts";
import { plural } from "../base/navigation.ts";
import { FIND } from "../base/signs.ts";
import { only, view } from "../base/view.ts";
import { drawing } from "../charts/svg.ts";
import { findHits, type Hit } from "./find.ts";

/** How the tools act on their strip; passed in through the context. */
export interface StripHost {
  readonly view: HTMLElement;
  readonly texts: HTMLElement;
  /** Its lines in the view's menu. */
  readonly menu: HTMLElement;
  /** Whether another view holds it. */
  readonly isInside: boolean;
  labels(): readonly string[];
  /**
   * Whether colour is below the text; the width of a line around an element; how small a value gets the full colour.
   */
  paint(line: boolean, edge: ((index: number) => number) | undefined, intensity: number): void;
  /** Scroll an element into view; `chosen` also focuses it. */
  reach(index: number, chosen: boolean): void;
  /** An extra note about an element. */
  note(index: number): string;
}

/**
 * Write how far ranks vary between defensible choices; returns a function that hatches the elements whose rank is
 * unstable.
 */
function createRankNotes(ctx: ViewContext, strip: StripHost, words: HTMLElement): (() => void) | null {
  const { ranks } = ctx.options as TokenStripOptions;
  if (!ranks) return null;
  const hasRanks = (): boolean => ranks.unit === ctx.source().unit;
  const choices = (): string => `${ranks.versions} defensible choice${ranks.versions === 1 ? "" : "s"}`;
  const rank = (i: number): string => {
    const [low, high] = [ranks.low[i], ranks.high[i]];
    return `rank ${low === high ? low : `${low} to ${high}`} over ${choices()}`;
  };
  strip.note = (i) => (hasRanks() ? ` · ${rank(i)}` : "");
  // The elements of the strip are built after these tools.
  return () => {
    const applies = hasRanks();
    for (const el of strip.texts.querySelectorAll<HTMLElement>(".aw-tok")) {
      const i = Number(el.dataset.i);
      setFlag(el, "data-unsettled", applies && Boolean(ranks.unsettled[i]));
      if (applies && ranks.unsettled[i]) el.title = rank(i);
      else if (el.title.startsWith("rank ")) el.removeAttribute("title");
    }
    const count = ranks.unsettled.filter(Boolean).length;
    const of = `${count} of ${ranks.unsettled.length} ${plural(ranks.unit)}`;
    const survival = count
      ? `hatched: the ranking of ${of} does not survive`
      : `the ranking of all ${plural(ranks.unit)} survives`;
    setText(words, applies ? `${survival} ${choices()}` : `ranks are known only for ${plural(ranks.unit)}`);
  };
}

function createIntensity(): HTMLInputElement {
  return h("input.range", {
    type: "range",
    max: "6",
    step: "0.5",
    value: "0",
    "aria-label": "colour intensity: lowers the value that gets the full colour",
    title: "Colour intensity: move right to see small values. Double-click resets.",
  });
}

function createSearchField(): HTMLInputElement {
  return h("input.button", {
    type: "search",
    placeholder: "find",
    "aria-label": "find in the text",
    title: "Press / to search, Enter for the next match, Shift+Enter for the previous one, Escape to go to it.",
  });
}

export const renderStripTools = view((ctx, root, signal) => {
  const { strip } = ctx as ViewContext & { strip: StripHost };
  const covered = new Map<number, number>();
  let hits: Hit[] = [];
  let now = 0;
  let text = "";

  const toggle = (name: string, changed: (on: boolean) => void): HTMLInputElement => {
    const box = h("input", { type: "checkbox" });
    strip.menu.append(h("label.form-line", name, box));
    on(box, signal, { change: () => changed(box.checked) });
    return box;
  };
  toggle("compact: smaller type, narrower lines", (pressed) => setFlag(strip.texts, "data-compact", pressed));
  const underline = toggle("colour below the text", () => paint());
  const intensity = createIntensity();
  if (!strip.isInside) strip.menu.prepend(h("label.form-line", "colour intensity", intensity));
  on(intensity, signal, {
    input: () => paint(),
    dblclick() {
      intensity.value = "0";
      paint();
    },
  });
  const field = createSearchField();
  const count = h("output");
  const less = iconButton(signal, "‹", "previous match", () => go(-1));
  const more = iconButton(signal, "›", "next match", () => go(1));
  const open = iconButton(signal, "", "find in the text (/)", () => unfold(Boolean(find.hidden)));
  const find = h("span.field.find", { hidden: "", "data-idle": "" }, field, count, less, more);
  const ranked = h("span.note");
  setChildren(open, drawing(FIND));
  setChildren(root, find, ...(strip.isInside ? [] : [open]));
  strip.texts.after(ranked);
  const unfold = (is: boolean): void => {
    find.hidden = !is;
    if (is) field.focus();
    else if (field.value) {
      field.value = "";
      search();
    }
  };

  const hatch = createRankNotes(ctx, strip, ranked);
  const paint = (): void => {
    const edge = (index: number): number => covered.get(index) ?? 0;
    strip.paint(underline.checked, covered.size > 0 ? edge : undefined, Number(intensity.value));
  };

  const mark = (): void => {
    covered.clear();
    hits.forEach(([from, to], i) => {
      for (let k = from; k <= to; k += 1) if (covered.get(k) !== 2) covered.set(k, i === now ? 2 : 1);
    });
    const hitWords = hits.length > 0 ? `${now + 1} of ${hits.length}` : "not found";
    setText(count, field.value.trim() ? hitWords : "");
    for (const button of [less, more]) button.disabled = hits.length < 2;
    setFlag(find, "data-idle", !field.value);
    paint();
  };
  const search = (): void => {
    now = 0;
    hits = findHits(strip.labels(), field.value);
    mark();
  };
  const go = (by: number): void => {
    if (hits.length === 0) return;
    now = (now + by + hits.length) % hits.length;
    mark();
    strip.reach((hits[now] as Hit)[0], false);
  };
  on(field, signal, {
    input() {
      search();
      if (hits[0]) strip.reach(hits[0][0], false);
    },
  });
  keyboard(field, signal, {
    Enter: () => go(1),
    "Shift+Enter": () => go(-1),
    Escape() {
      const hit = hits[now];
      unfold(false);
      if (hit) strip.reach(hit[0], true);
      else (strip.isInside ? strip.texts.querySelector<HTMLElement>("[tabindex='0']") : open)?.focus();
    },
  });
  on(strip.view, signal, {
    keydown(event) {
      if (event.key !== "/" || (event.target as Element).closest("input:not([type=range])")) return;
      event.preventDefault();
      unfold(true);
    },
  });
  return (changed) => {
    if (hatch && !only(changed, "hover", "pinned")) requestAnimationFrame(hatch);
    if (changed.size > 0 && ![...changed].some((name) => ["unit", "method", "stack", "header"].includes(name))) return;
    const other = strip.labels().join();
    if (text !== other && field.value) search();
    text = other;
  };
});
