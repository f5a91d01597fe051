/** The placeholder of a missing picture: its outline, the reason, and advice. */
import { h, on } from "../../dom.ts";
import { drawing } from "../charts/svg.ts";

/** A table of cells with nothing in them. */
const OUTLINE = "M1 1 H63 V47 H1 Z M1 13 H63 M1 24 H63 M1 36 H63 M17 1 V47 M32 1 V47 M48 1 V47";

export interface BlankParts {
  words: string;
  /** Failures are announced immediately. */
  role?: "alert" | "note";
  /** Advice for the reader. */
  advice?: string;
  retry?: () => void;
}

export function createBlank(signal: AbortSignal, { words, role = "alert", advice, retry }: BlankParts): HTMLElement {
  const again = h("button.button", { type: "button" }, "Retry");
  if (retry) on(again, signal, { click: retry });
  return h(
    "div.blank",
    { role },
    drawing(OUTLINE, "64 48"),
    h("b", words),
    ...(advice ? [h("span.dim", advice)] : []),
    ...(retry ? [again] : []),
  );
}
