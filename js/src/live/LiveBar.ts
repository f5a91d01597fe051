/**
 * What a live page says of itself, and a line for the reader's own text: what the model predicts after it while it is
 * typed, and a continuation.
 */
import type { ViewContext } from "../context.ts";
import { assign, createWatch, h, on, setChildren, setFlag, setText, shortLabel } from "../dom.ts";
import { view } from "../views/base/view.ts";
import { percent } from "../views/text/predictions/percent.ts";
import { type Answers, createAnswers } from "../wire/answers.ts";
import type { Header } from "../wire/wire.ts";

/** The answers of `question` in session.ts. */
interface About {
  name: string;
  parameters: number;
  generates: boolean;
}
type Preview = Header["predictions"] & { ids: number };
interface Continued {
  items: { text: string; ended: boolean }[];
}

/** Tokens that are written before the views show them, and in all. */
const [STEP, ALL] = [6, 48];
const MOST_OUTCOMES = 3;

/** What outlasts a change to another text. */
interface Kept {
  draft?: string | undefined;
  /** Tokens that are still to be written; 0: none. */
  left: number;
  seed: number;
  temperature: string;
  top: string;
  isFocused: boolean;
}

/** A slider with its name and number. */
function slider(name: string, range: Record<string, string>, value: string): [HTMLElement, HTMLInputElement] {
  const input = h("input.range", { type: "range", "aria-label": name, ...range });
  input.value = value;
  const number = h("output", input.value);
  input.addEventListener("input", () => setText(number, input.value === "0" ? "all" : input.value));
  input.dispatchEvent(new Event("input"));
  return [h("label.field", name, input, number), input];
}

export const renderLiveBar = view((ctx, root, signal) => {
  const kept = (ctx.lasting.get("live") as Kept | undefined) ?? {
    ...{ left: 0, seed: 1, temperature: "0.8", top: "0", isFocused: false },
  };
  ctx.lasting.set("live", kept);
  const answers = createAnswers(ctx, signal, () => refresh());
  const field = h("textarea.button.live-text", {
    rows: "1",
    spellcheck: "false",
    "aria-label": "your own text",
    title: "Enter: show this text · Shift+Enter: a new line",
  });
  const show = h("button.button", { type: "button" }, "Show");
  const said = h("div.live-said", { role: "status" });
  const about = h("div.live-about");
  const writing = createWriting(ctx, signal, answers, kept);
  field.value = kept.draft ?? ctx.header().text;
  root.classList.add("aw-live");
  root.role = "group";
  root.ariaLabel = "a text of your own";
  setChildren(root, h("div.live-row", field, show), said, writing.element, about);

  let asked: string | null = null;
  const submit = (): void => {
    writing.stop();
    kept.draft = undefined;
    kept.isFocused = true;
    if (field.value === ctx.header().text) return;
    asked = field.value;
    answers.retry("text", true);
    answers.get("text", { text: asked });
    refresh();
  };
  on(show, signal, { click: submit });
  on(field, signal, {
    input() {
      kept.draft = field.value;
      asked = null;
      refresh();
    },
    focus() {
      kept.isFocused = true;
    },
    blur() {
      kept.isFocused = false;
    },
    keydown(event) {
      event.stopPropagation();
      if (event.isComposing || event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      submit();
    },
  });
  const isOther = createWatch();
  const refresh = (): void => {
    const found = answers.get<About>("live")?.meta;
    const args = { text: field.value };
    const preview = answers.get<Preview>("preview", args)?.meta;
    const why = answers.failure("preview", args) ?? (asked && answers.failure("text", { text: asked }));
    assign(show, { disabled: Boolean(why) });
    setFlag(said, "data-wrong", Boolean(why));
    if (why) setText(said, why);
    else if (preview && isOther(preview)) setChildren(said, ...predictedParts(preview));
    if (found) setText(about, aboutWords(found));
    writing.show(Boolean(found?.generates));
    fit(field);
  };
  if (kept.isFocused)
    queueMicrotask(() => {
      if (!signal.aborted) field.focus({ preventScroll: true });
    });
  refresh();
  writing.go();
  return () => refresh();
});

/** As tall as its text. */
function fit(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function predictedParts({ title, items, ids }: Preview): (HTMLElement | string)[] {
  if (items.length === 0) return [`${ids} tokens`];
  const shown = items.slice(0, MOST_OUTCOMES).map(({ label, probability }) => {
    const chip = h("span.live-outcome", h("b", shortLabel(label, 20)), ` ${percent(probability)}`);
    chip.style.setProperty("--aw-share", String(probability));
    return chip;
  });
  return [`${title}: `, ...shown];
}

function aboutWords({ name, parameters }: About): string {
  const numbers = `${parameters.toLocaleString("en")} parameters, rounded to float16`;
  return `Computed in this page by ${name} (${numbers}); nothing is sent anywhere.`;
}

interface Writing {
  element: HTMLElement;
  show(isOffered: boolean): void;
  stop(): void;
  /** Go on where the text before was left. */
  go(): void;
}

/** A button that lets the model write on, a few tokens at a time, and how these are drawn. */
function createWriting(ctx: ViewContext, signal: AbortSignal, answers: Answers, kept: Kept): Writing {
  const button = h("button.button", { type: "button" });
  const [temperature, heat] = slider("temperature", { min: "0.05", max: "2", step: "0.05" }, kept.temperature);
  const [top, most] = slider("top k", { min: "0", max: "20", step: "1" }, kept.top);
  const state = h("span", { role: "status" });
  const element = h("div.live-row", button, temperature, top, state);
  let request: Record<string, unknown> | null = null;
  const stop = (): void => {
    kept.left = 0;
    request = null;
  };
  const ask = (): void => {
    if (kept.left <= 0) return;
    kept.seed += 1;
    request = {
      ...{ how: "sample", n: 1, length: Math.min(STEP, kept.left), top_p: 1, seed: kept.seed },
      ...{ temperature: heat.valueAsNumber, top_k: most.valueAsNumber },
    };
    answers.retry("continuations", true);
    answers.get("continuations", request);
  };
  const show = (isOffered: boolean): void => {
    assign(element, { hidden: !isOffered });
    setText(button, kept.left > 0 ? "Stop" : "Continue");
    if (!request) return;
    const answer = answers.get<Continued>("continuations", request)?.meta.items[0];
    const why = answers.failure("continuations", request);
    if (why) {
      stop();
      setText(state, why);
      setText(button, "Continue");
    } else if (answer) {
      kept.left = answer.ended ? 0 : kept.left - STEP;
      request = null;
      kept.draft = undefined;
      answers.get("text", { text: ctx.header().text + answer.text });
    }
  };
  on(button, signal, {
    click() {
      setText(state, "");
      if (kept.left > 0) stop();
      else {
        kept.left = ALL;
        ask();
      }
      show(true);
    },
  });
  on(element, signal, {
    input() {
      [kept.temperature, kept.top] = [heat.value, most.value];
    },
  });
  return {
    element,
    show,
    stop,
    go() {
      // After a frame, in which the views show what there is.
      if (kept.left > 0) requestAnimationFrame(() => signal.aborted || ask());
    },
  };
}
