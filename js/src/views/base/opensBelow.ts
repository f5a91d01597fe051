/**
 * The button next to the pinned value that opens a view below: "Why?" for the parts of the query and the key, and from
 * there "How?" for the computation of the weight. The twin is attnwidgets/views/base/opens_below.py.
 */
import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, on, setChildren, setStyles, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { baseKey } from "../../wire/keys.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import type { Axis } from "../../wire/wire.ts";
import { drawInside, type Inside } from "./inside.ts";
import { onLetter } from "./letters.ts";
import { hasKernel } from "./openText.ts";

/** The label of the button, its key, and their description. */
const QUESTIONS = {
  WhyView: ["Why?", "w", "why the head looks there"],
  NeuronView: ["How?", "h", "how this weight is computed"],
} as const;

/** The view below, with the cells that a page holds: stack, layer, head, query, key; without them: all. */
interface Below extends Inside {
  cells?: (string | number)[][];
}

export interface BelowButton {
  element: HTMLElement;
  /** The description of the key, for the list of keys; "" while it is without effect. */
  words(): string;
  show(): void;
}

/** The only token of an element; -1 if it is several. */
function tokenOf(axis: Axis, i: number): number {
  if (!axis.spans) return i;
  const [first = -1, ...others] = axis.spans[i] ?? [];
  return others.length === 0 ? first : -1;
}

/** `shown` is the view below which the view of this name opens. */
export function createBelowButton(
  ctx: ViewContext,
  signal: AbortSignal,
  shown: HTMLElement,
  name: keyof typeof QUESTIONS,
): BelowButton {
  const [label, letter, words] = QUESTIONS[name];
  const answers = createAnswers(ctx, signal, () => hear());
  const button = h("button.button", { type: "button", title: `${words} (${letter})` }, label);
  const message = h("span.below-refused.clip.fine", { role: "status" });
  const element = h("span.below-place.inline", { hidden: "" }, message, button);
  const below = h("div");
  let inside = new AbortController();
  let model = "";
  let requested: Record<string, unknown> | null = null;
  shown.after(below);
  atEnd(signal, () => below.remove());

  const opened = (): Below | undefined => (ctx.options as ViewOptions & { inner?: Below[] }).inner?.[0];
  /** The pinned cell of a head that attends, which the kernel can split or the page holds. */
  const cell = (): Record<string, string | number> | null => {
    const { source, layer, head } = ctx.resolved();
    const pinned = ctx.cell("pinned");
    const isOfHead = source.kind === "map" && baseKey(source.method) === "attention" && typeof head === "number";
    if (!isOfHead || !pinned || pinned.query < 0 || pinned.key < 0) return null;
    if (source.causal && pinned.key > pinned.query) return null;
    // The weight of several tokens is not a score.
    const query = tokenOf(ctx.axisOf(source.query), pinned.query);
    const key = tokenOf(ctx.axisOf(source.key), pinned.key);
    if (query < 0 || key < 0) return null;
    const at = { stack: source.stack, layer, head, query, key };
    if (hasKernel(ctx)) return at;
    const position = String(Object.values(at));
    const inner = opened();
    return inner && (inner.cells?.some((cell) => String(cell) === position) ?? true) ? at : null;
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
    answers.retry("below", true);
    hear();
  };
  const hear = (): void => {
    if (!requested) return;
    const done = answers.get("below", requested);
    const why = answers.failure("below", requested);
    const isBusy = !done && !why;
    assign(button, { ariaBusy: String(isBusy) });
    if (setText(message, isBusy ? (answers.job("below")?.text ?? "") : (why ?? ""))) message.title = why ?? "";
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
    const isRequested = requested !== null;
    requested = null;
    void drawInside(ctx, inner, below, AbortSignal.any([signal, inside.signal])).then(() => isRequested && reveal());
  };
  on(button, signal, { click: ask });
  onLetter(shown, signal, letter, ask);
  return {
    element,
    words: () => (cell() ? `${letter}: ${words}` : ""),
    show() {
      assign(element, { hidden: !cell() });
      if (!requested) setText(message, "");
      draw();
    },
  };
}
