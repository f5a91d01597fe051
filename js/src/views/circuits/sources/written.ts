/** The answer that the model writes with a message hidden. */
import type { ViewContext } from "../../../context.ts";
import { assign, h, on, setChildren, setText } from "../../../dom.ts";
import type { Answers } from "../../../wire/answers.ts";
import { createProgress, missingAnswer } from "../../base/missing.ts";
import { named, type Picture, type SourcesOptions } from "./sources.ts";

const TOPIC = "written_without";

/** The twin of `_answer_written` in attnwidgets/views/circuits/sources_view.py. */
interface Written {
  text: string;
  /** The model's text with nothing hidden. */
  plain: string;
}

export interface WrittenAnswer {
  element: HTMLElement;
  /** Request the model's text without the current part. */
  request(): void;
  draw(picture: Picture): void;
}

export function createWritten(
  ctx: ViewContext,
  signal: AbortSignal,
  answers: Answers,
  changed: () => void,
): WrittenAnswer {
  const isPage = ctx.model.get("runtime") === "";
  const button = h("button.button", { type: "button", "data-needs-kernel": "" });
  const progress = createProgress(signal);
  const text = h("div.source-written", { role: "status" });
  const element = h("div.source-without", button, progress.element, text);
  const requested = new Set<number>();
  let part: number | null = null;
  const request = (): void => {
    if (part === null || isPage || !(ctx.options as SourcesOptions).writes) return;
    requested.add(part);
    changed();
  };
  on(button, signal, { click: request });
  return {
    element,
    request,
    draw({ shown, part: chosen, meant }) {
      const { writes, written } = ctx.options as SourcesOptions;
      const at = chosen ?? meant;
      part = at !== null && shown.parts[at]?.kind !== "answer" ? at : null;
      const isThere = part !== null && (written.includes(part) || requested.has(part));
      const args = { part };
      const answer = isThere ? answers.get<Written>(TOPIC, args, isPage)?.meta : undefined;
      const isAwaited = isThere && !answer && !isPage;
      assign(element, { hidden: part === null || (!answer && (isPage || !writes)) });
      assign(button, { hidden: isThere });
      progress.show(isAwaited ? missingAnswer(answers, TOPIC, args, "answer") : null);
      if (part === null) return;
      const name = named(shown, part);
      setText(button, `Without ${name} it would have said …`);
      button.title = `Let the model write the answer again with ${name} ${shown.removal}: the likeliest word at every step`;
      if (!answer) setChildren(text);
      else
        setChildren(
          text,
          h("p", `Without ${name} it would have said: `, h("b", { dir: "auto" }, `“${answer.text}”`)),
          h(
            "p.source-quiet",
            shown.picture ? "With the whole picture: " : `With every ${shown.unit}: `,
            h("span", { dir: "auto" }, `“${answer.plain}”`),
          ),
        );
    },
  };
}
