/**
 * Explanations as rows over a common axis, answered by a view's Python twin: cached until the next answer arrives,
 * filtered, and drawn on a common scale or on separate scales.
 */

import type { ViewContext } from "../../context.ts";
import { createWatch } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Axis } from "../../wire/wire.ts";
import { filtersOf, setFilters, standApart } from "../base/filters.ts";
import type { Frame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createRowFilters, rowsOf } from "../base/rowFilters.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { peak } from "../text/rowValues.ts";

/** The properties of the rows in an answer, without their values. */
interface RowsMeta {
  /** Which rows are signed; omitted if the values show it. */
  signed?: boolean[];
  /** Which rows sum to one. */
  shares: boolean[];
  /** Whether a common scale is meaningful for all rows. */
  alike: boolean;
}

type Scale = "own" | "one";

export interface ExplanationRows<T> {
  /** The element of the filter form, and the choice of scales. */
  form: HTMLElement;
  scales: HTMLElement;
  answers: Answers;
  /** The axis of the values. */
  axis(): Axis;
  /** The last answer with its rows; null before the first. */
  meta: T | null;
  rows: Float32Array[];
  /** The filtered rows (NaN: hidden); the same array while nothing changes. */
  shown: Float32Array[];
  /** The same without elements that stand apart (NaN). */
  content: Float32Array[];
  /** Which elements stand apart, without colour and without a part in the scale. */
  apart: readonly boolean[];
  /** The end of each row's scale, and whether the scale has two sides: the same for all rows on a common scale. */
  extents: { top: number; signed: boolean }[];
  /** Whether the current answer is still missing. */
  stale: boolean;
  /** Read the current answer if it has arrived; otherwise the view lacks it. */
  read(lacks: Frame["lacks"]): void;
  /** Update `shown` and the choice of scales after a change of filters. */
  trim(): void;
  /** Whether rows have separate scales. */
  hasSeparateScales(): boolean;
}

const SCALES: Record<Scale, string> = { own: "own scales", one: "one scale" };

/** The hovered element, otherwise the pinned element; -1: none. */
export function currentElement(ctx: ViewContext): number {
  const over = ctx.cell("hover")?.key ?? -1;
  return over >= 0 ? over : (ctx.cell("pinned")?.key ?? -1);
}

/** Request `topic` with `args`; `arrived` is called with each answer, `first` is the scale selected at first. */
export function createRows<T extends RowsMeta>(
  ctx: ViewContext,
  signal: AbortSignal,
  topic: string,
  args: () => Record<string, unknown>,
  arrived: () => void,
  first: Scale,
): ExplanationRows<T> {
  const filters = createRowFilters(ctx);
  const answers = createAnswers(ctx, signal, arrived);
  const isOther = createWatch();
  // The first key is the first choice.
  const choices = { [first]: "", ...SCALES } as typeof SCALES;
  const scales = createSegments("scale", choices, signal, () =>
    setFilters(ctx, { extent: scales.value() === "one" ? "all" : "map" }),
  );
  const axis = (): Axis => ctx.axisOf(ctx.source().key);
  const explanations: ExplanationRows<T> = {
    form: filters.element,
    scales: scales.element,
    answers,
    axis,
    meta: null,
    rows: [],
    shown: [],
    content: [],
    apart: [],
    extents: [],
    stale: false,
    read(lacks) {
      const request = args();
      const answer = answers.get<T>(topic, request);
      explanations.stale = !answer;
      lacks(answer ? null : missingAnswer(answers, topic, request, "values"));
      if (!answer) return;
      if (answer.meta === explanations.meta) return;
      const { meta } = answer;
      explanations.meta = meta;
      explanations.rows = rowsOf(answer, axis().labels.length);
      const signed = meta.signed?.some(Boolean) ?? explanations.rows.some((row) => row.some((value) => value < 0));
      filters.offer({ signed, stochastic: meta.shares.some(Boolean) });
    },
    trim() {
      const chosen = filtersOf(ctx);
      const { extent } = chosen;
      const shown = filters.of(explanations.rows, chosen, axis().special, explanations.meta?.shares ?? []);
      if (!isOther(shown, explanations.meta, axis(), chosen.special, extent)) return;
      explanations.shown = shown;
      scales.choose(extent === "all" || (explanations.meta?.alike && extent !== "map") ? "one" : "own");
      const apart = standApart(axis().special, chosen);
      explanations.apart = apart;
      explanations.content = explanations.shown.map((row) => row.map((value, key) => (apart[key] ? NaN : value)));
      const extents = explanations.content.map((row, i) => ({
        top: peak(row),
        signed: explanations.meta?.signed?.[i] ?? row.some((value) => value < 0),
      }));
      const all = { top: Math.max(0, ...extents.map(({ top }) => top)), signed: extents.some(({ signed }) => signed) };
      explanations.extents = scales.value() === "one" ? extents.map(() => all) : extents;
    },
    hasSeparateScales: () => scales.value() === "own",
  };
  return explanations;
}
