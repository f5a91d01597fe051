/**
 * The tokens in the order of their removal, with the explanation's value of each and the prediction that remains after
 * it.
 */

import type { ViewContext } from "../../../context.ts";
import { h, listed, on, setChildren, setFlag, setStyles, setText } from "../../../dom.ts";
import { amountText } from "../../base/meters.ts";
import { peak } from "../../text/rowValues.ts";
import { type Mode, type Removal, valueWords } from "./steps.ts";

/** Largest number of drawn rows. */
const MOST = 500;

export interface Order {
  element: HTMLElement;
  show(removal: Removal, mode: Mode, step: number): void;
}

/** `choose` is called with a token. */
export function createOrder(ctx: ViewContext, signal: AbortSignal, choose: (token: number) => void): Order {
  const [method, note] = [h("span"), h("p.dim")];
  const list = h("div.removal-rows", { role: "list", "aria-label": "order of removal" });
  const element = h(
    "section.removal-order.column",
    h("div.removal-head", h("b", "In this order"), h("span.removal-columns.fine", method, h("span", "left"))),
    list,
    note,
  );
  let rows: { element: HTMLElement; left: HTMLElement }[] = [];
  let drawnKey = "";
  let order: number[] = [];
  on(list, signal, {
    click({ target }) {
      const at = rows.findIndex((row) => row.element.contains(target as Node));
      if (at >= 0) choose(order[at] as number);
    },
  });

  const draw = (removal: Removal): void => {
    const { labels } = ctx.axisOf(ctx.source().key);
    const weights = order.map((token) => removal.weights[token] ?? 0);
    const [top, signed] = [peak(weights), weights.some((weight) => weight < 0)];
    const name = (token: number): string => listed(labels, token, ctx.options.indexBase);
    rows = order.slice(0, MOST).map((token, i) => {
      const weight = weights[i] ?? 0;
      const bar = h(weight < 0 ? "span.against" : signed ? "span.for" : "span.amount");
      setStyles(bar, { width: `${top ? (100 * Math.abs(weight)) / top : 0}%` });
      const left = h("b");
      const row = h(
        "div.removal-row.pick.subrow",
        { role: "listitem" },
        h("span.dim", String(i + 1)),
        h("span.removal-token", name(token)),
        h("span.meter-bar", { "aria-hidden": "true" }, bar),
        h("span.dim", amountText(weight, top)),
        left,
      );
      return { element: row, left };
    });
    const last = order.at(-1);
    setText(method, ctx.source().title);
    const over = order.length - MOST;
    const against = signed && last !== undefined && order.length > 1 && (weights.at(-1) ?? 0) < 0;
    const ends = against ? `“${name(last)}” speaks against, so it goes last.` : "";
    setText(note, over > 0 ? `${over} more go after these.` : ends);
    setChildren(list, ...rows.map((row) => row.element));
  };

  return {
    element,
    show(removal, mode, step) {
      order = removal.order;
      const stateKey = JSON.stringify([removal.requestKey, ctx.options.indexBase]);
      if (stateKey !== drawnKey) {
        drawnKey = stateKey;
        draw(removal);
      }
      const k = removal.steps[step] ?? 0;
      for (const [i, row] of rows.entries()) {
        const at = removal.steps.indexOf(i + 1);
        setText(row.left, at < 0 ? "" : valueWords(removal, removal.values[mode][at]));
        setFlag(row.element, "data-now", i + 1 === k);
      }
    },
  };
}
