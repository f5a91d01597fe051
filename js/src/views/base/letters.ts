/** Keys that are letters, for a whole view. */
import { on } from "../../dom.ts";

/** Handle a letter in an element, unless the focused element takes text or has handled it. */
export function onLetter(el: HTMLElement, signal: AbortSignal, letter: string, act: () => void): void {
  on(el, signal, {
    keydown(event) {
      const takesLetters = (event.target as Element).closest("input:not([type=range], [type=radio]), select, textarea");
      if (event.key !== letter || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.defaultPrevented || takesLetters) return;
      event.preventDefault();
      act();
    },
  });
}
