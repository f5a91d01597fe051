/** What Python says of a study; the twin of attnwidgets/people/study_view.py. */

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
  /** What can be answered in a simulation. */
  labels: string[];
  between: boolean;
  conditions: string[];
  /** What an item can be shown in: places of one condition, or of two. */
  cells: number[][];
  items: AskedItem[];
  practice: AskedItem[];
  /** What each attention check asks to answer. */
  checks: unknown[];
  checkWords: string[];
  /** The person's code; null: the view draws one. */
  code: string | null;
  package: string;
}

/** One text with its explanations, by condition, one or one a model. */
export interface AskedItem {
  id: string;
  words: string[];
  /** Whether a space stands before each word. */
  gaps: boolean[];
  shown: ShownExplanation[][];
  /** What the model answered, where it is shown; of two models both. */
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
