/** "Copy link": of a page its address at what a view shows, elsewhere the Python that opens the view there. */
import type { ViewContext } from "../../context.ts";
import { codeOf, fragmentOf } from "../../link.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Expression } from "./copyPython.ts";

/** What is copied, and what it is, in words. */
export interface Link {
  text: string;
  words: string;
}

const PLACE_QUERY = { of: "place" };

/** Returns what gives the link of what is shown now. */
export function createLinks(ctx: ViewContext, signal: AbortSignal): () => Promise<Link> {
  let arrived = (): void => undefined;
  const answers = createAnswers(ctx, signal, () => arrived());
  const request = (): Promise<Link> =>
    new Promise((done) => {
      // Names change, and so does what is shown: an earlier answer does not count.
      answers.retry("expression", true);
      arrived = () => {
        const answer = answers.get<Expression>("expression", PLACE_QUERY)?.meta;
        const why = answers.failure("expression", PLACE_QUERY);
        if (answer) done({ text: answer.code, words: sentence("a line of Python that opens this", answer.note) });
        else if (why)
          done({
            text: codeOf(ctx, placeOf(ctx)?.dataset.text),
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

/** The address of what a view shows, on a page of its own: not in a notebook, nor in a frame without an address. */
function addressOf(ctx: ViewContext): string | null {
  const viewElement = placeOf(ctx);
  if (!viewElement || location.protocol === "about:") return null;
  const number = [...document.querySelectorAll(".aw-view[data-model]")].indexOf(viewElement) + 1;
  return `${location.href.replace(/#.*$/s, "")}#${fragmentOf(ctx, number, viewElement.dataset.text)}`;
}

/** Where a page of its own shows this view. */
const placeOf = (ctx: ViewContext): HTMLElement | null => ctx.el.closest(".aw-view[data-model]");
