/**
 * "Why?" next to the pinned value: what the query asks for and what the key offers, in a view below. The twin is
 * attnwidgets/views/base/asks_why.py.
 */
import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, on, setChildren, setStyles, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { baseKey } from "../../wire/keys.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import { drawInside, type Inside } from "./inside.ts";
import { onLetter } from "./letters.ts";
import { hasKernel } from "./openText.ts";

/** The view below, with the cells that a page holds: stack, layer, head, query, key. */
interface WhyBelow extends Inside {
  cells?: (string | number)[][];
}

export interface WhyButton {
  element: HTMLElement;
  /** What the key does, for the list of keys; "" while it does nothing. */
  words(): string;
  show(): void;
}

/** `shown` is the view below which it opens. */
export function createWhyButton(ctx: ViewContext, signal: AbortSignal, shown: HTMLElement): WhyButton {
  const answers = createAnswers(ctx, signal, () => hear());
  const button = h("button.button", { type: "button", title: "Why the head looks there (w)" }, "Why?");
  const message = h("span.why-refused", { role: "status" });
  const element = h("span.why-place", message, button);
  const below = h("div");
  let inside = new AbortController();
  let model = "";
  let requested: Record<string, unknown> | null = null;
  shown.after(below);
  atEnd(signal, () => below.remove());

  const opened = (): WhyBelow | undefined => (ctx.options as ViewOptions & { inner?: WhyBelow[] }).inner?.[0];
  /** The pinned cell of a head that attends, which the kernel can split or the page holds. */
  const cell = (): Record<string, string | number> | null => {
    const { source, layer, head } = ctx.resolved();
    const pinned = ctx.cell("pinned");
    const isOfHead = source.kind === "map" && baseKey(source.method) === "attention" && typeof head === "number";
    if (!isOfHead || source.unit !== "token" || !pinned || pinned.query < 0 || pinned.key < 0) return null;
    if (source.causal && pinned.key > pinned.query) return null;
    const at = { stack: source.stack, layer, head, query: pinned.query, key: pinned.key };
    if (hasKernel(ctx)) return at;
    const name = String(Object.values(at));
    return opened()?.cells?.some((held) => String(held) === name) ? at : null;
  };
  const reveal = (): void => below.scrollIntoView({ block: "nearest" });
  const ask = (): void => {
    const at = cell();
    if (!at) return;
    if (opened()) {
      reveal();
      return;
    }
    requested = at;
    answers.retry("why_below", true);
    hear();
  };
  const hear = (): void => {
    if (!requested) return;
    const done = answers.get("why_below", requested);
    const why = answers.failure("why_below", requested);
    const isBusy = !done && !why;
    assign(button, { ariaBusy: String(isBusy) });
    if (setText(message, isBusy ? (answers.job("why_below")?.text ?? "") : (why ?? ""))) message.title = why ?? "";
    if (why) requested = null;
    if (done) draw();
  };
  const draw = (): void => {
    const inner = opened();
    if (model === (inner?.model ?? "")) return;
    model = inner?.model ?? "";
    inside.abort();
    inside = new AbortController();
    setChildren(below);
    setStyles(below, { "margin-top": inner ? "8px" : "" });
    if (!inner) return;
    const isAsked = requested !== null;
    requested = null;
    void drawInside(ctx, inner, below, AbortSignal.any([signal, inside.signal])).then(() => isAsked && reveal());
  };
  on(button, signal, { click: ask });
  onLetter(shown, signal, "w", ask);
  return {
    element,
    words: () => (cell() ? "w: why the head looks there" : ""),
    show() {
      const at = cell();
      assign(element, { hidden: !at });
      if (!requested) setText(message, "");
      draw();
    },
  };
}
