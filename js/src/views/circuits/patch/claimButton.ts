/** From a head that was found to a sentence that is checked. */
import type { ViewContext } from "../../../context.ts";
import { assign, h, on, reserve, setText } from "../../../dom.ts";
import { createAnswers } from "../../../wire/answers.ts";
import { toClipboard } from "../../base/clipboard.ts";
import type { Expression } from "../../base/copyPython.ts";
import { headName, type Place } from "./patching.ts";

/** A button that writes the claim about the chosen head, as Python that checks it. */
export function createClaimButton(ctx: ViewContext, signal: AbortSignal, say: (words: string) => void) {
  const button = h("button.button.patch-claim", { type: "button" });
  const answers = createAnswers(ctx, signal, () => deliver());
  let place: { of: string; layer: number; head: number } | null = null;
  let isAsked = false;
  const deliver = (): void => {
    if (!isAsked || !place) return;
    const code = answers.get<Expression>("expression", place)?.meta.code;
    const why = answers.failure("expression", place);
    if (!code && !why) return;
    isAsked = false;
    if (!code) {
      say(why ?? "");
      return;
    }
    void toClipboard(code, ctx.el).then((copied) => say(`${copied ? "Copied" : "Copy this by hand"}: ${code}`));
  };
  on(button, signal, {
    click() {
      isAsked = true;
      answers.retry("expression", ctx.tiles.status().state === "ok");
      deliver();
    },
  });
  return {
    element: button,
    show(chosen: readonly Place[], can: boolean): void {
      const [only] = chosen;
      const isHead = chosen.length === 1 && only?.[0] === "head" && only[2] === null;
      place = isHead ? { of: "claim", layer: only[1], head: only[3] ?? 0 } : null;
      assign(button, { hidden: !can, disabled: !isHead });
      setText(button, isHead ? `Make a claim of ${headName(ctx, only[1], only[3] ?? 0)}` : "Make a claim");
      reserve(button, "Make a claim of 00.00");
      button.title = isHead
        ? "Copy the Python that checks this sentence, beside its controls"
        : "Choose a head: claims are about heads";
    },
  };
}
