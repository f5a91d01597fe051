/** Texts in the views of concepts. */
import type { Theme } from "../../colour.ts";
import { assign, h, on, safeText, setFlag } from "../../dom.ts";
import type { Account } from "../base/account.ts";
import { peak, step } from "../text/rowValues.ts";
import { fillOf } from "../text/stripColour.ts";

/** The notes for the reader, in a line and in full. */
export function showNotes(account: Account, notes: readonly string[]): void {
  const count = notes.length > 1 ? `${notes.length} notes on these numbers.` : "A note on these numbers.";
  account.show(notes.length ? count : "", notes.map(safeText).join(" · "));
}

/** A text as a strip; `fill` is a colour behind all of it. */
export function textStrip(text: string, fill = "", flip = false): HTMLElement {
  const strip = h("span.concept-text", { dir: "auto", title: text, ...(flip ? { "data-flip": "" } : {}) });
  strip.append(text === "" ? "∅" : safeText(text));
  if (fill) strip.style.background = fill;
  return strip;
}

/** A part of a text with its effect on a target; null: without a value, such as blanks. */
export type Part = [text: string, value: number | null];

/**
 * A text as a strip with coloured words, on its own scale: a list with a single word in the tab order, as in the strips
 * of tokens. The text is unchanged.
 */
export function colouredStrip(text: string, parts: readonly Part[], theme: Theme): HTMLElement {
  const strip = textStrip(text);
  const top = peak(parts.map(([, value]) => value ?? 0)) || 1;
  assign(strip, { role: "listbox", ariaLabel: "words", ariaOrientation: "horizontal", title: "" });
  const words = parts.map(([word, value]) => {
    if (value === null) return safeText(word);
    const { css, flips } = fillOf(value / top, theme, true);
    const span = h("span.concept-word", {
      role: "option",
      "aria-selected": "false",
      tabindex: "-1",
      "data-value": String(value),
    });
    span.append(safeText(word));
    span.style.background = css;
    setFlag(span, "data-flip", flips);
    return span;
  });
  strip.replaceChildren(...words);
  const first = strip.querySelector<HTMLElement>("[data-value]");
  if (first) first.tabIndex = 0;
  return strip;
}

/** Call with the word under the pointer or the keyboard's focus, and with null as it is left; arrow keys move along it. */
export function readWords(root: HTMLElement, signal: AbortSignal, read: (word: HTMLElement | null) => void): void {
  const wordOf = ({ target }: Event): HTMLElement | null => (target as Element).closest<HTMLElement>("[data-value]");
  const leave = (event: Event): void => {
    if (wordOf(event)) read(null);
  };
  on(root, signal, {
    pointerover(event) {
      const word = wordOf(event);
      if (word) read(word);
    },
    pointerout: leave,
    focusin(event) {
      const word = wordOf(event);
      if (!word) return;
      for (const other of word.parentElement?.querySelectorAll<HTMLElement>("[tabindex='0']") ?? [])
        other.tabIndex = -1;
      word.tabIndex = 0;
      if (word.matches(":focus-visible")) read(word);
    },
    focusout: leave,
    keydown(event) {
      const word = wordOf(event);
      const strip = word?.parentElement;
      if (!word || !strip || event.ctrlKey || event.metaKey || event.altKey) return;
      const words = [...strip.querySelectorAll<HTMLElement>("[data-value]")];
      const rtl = getComputedStyle(strip).direction === "rtl";
      const to = words[step(event.key, words.indexOf(word), words.length, rtl) ?? -1];
      if (!to) return;
      event.preventDefault();
      to.focus();
    },
  });
}
