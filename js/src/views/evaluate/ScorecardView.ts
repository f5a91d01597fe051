/**
 * Scores of methods compared with chance and an oracle: curves, one of them with its interval, one metric at a time,
 * and a table of means. Everything is in the view's options; nothing is requested.
 */

import { assign, h, keyboard, on, onResize, setText } from "../../dom.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { only, view } from "../base/view.ts";
import { createFigure } from "../charts/figure.ts";
import type { Chart } from "../charts/lineChart.ts";
import { createMethodChips } from "./scorecard/chips.ts";
import { drawCurves, nearestAt } from "./scorecard/curves.ts";
import { drawPoints } from "./scorecard/points.ts";
import { type ScorecardOptions, type Shown, shownOf, UNKNOWN, wordsOf } from "./scorecard/scores.ts";
import { createScoreTable } from "./scorecard/table.ts";
import { wordsAt } from "./scorecard/words.ts";

/** Heights in px of the curves next to the table and above it, and the smallest width of the former layout. */
const [TALL, LOW, WIDE] = [300, 190, 960];

export const renderScorecardView = view((ctx, root, signal) => {
  const settings = (): ScorecardOptions => ctx.options as unknown as ScorecardOptions;
  const set = (values: Partial<ScorecardOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const metrics = createMenu("metric", signal, (name) => {
    hovered = pinned = -1;
    set({ metric: name });
  });
  const direction = h("span.dim.scores-way");
  const chips = createMethodChips(
    signal,
    () => settings().hidden,
    (hidden) => set({ hidden }),
  );
  const figure = createFigure();
  const { plot, picture } = figure;
  const table = createScoreTable(signal, (name) => {
    chosen = name;
    paint();
  });
  const warning = h("div.warning", { role: "note" });
  const copy = createCopyButton(ctx, signal, () => {
    const row = rowOf();
    const score = what.isCurve && pinned < 0 ? what.whole[0]?.[row] : what.mean[row]?.[Math.max(0, pinned)];
    if (score === null || score === undefined) return null;
    const place = what.isCurve ? pinned : 0;
    return { of: "score", metric: what.metric, row: what.card.rows[row]?.[0], place };
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
  let what: Shown;
  let chart: Chart | null = null; // of curves
  let width = 0;
  let hovered = -1; // index under the pointer or the keyboard cursor
  let pinned = -1; // index chosen by a click
  let chosen = ""; // name of the row whose value is read

  root.classList.add("aw-scores");
  root.role = "group";
  plot.classList.add("aw-scores-plot");

  /** The chosen row, or the first that is shown. */
  const rowOf = (): number => what.shown.find((row) => what.card.rows[row]?.[0] === chosen) ?? what.shown[0] ?? 0;

  const update = (): void => {
    const { cards } = settings();
    what = shownOf(settings(), ctx.theme);
    const { card, metric, way, mean, shown, isCurve } = what;
    const { name, title: own, model, examples, warning: warns, axis } = card;
    const about = [model, `${examples} example${examples === 1 ? "" : "s"}`].filter(Boolean).join(" · ");
    const title = frame.show(about, own || "scores");
    metrics.offer(
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
    root.ariaLabel = `${title}, ${wordsOf(metric)}${name ? `, ${name}` : ""}`;
    const undefinedRows = shown.some((row) => mean[row]?.includes(null));
    setText(warning, undefinedRows ? `${UNKNOWN}: ${warns || "no example has this score"}` : warns);
    chips.show(what);
    assign(chips.element.parentElement as HTMLElement, { hidden: Boolean(chips.element.hidden) });
    const advice = "Click one above to show it.";
    frame.lacks(shown.length > 0 ? null : { kind: "none", words: "Every method is hidden", advice });
    paint();
  };

  const paint = (): void => {
    const row = rowOf();
    table.show(what, row);
    copy.show();
    const at = hovered < 0 ? pinned : hovered;
    frame.readout.show(wordsAt(what, row, at), true);
    if (width <= 0) return;
    chart = what.isCurve ? drawCurves(figure, what, width, root.clientWidth >= WIDE ? TALL : LOW, at, row) : null;
    if (!chart) drawPoints(figure, what, width);
    const keys = chart ? "Left and right arrows read the values. " : "";
    plot.ariaLabel = `${root.ariaLabel}. ${keys}${wordsAt(what, row, at)}`;
  };

  const point = (place: number): void => {
    if (place === hovered || !what.isCurve) return;
    hovered = place;
    paint();
  };
  const pin = (place: number): void => {
    if (!what.isCurve) return;
    pinned = place === pinned ? -1 : place;
    paint();
  };
  on(plot, signal, {
    pointermove(event) {
      if (chart) point(nearestAt(event, picture, chart, what.card));
    },
    pointerleave: () => point(-1),
    blur: () => point(-1),
    click(event) {
      if (chart) pin(nearestAt(event, picture, chart, what.card));
    },
  });
  const step = (by: number) => (): void => {
    const last = what.card.places.length - 1;
    point(hovered < 0 ? (by === 1 || by === -Infinity ? 0 : last) : Math.max(0, Math.min(last, hovered + by)));
  };
  const keys = {
    ArrowLeft: step(-1),
    ArrowRight: step(1),
    Home: step(-Infinity),
    End: step(Infinity),
    Enter: () => pin(hovered),
    Escape: () => {
      hovered = pinned = -1;
      paint();
    },
  };
  keyboard(plot, signal, keys, "← →: values along the axis · Enter: pin one · Escape: means");
  onResize(curves, signal, (box) => {
    if (Math.floor(box.width) === width) return;
    width = Math.floor(box.width);
    paint();
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles")) update();
  };
});
