/** A text that is opened: in linked views, in a view below, or as the line of Python that does. Twin of standalone_view.py. */
import type { ViewContext } from "../../context.ts";
import { h, safeText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import { toClipboard } from "./clipboard.ts";
import type { Frame } from "./frame.ts";
import { missingAnswer } from "./missing.ts";

export interface TextsOptions extends ViewOptions {
  /** Where texts open: in linked views, in a view below this view, or nowhere: a line of code is copied. */
  opens: "linked" | "below" | "";
  /** Why they open nowhere, where a reader may wonder. */
  why?: string;
  /** The layers that linked views can show. */
  layers: number[];
}

export interface Opening {
  /** The button of a text. */
  button(at: number): HTMLButtonElement;
  /** Open the text with this number; `code` is Python that does the same, `more` identifies the text further. */
  open(at: number, text: string, button: HTMLElement | null, code?: string, more?: Record<string, number>): void;
}

const WHERE = { linked: "in the linked views", below: "below" };
const NO_KERNEL = "no kernel runs here";

/** Python that opens a text, in the usual names. */
export const openingCode = (text: string): string => `aw.explore(model, tokenizer, ${JSON.stringify(text)})`;

/** A text in quotes for the footer, isolated from the direction of the text around it. */
export function inWords(text: string, most = 60): string {
  const points = [...text.slice(0, 2 * most)];
  return `\u2068“${safeText(points.length > most ? `${points.slice(0, most - 1).join("")}…` : text)}”\u2069`;
}

/** Whether a kernel may answer: not in a page, and not where it is gone. */
export const hasKernel = (ctx: ViewContext): boolean =>
  ctx.model.get("runtime") !== "" && ctx.tiles.status().state !== "no-kernel";

export function createOpening(ctx: ViewContext, signal: AbortSignal, frame: () => Frame): Opening {
  const answers = createAnswers(ctx, signal, () => heard());
  const options = (): TextsOptions => ctx.options as TextsOptions;
  let [request, words] = [null as Record<string, number> | null, ""];
  const heard = (): void => {
    if (!request) return;
    const done = answers.get("open", request);
    const why = answers.failure("open", request);
    const { readout, lacks } = frame();
    // The picture is complete; the footer shows the job, with a button that stops it.
    lacks(done || why ? null : { ...missingAnswer(answers, "open", request, inWords(words)), part: true });
    if (!done && !why) readout.show(`opening: ${inWords(words)}`, false);
    else
      readout.show(
        done ? `Opened ${WHERE[options().opens || "below"]}: ${inWords(words)}` : `Not opened: ${why}`,
        true,
      );
    if (done || why) request = null;
  };
  return {
    button(at) {
      const { opens } = options();
      const title =
        opens && hasKernel(ctx)
          ? `Show this text ${WHERE[opens]}`
          : "Copy the Python that opens this text in another view";
      return h("button.button.open-text", { type: "button", "data-open": String(at), title }, "Open");
    },
    open(at, text, button, code = openingCode(text), more = {}) {
      const { opens, why } = options();
      if (opens && hasKernel(ctx)) {
        [request, words] = [{ ...more, at }, text];
        answers.retry("open", true);
        heard();
        return;
      }
      const reason = opens && !hasKernel(ctx) ? NO_KERNEL : why;
      void toClipboard(code, button ?? undefined).then((copied) => {
        if (signal.aborted) return;
        const outcome = copied ? "Copied" : "Copy this by hand";
        frame().readout.show(`${outcome}${reason ? ` (${reason})` : ""}: ${code}`, true);
      });
    },
  };
}
