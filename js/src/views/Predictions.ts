/**
 * What the model says: its most probable tokens or classes, as bars of probability from 0 to 1. Where a method can be
 * asked about them, a click on one makes it the target, with Shift the foil.
 */

import { fill, h, keyboard, on, put, shortLabel } from "../dom.ts";
import { askedAbout, askedOf, showMethod, takesTargets } from "./asked.ts";
import { only, view } from "./frame.ts";

export const renderPredictions = view((ctx, root, signal) => {
  const [title, list, help] = [h("b.title"), h("ol.predictions"), h("div.line")];
  let drawn = "";
  fill(root, title, list, help);

  const draw = (): void => {
    const header = ctx.header();
    const { title: named, items } = header.predictions;
    const name = named || "predictions";
    const asks = takesTargets(header);
    const look = JSON.stringify([header.predictions, !asks]);
    if (look !== drawn) {
      drawn = look;
      root.hidden = items.length === 0;
      list.ariaLabel = name;
      put(title, name);
      fill(
        list,
        ...items.map(({ label, probability }) => {
          const bar = h("span");
          bar.style.width = `${(100 * Math.max(0, Math.min(1, probability))).toFixed(2)}%`;
          const text = shortLabel(label, 60);
          const token = h("bdi.token", { title: text }, text);
          const chosen = asks ? h("button.button.outcome", { type: "button" }, token, h("b")) : token;
          return h("li", chosen, h("span.bar", bar), h("span.value", percent(probability)));
        }),
      );
    }
    if (!asks) return;
    const [target, foil] = askedOf(ctx);
    items.forEach(({ id }, i) => {
      const role = id === target?.id ? "target" : id === foil?.id ? "foil" : "";
      const button = list.children[i]?.firstElementChild;
      button?.setAttribute("aria-pressed", String(Boolean(role)));
      if (button?.lastElementChild) put(button.lastElementChild, role);
    });
    const now = takesTargets(header, ctx.source().method)
      ? ""
      : ` Then choose a method that explains it, such as ${asks.title}.`;
    put(help, `Click: explain it (target). Shift-click or Shift+Enter: rather than it (foil).${now}`);
  };

  /** Make one the target or the foil; the one that is it already is so no more. */
  const choose = (element: EventTarget | null, asFoil: boolean): void => {
    const header = ctx.header();
    const { items } = header.predictions;
    const at = [...list.children].findIndex((item) => item.firstElementChild?.contains(element as Node));
    const item = items[at];
    if (!item || !takesTargets(header)) return;
    const same = (other: { id: number } | null): boolean => other?.id === item.id;
    let [target, foil] = askedOf(ctx);
    if (asFoil) {
      foil = same(foil) ? null : item;
      // A foil alone is what the prediction is contrasted with.
      if (foil && (!target || same(target))) target = items.find((other) => !same(other)) ?? null;
    } else {
      target = same(target) ? null : item;
      if (same(foil) || !target) foil = null;
    }
    const { method } = ctx.source();
    showMethod(ctx, takesTargets(header, method) ? askedAbout(method, target, foil) : method, [target, foil]);
  };
  on(list, signal, { click: ({ target, shiftKey }) => choose(target, shiftKey) });
  keyboard(list, signal, { "Shift+Enter": () => choose(document.activeElement, true) });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head", "tiles", "theme")) draw();
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
