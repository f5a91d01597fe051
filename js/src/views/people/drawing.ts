/** A step of a study as elements: texts, explanations and choices. */
import { h, on, safeText, setFlag } from "../../dom.ts";
import type { AskedItem, AskedStudy, ShownExplanation } from "../../wire/studies.ts";
import { type Choice, itemOf, type Step } from "./steps.ts";

/** Number of words of an explanation in its description for screen readers. */
const HEARD = 5;
const KEYS = 9;

const spaced = (words: readonly string[], gaps: readonly boolean[], make: (word: string, at: number) => Node): Node[] =>
  words.flatMap((word, at) => [...(at > 0 && gaps[at] ? [document.createTextNode(" ")] : []), make(word, at)]);

/** The words of a text, coloured by an explanation. */
function coloured(item: AskedItem, shown: ShownExplanation | undefined): HTMLElement {
  const words = shown?.words ?? item.words;
  const gaps = shown?.gaps ?? item.gaps;
  const values = shown?.values ?? [];
  const isSigned = values.some((value) => value < 0);
  const element = h("p.study-text", { dir: "auto" });
  element.append(
    ...spaced(words, gaps, (word, at) => {
      const value = values[at] ?? 0;
      if (value === 0) return h("span", safeText(word));
      const side = isSigned ? (value > 0 ? "for" : "against") : "amount";
      const span = h("span.study-word", { "data-side": side }, safeText(word));
      span.style.setProperty("--aw-p", `${Math.round(Math.abs(value) * 55)}%`);
      return span;
    }),
  );
  return element;
}

/** The meaning of the colours of an explanation; its strongest words for a screen reader. */
function legend(item: AskedItem, shown: ShownExplanation): HTMLElement {
  const isSigned = shown.values.some((value) => value < 0);
  const words = shown.words ?? item.words;
  const order = shown.values
    .map((_, at) => at)
    .sort((a, b) => Math.abs(shown.values[b] ?? 0) - Math.abs(shown.values[a] ?? 0));
  const heard = order
    .slice(0, HEARD)
    .filter((at) => shown.values[at])
    .map(
      (at) => `${safeText(words[at] ?? "")}${isSigned ? ((shown.values[at] ?? 0) > 0 ? ", for" : ", against") : ""}`,
    );
  const keys = isSigned
    ? [
        h("i.study-key", { "data-side": "for" }),
        "speaks for the answer ",
        h("i.study-key", { "data-side": "against" }),
        "against it",
      ]
    : [h("i.study-key", { "data-side": "amount" }), "darker: larger weight"];
  return h("p.study-legend.fine", ...keys, h("span.sr", ` Strongest words: ${heard.join("; ")}.`));
}

/** A text with an explanation, under a heading if it is part of a pair. */
function panel(item: AskedItem, shown: ShownExplanation | undefined, heading: string, prediction: string): HTMLElement {
  const parts: HTMLElement[] = [];
  if (heading) parts.push(h("b.study-heading.fine", heading));
  parts.push(coloured(item, shown));
  if (shown?.text) parts.push(h("p.study-why", { dir: "auto" }, safeText(shown.text)));
  else if (shown?.values.length) parts.push(legend(item, shown));
  else if (heading) parts.push(h("p.study-legend.fine", "no explanation"));
  if (prediction) parts.push(says(prediction));
  return h("div.study-panel.boxed", ...parts);
}

const says = (prediction: string): HTMLElement =>
  h("p.study-said.fine", "The model answers ", h("b", { dir: "auto" }, safeText(prediction)));

