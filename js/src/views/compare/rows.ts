/**
 * Explanations read as rows over one axis, as a view's Python side tells them: kept while the next ones are on their
 * way, without what the filters leave out, and drawn on one scale or each on its own.
 */

import type { ViewContext } from "../../context.ts";
import { flag } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Axis } from "../../wire/wire.ts";
import { filtersOf, setFilters } from "../base/filters.ts";
import { createRowFilters, rowsOf } from "../base/rowFilters.ts";
import { createSegments } from "../base/segmentedControl.ts";
import type { Readout } from "../base/view.ts";

/** What is said of rows beside their values. */
interface Said {
  /** Which rows have signs; left out where their values tell. */
  signed?: boolean[];
  /** Which rows are shares of one. */
  shares: boolean[];
  /** Whether all can be read on one scale. */
  alike: boolean;
}

type Scale = "own" | "one";

export interface Told<T> {
  /** Where the filters' form stands, and the choice of scales. */
  form: HTMLElement;
  scales: HTMLElement;
  answers: Answers;
  /** What the rows are values of. */
  axis(): Axis;
  /** What was told last, with its rows; null before anything was. */
  meta: T | null;
  rows: Float32Array[];
  /** Rows with NaN for what the filters leave out: the same array while nothing changes. */
  shown: Float32Array[];
  /** Whether what is looked at is not here yet. */
  stale: boolean;
  /** Read what is looked at, if it is here; else `element` is stale, and `readout` says why. */
  read(element: HTMLElement, readout: Readout): void;
  /** Bring `shown` and the choice of scales up to date with the filters. */
  trim(): void;
  /** Whether each row has a scale of its own. */
  isOwn(): boolean;
}

const SCALES: Record<Scale, string> = { own: "each its own scale", one: "one scale for all" };

/** The element under the pointer, or else the pinned one; -1: none. */
export function lookedAt(ctx: ViewContext): number {
  const over = ctx.cell("hover")?.key ?? -1;
  return over >= 0 ? over : (ctx.cell("pinned")?.key ?? -1);
}

/** Ask for `topic` about `args`; `arrived` is called with what comes, `first` is the scale offered first. */
export function createTold<T extends Said>(
  ctx: ViewContext,
  signal: AbortSignal,
  topic: string,
  args: () => Record<string, unknown>,
  arrived: () => void,
  first: Scale,
): Told<T> {
  const filters = createRowFilters(ctx);
  const answers = createAnswers(ctx, signal, arrived);
  // The first key is the first choice.
  const choices = { [first]: "", ...SCALES } as typeof SCALES;
  const scales = createSegments("scale", choices, signal, () =>
    setFilters(ctx, { extent: scales.value() === "one" ? "all" : "map" }),
  );
  const axis = (): Axis => ctx.axisOf(ctx.source().key);
  const told: Told<T> = {
    form: filters.element,
    scales: scales.element,
    answers,
    axis,
    meta: null,
    rows: [],
    shown: [],
    stale: false,
    read(element, readout) {
      const wanted = args();
      const answer = answers.get<T>(topic, wanted);
      told.stale = !answer;
      flag(element, "data-stale", !answer);
      if (!answer) {
        const { text, done, total } = answers.job(topic) ?? { text: "reading" };
        const why = answers.failure(topic, wanted);
        readout.show(why ?? `${text || "computing"} ${total ? `${done} of ${total}` : "…"}`, Boolean(why));
        return;
      }
      if (answer.meta === told.meta) return;
      const { meta } = answer;
      told.meta = meta;
      told.rows = rowsOf(answer, axis().labels.length);
      const signed = meta.signed?.some(Boolean) ?? told.rows.some((row) => row.some((value) => value < 0));
      filters.offer({ signed, stochastic: meta.shares.some(Boolean) });
    },
    trim() {
      const chosen = filtersOf(ctx);
      const { extent } = chosen;
      told.shown = filters.of(told.rows, chosen, axis().special, told.meta?.shares ?? []);
      scales.choose(extent === "all" || (told.meta?.alike && extent !== "map") ? "one" : "own");
    },
    isOwn: () => scales.value() === "own",
  };
  return told;
}
