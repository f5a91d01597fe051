/**
 * The predictions as a row of chips. A click explains a prediction; while interventions are active they show before and
 * after.
 */
import type { ViewContext } from "../../context.ts";
import { h, keyboard, on, setChildren, setFlag, setText, shortLabel } from "../../dom.ts";
import { percent, printed } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import { methodWithTargets } from "../../wire/keys.ts";
import type { Outcome } from "../../wire/wire.ts";
import { shownTargets } from "../base/methodChoice.ts";
import { type Changed, NOT_HERE } from "../interventions/change.ts";
import { specsOf } from "../interventions/list.ts";
import { canExplain, explainOutcome } from "../text/outcomeChoice.ts";

/** The predictions that have a chip: `MOST_CHIPS` of linked_view.py. */
const MOST = 5;

interface Shown extends Outcome {
  before: number | null;
  after: number | null;
}

export interface Chips {
  element: HTMLElement;
  show(): void;
}

/** A prediction as a button: its name, its probability, before and after a change; `role` says how it is explained. */
function createChip(item: Shown, role: string, can: boolean): HTMLButtonElement {
  const values =
    item.after === null
      ? [h("span", percent(item.before))]
      : [h("span.dim", percent(item.before)), h("span.dim", "→"), h("b", percent(item.after))];
  const width = (share: number | null): string => `${(100 * Math.max(0, Math.min(1, share as number))).toFixed(1)}%`;
  const [was, is] = [h("i.chip-was"), h("i.chip-is")];
  was.style.width = width(item.before);
  is.style.width = width(item.after ?? item.before);
  const chip = h(
    "button.chip",
    { type: "button", "aria-pressed": String(Boolean(role)) },
    h("b.chip-name", h("bdi", shortLabel(item.label.replace(/^[␣▁](?=.)/, ""), 24))),
    ...values,
    ...(role ? [h("span.dim", role)] : []),
    ...(item.after === null ? [] : [was]),
    is,
  );
  chip.disabled = !can;
  return chip;
}

export function createChips(ctx: ViewContext, signal: AbortSignal, answers: Answers): Chips {
  const [label, hint] = [h("span.dim"), h("span.dim.chips-hint")];
  const row = h("div.chips-row", { role: "group" });
  const element = h("div.chips.inline", label, row, hint);
  let drawnKey = "";
  let shown: Shown[] = [];
  /** The method to return to when no prediction is explained any more. */
  let before = "";

  const read = (): [Shown[], string] => {
    const { items } = ctx.header().predictions;
    const recorded = items.slice(0, MOST).map((item) => ({ ...item, before: item.probability, after: null }));
    const specs = specsOf(ctx);
    if (specs.length === 0) return [recorded, ""];
    const args = { interventions: specs };
    const change = answers.get<Changed>("changed", args)?.meta;
    const why = answers.failure("changed", args) ?? "";
    if (!change)
      return [
        recorded,
        why ? (NOT_HERE.test(why) ? "after the change: needs a running kernel" : why) : "computing what changes …",
      ];
    if (change.rows.length === 0) return [recorded, ""];
    const now = change.rows.slice(0, MOST).map(([id, label, before, after]): Shown => {
      const numbers = `${label} ${printed(before, true)} → ${printed(after, true)}`;
      return change.kind === "score" ? { id, label: numbers, before: null, after: null } : { id, label, before, after };
    });
    return [now, ""];
  };

  const choose = (target: EventTarget | null, asFoil: boolean): void => {
    const at = [...row.children].indexOf((target as Element).closest(".aw-chip") as Element);
    const item = shown[at];
    if (!item) return;
    const { source } = ctx.resolved();
    if (source.kind === "map") before = source.method;
    const fallback = before || (ctx.header().sources.find(({ kind }) => kind === "map")?.method ?? source.method);
    explainOutcome(ctx, item, asFoil, fallback);
  };
  on(row, signal, { click: ({ target, shiftKey }) => choose(target, shiftKey) });
  keyboard(
    row,
    signal,
    { "Shift+Enter": () => choose(document.activeElement, true) },
    "Enter: explain this prediction · Shift+Enter: rather than this one",
  );

  return {
    element,
    show() {
      const { title } = ctx.header().predictions;
      const [now, state] = read();
      const [target, foil] = shownTargets(ctx);
      const explains = Boolean(methodWithTargets(ctx.header(), ctx.source().method));
      const can = now.map(({ id }) => canExplain(ctx.header(), id));
      const stateKey = JSON.stringify([now, target, foil, explains, can, title]);
      setText(hint, state || (can.includes(true) && !explains ? "click a prediction to explain it" : ""));
      if (stateKey === drawnKey) return;
      drawnKey = stateKey;
      shown = now;
      setText(label, title || "prediction");
      row.ariaLabel = title || "predictions";
      const focused = [...row.children].findIndex((chip) => chip.matches(":focus"));
      const explained = explains ? (target ?? shown[0] ?? null) : null;
      setChildren(
        row,
        ...shown.map((item, i) => {
          const role = item.id === explained?.id ? "explained" : explains && item.id === foil?.id ? "rather than" : "";
          return createChip(item, role, Boolean(can[i]));
        }),
      );
      (row.children[focused] as HTMLElement | undefined)?.focus(); // the new chips are other elements
      setFlag(
        element,
        "data-compared",
        shown.some(({ after }) => after !== null),
      );
    },
  };
}
