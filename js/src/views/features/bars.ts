/** Numbers next to their bars, in a list whose names may be tokens or buttons. */
import { h } from "../../dom.ts";
import type { Meter } from "../base/meters.ts";

export interface Bar {
  name: HTMLElement | string;
  /** Length of the bar, in [0, 1]. */
  share: number;
  text: string;
  kind: Meter["kind"];
}

/** A bar whose length is a share of its cell. */
export function barOf(share: number, kind: Meter["kind"]): HTMLElement {
  const bar = h("span", { class: `aw-${kind}` });
  bar.style.width = `${(100 * Math.max(0, Math.min(1, share || 0))).toFixed(1)}%`;
  return h("span.meter-bar", { "aria-hidden": "true" }, bar);
}

export function barList(label: string, bars: readonly Bar[]): HTMLElement {
  const rows = bars.map(({ name, share, text, kind }) =>
    h("div.meter", { role: "listitem" }, h("span.meter-name", name), barOf(share, kind), h("span.meter-value", text)),
  );
  return h("div.meters", { role: "list", "aria-label": label }, ...rows);
}
