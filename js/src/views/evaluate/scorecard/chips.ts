/**
 * A chip for each method: a click shows or hides it, a double click shows it alone, another double click shows all
 * again.
 */

import { h, on, setChildren, shortLabel } from "../../../dom.ts";
import { drawSwatch, type Look } from "../../charts/lineChart.ts";
import type { Shown } from "./scores.ts";

export interface MethodChips {
  element: HTMLElement;
  show(scores: Shown): void;
}

/** `hidden` returns the names of hidden methods; `hide` is called with those that the reader hides. */
export function createMethodChips(
  signal: AbortSignal,
  hidden: () => readonly string[],
  hide: (names: string[]) => void,
): MethodChips {
  const element = h("div.scores-chips", { role: "group", "aria-label": "methods" });
  let rows: Shown["card"]["rows"] = [];
  let drawnKey = "";
  let beforeClick: readonly string[] = [];

  const rowOf = (event: Event): number => {
    const chip = (event.target as Element).closest<HTMLElement>(".aw-scores-chip");
    return chip ? Number(chip.dataset.row) : -1;
  };
  /** Show a method alone, or all if it already was alone in `before`. */
  const solo = (row: number, before: readonly string[]): void => {
    const names = rows.flatMap(([name, baseline], other) => (baseline || other === row ? [] : [name]));
    const method = rows[row]?.[0] ?? "";
    const alone = names.every((name) => before.includes(name)) && !before.includes(method);
    hide(alone ? [] : names);
  };
  on(element, signal, {
    click(event) {
      const [name = ""] = rows[rowOf(event)] ?? [];
      if (!name || event.detail > 1) return; // the second click of two
      beforeClick = hidden();
      hide(beforeClick.includes(name) ? beforeClick.filter((other) => other !== name) : [...beforeClick, name]);
    },
    dblclick(event) {
      const row = rowOf(event);
      if (row >= 0) solo(row, beforeClick);
    },
    keydown(event) {
      const row = rowOf(event);
      if (event.key === "s" && row >= 0) solo(row, hidden());
      if (event.key === "a") hide([]);
    },
  });
  element.dataset.awKeys = "Enter: show or hide · s: show alone, or all again · a: all";

  return {
    element,
    show({ card, shown, looks }) {
      rows = card.rows;
      const methods = rows.flatMap(([name, baseline], row) => (baseline ? [] : [{ name, row }]));
      const stateKey = JSON.stringify(methods);
      element.hidden = methods.length < 2;
      if (stateKey !== drawnKey) {
        drawnKey = stateKey;
        setChildren(
          element,
          ...methods.map(({ name, row }) => {
            const hint = `${name}: click to show or hide, double click (or s) to show alone`;
            const attributes = { type: "button", title: hint, "data-row": String(row) };
            return h("button.scores-chip.inline.boxed", attributes, h("span"), shortLabel(name, 40));
          }),
        );
      }
      // Updated in place: a double click needs the same button twice.
      for (const chip of element.querySelectorAll("button")) {
        const row = Number(chip.dataset.row);
        chip.ariaPressed = String(shown.includes(row));
        setChildren(chip.firstElementChild as Element, drawSwatch(looks[row] as Look));
      }
    },
  };
}
