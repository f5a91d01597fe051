/** The data of a study from Python; the twin of attnwidgets/people/study_view.py. */

import type { ViewOptions } from "./viewState.ts";

/** Additional options of a StudyView. */
export interface StudyOptions extends ViewOptions {
  study: AskedStudy;
}

/** A study as people see it. */
export interface AskedStudy {
  hash: string;
  kind: "forced_choice" | "trust" | "which_model" | "forward" | "counterfactual" | "remove_words";
  heading: string;
  question: string;
  consent: string;
  /** The possible answers in a simulation. */
  labels: string[];
  between: boolean;
  conditions: string[];
  /** The cells of the design: the indices of a condition, or of two. */
  cells: number[][];
  items: AskedItem[];
  practice: AskedItem[];
  /** The requested answer of each attention check. */
  checks: unknown[];
  checkWords: string[];
  /** The code of the participant; null: the view draws a code. */
  code: string | null;
  package: string;
}

/** A text with its explanations, by condition: a single explanation, or one for each model. */
export interface AskedItem {
  id: string;
  words: string[];
  /** Whether a space precedes each word. */
  gaps: boolean[];
  shown: ShownExplanation[][];
  /** The prediction of the model, where it is shown; for two models both. */
  prediction: string[];
  changed: string;
  /** The right answer of a practice item; null: none, or it does not travel. */
  truth: unknown;
}

/** An explanation: values of words, or a sentence; neither means no explanation. */
export interface ShownExplanation {
  /** null: those of the item. */
  words: string[] | null;
  gaps: boolean[] | null;
  /** Between -1 and 1. */
  values: number[];
  text: string;
}
