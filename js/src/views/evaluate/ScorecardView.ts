/**
 * Scores of methods compared with chance and an oracle: curves, one of them with its interval, for a metric at a time,
 * and a table of means. All data are in the view's options; nothing is requested.
 */

import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, onResize, setText } from "../../dom.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { only, view } from "../base/view.ts";
import { createFigure, type Figure } from "../charts/figure.ts";
import type { Chart } from "../charts/lineChart.ts";
import { createMethodChips, type MethodChips } from "./scorecard/chips.ts";
import { drawCurves, nearestAt } from "./scorecard/curves.ts";
import { drawPoints } from "./scorecard/points.ts";
import { type ScorecardOptions, type Shown, shownOf, UNKNOWN, wordsOf } from "./scorecard/scores.ts";
import { createScoreTable, type ScoreTable } from "./scorecard/table.ts";
import { wordsAt } from "./scorecard/words.ts";

/** Heights in px of the curves next to the table and above it, and the smallest width of the former layout. */
const [TALL, LOW, WIDE] = [300, 190, 960];

/** The elements of the view, and the state that they show. */
interface ScorecardState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly metrics: Menu;
  readonly direction: HTMLSpanElement;
  readonly chips: MethodChips;
  readonly figure: Figure;
  readonly table: ScoreTable;
  readonly warning: HTMLDivElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  /** The scores of the chosen metric, as they are drawn. */
  scores: Shown;
  /** The axes of the curves; null: points are drawn. */
  chart: Chart | null;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  /** The hovered and the pinned position; -1: the mean over all. */
  hovered: number;
  pinned: number;
  /** The name of the row whose value is read. */
  chosen: string;
}

