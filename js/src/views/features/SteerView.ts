/** A slider for a feature, how far it moves the states, and the predictions before and after. */

import type { Change, ViewContext } from "../../context.ts";
import { h, iconButton, on, reserve, setChildren, setText } from "../../dom.ts";
import { percent, printed } from "../../numbers.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { floatsOf } from "../../wire/buffers.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import { beforeAfter } from "../base/beforeAfter.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { failed, missingAnswer } from "../base/missing.ts";
import { only, view } from "../base/view.ts";
import { nameOfFeature, optionsOf } from "./features.ts";

type Kind = "outcomes" | "text" | "sentences";

/** The twin of `SteerView._feature_options`. */
interface SteerOptions {
  /** The feature that is steered until the reader chooses another. */
  steered?: number | null;
  kinds?: Kind[];
  predicted?: string;
  ends?: [number, number];
  held?: Record<string, number[]>;
}

interface Steered {
  change: number;
  rows?: [label: string, before: number, after: number][];
  texts?: [run: string, differs: boolean][][];
}

const STEP = 0.1;
const ABLATED = "0: ablated";
/** A change as large as the state itself. */
const FAR = 1;
/** Milliseconds that the slider must rest before a request. */
const RESTS = 180;
const AFTER_A_PAGE = /not in this file/;

/** |dh| / |h| with the feature at `scale` times its maximum, averaged over the tokens; see `Reach` in Python. */
export function relativeChange(scale: number, maximum: number, activations: number[], lengths: number[]): number {
  const by = activations.map((a, i) => Math.abs(scale * maximum - a) * (lengths[i] ?? 0));
  return by.length ? by.reduce((sum, x) => sum + x, 0) / by.length : 0;
}

/** "−1 × max" */
const scaleWords = (scale: number): string => `${String(scale).replace("-", "−")} × max`;

/** The element of `all` nearest to `target`. */
const nearestOf = (all: readonly number[], target: number): number =>
  all.reduce((best, value) => (Math.abs(value - target) < Math.abs(best - target) ? value : best), all[0] ?? target);

/** The elements of the view, and the state that they show. */
interface SteerState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly least: number;
  readonly most: number;
  readonly slider: HTMLInputElement;
  readonly figure: HTMLOutputElement;
  readonly less: HTMLButtonElement;
  readonly more: HTMLButtonElement;
  readonly summary: HTMLDivElement;
  readonly warning: HTMLDivElement;
  readonly body: HTMLDivElement;
  /** The kind of output that the slider changes. */
  kind: Kind;
  /** The strength for which the model ran last. */
  rested: number;
  /** Runs the model once the slider has rested. */
  timer: ReturnType<typeof setTimeout> | undefined;
  /** The input of the drawn outcome. */
  drawnKey: string;
  /** The last answer, shown until the next arrives. */
  last: { answer: Answer<Steered>; scale: number } | null;
  readonly frame: Frame;
  /** The feature that the view was given, until the reader chooses another. */
  given: number | null;
}

export const renderSteerView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const [least = -2, most = 5] = settings(ctx).ends ?? [];
  const slider = h("input.range", {
    type: "range",
    min: String(least),
    max: String(most),
    step: String(STEP),
    value: "1",
    "aria-label": "feature, in units of its largest activation",
  });
  const figure = h("output");
  const less = iconButton(signal, "‹", "weaker", () => moveTo(state, slider.valueAsNumber - STEP));
  const more = iconButton(signal, "›", "stronger", () => moveTo(state, slider.valueAsNumber + STEP));
  const strength = h(
    "span.group.steer-strength",
    { role: "group", "aria-label": "strength", "data-needs-kernel": "" },
    less,
    slider,
    figure,
    more,
  );
  const summary = h("div.line");
  const warning = h("div.warning", { role: "status" });
  const kinds = h("div.segments", { role: "radiogroup", "aria-label": "compare" });
  const body = h("div.steer-body", { role: "group", "aria-label": "before and after", tabindex: "0" });
  const name = `aw-${Math.random()}`;

  reserve(figure, scaleWords(least + STEP), ABLATED);
  const words: Record<Kind, string> = {
    outcomes: "prediction",
    text: "generated text",
    sentences: "nearest sentences",
  };
  const offered = settings(ctx).kinds ?? [];
  if (offered.length > 1) {
    setChildren(
      kinds,
      ...offered.map((option) => {
        const radio = h("input", { type: "radio", name });
        radio.checked = option === offered[0];
        on(radio, signal, {
          change: () => {
            state.kind = option;
            state.last = null;
            update(state);
          },
        });
        return h("label.segment", radio, words[option]);
      }),
    );
  }
  const frame = createFrame(ctx, root, {
    controls: [strength, kinds],
    body: [h("div.steer-said", summary, warning), body],
    hint: "Move the slider to strengthen the feature.",
  });

  const state: SteerState = {
    ctx,
    root,
    answers,
    least,
    most,
    slider,
    figure,
    less,
    more,
    summary,
    warning,
    body,
    kind: settings(ctx).kinds?.[0] ?? "outcomes",
    rested: 1,
    timer: undefined,
    drawnKey: "",
    last: null,
    frame,
    given: settings(ctx).steered ?? null,
  };
  root.classList.add("aw-steer");
  root.role = "group";
  on(slider, signal, { input: () => moved(state), dblclick: () => moveTo(state, 1) });
  signal.addEventListener("abort", () => clearTimeout(state.timer));
  return (changed) => onChange(state, changed);
});

