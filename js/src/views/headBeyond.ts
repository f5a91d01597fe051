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
      let [above, inside, below] = [0, 0, 0];
      let [topAbove, topBelow] = [0, 0];
      for (const one of values) {
        for (let i = 0; i < (one?.length ?? 0); i += 1) {
          const size = Math.abs(one?.[i] as number) || 0;
          if (i >= first && i < last) inside += size;
          else if (i < first) {
            above += size;
            if (size > topAbove) [topAbove, strongest[0]] = [size, i];
          } else {
            below += size;
            if (size > topBelow) [topBelow, strongest[1]] = [size, i];
          }
        }
      }
      buttons.forEach((button, at) => {
        const share = (at ? below : above) / (above + inside + below);
        button.hidden = !(share >= WORTH);
        const percent = `${Math.round(100 * share)} %`;
        put(button, `${at ? "↓" : "↑"} ${percent}`);
        button.title = `${percent} of the weight lies ${button.dataset.side}: go to the strongest`;
        button.ariaLabel = button.title;
      });
    },
  };
}
