/**
 * What a live page says of itself, and a line for the reader's own text: what the model predicts after it while it is
 * typed, and a continuation.
 */
import { assign, createWatch, h, on, setChildren, setFlag, setText, shortLabel } from "../dom.ts";
import { percent } from "../numbers.ts";
import { view } from "../views/base/view.ts";
import { type Answers, createAnswers } from "../wire/answers.ts";
import type { ViewOptions } from "../wire/viewState.ts";
import type { Preview } from "./session.ts";

/** The answers of `question` in session.ts. */
interface About {
  name: string;
  parameters: number;
  generates: boolean;
}
interface Continued {
  text: string;
  ended: boolean;
}

/** Options of a LiveBar; its store and selection stay those of the first text. */
interface LiveBarOptions extends ViewOptions {
  /** The text that is shown. */
  text: string;
}

/** Tokens that are written before the views show them, and in all. */
const [STEP, ALL] = [4, 48];
/** Milliseconds between two steps, so that the reader sees the text grow. */
const PACE = 150;
const MOST_OUTCOMES = 3;

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
  const shown = (): string => (ctx.options as LiveBarOptions).text;
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
  let requested = "";
  const ask = (text: string): void => {
    requested = text;
    answers.retry("text", true);
    answers.get("text", { text });
  };
  const writing = createWriting(signal, answers, shown, ask);
  root.classList.add("aw-live");
  root.role = "group";
  root.ariaLabel = "type a text";
  setChildren(root, h("div.live-row", field, show), said, writing.element, about);

  const submit = (): void => {
    writing.stop();
    if (field.value !== shown()) ask(field.value);
    refresh();
  };
  on(show, signal, { click: submit });
  on(field, signal, {
    input: () => refresh(),
    keydown(event) {
      event.stopPropagation();
      if (event.isComposing || event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      submit();
    },
  });
  const isOtherText = createWatch();
  const isOther = createWatch();
  const refresh = (): void => {
    if (isOtherText(shown())) {
      field.value = shown();
      writing.go();
    }
    const found = answers.get<About>("live")?.meta;
    const args = { text: field.value };
    const preview = answers.get<Preview>("preview", args)?.meta;
    const why =
      answers.failure("preview", args) ??
      (requested === field.value ? answers.failure("text", { text: requested }) : undefined);
    assign(show, { disabled: Boolean(why) });
    setFlag(said, "data-wrong", Boolean(why));
    if (isOther(why, preview)) setChildren(said, ...(why ? [why] : preview ? predictedParts(preview) : []));
    if (found) setText(about, aboutWords(found));
    writing.show(Boolean(found?.generates));
    fit(field);
  };
  refresh();
  return () => refresh();
});

/** As tall as its text. */
function fit(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function predictedParts({ title, items, each, ids }: Preview): (HTMLElement | string)[] {
  if (each.length > 0)
    return [
      "class of each token: ",
      ...each.map(([token, name]) => h("span.live-outcome", h("b", shortLabel(token, 20)), ` ${shortLabel(name, 20)}`)),
    ];
  if (items.length === 0) return [`${ids} tokens`];
  const shown = items.slice(0, MOST_OUTCOMES).map(({ label, probability }) => {
    const chip = h("span.live-outcome", h("b", shortLabel(label, 20)), ` ${percent(probability)}`);
    chip.style.setProperty("--aw-share", String(probability ?? 0));
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
  /** Another text is shown: go on from there. */
  go(): void;
}

/** A button that lets the model write on, a few tokens at a time, and how these are drawn. */
function createWriting(
  signal: AbortSignal,
  answers: Answers,
  shown: () => string,
  ask: (text: string) => void,
): Writing {
  const button = h("button.button", { type: "button" });
  const [temperature, heat] = slider("temperature", { min: "0.05", max: "2", step: "0.05" }, "0.8");
  const [top, most] = slider("top k", { min: "0", max: "20", step: "1" }, "0");
  const state = h("span", { role: "status" });
  const element = h("div.live-row", button, temperature, top, state);
  /** Tokens that are still to be written. */
  let left = 0;
  let seed = 0;
  let request: Record<string, unknown> | null = null;
  const stop = (): void => {
    [left, request] = [0, null];
  };
  const write = (): void => {
    if (left <= 0 || signal.aborted) return;
    seed += 1;
    const [heated, k] = [heat.valueAsNumber, most.valueAsNumber];
    request = { text: shown(), length: Math.min(STEP, left), temperature: heated, top_k: k, seed };
    answers.retry("continue", true);
    answers.get("continue", request);
  };
  const show = (isOffered: boolean): void => {
    assign(element, { hidden: !isOffered });
    const answer = request && answers.get<Continued>("continue", request)?.meta;
    const why = request && answers.failure("continue", request);
    if (why) {
      stop();
      setText(state, why);
    } else if (request && answer) {
      left = answer.ended ? 0 : left - STEP;
      request = null;
      ask(shown() + answer.text);
    }
    setText(button, left > 0 ? "Stop" : "Continue");
  };
  on(button, signal, {
    click() {
      setText(state, "");
      if (left > 0) stop();
      else {
        left = ALL;
        write();
      }
      show(true);
    },
  });
  return {
    element,
    show,
    stop,
    go: () => void setTimeout(write, PACE),
  };
}
