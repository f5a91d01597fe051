/** The prediction with all tokens and the current one: two bars, one below the other. */

import { h, setChildren } from "../../../dom.ts";
import { type Mode, predictedWords, type Removal, valueWithAll, valueWords } from "./steps.ts";

export function drawPredictionChange(element: HTMLElement, removal: Removal, mode: Mode, step: number): void {
  const line = (name: string, value: number | undefined, says: string, bar: HTMLElement): HTMLElement[] => {
    const filled = bar.firstElementChild as HTMLElement;
    filled.style.width = `${(100 * Math.max(0, Math.min(1, value || 0))).toFixed(1)}%`;
    if (removal.score !== "probability") bar.style.visibility = "hidden";
    return [h("span", name), bar, h("b", valueWords(removal, value)), h("span.says", says)];
  };
  const predicts = (which: Mode, at: number): string => predictedWords(removal, which, at, "predicts ");
  setChildren(
    element,
    ...line("all tokens", valueWithAll(removal), predicts("gone", 0), h("span.bar.was", h("span"))),
    ...line("now", removal.values[mode][step], predicts(mode, step), h("span.bar", h("span"))),
  );
}
