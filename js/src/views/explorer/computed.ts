/** How a weight of attention is computed: the steps from q · k to the softmax, with their numbers. */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, setChildren, setText } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";

/** The twin of `_computed` in attnwidgets/views/heads/handlers.py. */
interface Steps {
  steps: [name: string, value: number][];
  note: string;
}

export interface Computed {
  button: HTMLElement;
  element: HTMLElement;
  /** Offer the steps of a pair of tokens; -1: none. */
  show(query: number, key: number): void;
}

export function createComputed(ctx: ViewContext, signal: AbortSignal, answers: Answers): Computed {
  const button = h("button.button", { type: "button", "aria-expanded": "false" }, "How it is computed");
  const [list, note] = [h("div.steps", { role: "list" }), h("p.sums")];
  const element = h("div.computed", { hidden: "" }, list, note);
  let isOpen = false;
  let pair: readonly [number, number] = [-1, -1];
  let drawn = "";
  const show = (...now: readonly [number, number]): void => {
    pair = now;
    const { source, layer, head } = ctx.resolved();
    const isOffered = source.method === "attention" && source.unit === "token" && typeof head === "number";
    assign(button, { hidden: !isOffered || pair[0] < 0 || pair[1] < 0 });
    assign(element, { hidden: !isOpen || button.hidden === true });
    if (element.hidden) return;
    const args = { stack: source.stack, layer, head, query: pair[0], key: pair[1] };
    const answer = answers.get<Steps>("computed", args)?.meta;
    const key = JSON.stringify([args, answer]);
    setText(note, answer?.note ?? answers.failure("computed", args) ?? "waiting for the kernel …");
    if (key === drawn) return;
    drawn = key;
    setChildren(
      list,
      ...(answer?.steps ?? []).map(([name, value]) =>
        h("div.step", { role: "listitem" }, h("span.dim", name), h("b", printed(value, true))),
      ),
    );
  };
  on(button, signal, {
    click() {
      isOpen = !isOpen;
      button.ariaExpanded = String(isOpen);
      show(...pair);
      if (isOpen) element.scrollIntoView({ block: "nearest" });
    },
  });
  return { button, element, show };
}
