/** The prediction without the top k tokens, or with these alone, for every k, as answered by Python. */

import { shortLabel } from "../../../dom.ts";
import { printed } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import { doublesOf } from "../../../wire/buffers.ts";
import { percent } from "../../text/predictions/percent.ts";

/** The top k are removed, or kept alone. */
export type Mode = "gone" | "kept";

/** One number for every step. */
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

/** What chance and single removals leave. The twin of `Removals._baselines`. */
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
  const beside = answer && answers.get<Pick<Baselines, "steps" | "draws">>("removal_baselines", others);
  const why = failure ?? answers.failure("removal_baselines", others);
  if (!answer) return [null, "removal", why];
  const [values, decided, certainty, weights] = answer.buffers;
  const [mean, low, high, best] = (beside?.buffers ?? []).map(curvesOf);
  const removal: Removal = {
    ...answer.meta,
    requestKey: JSON.stringify(question),
    values: curvesOf(values),
    decided: curvesOf(decided),
    certainty: curvesOf(certainty),
    weights: doubles(weights),
    baselines: beside && mean && low && high && best ? { ...beside.meta, mean, low, high, best } : null,
  };
  return [removal, "removal_baselines", why];
}

/** The value with all tokens. */
export const valueWithAll = ({ values }: Removal): number => values.gone[0] ?? NaN;

/** A value of the target, formatted. */
export const valueWords = ({ score }: Removal, value = NaN): string =>
  Number.isNaN(value) ? "–" : score === "probability" ? percent(value) : printed(value, true);

/** The outcome predicted at a step, if known, after the words `before`. */
export function predictedWords(removal: Removal, mode: Mode, step: number, before: string): string {
  const index = removal.decided[mode][step];
  const label = removal.outcomes.find(([number]) => number === index)?.[1];
  return label === undefined ? "" : `${before}${shortLabel(label, 40)} ${percent(removal.certainty[mode][step] ?? 0)}`;
}
