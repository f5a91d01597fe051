/** The predictions before and after, side by side. */

import type { ViewContext } from "../../context.ts";
import { h, setChildren, setFlag, setText, shortLabel } from "../../dom.ts";
import { percent, printed } from "../../numbers.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { beforeAfter, type Outcome } from "../base/beforeAfter.ts";
import type { NumberAddress } from "../base/copyPython.ts";
import { createProgress, type Missing, missingAnswer } from "../base/missing.ts";
import { only, view } from "../base/view.ts";
import { specsOf } from "./list.ts";

/** The twin of `Intervening._changed` in attnwidgets/views/interventions/intervention_view.py. */
export interface Changed {
  kind: "distribution" | "several" | "score" | "states" | "";
  title: string;
  count: number;
  distance: number | null;
  likeness: number | null;
  rows: [id: number, label: string, before: number, after: number][];
}

export const NOT_HERE = /not in this file/;
const FEW = 8;

/**
 * Why the answer to a request is missing; null if it is complete. `away`: the message of a file without such an answer.
 */
export function lacking(
  answers: Answers,
  topic: string,
  args: Record<string, unknown>,
  subject: string,
  away: string,
): Missing | null {
  if (answers.get(topic, args)) return null;
  if (NOT_HERE.test(answers.failure(topic, args) ?? "")) return { kind: "failed", words: away };
  return missingAnswer(answers, topic, args, subject);
}

export interface Change {
  element: HTMLElement;
  /** Request the effect of the active interventions, and show it; without any, the predictions as recorded. */
  show(): void;
  /** The address of the probability of the now most probable outcome; null if none is shown. */
  numberAddress(): NumberAddress | null;
  /** That probability in words, for the readout. */
  words(): string;
}

/**
 * The arguments of the request about the active interventions; they include the target in case it is not among the top
 * outcomes.
 */
function requestChange(ctx: ViewContext, answers: Answers): { args: Record<string, unknown>; change: Changed | null } {
  const args = { interventions: specsOf(ctx) };
  const change = answers.get<Changed>("changed", args)?.meta ?? null;
  const target = ctx.selection.get("target");
  if (!change || !target || change.count <= target.id || change.rows.some(([id]) => id === target.id)) {
    return { args, change: change };
  }
  const more = { ...args, target: target.id };
  return { args: more, change: answers.get<Changed>("changed", more)?.meta ?? change };
}

/** "the prediction changed by 0.034", for any kind of model output. */
export function distanceWords(change: Changed): string {
  const size = printed(change.distance ?? NaN, false);
  if (change.kind === "states") return `the states moved by |Δh| / |h| = ${size}`;
  return `the prediction changed by ${size}`;
}

const MEANT: Record<string, string> = {
  distribution: "Total variation distance of before and after: NUMBER (0: the same, 1: nothing in common).",
  several: "The largest change of a probability is NUMBER.",
  score: "The largest change is NUMBER.",
  states: "The model of this trace makes no predictions. Its last states moved by |Δh| / |h| = NUMBER.",
};

/** The outcomes of the model as recorded and changed, with the most probable of each. */
function showTable(ctx: ViewContext, body: HTMLElement, { rows, title, kind }: Changed): void {
  if (rows.length === 0 || kind === "score") {
    setChildren(body);
    return;
  }
  const [was, is] = [largest(rows, 2), largest(rows, 3)];
  const chosen = ctx.selection.get("target");
  const shown = rows.filter((row, i) => i < FEW || row === was || row === is || row[0] === chosen?.id);
  const outcomes = shown.map((row): Outcome => {
    const [id, label, before, after] = row;
    const marks = [
      row === was && row !== is ? "was first" : "",
      row === is && row !== was ? "now first" : "",
      id === chosen?.id ? "target" : "",
    ];
    return { label, before, after, mark: marks.filter(Boolean).join(", "), turned: row === is && row !== was };
  });
  setChildren(body, beforeAfter(title || "outcome", outcomes, percent));
}

