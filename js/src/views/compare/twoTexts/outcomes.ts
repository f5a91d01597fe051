/** The predictions of two texts: as chips next to each text, and as paired bars. */

import type { ViewContext } from "../../../context.ts";
import { h, keyboard, on, setChildren, setFlag, setStyles, setText, shortLabel } from "../../../dom.ts";
import { percent, printed } from "../../../numbers.ts";
import { foldRow } from "../../base/foldRow.ts";
import { canExplain, explainOutcome } from "../../text/outcomeChoice.ts";

/** The answer to "predictions"; probabilities of both texts, or numbers of a regression. */
export interface Outcomes {
  titles: [string, string];
  chips: [Chip[], Chip[]];
  rows: [id: number, label: string, first: number, second: number][];
  /** Why their probabilities are not compared, or "". */
  reason: string;
  /** The target that both texts are explained for, unless the reader chose another. */
  target: number | null;
}

/** Without a probability it is a number, which the label spells. */
export type Chip = [id: number, label: string, probability: number | null];

/** Ids of the target and of the foil; null: none. */
export type Chosen = readonly [number | null, number | null];

/** Rows of the paired bars. */
const MOST = 7;

const bare = (label: string): string => shortLabel(label.replace(/^[␣▁]/, "") || label, 20);

/** The chips of a text. */
export function createChips(
  ctx: ViewContext,
  signal: AbortSignal,
): { element: HTMLElement; show(chips: Chip[], chosen: Chosen, title: string): void } {
  const element = h("div.two-chips", { role: "group" });
  const row = foldRow(element, signal);
  let shown: Chip[] = [];
  let drawn = "";
  const choose = (target: EventTarget | null, asFoil: boolean): void => {
    const item = shown[[...element.children].indexOf((target as Element).closest(".aw-chip") as Element)];
    if (item) explainOutcome(ctx, { id: item[0], label: item[1] }, asFoil, ctx.source().method);
  };
  on(element, signal, { click: ({ target, shiftKey }) => choose(target, shiftKey) });
  keyboard(
    element,
    signal,
    { "Shift+Enter": () => choose(document.activeElement, true) },
    "Enter: explain this prediction in both texts · Shift+Enter: rather than this one",
  );
  return {
    element,
    show(chips, [target, foil], title) {
      const { explained, method } = ctx.header().predictions;
      const state = JSON.stringify([chips, target, foil, method, explained]);
      if (state === drawn) return;
      [drawn, shown] = [state, chips];
      element.ariaLabel = title;
      const focused = [...element.children].findIndex((chip) => chip.matches(":focus"));
      row.fill(
        chips.map(([id, label, probability]) => {
          const role = id === target ? "for" : id === foil ? "foil" : "";
          const bar = h("i");
          setStyles(bar, { width: `${(100 * (probability ?? 0)).toFixed(1)}%` });
          const chip = h(
            "button.chip",
            { type: "button", "aria-pressed": String(id === target) },
            h("b", h("bdi", bare(label))),
            h("span", percent(probability)),
            ...(role ? [h("span.dim", role)] : []),
            bar,
          );
          chip.disabled = !canExplain(ctx.header(), id);
          return chip;
        }),
      );
      (element.children[focused] as HTMLElement | undefined)?.focus();
    },
  };
}

/** Probabilities of both texts as paired bars: the target, the foil, then the most probable. */
export function createBars(): {
  element: HTMLElement;
  show(outcomes: Outcomes, chosen: Chosen, names: readonly [string, string]): void;
} {
  const [heading, reason] = [h("b.title"), h("p.two-reason.fine")];
  const grid = h("div.two-pairs");
  const element = h("div.two-outcomes", heading, grid, reason);
  return {
    element,
    show({ titles, chips, rows, reason: why }, chosen, names) {
      const title = titles[0] || titles[1] || "predictions";
      setText(heading, title[0]?.toUpperCase() + title.slice(1));
      setText(reason, why);
      const shown = rows.slice(0, MOST);
      const isNumber = chips[0][0]?.[2] === null;
      const words = (value: number): string => (isNumber ? printed(value, true) : percent(value));
      const top = Math.max(...shown.flatMap(([, , first, second]) => [first, second]), 1e-9);
      const bar = (share: number, side: string): HTMLElement => {
        const el = h("i", { "data-side": side });
        setStyles(el, { width: `${((100 * share) / top).toFixed(1)}%` });
        return el;
      };
      setChildren(
        grid,
        ...(shown.length > 0 ? [h("span"), h("span"), h("b", names[0]), h("b.dim", names[1])] : []),
        ...shown.flatMap(([id, label, first, second]) => {
          const name = h("span.two-outcome.clip", h("bdi", bare(label)));
          setFlag(name, "data-chosen", chosen.includes(id));
          return [
            name,
            h("span.two-pair", ...(isNumber ? [] : [bar(first, "first"), bar(second, "second")])),
            h("span", words(first)),
            h("span.dim", words(second)),
          ];
        }),
      );
    },
  };
}
