/** Which features fire on the elements of a text: Python's answer, decoded once. */
import type { ViewContext } from "../../context.ts";
import type { Answers } from "../../wire/answers.ts";
import { floatsOf, wholesOf } from "../../wire/buffers.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import { axisOfText, optionsOf, shownSae } from "./features.ts";

export interface Fired {
  feature: number;
  activation: number;
}

/** Which features fire on which elements of a text, in a unit. */
export interface Activations {
  unit: string;
  /** The features that fire on each element, strongest first. */
  fired: Fired[][];
  /** The largest activation of every feature that fires, special tokens excluded. */
  largest: Map<number, number>;
  of(feature: number): number[];
}

const DECODED = new WeakMap<object, Activations>();

function decoded(
  { meta, buffers }: Answer<{ unit: string }>,
  special: readonly number[],
  skipsFirst: boolean,
): Activations {
  const cached = DECODED.get(meta);
  if (cached) return cached;
  const [ends = [], features = []] = buffers.slice(0, 2).map(wholesOf);
  const values = buffers[2] ? floatsOf(buffers[2]) : [];
  const fired = ends.map((end, i) =>
    features.slice(ends[i - 1] ?? 0, end).map(
      (feature, j): Fired => ({
        feature,
        activation: values[(ends[i - 1] ?? 0) + j] as number,
      }),
    ),
  );
  const largest = new Map<number, number>();
  fired.forEach((row, i) => {
    if (special[i] || (skipsFirst && i === 0)) return;
    for (const { feature, activation } of row) {
      largest.set(feature, Math.max(activation, largest.get(feature) ?? 0));
    }
  });
  const of = (feature: number): number[] => fired.map((row) => row.find((f) => f.feature === feature)?.activation ?? 0);
  const activations = { unit: meta.unit, fired, largest, of };
  DECODED.set(meta, activations);
  return activations;
}

/** The activations on the text, once they arrive. */
export function activationsOf(ctx: ViewContext, answers: Answers): Activations | undefined {
  const of = shownSae(ctx);
  const sae = optionsOf(ctx).saes?.[of];
  if (!sae?.onText) return undefined;
  const { axis, unit } = axisOfText(ctx, sae);
  const answer = answers.get<{ unit: string }>("activations", { of, unit });
  return answer && decoded(answer, axis.special, sae.skipsFirst);
}
