/** A third column: the heads, of all layers, in which a pair is strongest. A click shows the head. */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, quoted, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { NOT_COMPARED } from "../../wire/codec.ts";
import { amountText } from "../base/meters.ts";
import { headAddress } from "../base/navigation.ts";
import { pairValues } from "./pairValues.ts";

const MOST = 6;

export interface StrongestHeads {
  element: HTMLElement;
  /** Show a pair, with a description of the picture next to it; -1: none. */
  show(query: number, key: number, about: string): void;
}

export function createStrongestHeads(ctx: ViewContext, signal: AbortSignal): StrongestHeads {
  const answers = createAnswers(ctx, signal, () => show(...shown));
  const [title, where, status, note] = [h("b"), h("span.dim"), h("div.dim", { role: "status" }), h("p.dim")];
  const list = h("div.hv-list", { role: "group", "aria-label": "strongest heads of the pair" });
  const element = h("section.hv-aside", { "aria-label": "the pair in other heads" }, h("div", title, " ", where));
  const rows = Array.from({ length: MOST }, () => {
    const [name, bar, value] = [h("b"), h("span"), h("span.hv-number")];
    const row = h("button.hv-head.pick.subrow.ghost", { type: "button" }, name, h("span.hv-bar", bar), value);
    return { row, name, bar, value, head: null as { layer: number; head: number } | null };
  });
  let shown: [number, number, string] = [-1, -1, ""];
  setChildren(list, ...rows.map(({ row }) => row));
  element.append(list, status, note);
  for (const entry of rows) on(entry.row, signal, { click: () => entry.head && ctx.selection.set(entry.head) });

  function show(query: number, key: number, about: string): void {
    shown = [query, key, about];
    const { source, layer, head } = ctx.resolved();
    setText(note, about);
    const isPair = query >= 0 && key >= 0 && source.heads !== null;
    const { indexBase } = ctx.options;
    const labels = [source.query, source.key].map((axis) => ctx.axisOf(axis).labels) as [string[], string[]];
    const pair = `${quoted(labels[0], query, indexBase)} → ${quoted(labels[1], key, indexBase)}`;
    const values = isPair ? pairValues(ctx, answers, source, query, key) : [];
    const heads = values.flatMap((row, i) =>
      Array.from(row, (value, at) => ({
        layer: source.layers[i] as number,
        head: source.heads?.[at] as number,
        value,
      })).filter((strength) => !Number.isNaN(strength.value)),
    );
    heads.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).splice(MOST);
    const top = Math.abs(heads[0]?.value ?? 0);
    const args = { source: source.id, query, key };
    setText(title, isPair ? pair : "");
    setText(where, isPair ? (heads.length > 1 ? `in the ${heads.length} strongest heads` : "by head") : "");
    const lacking = values.length > 0 ? NOT_COMPARED : (answers.failure("pair", args) ?? "loading …");
    setText(status, isPair && heads.length === 0 ? lacking : "");
    rows.forEach((entry, i) => {
      const here = heads[i];
      assign(entry.row, { hidden: !here });
      if (!here) return;
      entry.head = { layer: here.layer, head: here.head };
      const isNow = here.layer === layer && here.head === head;
      setText(entry.name, headAddress(ctx, here.layer, here.head));
      setText(entry.value, amountText(here.value, source.stochastic ? Math.min(top, 0.99) : top));
      setStyles(entry.bar, { width: `${top > 0 ? (100 * Math.abs(here.value)) / top : 0}%` });
      setFlag(entry.row, "data-now", isNow);
      entry.row.ariaPressed = String(isNow);
    });
  }
  return { element, show };
}
