/** What the model says: its most probable tokens or classes, as bars of probability from 0 to 1. */

import { h, shortLabel } from "../dom.ts";
import { view } from "./frame.ts";

export const renderPredictions = view((ctx, root) => {
  const draw = (): void => {
    const { title, items } = ctx.header().predictions;
    const name = title || "predictions";
    root.hidden = items.length === 0;
    const rows = items.map(({ label, probability }) => {
      const bar = h("span");
      bar.style.width = `${(100 * Math.max(0, Math.min(1, probability))).toFixed(2)}%`;
      const text = shortLabel(label, 60);
      const token = h("bdi.token", { title: text }, text);
      return h("li", token, h("span.bar", bar), h("span.value", percent(probability)));
    });
    root.replaceChildren(h("b.title", name), h("ol.predictions", { "aria-label": name }, ...rows));
  };
  return (changed) => {
    if (changed.size === 0 || changed.has("header")) draw();
  };
});

/** A probability to three digits, and never a rounded 0 % or 100 %. */
export function percent(probability: number): string {
  if (!Number.isFinite(probability)) return "–";
  const share = 100 * probability;
  if (share > 0 && share < 0.1) return "< 0.1 %";
  if (share < 100 && share > 99.9) return "> 99.9 %";
  return `${share.toFixed(1)} %`;
}
