/** While interventions are active: whether the map shows the model as recorded or as changed, and a button that switches. */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, setText } from "../../dom.ts";
import type { Answers } from "../../wire/answers.ts";
import { specsOf } from "../interventions/list.ts";

export interface Follow {
  element: HTMLElement;
  show(): void;
}

export function createFollow(ctx: ViewContext, signal: AbortSignal, answers: Answers): Follow {
  const state = h("span", { role: "status" });
  const button = h("button.button", { type: "button" });
  const element = h("div.follow", state, button);
  /** The method of the recorded maps, while the changed maps are followed. */
  let recorded = "";
  /** The methods that show a changed model. */
  const changed = new Set<string>();
  const args = (): { interventions: unknown } => ({ interventions: specsOf(ctx) });
  const leave = (): void => {
    const method = recorded;
    recorded = "";
    if (method) ctx.selection.set({ method });
  };
  on(button, signal, {
    click() {
      if (recorded) leave();
      else {
        recorded = ctx.source().method;
        answers.retry("follow");
        show();
      }
    },
  });
  const show = (): void => {
    const active = specsOf(ctx).length > 0;
    const { kind, method } = ctx.source();
    // Another method was chosen in the meantime.
    if (recorded && method !== recorded && !changed.has(method)) recorded = "";
    if (recorded && !active) leave();
    assign(element, { hidden: !active || kind !== "map" });
    if (!active || kind !== "map") return;
    const answer = recorded ? answers.get<{ method: string }>("follow", args())?.meta.method : undefined;
    const why = recorded ? answers.failure("follow", args()) : undefined;
    const isHere = answer !== undefined && ctx.header().sources.some((source) => source.method === answer);
    if (isHere && method !== answer) {
      changed.add(answer);
      ctx.selection.set({ method: answer });
    }
    const follows = isHere && method === answer;
    if (why) recorded = "";
    setText(state, why ?? (follows ? "after the change" : recorded ? "recording the changed model …" : "as recorded"));
    setText(button, follows ? "as recorded" : "follow the change");
    button.disabled = Boolean(recorded && !follows);
  };
  return { element, show };
}
