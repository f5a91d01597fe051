/** The data of a question from Python; the twin of attnwidgets/ask. */

import type { ViewOptions } from "./viewState.ts";

/** Additional options of a Question. */
export interface QuestionOptions extends ViewOptions {
  question: AskedQuestion & Shown;
  /** The views that it shows inside: name, and a reference to the model. */
  inner: { name: string; model: string }[];
}

/** A question, its answer, and the feedback on it. */
export interface AskedQuestion {
  prompt: string;
  /** The label next to the points. */
  about: string;
  points: number;
  /** The items that can be chosen or put into an order; null: anything. */
  choices: string[] | null;
  multiple: boolean;
  /** The least number that can be an answer; null: any. */
  least: number | null;
  record: AnswerRecord;
  /** A fingerprint of the model that it is about, of which subjects are made; empty without a model. */
  model: string[];
  /** Where the answer is stored, in words; "": nowhere. */
  saved: string;
  /** A problem to report to the reader, or "". */
  problem: string;
  /** The teacher's feedback; `right` is null where it leaves that open. */
  feedback: string;
  right: boolean | null;
}

/** Added by a live page: the subject of the shown text, if it is not that of the recorded text. */
interface Shown {
  subject?: string | null;
}

/** The record of an answer; its twin is attnwidgets/course/records.py. */
export interface AnswerRecord {
  v: number;
  id: string;
  kind: string;
  /** null: not answered. */
  value: unknown;
  unit: string | null;
  /** Hash of the model and text that the question is about. */
  subject: string | null;
  package: string;
}
