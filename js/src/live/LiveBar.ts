/**
 * The bar of a live page: information about its model, and a field for the reader's text with the predictions after it,
 * updated while the reader types, and a continuation.
 */
import { assign, createWatch, h, on, setChildren, setFlag, setText, shortLabel } from "../dom.ts";
import { percent } from "../numbers.ts";
import { view } from "../views/base/view.ts";
import { type Answers, createAnswers } from "../wire/answers.ts";
import type { ViewOptions } from "../wire/viewState.ts";
import { createLoadingRow } from "./loadingRow.ts";
import type { Continuation } from "./predictions.ts";
import type { About, Preview } from "./session.ts";

/** Options of a LiveBar; its store and selection stay those of the first text. */
interface LiveBarOptions extends ViewOptions {
  /** The text that is shown. */
  text: string;
}

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
  const prediction = h("div.live-said", { role: "status" });
  const about = h("div.live-about");
  let requested = "";
  const ask = (text: string): void => {
    requested = text;
    answers.retry("text", true);
    answers.get("text", { text });
  };
  const loading = createLoadingRow(signal, answers, () => refresh());
  const writing = createWriting(signal, answers, shown, (text, isWhole) => {
    field.value = text;
    if (isWhole) ask(text);
  });
  const typing = h("div.live-row", field, show);
  root.classList.add("aw-live");
  root.role = "group";
  root.ariaLabel = "type a text";
  setChildren(root, loading.element, typing, prediction, writing.element, about);

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
    if (isOtherText(shown())) field.value = shown();
    const news = answers.get<About>("live")?.meta;
    const model = loading.show(news, ctx.header().model.split("/").at(-1) || (news?.name ?? ""));
    for (const part of [typing, prediction, about]) assign(part, { hidden: !model });
    writing.show(model);
    if (!model) return;
    const args = { text: field.value };
    const preview = writing.isBusy() ? undefined : answers.get<Preview>("preview", args)?.meta;
    const why =
      answers.failure("preview", args) ??
      (requested === field.value ? answers.failure("text", { text: requested }) : undefined);
    assign(show, { disabled: Boolean(why) });
    setFlag(prediction, "data-wrong", Boolean(why));
    const isBusy = Boolean(answers.job("preview") ?? answers.job("text"));
    if ((why || preview || isBusy) && isOther(why, preview, isBusy))
      setChildren(prediction, ...(why ? [why] : isBusy || !preview ? ["computing…"] : predictedParts(preview)));
    setText(about, aboutWords(model, preview));
    fit(field);
  };
  refresh();
  return (changed) => {
    // Another line of the page may have loaded the model.
    if (changed.has("header")) answers.retry("live", true);
    refresh();
  };
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

function aboutWords({ name, parameters, rounding, bytes, slow }: About, preview: Preview | undefined): string {
  const numbers = [`${parameters.toLocaleString("en")} parameters`, ...(rounding ? [rounding] : [])].join(", ");
  const took =
    bytes && preview ? ` · ${preview.ids} tokens in ${Math.max(0.01, preview.took / 1000).toFixed(2)} s` : "";
  return `Computed in this page by ${name} (${numbers})${took}; nothing is sent anywhere.${slow && ` ${slow}`}`;
}

interface Writing {
  element: HTMLElement;
  /** Offer a continuation, if the model generates; null: the model is not loaded. */
  show(about: About | null): void;
  isBusy(): boolean;
  stop(): void;
}

/** A button that continues the text, and the settings of sampling; `write` gets the text as it grows, and the whole. */
function createWriting(
  signal: AbortSignal,
  answers: Answers,
  shown: () => string,
  write: (text: string, isWhole: boolean) => void,
): Writing {
  const button = h("button.button", { type: "button" });
  const [temperature, heat] = slider("temperature", { min: "0.05", max: "2", step: "0.05" }, "0.8");
  const [top, most] = slider("top k", { min: "0", max: "20", step: "1" }, "0");
  const state = h("span", { role: "status" });
  const element = h("div.live-row", button, temperature, top, state);
  let [seed, length] = [0, 0];
  /** The text that is continued, and how. */
  let request: (Record<string, unknown> & { text: string }) | null = null;
  const show = (about: About | null): void => {
    assign(element, { hidden: !about?.generates });
    length = about?.most ?? 0;
    const answer = request && answers.get<Continuation>("continue", request)?.meta;
    const why = request && answers.failure("continue", request);
    const more = answer?.text ?? answers.job("continue")?.text ?? "";
    if (request && !why && more) write(request.text + more, Boolean(answer));
    if (why) setText(state, why);
    if (why || answer) request = null;
    setText(button, request ? "Stop" : "Continue");
  };
  const stop = (): void => answers.cancel("continue");
  on(button, signal, {
    click() {
      setText(state, "");
      if (request) stop();
      else {
        seed += 1;
        request = { text: shown(), length, temperature: heat.valueAsNumber, top_k: most.valueAsNumber, seed };
        answers.retry("continue", true);
        answers.get("continue", request);
        setText(button, "Stop");
      }
    },
  });
  return { element, show, stop, isBusy: () => request !== null };
}
