/** How much of a target its attributions account for, in a sentence; the sums behind it are a click away. */
import { assign, h, setText } from "../../dom.ts";
import type { Source } from "../../wire/wire.ts";
import { createPopover } from "./popover.ts";

export interface Account {
  element: HTMLElement;
  /** Show the sentence, and the button if there are details. */
  show(words: string, details?: string): void;
}

export function createAccount(signal: AbortSignal): Account {
  const [words, panel] = [h("span"), h("div.menu.account")];
  const button = h("button.details", { type: "button", hidden: "" }, "Details");
  createPopover(button, panel, signal, () => undefined);
  const element = h("p.sums", { hidden: "" }, words, " ", button, panel);
  return {
    element,
    show(sentence, details = "") {
      setText(words, sentence);
      setText(panel, details);
      assign(button, { hidden: !details });
      assign(element, { hidden: !sentence });
    },
  };
}

/** The sums of these targets and the method's verdict on them. */
export const detailsOf = ({ sums, verdict }: Source, rows: readonly string[] = sums): string =>
  [...rows, verdict].filter(Boolean).join(" · ");