export function createChange(ctx: ViewContext, answers: Answers): Change {
  const state = createProgress(ctx.signal);
  const [best, distance, target] = [h("div"), h("div"), h("div")];
  const summary = h("div.change-words", { role: "status" }, best, target, distance);
  const body = h("div.change-body");
  const element = h("div.change", body, summary, state.element);
  let last: Changed | null = null;
  let drawnKey = "";

  const showWords = (change: Changed): void => {
    const { rows, kind } = change;
    const size = printed(change.distance ?? NaN, false);
    const like =
      change.likeness === null
        ? ""
        : ` The mean of its tokens has a cosine of ${digits(change.likeness)} with the one before.`;
    setText(distance, (MEANT[kind] ?? "This model has no predictions to compare.").replace("NUMBER", size) + like);
    const [was, is] = [2, 3].map((side) => largest(rows, side as 2 | 3));
    if (kind === "score")
      setText(
        best,
        rows.map((row) => `${name(row)}: ${printed(row[2], false)} → ${printed(row[3], false)}`).join(" · "),
      );
    else if (!was || !is) setText(best, "");
    else if (was[0] === is[0]) setText(best, `still ${name(was)}: ${percent(was[2])} → ${percent(was[3])}`);
    else
      setText(
        best,
        `${name(was)} (${percent(was[2])}) is no longer the most probable: now ${name(is)} (${percent(is[3])})`,
      );
    setFlag(best, "data-turned", Boolean(was && is && was[0] !== is[0]));
    const chosen = ctx.selection.get("target");
    const row = rows.find(([id]) => id === chosen?.id);
    setText(target, row && row !== was ? `target ${name(row)}: ${percent(row[2])} → ${percent(row[3])}` : "");
  };

  /** The predictions before any change. */
  const recorded = (): void => {
    const { title, items } = ctx.header().predictions;
    const shown = items.slice(0, FEW).map(({ label, probability }) => ({ label, before: probability, after: null }));
    setText(best, "");
    setText(target, "");
    setText(distance, shown.length ? "" : "The model of this trace makes no predictions.");
    setChildren(body, ...(shown.length ? [beforeAfter(title || "outcome", shown, percent)] : []));
  };

  return {
    element,
    numberAddress() {
      const now = last && largest(last.rows, 3);
      const isProbability = last?.kind === "distribution" || last?.kind === "several";
      if (specsOf(ctx).length > 0) {
        return now && isProbability ? { of: "changed", interventions: specsOf(ctx), id: now[0] } : null;
      }
      const [first] = ctx.header().predictions.items;
      return first?.probability ? { of: "outcome", id: first.id } : null;
    },
    words() {
      const now = last && largest(last.rows, 3);
      if (now && last?.kind !== "states") return `${name(now)} ${now[2].toFixed(4)} → ${now[3].toFixed(4)}`;
      if (last) return distanceWords(last);
      const [first] = specsOf(ctx).length > 0 ? [] : ctx.header().predictions.items;
      return first ? `${shortLabel(first.label, 30)} ${first.probability?.toFixed(4) ?? ""} · as recorded` : "";
    },
    show() {
      if (specsOf(ctx).length === 0) {
        last = null;
        state.show(null);
        setFlag(element, "data-stale", false);
        const stateKey = JSON.stringify(ctx.header().predictions);
        if (stateKey !== drawnKey) recorded();
        drawnKey = stateKey;
        return;
      }
      const { args, change: answer } = requestChange(ctx, answers);
      const why = answers.failure("changed", args) ?? "";
      const away = "The predictions after this change are not in this file: they need a running kernel.";
      state.show(answer ? null : lacking(answers, "changed", args, "predictions after this change", away));
      if (answer) last = answer;
      else if (why) last = null;
      setFlag(element, "data-stale", !answer && !why);
      const stateKey = JSON.stringify([last, ctx.selection.get("target")?.id, Boolean(why)]);
      if (stateKey === drawnKey) return;
      drawnKey = stateKey;
      if (last) {
        showWords(last);
        showTable(ctx, body, last);
      } else if (why) {
        for (const line of [best, target, distance]) setText(line, "");
        setChildren(body);
      }
    },
  };
}

const name = ([, label]: Changed["rows"][0]): string => `\u2068${shortLabel(label, 30)}\u2069`;

const largest = (rows: Changed["rows"], side: 2 | 3): Changed["rows"][0] | undefined =>
  rows.reduce<Changed["rows"][0] | undefined>((most, row) => (most && most[side] >= row[side] ? most : row), undefined);

/** A cosine near 1, with enough digits to show its difference from 1. */
const digits = (value: number): string =>
  value > 0.999 && value < 1 ? `1 − ${printed(1 - value, false)}` : printed(value, false);

/** Before and after alone, hidden while nothing is active. */
export const renderChangedPrediction = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => change.show());
  const change = createChange(ctx, answers);
  setChildren(root, change.element);
  return (changed) => {
    if (changed.has("interventions")) answers.retry("changed");
    if (!only(changed, "hover", "pinned", "tiles", "layer", "head")) change.show();
    root.hidden = specsOf(ctx).length === 0;
  };
});
