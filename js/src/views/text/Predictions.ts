/**
 * The model's predictions: its most probable tokens or classes as bars from 0 to 1, at any temperature, top k and top
 * p; continuations; and how unexpected the text was. If a method can explain a chosen outcome, a click makes an outcome
 * the target, Shift-click the foil.
 */

import { assign, h, keyboard, on, setChildren, setText, shortLabel } from "../../dom.ts";
import { percent } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { doublesOf } from "../../wire/buffers.ts";
import type { Outcome } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { shownTargets } from "../base/methodChoice.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { canExplain, explainOutcome } from "./outcomeChoice.ts";
import { createContinuations } from "./predictions/continuations.ts";
import { type Logits, type SamplingOptions, samplingDistribution } from "./predictions/decoding.ts";
import { createSurprisal } from "./predictions/surprisal.ts";

/** Python's answer for a position; its buffers are logits (float32) and the weight of the others (float64). */
export interface OutcomesAnswer {
  title: string;
  ids: number[];
  labels: string[];
  count: number;
  multiple: boolean;
  temperatures: number[];
  actual: { id: number; label: string; logit: number; before: number } | null;
}

const FEW = 10;
const MORE = 40;

export const renderPredictions = view((ctx, root, signal) => {
  const alone = root === ctx.el;
  const answers = createAnswers(ctx, signal, () => draw());
  const [message, list, remainder, help] = [h("div.line"), h("ol.predictions"), h("div.line"), h("div.line")];
  const back = h("button.button", { type: "button" }, "back to the next token");
  const more = h("button.button", { type: "button" });
  const slider = (name: string, min: string, max: string, step: string, value: string): HTMLInputElement =>
    h("input.range", { type: "range", "aria-label": name, min, max, step, value });
  const temperature = slider("temperature", "0", "2", "0.05", "1");
  const topP = slider("top p", "0.05", "1", "0.05", "1");
  const topK = h("input.button.small", {
    type: "number",
    min: "1",
    step: "1",
    placeholder: "all",
    "aria-label": "top k",
  });
  const [warmth, share] = [h("output"), h("output")];
  const cuts = h("span.row", h("label.field", "top k", topK), h("label.field", "top p", topP, share));
  const controls = h(
    "fieldset.sampling",
    { "aria-label": "sampling" },
    h("label.field", "temperature", temperature, warmth),
    cuts,
  );
  const panes = createSegments(
    "panel",
    { outcomes: "predictions", continuations: "continuations", surprisal: "surprisal" },
    signal,
    () => draw(),
  );
  /** The predicted token; null: the next token. */
  let position: number | null = null;
  let title = "predictions";
  let most = FEW;
  let shown: Outcome[] = [];
  let drawnKey = "";

  const drawing = (): SamplingOptions => ({
    temperature: Number(temperature.value),
    topK: Math.max(0, Math.round(Number(topK.value) || 0)),
    topP: Number(topP.value),
  });
  const continuations = createContinuations(ctx, answers, signal, drawing);
  const surprisal = createSurprisal(ctx, answers, signal, (index) => {
    position = index === position ? null : index;
    if (position !== null) panes.choose("outcomes");
    draw();
    return position;
  });
  root.classList.add("aw-predicts");
  root.role = "group";
  const change = h("div");
  const recorded = h("div.line");
  const outcomes = h(
    "section.predicted",
    change,
    recorded,
    message,
    list,
    h("div.row.predicted-rest", remainder, more),
    help,
  );
  ctx.views.ChangedPrediction?.(ctx, change);

  // Sampling options change the probabilities, but not the prediction of the trace.
  const copy = createCopyButton(ctx, signal, () => {
    const { temperature: t, topK: k, topP: p } = drawing();
    const target = ctx.selection.get("target");
    const isShown = target && position === null && shown.some(({ id }) => id === target.id);
    return isShown && t === 1 && k === 0 && p >= 1 ? { of: "outcome", id: target.id } : null;
  });
  const frame = createFrame(ctx, root, {
    tags: [back],
    ...(alone ? { controls: [panes.element, controls] } : { legend: controls }),
    hint: ctx.header().predictions.method ? "Click an outcome to explain it." : "",
    body: [...(alone ? [] : [panes.element]), outcomes, continuations.element, surprisal.element],
    actions: [copy.element],
  });

  const draw = (): void => {
    const { title: named, items } = ctx.header().predictions;
    const next = named === "next token";
    const specs = ctx.selection.get("interventions") ?? [];
    const predicts = items.length > 0;
    assign(root, { hidden: !predicts && !alone && specs.length === 0 });
    setText(recorded, specs.length > 0 && predicts ? "Below: the model as recorded." : "");
    if (!predicts) title = specs.length > 0 ? "predictions after the change" : "predictions";
    const pane = next ? panes.value() : "outcomes";
    assign(panes.element, { hidden: !next });
    assign(outcomes, { hidden: pane !== "outcomes" });
    assign(continuations.element, { hidden: pane !== "continuations" });
    assign(surprisal.element, { hidden: pane !== "surprisal" });
    for (const part of [list, remainder]) part.hidden = !predicts;
    const args = position === null ? {} : { position };
    const answer = predicts ? answers.get<OutcomesAnswer>("outcomes", args) : undefined;
    const failure = answers.failure("outcomes", args) ?? "";
    assign(more, { hidden: (answer?.meta.ids.length ?? items.length) <= FEW });
    // Until the answer arrives, the predictions of the header.
    if (answer || position === null) rows(answer?.meta ?? null, answer?.buffers ?? []);
    setText(message, position === null ? "" : failure);
    assign(back, { hidden: position === null || pane !== "outcomes" });
    assign(controls, { hidden: !predicts || pane === "surprisal" || !answer || answer.meta.multiple });
    assign(cuts, { hidden: !answer?.meta.title || answer.meta.title === "class" });
    setText(warmth, drawing().temperature ? String(drawing().temperature) : "0: greedy");
    setText(share, topP.value);
    temperature.ariaValueText = warmth.textContent;
    frame.show("", pane === "outcomes" ? title : pane === "surprisal" ? "surprisal of the text" : pane);
    tell("");
    const words = "The model of this trace predicts neither tokens nor classes";
    const advice = "Load it with a language-model or a classification head.";
    frame.lacks(predicts || specs.length > 0 ? null : { kind: "none", words, advice });
    point();
    copy.show();
    continuations.show(pane === "continuations");
    surprisal.show(pane === "surprisal", position);
  };

  /** Write below the bars, or in the footer. */
  const tell = (words: string): void => {
    if (alone) frame.readout.show(words, false);
    else setText(help, words);
  };

  /** Bars. */
  const rows = (answer: OutcomesAnswer | null, buffers: readonly DataView[]): void => {
    const { title: named, items } = ctx.header().predictions;
    const chosen = drawing();
    const { explained, method } = ctx.header().predictions;
    const name = JSON.stringify([answer ?? items, chosen, most, method, explained, position]);
    if (name === drawnKey) return;
    drawnKey = name;
    list.ariaLabel = answer?.title ?? named;
    title = (answer?.title ?? named) || "predictions";
    const [logits, others] = buffers;
    let probabilities: ArrayLike<number | null> = items.map(({ probability }) => probability);
    shown = items;
    setText(remainder, "");
    if (answer && logits && others) {
      const numbers = Float32Array.from({ length: answer.ids.length }, (_, i) => logits.getFloat32(4 * i, true));
      const rest = doublesOf(others);
      shown = answer.ids.map((id, i) => ({ id, label: answer.labels[i] as string }));
      if (answer.multiple) probabilities = numbers.map((logit) => 1 / (1 + Math.exp(-logit)));
      else {
        const all: Logits = { largest: numbers, rest, temperatures: answer.temperatures, count: answer.count };
        const distribution = samplingDistribution(all, chosen);
        probabilities = distribution.probabilities;
        setText(remainder, samplingWords(distribution, answer, most));
      }
      const { actual } = answer;
      const rank = actual
        ? `the text has “${shortLabel(actual.label, 40)}”: number ${actual.before + 1} of ${answer.count}`
        : "";
      if (rank) title = `${answer.title}: ${rank}`;
    }
    shown = shown.slice(0, most);
    setText(more, most === FEW ? `show ${Math.min(MORE, answer?.ids.length ?? items.length)}` : `show ${FEW}`);
    setChildren(
      list,
      ...shown.map(({ id, label }, i) => {
        const probability = probabilities[i] as number | null;
        const bar = h("span");
        bar.hidden = !probability;
        bar.style.width = `${(100 * Math.max(0, Math.min(1, probability as number))).toFixed(2)}%`;
        const text = shortLabel(label, 60);
        const token = h("bdi.token", { title: text }, text);
        // Only the next token can be a target.
        const target =
          canExplain(ctx.header(), id) && position === null
            ? h("button.button.outcome", { type: "button" }, token, h("b"))
            : token;
        return h(
          "li",
          target,
          h(probability === null ? "span" : "span.bar", bar),
          h("span.value", probability === 0 ? "–" : percent(probability)),
        );
      }),
    );
  };

  /** Mark target and foil, and show how to choose them. */
  const point = (): void => {
    const header = ctx.header();
    if (header.predictions.items.length === 0) return;
    if (!header.predictions.method || position !== null) return;
    const [target, foil] = shownTargets(ctx);
    shown.forEach(({ id }, i) => {
      const role = id === target?.id ? "target" : id === foil?.id ? "foil" : "";
      const button = list.children[i]?.firstElementChild;
      button?.setAttribute("aria-pressed", String(Boolean(role)));
      if (button?.lastElementChild) setText(button.lastElementChild, role);
    });
    tell("Click: explain it (target). Shift-click or Shift+Enter: contrast with it (foil).");
  };

  /** Make an outcome the target or the foil, or clear it if it already is. */
  const choose = (element: EventTarget | null, asFoil: boolean): void => {
    const header = ctx.header();
    const at = [...list.children].findIndex((item) => item.firstElementChild?.contains(element as Node));
    const item = shown[at];
    if (!item || !canExplain(header, item.id) || position !== null) return;
    const map = header.sources.find(({ kind }) => kind === "map")?.method;
    explainOutcome(ctx, item, asFoil, map ?? ctx.source().method);
  };
  on(list, signal, { click: ({ target, shiftKey }) => choose(target, shiftKey) });
  keyboard(
    list,
    signal,
    { "Shift+Enter": () => choose(document.activeElement, true) },
    "Enter: explain this outcome · Shift+Enter: contrast with this one",
  );
  on(controls, signal, { input: () => draw() });
  on(temperature, signal, {
    dblclick() {
      temperature.value = "1";
      draw();
    },
  });
  on(back, signal, {
    click() {
      position = null;
      draw();
    },
  });
  on(more, signal, {
    click() {
      most = most === FEW ? MORE : FEW;
      draw();
    },
  });
  return (changed) => {
    if (changed.has("header")) {
      answers.retry("outcomes", true);
      answers.retry("surprisal", true);
    }
    if (!only(changed, "hover", "pinned", "layer", "head", "tiles")) draw();
  };
});

function samplingWords(
  { remaining, mass, rest, exact, probabilities }: ReturnType<typeof samplingDistribution>,
  answer: OutcomesAnswer,
  most: number,
): string {
  if (answer.count <= probabilities.length && remaining === answer.count) return "";
  let others = rest;
  for (const probability of probabilities.slice(most)) others += probability;
  const number = remaining === null ? `more than ${probabilities.length}` : String(remaining);
  const drawnFrom =
    remaining === answer.count ? "" : ` · sampled from ${number} of ${answer.count}, with ${percent(mass)} of the mass`;
  return `all others ${others ? percent(others) : "–"}${drawnFrom}${exact ? "" : " · probabilities ≈"}`;
}