function settings(ctx: ViewContext): SteerOptions {
  return ctx.options as SteerOptions;
}

function moveTo(state: SteerState, scale: number): void {
  state.slider.value = String(Number(scale.toFixed(1)));
  moved(state);
}

function moved(state: SteerState): void {
  clearTimeout(state.timer);
  state.timer = setTimeout(() => {
    state.rested = state.slider.valueAsNumber;
    update(state);
  }, RESTS);
  measure(state);
}

function feature(state: SteerState): number {
  return state.given ?? state.ctx.selection.get("feature") ?? 0;
}

/** Update everything that needs no request, while the slider moves. */
function measure(state: SteerState): void {
  const { slider, summary } = state;
  const scale = slider.valueAsNumber;
  setText(state.figure, scale === 0 ? ABLATED : scaleWords(scale));
  state.less.disabled = scale <= state.least;
  state.more.disabled = scale >= state.most;
  slider.setAttribute("aria-valuetext", `${scale} times its largest activation`);
  const answer = state.answers.get<{ maximum: number }>("reach", { feature: feature(state) });
  if (!answer) {
    setText(summary, "");
    return;
  }
  const [activations = [], lengths = []] = answer.buffers.map(floatsOf);
  const { maximum } = answer.meta;
  const size = relativeChange(scale, maximum, activations, lengths);
  const here = Math.max(0, ...activations);
  const [to, at] = [scale * maximum, here].map((value) => printed(value, false));
  setText(
    summary,
    `Set to ${to} on every token (${here ? `at most ${at}` : "it does not fire"} in this text) · |dh|/|h| ≈ ${printed(size, false)}`,
  );
  const words =
    size > FAR
      ? `The change is ${printed(size, false)} times as large as the states: the model is far from anything it has seen.`
      : scale > 1
        ? `Beyond the largest activation seen (${printed(maximum, false)}).`
        : scale < 0
          ? "Below zero: activations are never negative."
          : "";
  setText(state.warning, words);
}

function outcomes(state: SteerState, { rows = [] }: Steered): HTMLElement {
  const far = state.kind === "sentences";
  const print = (value: number | null): string => (far ? (value ?? 0).toFixed(3).replace("-", "−") : percent(value));
  const heading = far ? "similarity to (cosine)" : settings(state.ctx).predicted || "prediction";
  return beforeAfter(
    heading,
    rows.map(([label, before, after]) => ({ label, before, after })),
    print,
    far ? 90 : 40,
  );
}

function texts({ texts: sides = [] }: Steered): HTMLElement {
  return h(
    "div.steer-texts",
    ...sides.map((runs, i) =>
      h(
        "section",
        h("b", i ? "after" : "before"),
        h("p", { dir: "auto" }, ...runs.map(([run, differs]) => (differs ? h("mark", run) : run))),
      ),
    ),
  );
}

function update(state: SteerState): void {
  const { answers, body, kind, rested, frame } = state;
  const { kinds: all = [], held = {} } = settings(state.ctx);
  const sae = optionsOf(state.ctx).saes?.[0];
  const label = `feature ${nameOfFeature(sae, feature(state))}`;
  frame.show(sae?.site ?? "", `steer ${label}`);
  state.root.ariaLabel = `steering of ${label}`;
  measure(state);
  if (all.length === 0) {
    const words = "This model makes no predictions, and no sentences are given";
    frame.lacks({ kind: "none", words, advice: "Give some to compare with, as sentences=." });
    return;
  }
  const ask = (scale: number): Record<string, unknown> => ({ kind, feature: feature(state), scale });
  const retry = (): void => {
    answers.retry("reach");
    answers.again("steered");
  };
  let scale = rested;
  let answer = answers.get<Steered>("steered", ask(scale));
  let why = answers.failure("steered", ask(scale)) ?? answers.failure("reach", { feature: feature(state) });
  if (why && AFTER_A_PAGE.test(why)) {
    // A standalone page holds only some slider positions.
    scale = nearestOf(held[kind] ?? [], rested);
    answer = answers.get<Steered>("steered", ask(scale));
    const missing = answers.failure("steered", ask(scale));
    why = missing ?? (answer ? `Shown: ${scaleWords(scale)}, the nearest value stored in this page.` : why);
  }
  if (answer) frame.lacks(why ? { kind: "failed", words: why, part: true } : null);
  else if (why) frame.lacks(failed("prediction", why, retry));
  else frame.lacks(missingAnswer(answers, "steered", ask(scale), "prediction of the model"));
  if (answer) state.last = { answer, scale };
  const stateKey = JSON.stringify([state.last?.answer.meta, kind]);
  if (stateKey === state.drawnKey) return;
  state.drawnKey = stateKey;
  if (!state.last) {
    setChildren(body);
    return;
  }
  const { meta } = state.last.answer;
  setChildren(body, kind === "text" ? texts(meta) : outcomes(state, meta));
}

function onChange(state: SteerState, changed: ReadonlySet<Change>): void {
  if (!only(changed, "hover", "pinned", "tiles", "theme", "layer", "head", "unit", "method", "stack")) {
    if (changed.has("feature")) [state.last, state.given] = [null, null];
    update(state);
  }
}
