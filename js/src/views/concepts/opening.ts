/** A text that is opened: in the linked views, or as the line of Python that does. Twin of texts_view.py. */
import type { ViewContext } from "../../context.ts";
import { h, safeText, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { ViewOptions } from "../../wire/wire.ts";
import { toClipboard } from "../base/clipboard.ts";
import type { Frame } from "../base/frame.ts";

export interface TextsOptions extends ViewOptions {
  /** Whether there are linked views in which texts open, and the layers that they can show. */
  linked: boolean;
  layers: number[];
}

export interface Opening {
  /** What the button of a text says. */
  button(at: number): HTMLButtonElement;
  /** Open the text with this number. */
  open(at: number, text: string, button: HTMLElement | null): void;
}

/** Python that opens a text, in the usual names. */
export const openingCode = (text: string): string => `aw.explore(model, tokenizer, ${JSON.stringify(text)})`;

/** A text in quotes for the footer, isolated from the direction of what stands around it. */
export function inWords(text: string, most = 60): string {
  const points = [...text.slice(0, 2 * most)];
  return `\u2068“${safeText(points.length > most ? `${points.slice(0, most - 1).join("")}…` : text)}”\u2069`;
}

/** What a reader must know, in a line and in full. */
export function showNotes(element: HTMLElement, notes: readonly string[]): void {
  setText(element, notes.map(safeText).join(" · "));
  element.title = notes.map(safeText).join("\n");
}

/** A text as a strip; `fill` is a colour behind all of it. */
export function textStrip(text: string, fill = "", flip = false): HTMLElement {
  const strip = h("span.concept-text", { dir: "auto", title: text, ...(flip ? { "data-flip": "" } : {}) });
  strip.append(text === "" ? "∅" : safeText(text));
  if (fill) strip.style.background = fill;
  return strip;
}

export function createOpening(ctx: ViewContext, signal: AbortSignal, frame: () => Frame): Opening {
  const answers = createAnswers(ctx, signal, () => heard());
  let [asked, words] = [null as { at: number } | null, ""];
  const isHere = (): boolean =>
    (ctx.options as TextsOptions).linked && ctx.model.get("runtime") !== "" && ctx.tiles.status().state !== "no-kernel";
  const heard = (): void => {
    if (!asked) return;
    const done = answers.get("open", asked);
    const why = answers.failure("open", asked);
    if (!done && !why) frame().readout.show(`${answers.job("open")?.text || "opening"}: ${inWords(words)}`, false);
    else frame().readout.show(done ? `Opened in the linked views: ${inWords(words)}` : `Not opened: ${why}`, true);
    if (done || why) asked = null;
  };
  return {
    button(at) {
      const title = (ctx.options as TextsOptions).linked
        ? "Show this text in the linked views"
        : "Copy the Python that opens this text in an Explorer";
      return h("button.button.concept-open", { type: "button", "data-open": String(at), title }, "Open");
    },
    open(at, text, button) {
      if (isHere()) {
        [asked, words] = [{ at }, text];
        answers.retry("open", true);
        heard();
        return;
      }
      const code = openingCode(text);
      void toClipboard(code, button ?? undefined).then((copied) => {
        if (signal.aborted) return;
        const what = copied ? "Copied" : "Copy this by hand";
        frame().readout.show(`${what}: ${code}`, true);
      });
    },
  };
}
