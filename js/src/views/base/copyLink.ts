/** "Copy link": in a page the address of the view's current state, elsewhere the Python that opens it. */
import type { ViewContext } from "../../context.ts";
import { codeOf, fragmentOf } from "../../link.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Expression } from "./copyPython.ts";

/** The copied text, and its description. */
export interface Link {
  text: string;
  words: string;
}

const EXPRESSION = { of: "place" };

/** Returns a function that gives the link of the current state. */
export function createLinks(ctx: ViewContext, signal: AbortSignal): () => Promise<Link> {
  let arrived = (): void => undefined;
  const answers = createAnswers(ctx, signal, () => arrived());
  const request = (): Promise<Link> =>
    new Promise((done) => {
      // Names change, and so does the state: an earlier answer is out of date.
      answers.retry("expression", true);
      arrived = () => {
        const answer = answers.get<Expression>("expression", EXPRESSION)?.meta;
        const why = answers.failure("expression", EXPRESSION);
        if (answer) done({ text: answer.code, words: sentence("a line of Python that opens this", answer.note) });
        else if (why)
          done({
            text: codeOf(ctx, viewElementOf(ctx)?.dataset.text),
            words: sentence("a line of Python", "the view is called “view” here"),
          });
        else return;
        arrived = () => undefined;
      };
      arrived();
    });
  return async () => {
    const address = addressOf(ctx);
    return address ? { text: address, words: "an address that opens this page at what this view shows" } : request();
  };
}

const sentence = (subject: string, note: string): string => [subject, note].filter(Boolean).join("; ");

/**
 * The address of a view's current state, on a standalone page: not in a notebook, nor in a frame without an address.
 */
function addressOf(ctx: ViewContext): string | null {
  const viewElement = viewElementOf(ctx);
  if (!viewElement || location.protocol === "about:") return null;
  const number = [...document.querySelectorAll(".aw-view[data-model]")].indexOf(viewElement) + 1;
  return `${location.href.replace(/#.*$/s, "")}#${fragmentOf(ctx, number, viewElement.dataset.text)}`;
}

/** The element of this view on a standalone page. */
const viewElementOf = (ctx: ViewContext): HTMLElement | null => ctx.el.closest(".aw-view[data-model]");
