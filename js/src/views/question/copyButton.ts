/** A button that copies a line of text, and briefly shows that it did. */
import { assign, h, on, reserve, setText } from "../../dom.ts";
import { toClipboard } from "../base/clipboard.ts";

const COPIED = "Copied";
const COPIED_MS = 1600;

/** `refused` is called where the page may not write to the clipboard. */
export function createCopy(
  classes: string,
  text: () => string,
  signal: AbortSignal,
  refused: (text: string) => void,
): { element: HTMLButtonElement; show(label: string, title?: string): void } {
  const element = h(`button.button.${classes}`, { type: "button" });
  let label = "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  on(element, signal, {
    click: async () => {
      const copied = text();
      if (!(await toClipboard(copied, element.parentElement ?? document.body))) {
        refused(copied);
        return;
      }
      setText(element, COPIED);
      clearTimeout(timer);
      timer = setTimeout(() => setText(element, label), COPIED_MS);
    },
  });
  return {
    element,
    show(words, title = "") {
      assign(element, { title });
      if (words === label) return;
      label = words;
      clearTimeout(timer);
      setText(element, label);
      reserve(element, label, COPIED);
    },
  };
}
