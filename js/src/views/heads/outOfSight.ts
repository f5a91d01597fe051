/**
 * For long texts: how much of the current token's weight goes to tokens above and below the visible tokens, and buttons
 * that lead there.
 */
import { assign, h, on, setChildren, setText } from "../../dom.ts";
import type { Values } from "./pairs.ts";
import type { Rows } from "./rows.ts";

/** The smallest share of the weight that is mentioned. */
const WORTH = 0.005;

export function createOutOfSight(signal: AbortSignal, go: (index: number) => void) {
  const element = h("div.hv-beyond.column");
  const buttons = ["above", "below"].map((side) => h("button.button", { type: "button", "data-side": side }));
  const strongest = [-1, -1];
  setChildren(element, ...buttons);
  buttons.forEach((button, at) => {
    on(button, signal, { click: () => go(strongest[at] as number) });
  });
  return {
    element,
    /** Values along the other side, and its visible rows. */
    show(values: Values, { rowOf }: Rows, [first, last]: readonly [number, number]): void {
      // Shares above, below, and in view.
      const [sums, tops] = [
        [0, 0, 0],
        [0, 0, 0],
      ] as [number[], number[]];
      for (const headValues of values) {
        headValues?.forEach((value, i) => {
          const size = Math.abs(value) || 0;
          const row = rowOf[i] as number;
          const at = row < 0 ? 2 : row < first ? 0 : row < last ? 2 : 1;
          sums[at] = (sums[at] as number) + size;
          if (size > (tops[at] as number)) [tops[at], strongest[at]] = [size, i];
        });
      }
      const all = sums.reduce((sum, value) => sum + value);
      buttons.forEach((button, at) => {
        const share = (sums[at] as number) / all;
        const percent = `${Math.round(100 * share)} %`;
        setText(button, `${at ? "↓" : "↑"} ${percent}`);
        const title = `${percent} of the weight lies ${button.dataset.side}: go to the strongest`;
        assign(button, { hidden: !(share >= WORTH), title, ariaLabel: title });
      });
    },
  };
}
