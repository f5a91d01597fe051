/** Other texts: tokens that the query would look at in place of the key, and tokens that would look at the key. */
import type { ViewContext } from "../../../context.ts";
import { assign, h, on, setChildren, setText } from "../../../dom.ts";
import type { Answers } from "../../../wire/answers.ts";
import { type CopyButton, createCopyButton } from "../../base/copyPython.ts";
import { createProgress, missingAnswer } from "../../base/missing.ts";
import { decimal } from "../words.ts";

/** The twin of `described` in attnwidgets/views/circuits/why_others.py. */
export interface ShownOthers {
  /** The sentence, in pieces; true: stressed. */
  said: [string, boolean][];
  more: string;
  warning: string;
  /**
   * Tokens that the query would look at, and those that would look at the key; `cell` is the number of this cell, in
   * words.
   */
  lists: { title: string; cell: string; isSigned: boolean; tokens: OtherToken[] }[];
}

interface OtherToken {
  before: string;
  token: string;
  after: string;
  value: number;
}

/** Whether other texts are compared, can be on request, or cannot: `state_of_others` in why_others.py. */
export type OthersState = "shown" | "offered" | "";

type WhyArgs = Record<string, unknown>;

export interface Others {
  /** The button or the progress, below the sentence. */
  offer: HTMLElement;
  /** The lists. */
  element: HTMLElement;
  /** The other texts of a cell, once they arrive. */
  show(args: WhyArgs, state: OthersState): ShownOthers | null;
}

const TOPIC = "in_other_texts";

/**
 * `compare` is called when the reader requests other texts; `isPage` is true where no kernel computes missing answers.
 */
export function createOthers(
  ctx: ViewContext,
  signal: AbortSignal,
  answers: Answers,
  isPage: boolean,
  compare: () => void,
): Others {
  const button = h(
    "button.button",
    { type: "button", title: "Put the tokens of other texts in the place of the key and of the query" },
    "Compare with other texts",
  );
  const progress = createProgress(signal);
  const offer = h("div.why-offer.inline", { hidden: "" }, button, progress.element);
  let args: WhyArgs = {};
  let drawn: ShownOthers | null = null;
  const copy: CopyButton = createCopyButton(
    ctx,
    signal,
    () => (drawn ? { of: TOPIC, ...args } : null),
    "Copy comparison as Python",
    "Copy the Python that returns the share of these tokens that the key is above",
  );
  const lists = h("div.why-others");
  const warning = h("p.why-note.fine");
  const element = h("div.why-elsewhere", { hidden: "" }, lists, warning, copy.element);
  on(button, signal, { click: compare });

  return {
    offer,
    element,
    show(now, state) {
      args = now;
      const shown = state === "shown" ? (answers.get<ShownOthers>(TOPIC, args, isPage)?.meta ?? null) : null;
      const isAwaited = state === "shown" && !shown && !isPage;
      assign(offer, { hidden: isPage || !(isAwaited || state === "offered") });
      assign(button, { hidden: isAwaited });
      progress.show(isAwaited ? missingAnswer(answers, TOPIC, args, "comparison with other texts") : null);
      assign(element, { hidden: !shown });
      if (drawn !== shown) {
        drawn = shown;
        setText(warning, shown?.warning ?? "");
        setChildren(lists, ...(shown?.lists.map(listOf) ?? []));
      }
      copy.show();
      return shown;
    },
  };
}

function listOf({ title, cell, isSigned, tokens }: ShownOthers["lists"][number]): HTMLElement {
  const rows = tokens.map(({ before, token, after, value }) => {
    const text = h("span.why-example", { title: `${before}${token}${after}`, dir: "auto" });
    setChildren(text, ...(before ? ["…\u00a0", h("span", h("span", before))] : []), h("b", token), after);
    return h("div.why-other", { role: "listitem" }, h("span.why-value", decimal(value, 2, isSigned)), text);
  });
  const list = h("div", { role: "list", "aria-label": title }, ...rows);
  return h("div", h("div.why-head.fine", h("b", title), h("span", cell)), list);
}
