/** Texts in the views of concepts. */
import { h, safeText, setText } from "../../dom.ts";

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
