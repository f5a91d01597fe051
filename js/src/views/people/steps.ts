/** The steps of a person through a study: practice, then items in their order, with attention checks among them. */
import type { AskedItem, AskedStudy } from "../../wire/studies.ts";
import type { Role, Row } from "./payload.ts";
import { assignmentOf, checkPositions, turnsOf } from "./schedule.ts";

export interface Step {
  role: Role;
  /** Number of the item, or of the check. */
  at: number;
  cell: number;
  side: number;
  /** Among those of its role. */
  position: number;
}

/** A choice of a step: its value, and its words. */
export interface Choice {
  value: unknown;
  words: string;
}

const TRUST = ["not at all", "a little", "moderately", "mostly", "completely"];
const SIDES = ["first", "second"];

export function stepsOf(study: AskedStudy, code: string): Step[] {
  const [items, cells] = [study.items.length, study.cells.length];
  const turns = turnsOf(assignmentOf(code, study.hash, items, cells), items, cells, study.between);
  const after = checkPositions(items, study.checks.length);
  const practice = study.practice.map(
    (_, at): Step => ({ role: "practice", at, cell: at % cells, side: 0, position: at }),
  );
  const rest = turns.flatMap(({ item, cell, side }, position): Step[] => [
    { role: "item", at: item, cell, side, position },
    ...after.flatMap((count, at): Step[] =>
      count === position + 1 ? [{ role: "check", at, cell: 0, side: 0, position: at }] : [],
    ),
  ]);
  return [...practice, ...rest];
}

export const itemOf = (study: AskedStudy, step: Step): AskedItem | undefined =>
  (step.role === "practice" ? study.practice : step.role === "item" ? study.items : [])[step.at];

/** The choices of a step; in `remove_words`, words of a text are marked instead. */
export function choicesOf(study: AskedStudy): Choice[] {
  if (study.kind === "remove_words") return [];
  if (study.kind === "trust") return TRUST.map((words, i) => ({ value: i + 1, words }));
  if (study.labels.length > 0) return study.labels.map((value) => ({ value, words: value }));
  return SIDES.map((value) => ({ value, words: `the ${value}` }));
}

/** The request of a check, in words. */
export function checkWords(study: AskedStudy, at: number): string {
  const expected = study.checks[at];
  if (study.kind === "remove_words") return "An attention check: follow the instructions in the text.";
  const choice = choicesOf(study).find(({ value }) => value === expected);
  return `An attention check: please choose “${choice?.words ?? expected}”.`;
}

/** The right answer of a practice item, in words; "" without a right answer. */
export function instruction(study: AskedStudy, step: Step): string {
  const item = itemOf(study, step);
  if (step.role !== "practice" || !item || item.truth === null) return "";
  if (study.kind === "which_model") return `The better model is the ${SIDES[(item.truth as number) ^ step.side]}.`;
  if (study.kind === "remove_words")
    return `To be removed: ${(item.truth as number[]).map((index) => `“${item.words[index]}”`).join(", ")}.`;
  return `The model answers “${item.truth}”.`;
}

/** The row of an answer; `first` and `ms` are times since the step was shown. */
export function rowOf(study: AskedStudy, step: Step, answer: unknown, first: number | null, ms: number): Row {
  const [left, right] = step.role === "check" ? [] : (study.cells[step.cell] ?? []);
  const name = (condition: number | undefined): string =>
    condition === undefined ? "" : (study.conditions[condition] ?? "");
  const id = step.role === "check" ? `check ${step.at}` : (itemOf(study, step)?.id ?? "");
  const capped = (time: number): number => Math.min(999_999, Math.round(time));
  return [
    step.role,
    id,
    name(left),
    name(right),
    step.position,
    step.side,
    answer,
    first === null ? null : capped(first),
    capped(ms),
  ];
}
