/** What the model says: its most probable tokens or classes, as bars of probability from 0 to 1. */

import type { RenderView } from "../context.ts";
import { h, shortLabel } from "../dom.ts";

export const renderPredictions: RenderView = (ctx, root) => {
  const draw = (): void => {
    const { title, items } = ctx.header().predictions;
    root.hidden = items.length === 0;
    if (root.hidden) {
      root.replaceChildren();
      return;
    }
    const list = h("ol", { class: "aw-predictions", "aria-label": title || "predictions" });
    for (const { label, probability } of items) {
      const bar = h("span", {});
      bar.style.inlineSize = `${(100 * Math.max(0, Math.min(1, probability))).toFixed(2)}%`;
      const name = h("bdi", { class: "aw-token" }, shortLabel(label, 60));
      name.title = shortLabel(label, 60);
      list.append(
        h("li", {}, name, h("span", { class: "aw-bar" }, bar), h("span", { class: "aw-value" }, percent(probability))),
      );
    }
    root.replaceChildren(
      h("div", { class: "aw-head" }, h("span", { class: "aw-title" }, title || "predictions")),
      list,
    );
  };
  draw();
  const off = ctx.onChange((changed) => {
    if (changed.has("header")) draw();
  });
  return () => {
    off();
    root.replaceChildren();
  };
};

/** A probability to three digits, and never a rounded 0 % or 100 %. */
export function percent(probability: number): string {
  if (!Number.isFinite(probability)) return "–";
  const share = 100 * probability;
  if (share > 0 && share < 0.1) return "< 0.1 %";
  if (share < 100 && share > 99.9) return "> 99.9 %";
  return `${share.toFixed(1)} %`;
}
