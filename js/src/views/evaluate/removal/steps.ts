/** The prediction without the top k tokens, or with these alone, for every k, as answered by Python. */

import { shortLabel } from "../../../dom.ts";
import { percent, printed } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import { doublesOf } from "../../../wire/buffers.ts";
import { plural } from "../../base/navigation.ts";

/** The top k are removed, or kept alone. */
export type Mode = "gone" | "kept";

/** A number for every step. */
export type Curves = Record<Mode, number[]>;

/** The twin of `Removals._steps` in attnwidgets/views/evaluate/handlers.py. */
interface StepsAnswer {
  operator: string;
  operators: [name: string, refusal: string][];
  target: string;
  title: string;
  score: "probability" | "number";
  steps: number[];
  order: number[];
  outcomes: [index: number, label: string][];
  standIn: string;
}

/** The predictions that random and single removals leave. The twin of `Removals._baselines`. */
interface Baselines {
  steps: number[];
  draws: number;
  mean: Curves;
  low: Curves;
  high: Curves;
  best: Curves;
}

export interface Removal extends StepsAnswer {
  /** The arguments that it answers. */
  requestKey: string;
  values: Curves;
  /** The index of the predicted outcome (NaN: none) and its probability. */
  decided: Curves;
  certainty: Curves;
  /** The explanation's value of every token. */
  weights: number[];
  /** Null until they arrive. */
  baselines: Baselines | null;
}

const doubles = (view: DataView | undefined): number[] => (view ? doublesOf(view) : []);

function curvesOf(view: DataView | undefined): Curves {
  const numbers = doubles(view);
  const middle = numbers.length / 2;
  return { gone: numbers.slice(0, middle), kept: numbers.slice(middle) };
}

/** The removal if it is here, otherwise requested; then the topic that is missing, and why it failed. */
export function removalAt(
  answers: Answers,
  question: Record<string, unknown>,
): [removal: Removal | null, topic: string, failure: string | undefined] {
  const answer = answers.get<StepsAnswer>("removal", question);
  const failure = answers.failure("removal", question);
  const { source, target, operator } = question;
  const others = { source, target, operator };
  const drawn = answer && answers.get<Pick<Baselines, "steps" | "draws">>("removal_baselines", others);
  const why = failure ?? answers.failure("removal_baselines", others);
  if (!answer) return [null, "removal", why];
  const [values, decided, certainty, weights] = answer.buffers;
  const [mean, low, high, best] = (drawn?.buffers ?? []).map(curvesOf);
  const removal: Removal = {
    ...answer.meta,
    requestKey: JSON.stringify(question),
    values: curvesOf(values),
    decided: curvesOf(decided),
    certainty: curvesOf(certainty),
    weights: doubles(weights),
    baselines: drawn && mean && low && high && best ? { ...drawn.meta, mean, low, high, best } : null,
  };
  return [removal, "removal_baselines", why];
}

/** The value with all tokens. */
export const valueWithAll = ({ values }: Removal): number => values.gone[0] ?? NaN;

/** A value of the target, formatted. */
export const valueWords = ({ score }: Pick<Removal, "score">, value = NaN): string =>
  Number.isNaN(value) ? "–" : score === "probability" ? percent(value) : printed(value, true);

/** A value of the target with all digits that a reader may want; never rounded to 0 or 1. */
export function exactWords({ score }: Pick<Removal, "score">, value = NaN): string {
  if (Number.isNaN(value)) return "–";
  if (score !== "probability") return printed(value, true);
  const text = value.toFixed(4);
  return text === "0.0000" && value > 0 ? "< 0.0001" : text === "1.0000" && value < 1 ? "> 0.9999" : text;
}

/** How much more or less is left than with all: "−90 points". */
export function dropWords({ score }: Pick<Removal, "score">, by: number): string {
  if (score !== "probability") return `${by > 0 ? "+" : ""}${printed(by, true)}`;
  const points = Math.abs(100 * by);
  const text = points >= 10 ? points.toFixed(0) : points.toFixed(1);
  return `${Number(text) === 0 ? "±" : by < 0 ? "−" : "+"}${text} points`;
}

/** The elements that are left out, or kept alone, after k: "without “dull”"; "" for the whole text. */
export function withoutWords(mode: Mode, k: number, unit: string, first: string): string {
  if (k === 0) return mode === "kept" ? "with nothing" : "";
  return `${mode === "kept" ? "only" : "without"} ${k === 1 ? first : `the top ${k} ${plural(unit)}`}`;
}

/** The outcome predicted at a step and its probability; null if unknown. */
export function predictedAt(removal: Removal, mode: Mode, step: number): { label: string; certainty: string } | null {
  const index = removal.decided[mode][step];
  const label = removal.outcomes.find(([number]) => number === index)?.[1];
  return label === undefined
    ? null
    : { label: shortLabel(label, 40), certainty: percent(removal.certainty[mode][step] ?? 0) };
}