/** The content of a step above its choices. */
export function shownOf(study: AskedStudy, step: Step): HTMLElement[] {
  const item = itemOf(study, step);
  if (!item) return [];
  const conditions = (study.cells[step.cell] ?? []).map((condition) => item.shown[condition] ?? []);
  if (study.kind === "remove_words") return [];
  if (study.kind === "forced_choice" || study.kind === "which_model") {
    const pair =
      study.kind === "which_model" ? [0, 1].map((k) => conditions[0]?.[k]) : conditions.map(([first]) => first);
    const isModels = study.kind === "which_model";
    const order = step.side ? [1, 0] : [0, 1];
    const panels = order.map((k, index) =>
      panel(item, pair[k], index ? "Second" : "First", isModels ? (item.prediction[k] ?? "") : ""),
    );
    const predictions = !isModels && item.prediction[0] ? [says(item.prediction[0])] : [];
    return [h("div.study-pair", ...panels), ...predictions];
  }
  const isChanged = study.kind === "counterfactual";
  const main = panel(item, conditions[0]?.[0], isChanged ? "Text" : "", item.prediction[0] ?? "");
  if (!isChanged) return [main];
  const changed = h(
    "div.study-panel.boxed",
    h("b.study-heading.fine", "Changed text"),
    h("p.study-text", { dir: "auto" }, safeText(item.changed)),
  );
  return [main, changed];
}

export interface Chooser {
  element: HTMLElement;
  /** Choose by number, counted from 0; returns whether there is such a choice. */
  pick(at: number): boolean;
}

/** Choices, of which the reader selects one. */
export function createChoices(
  choices: readonly Choice[],
  signal: AbortSignal,
  changed: (value: unknown) => void,
): Chooser {
  const group = `aw-${Math.random()}`; // radio buttons are grouped by name across the whole page
  const inputs = choices.map(() => h("input", { type: "radio", name: group }));
  const rows = choices.map(({ words }, at) =>
    h(
      "label.study-choice.pick.inline.boxed",
      inputs[at] as HTMLInputElement,
      h("span", { dir: "auto" }, safeText(words)),
      ...(at < KEYS ? [h("kbd.study-number", { "aria-hidden": "true" }, String(at + 1))] : []),
    ),
  );
  const element = h("fieldset.study-choices.column", { "aria-label": "answers" }, ...rows);
  const take = (at: number): void => {
    for (const [i, row] of rows.entries()) setFlag(row, "data-chosen", i === at);
    changed(choices[at]?.value);
  };
  for (const [at, input] of inputs.entries()) on(input, signal, { change: () => take(at) });
  return {
    element,
    pick(at) {
      const input = inputs[at];
      if (!input) return false;
      input.checked = true;
      input.focus();
      take(at);
      return true;
    },
  };
}

/** Words that are marked, by pointer or by arrow keys and Space. */
export function createMarks(
  item: Pick<AskedItem, "words" | "gaps">,
  shown: ShownExplanation | undefined,
  signal: AbortSignal,
  changed: (value: number[]) => void,
): Chooser {
  const isSigned = (shown?.values ?? []).some((value) => value < 0);
  const buttons = item.words.map((word, at) => {
    const value = shown?.values[at] ?? 0;
    const button = h(
      "button.study-mark",
      { type: "button", "aria-pressed": "false", tabindex: at ? "-1" : "0" },
      safeText(word),
    );
    if (value) {
      button.dataset.side = isSigned ? (value > 0 ? "for" : "against") : "amount";
      button.style.setProperty("--aw-p", `${Math.round(Math.abs(value) * 55)}%`);
    }
    return button;
  });
  const marked = (): number[] => buttons.flatMap((button, at) => (button.ariaPressed === "true" ? [at] : []));
  const element = h("div.study-marks", { role: "group", "aria-label": "words to mark" });
  element.append(...spaced(item.words, item.gaps, (_, at) => buttons[at] as HTMLElement));
  for (const [at, button] of buttons.entries())
    on(button, signal, {
      click() {
        button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
        changed(marked());
      },
      keydown(event) {
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
        const next = to === undefined ? undefined : buttons[to];
        if (!next) return;
        event.preventDefault();
        button.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      },
    });
  return { element, pick: () => false };
}

/** The legend below words that are marked. */
export const marksLegend = (item: AskedItem, shown: ShownExplanation | undefined): HTMLElement[] =>
  shown?.text
    ? [h("p.study-why", { dir: "auto" }, safeText(shown.text))]
    : shown?.values.length
      ? [legend(item, shown)]
      : [];
