/** Of a long text: what the token looked at has to do with tokens above and below those in view, and the way there. */
import { fill, h, on, put } from "../dom.ts";
import type { Values } from "./headPairs.ts";

/** A share of the weight that is worth saying. */
const WORTH = 0.005;

export function createBeyond(signal: AbortSignal, go: (index: number) => void) {
  const element = h("div.hv-beyond");
  const buttons = ["above", "below"].map((side) => h("button.button", { type: "button", "data-side": side }));
  const strongest = [-1, -1];
  fill(element, ...buttons);
  buttons.forEach((button, at) => {
    on(button, signal, { click: () => go(strongest[at] as number) });
  });
  return {
    element,
    /** Values along the other side, and its rows in view. */
    show(values: Values, [first, last]: readonly [number, number]): void {
      const sums = [0, 0, 0];
      const tops = [0, 0];
      for (const one of values) {
        for (let i = 0; i < (one?.length ?? 0); i += 1) {
          const size = Math.abs(one?.[i] as number) || 0;
          const at = i < first ? 0 : i >= last ? 1 : 2;
          sums[at] = (sums[at] as number) + size;
          if (at === 2 || size <= (tops[at] as number)) continue;
          tops[at] = size;
          strongest[at] = i;
        }
      }
      const total = sums.reduce((a, b) => a + b);
      buttons.forEach((button, at) => {
        const share = (sums[at] as number) / total;
        button.hidden = !(share >= WORTH);
        const percent = `${Math.round(100 * share)} %`;
        put(button, `${at ? "↓" : "↑"} ${percent}`);
        button.title = `${percent} of the weight lies ${button.dataset.side}: go to the strongest`;
        button.ariaLabel = button.title;
      });
    },
  };
}
