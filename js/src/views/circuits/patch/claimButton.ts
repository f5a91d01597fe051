/** From a head that was found to a sentence that is checked. */
import type { ViewContext } from "../../../context.ts";
import { assign, h, on, reserve, setText } from "../../../dom.ts";
import { createAnswers } from "../../../wire/answers.ts";
import { toClipboard } from "../../base/clipboard.ts";
import type { Expression, NumberPlace } from "../../base/copyPython.ts";
import { headName, type Place } from "./patching.ts";

/** Whether places are two, of different tokens and layers. The twin of `is_between` in views/circuits/claim_of_cells.py. */
function isBetween(places: readonly Place[]): boolean {
  const [first, second] = [...places].sort((a, b) => a[1] - b[1]);
  if (places.length !== 2 || !first || !second || first[2] === null || second[2] === null) return false;
  const areTokens = first[0] !== "head" && second[0] !== "head";
  return areTokens && first[1] < second[1] && first[2] < second[2];
}

/** A button that writes the claim about the chosen head, or the one between two places, as Python that checks it. */
export function createClaimButton(ctx: ViewContext, signal: AbortSignal, say: (words: string) => void) {
  const button = h("button.button.patch-claim", { type: "button" });
  const answers = createAnswers(ctx, signal, () => deliver());
  let place: NumberPlace | null = null;
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
      const isPath = isBetween(chosen);
      const ofPath = isPath ? { of: "claim", cells: chosen } : null;
      place = isHead ? { of: "claim", layer: only[1], head: only[3] ?? 0 } : ofPath;
      assign(button, { hidden: !can, disabled: !place });
      const subject = isHead ? ` of ${headName(ctx, only[1], only[3] ?? 0)}` : isPath ? " of both" : "";
      setText(button, `Make a claim${subject}`);
      reserve(button, "Make a claim of 00.00");
      button.title = isHead
        ? "Copy the Python that checks this sentence, beside its controls"
        : isPath
          ? "Copy the Python that checks a sentence about the head that carries most from one to the other"
          : "Choose a head, or a token and a later one in a later layer";
    },
  };
}
