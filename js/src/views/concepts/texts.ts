/** Texts in the views of concepts. */
import type { Theme } from "../../colour.ts";
import { h, safeText, setFlag, setText } from "../../dom.ts";
import { fillOf } from "../text/stripColour.ts";

/** What a reader must know, in a line and in full. */
export function showNotes(element: HTMLElement, notes: readonly string[]): void {
  setText(element, notes.map(safeText).join(" · "));
  element.title = notes.map(safeText).join("\n");
}

/** A text as a strip; `fill` is a colour behind all of it. */
export function textStrip(text: string, fill = "", flip = false): HTMLElement {
  const strip = h("span.concept-text", { dir: "auto", title: text, ...(flip ? { "data-flip": "" } : {}) });
  strip.append(text === "" ? "∅" : safeText(text));
  if (fill) strip.style.background = fill;
  return strip;
}

/** A part of a text with what it does to a target; null: nothing is known, as of blanks. */
export type Part = [text: string, value: number | null];

/** A text as a strip whose words are coloured, on a scale of its own. */
export function colouredStrip(text: string, parts: readonly Part[], theme: Theme): HTMLElement {
  const strip = textStrip(text);
  const top = Math.max(...parts.map(([, value]) => Math.abs(value ?? 0))) || 1;
  const words = parts.map(([word, value]) => {
    if (value === null) return safeText(word);
    const { css, flips } = fillOf(value / top, theme, true);
    const span = h("span.concept-word", { "data-value": String(value) }, safeText(word));
    span.style.background = css;
    setFlag(span, "data-flip", flips);
    return span;
  });
  strip.replaceChildren(...words);
  return strip;
}
