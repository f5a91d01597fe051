/** A slider for one feature, how far it moves the states, and the predictions before and after. */

import { h, iconButton, on, reserve, setChildren, setText } from "../../dom.ts";
import { percent, printed } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { floatsOf } from "../../wire/buffers.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import { beforeAfter } from "../base/beforeAfter.ts";
import { createFrame } from "../base/frame.ts";
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

/** The element of `all` nearest to `wanted`. */
const nearestOf = (all: readonly number[], wanted: number): number =>
  all.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), all[0] ?? wanted);

export const renderSteerView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const settings = (): SteerOptions => ctx.options as SteerOptions;
  const [least = -2, most = 5] = settings().ends ?? [];
  const slider = h("input.range", {
    type: "range",
    min: String(least),
    max: String(most),
    step: String(STEP),
    value: "1",
    "aria-label": "feature, in units of its largest activation",
  });
  const figure = h("output");
  const less = iconButton(signal, "‹", "weaker", () => moveTo(slider.valueAsNumber - STEP));
  const more = iconButton(signal, "›", "stronger", () => moveTo(slider.valueAsNumber + STEP));
  const strength = h(
    "span.group.steer-strength",
    { role: "group", "aria-label": "strength", "data-needs-kernel": "" },
    less,
    slider,
    figure,
    more,
  );
  const said = h("div.line");
  const warning = h("div.warning", { role: "status" });
  const kinds = h("div.segments", { role: "radiogroup", "aria-label": "compare" });
  const body = h("div.steer-body", { role: "group", "aria-label": "before and after", tabindex: "0" });
  const name = `aw-${Math.random()}`;
  let kind: Kind = settings().kinds?.[0] ?? "outcomes";
  let rested = 1;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let drawnKey = "";
  let last: { answer: Answer<Steered>; scale: number } | null = null;

  reserve(figure, scaleWords(least + STEP), ABLATED);
  const words: Record<Kind, string> = {
    outcomes: "prediction",
    text: "generated text",
    sentences: "nearest sentences",
  };
  const offered = settings().kinds ?? [];
  if (offered.length > 1) {
    setChildren(
      kinds,
      ...offered.map((option) => {
        const radio = h("input", { type: "radio", name });
        radio.checked = option === kind;
        on(radio, signal, {
          change: () => {
            kind = option;
            last = null;
            update();
          },
        });
        return h("label.segment", radio, words[option]);
      }),
    );
  }
  const frame = createFrame(ctx, root, {
    controls: [strength, kinds],
    body: [h("div.steer-said", said, warning), body],
    hint: "Move the slider to strengthen the feature.",
  });
  root.classList.add("aw-steer");
  root.role = "group";
  const moveTo = (scale: number): void => {
    slider.value = String(Number(scale.toFixed(1)));
    moved();
  };
  const moved = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      rested = slider.valueAsNumber;
      update();
    }, RESTS);
    measure();
  };
  on(slider, signal, { input: moved, dblclick: () => moveTo(1) });
  signal.addEventListener("abort", () => clearTimeout(timer));

  /** The feature that the view was given, until the reader chooses another. */
  let given = settings().steered ?? null;
  const feature = (): number => given ?? ctx.selection.get("feature") ?? 0;

  /** What can be shown at once, while the slider moves. */
  const measure = (): void => {
    const scale = slider.valueAsNumber;
    setText(figure, scale === 0 ? ABLATED : scaleWords(scale));
    less.disabled = scale <= least;
    more.disabled = scale >= most;
    slider.setAttribute("aria-valuetext", `${scale} times its largest activation`);
    const answer = answers.get<{ maximum: number }>("reach", { feature: feature() });
    if (!answer) {
      setText(said, "");
      return;
    }
    const [activations = [], lengths = []] = answer.buffers.map(floatsOf);
    const { maximum } = answer.meta;
    const size = relativeChange(scale, maximum, activations, lengths);
    const here = Math.max(0, ...activations);
    const [to, at] = [scale * maximum, here].map((value) => printed(value, false));
    setText(
      said,
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
    setText(warning, words);
  };

  const outcomes = ({ rows = [] }: Steered): HTMLElement => {
    const far = kind === "sentences";
    const print = (value: number | null): string => (far ? (value ?? 0).toFixed(3).replace("-", "−") : percent(value));
    const what = far ? "similarity to (cosine)" : settings().predicted || "prediction";
    return beforeAfter(
      what,
      rows.map(([label, before, after]) => ({ label, before, after })),
      print,
      far ? 90 : 40,
    );
  };

  const texts = ({ texts: sides = [] }: Steered): HTMLElement =>
    h(
      "div.steer-texts",
      ...sides.map((runs, i) =>
        h(
          "section",
          h("b", i ? "after" : "before"),
          h("p", { dir: "auto" }, ...runs.map(([run, differs]) => (differs ? h("mark", run) : run))),
        ),
      ),
    );

  const update = (): void => {
    const { kinds: all = [], held = {} } = settings();
    const sae = optionsOf(ctx).saes?.[0];
    const label = `feature ${nameOfFeature(sae, feature())}`;
    frame.show(sae?.site ?? "", `steer ${label}`);
    root.ariaLabel = `steering of ${label}`;
    measure();
    if (all.length === 0) {
      const words = "This model makes no predictions, and no sentences are given";
      frame.lacks({ kind: "none", words, advice: "Give some to compare with, as sentences=." });
      return;
    }
    const ask = (scale: number): Record<string, unknown> => ({ kind, feature: feature(), scale });
    const retry = (): void => {
      answers.retry("reach");
      answers.again("steered");
    };
    let scale = rested;
    let answer = answers.get<Steered>("steered", ask(scale));
    let why = answers.failure("steered", ask(scale)) ?? answers.failure("reach", { feature: feature() });
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
    if (answer) last = { answer, scale };
    const stateKey = JSON.stringify([last?.answer.meta, kind]);
    if (stateKey === drawnKey) return;
    drawnKey = stateKey;
    if (!last) {
      setChildren(body);
      return;
    }
    const { meta } = last.answer;
    setChildren(body, kind === "text" ? texts(meta) : outcomes(meta));
  };
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles", "theme", "layer", "head", "unit", "method", "stack")) {
      if (changed.has("feature")) [last, given] = [null, null];
      update();
    }
  };
});
