/** Scores as Python sends them, and which of them are shown. */

import type { Theme } from "../../../colour.ts";
import { printed } from "../../../numbers.ts";
import { type Look, lookOf } from "../../charts/lineChart.ts";

export type Score = number | null;

/** The twin of `described` in attnwidgets/views/evaluate/scorecard_view.py. */
export interface Card {
  name: string;
  title: string;
  model: string;
  examples: number;
  level: number;
  warning: string;
  axis: string;
  places: (number | string)[];
  remarks: string[];
  metrics: [name: string, direction: string][];
  rows: [name: string, baseline: boolean][];
  /** [metric][row][position] */
  mean: Score[][][];
  low: Score[][][];
  high: Score[][][];
  count: number[][][];
  /** mean, low, high [metric][row] over all positions. */
  whole: Score[][][];
}

export interface ScorecardOptions {
  cards: Card[];
  metric: string;
  hidden: string[];
  title: string;
}

/** A metric: its name, its direction and its scores, [row][position] and over all positions. */
export interface Shown {
  card: Card;
  metric: string;
  way: string;
  mean: Score[][];
  low: Score[][];
  high: Score[][];
  count: number[][];
  /** mean, low, high [row] */
  whole: Score[][];
  /** Rows that are not hidden. */
  shown: number[];
  /** Styles of all rows: methods by hue, then dash; baselines in the page's text colour. */
  looks: Look[];
  /** Whether there are several positions, so that rows are curves. */
  isCurve: boolean;
}

export const UNKNOWN = "undefined";

export const wordsOf = (name: string): string => name.replaceAll("_", " ");
export const numberOf = (value: Score | undefined): number => value ?? NaN;
export const numbersOf = (values: readonly Score[]): number[] => values.map(numberOf);

/** Three decimals, so that columns can be compared; smaller values have two digits. */
export const scoreWords = (value: Score | undefined): string => {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  return size >= 0.01 && size < 100 ? value.toFixed(3).replace("-", "−") : printed(value, false);
};

/** "0.1 to 0.2"; `none` without an interval. */
export const intervalWords = (low: Score | undefined, high: Score | undefined, none: string): string =>
  low === null || low === undefined ? none : `${scoreWords(low)} to ${scoreWords(high)}`;

export function shownOf({ cards, metric: metricName, hidden }: ScorecardOptions, theme: Theme): Shown {
  const indexIn = ({ metrics }: Card): number => metrics.findIndex(([name]) => name === metricName);
  const card = cards.find((candidate) => indexIn(candidate) >= 0) ?? (cards[0] as Card);
  const at = Math.max(0, indexIn(card));
  const { metrics, rows, places } = card;
  const [metric, way] = metrics[at] as [string, string];
  const scores = <T>(of: T[][][]): T[][] => of[at] as T[][];
  let [methods, others] = [0, 0];
  return {
    card,
    metric,
    way,
    mean: scores(card.mean),
    low: scores(card.low),
    high: scores(card.high),
    count: scores(card.count),
    whole: card.whole.map((part) => part[at] as Score[]),
    shown: [...rows.keys()].filter((row) => {
      const [name, baseline] = rows[row] as Card["rows"][number];
      return baseline || !hidden.includes(name);
    }),
    looks: rows.map(([, baseline]): Look => {
      if (!baseline) return lookOf(methods++, theme);
      return { stroke: "currentColor", dash: ["7 4", "2 3", "10 3 2 3"][others++ % 3] as string };
    }),
    isCurve: places.length > 1,
  };
}