export const renderScorecardView = view((ctx, root, signal) => {
  const metrics = createMenu("metric", signal, (name) => {
    state.hovered = state.pinned = -1;
    set(ctx, { metric: name });
  });
  const direction = h("span.dim.scores-way.clip");
  const chips = createMethodChips(
    signal,
    () => settings(ctx).hidden,
    (hidden) => set(ctx, { hidden }),
  );
  const figure = createFigure();
  const { plot, picture } = figure;
  const table = createScoreTable(signal, (name) => {
    state.chosen = name;
    paint(state);
  });
  const warning = h("div.warning", { role: "note" });
  const copy = createCopyButton(ctx, signal, () => {
    const row = rowOf(state);
    const score =
      state.scores.isCurve && state.pinned < 0
        ? state.scores.whole[0]?.[row]
        : state.scores.mean[row]?.[Math.max(0, state.pinned)];
    if (score === null || score === undefined) return null;
    const position = state.scores.isCurve ? state.pinned : 0;
    return { of: "score", metric: state.scores.metric, row: state.scores.card.rows[row]?.[0], place: position };
  });
  const scroll = h("div.scores-scroll", warning, table.element);
  const curves = h("div.scores-curves", figure.element);
  const frame = createFrame(ctx, root, {
    controls: [metrics.field],
    lead: [chips.element],
    legend: direction,
    body: [h("div.scores-panes", curves, scroll)],
    skeleton: "chart",
    hint: "Click a method above to hide or show it.",
    actions: [copy.element],
  });

  const state: ScorecardState = {
    ctx,
    root,
    metrics,
    direction,
    chips,
    figure,
    table,
    warning,
    copy,
    frame,
    scores: shownOf(settings(ctx), ctx.theme),
    chart: null,
    width: 0,
    hovered: -1,
    pinned: -1,
    chosen: "",
  }; // name of the row whose value is read

  root.classList.add("aw-scores");
  root.role = "group";
  plot.classList.add("aw-scores-plot");
  on(plot, signal, {
    pointermove(event) {
      if (state.chart) point(state, nearestAt(event, picture, state.chart, state.scores.card));
    },
    pointerleave: () => point(state, -1),
    blur: () => point(state, -1),
    click(event) {
      if (state.chart) pin(state, nearestAt(event, picture, state.chart, state.scores.card));
    },
  });
  const keys = {
    ArrowLeft: step(state, -1),
    ArrowRight: step(state, 1),
    Home: step(state, -Infinity),
    End: step(state, Infinity),
    Enter: () => pin(state, state.hovered),
    Escape: () => {
      state.hovered = state.pinned = -1;
      paint(state);
    },
  };
  keyboard(plot, signal, keys, "← →: values along the axis · Enter: pin one · Escape: means");
  onResize(curves, signal, (box) => {
    if (Math.floor(box.width) === state.width) return;
    state.width = Math.floor(box.width);
    paint(state);
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles")) update(state);
  };
});

function settings(ctx: ViewContext): ScorecardOptions {
  return ctx.options as unknown as ScorecardOptions;
}

function set(ctx: ViewContext, values: Partial<ScorecardOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

/** The chosen row, or the first that is shown. */
function rowOf(state: ScorecardState): number {
  return (
    state.scores.shown.find((row) => state.scores.card.rows[row]?.[0] === state.chosen) ?? state.scores.shown[0] ?? 0
  );
}

function update(state: ScorecardState): void {
  const { direction, chips, frame } = state;
  const { cards } = settings(state.ctx);
  state.scores = shownOf(settings(state.ctx), state.ctx.theme);
  const { card, metric, way, mean, shown, isCurve } = state.scores;
  const { name, title: ownTitle, model, examples, warning: warns, axis } = card;
  const about = [model, `${examples} example${examples === 1 ? "" : "s"}`].filter(Boolean).join(" · ");
  const title = frame.show(about, ownTitle || "scores");
  state.metrics.offer(
    cards.flatMap((card) =>
      card.metrics.map(([value, note]) => ({
        value,
        label: wordsOf(value),
        note: [cards.length > 1 ? card.name : "", note].filter(Boolean).join(" · "),
      })),
    ),
    metric,
  );
  setText(direction, `${wordsOf(metric)}${isCurve ? ` by ${axis}` : ""} · ${way}`);
  direction.title = direction.textContent;
  state.root.ariaLabel = `${title}, ${wordsOf(metric)}${name ? `, ${name}` : ""}`;
  const undefinedRows = shown.some((row) => mean[row]?.includes(null));
  setText(state.warning, undefinedRows ? `${UNKNOWN}: ${warns || "no example has this score"}` : warns);
  chips.show(state.scores);
  assign(chips.element.parentElement as HTMLElement, { hidden: Boolean(chips.element.hidden) });
  const advice = "Click one above to show it.";
  frame.lacks(shown.length > 0 ? null : { kind: "none", words: "Every method is hidden", advice });
  paint(state);
}

function paint(state: ScorecardState): void {
  const { root, figure, scores, width, hovered } = state;
  const row = rowOf(state);
  state.table.show(scores, row);
  state.copy.show();
  const at = hovered < 0 ? state.pinned : hovered;
  state.frame.readout.show(wordsAt(scores, row, at), true);
  if (width <= 0) return;
  state.chart = scores.isCurve
    ? drawCurves(figure, scores, width, root.clientWidth >= WIDE ? TALL : LOW, at, row)
    : null;
  if (!state.chart) drawPoints(figure, scores, width);
  const keys = state.chart ? "Left and right arrows read the values. " : "";
  figure.plot.ariaLabel = `${root.ariaLabel}. ${keys}${wordsAt(scores, row, at)}`;
}

function point(state: ScorecardState, position: number): void {
  if (position === state.hovered || !state.scores.isCurve) return;
  state.hovered = position;
  paint(state);
}

function pin(state: ScorecardState, position: number): void {
  if (!state.scores.isCurve) return;
  state.pinned = position === state.pinned ? -1 : position;
  paint(state);
}

function step(state: ScorecardState, by: number): () => void {
  return (): void => {
    const last = state.scores.card.places.length - 1;
    point(
      state,
      state.hovered < 0 ? (by === 1 || by === -Infinity ? 0 : last) : Math.max(0, Math.min(last, state.hovered + by)),
    );
  };
}
