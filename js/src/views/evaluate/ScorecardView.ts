/**
 * Scores of methods beside chance and an oracle: curves with their intervals, one metric at a time, and a table of
 * means. Everything is in the view's options; nothing is requested.
 */

import { h, keyboard, on, setChildren, setText, watchWidth } from "../../dom.ts";
import { createMenu } from "../base/menu.ts";
import { createReadout, only, view } from "../base/view.ts";
import { createFigure } from "../charts/figure.ts";
import type { Chart } from "../charts/lineChart.ts";
import { createMethodChips } from "./scorecard/chips.ts";
import { drawCurves, nearestAt } from "./scorecard/curves.ts";
import { drawPoints } from "./scorecard/points.ts";
import { type ScorecardOptions, type Shown, shownOf, UNKNOWN, wordsOf } from "./scorecard/scores.ts";
import { createScoreTable } from "./scorecard/table.ts";
import { wordsAt } from "./scorecard/words.ts";

export const renderScorecardView = view((ctx, root, signal) => {
  const settings = (): ScorecardOptions => ctx.options as unknown as ScorecardOptions;
  const set = (values: Partial<ScorecardOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const title = h("b.title");
  const about = h("span.where");
  const metrics = createMenu("metric", signal, (name) => {
    hovered = -1;
    set({ metric: name });
  });
  const direction = h("div.line");
  const chips = createMethodChips(
    signal,
    () => settings().hidden,
    (hidden) => set({ hidden }),
  );
  const figure = createFigure();
  const { plot, picture } = figure;
  const readout = createReadout();
  const table = createScoreTable(signal);
  const warning = h("div.warning", { role: "note" });
  let what: Shown;
  let chart: Chart | null = null; // of curves
  let width = 0;
  let hovered = -1; // index under the pointer or the keyboard cursor

  root.classList.add("aw-scores");
  root.role = "group";
  plot.classList.add("aw-scores-plot");
  setChildren(
    root,
    h("div.row.head", title, about, metrics.field),
    direction,
    chips.element,
    figure.element,
    ...readout.elements,
    warning,
    h("div.scores-scroll", table.element),
  );

  const update = (): void => {
    const { cards } = settings();
    what = shownOf(settings(), ctx.theme);
    const { card, metric, way, mean, shown, isCurve } = what;
    const { name, title: own, model, examples, warning: warns, level, axis } = card;
    setText(title, ctx.options.title || own || "scores");
    setText(about, [model, `${examples} example${examples === 1 ? "" : "s"}`].filter(Boolean).join(" · "));
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
    const ends = examples > 1 ? ` · bands: ${Math.round(100 * level)} % intervals over examples` : "";
    setText(direction, `${wordsOf(metric)}${isCurve ? ` by ${axis}` : ""} · ${way}${ends}`);
    root.ariaLabel = `${ctx.options.title || own}, ${wordsOf(metric)}${name ? `, ${name}` : ""}`;
    const undefinedRows = shown.some((row) => mean[row]?.includes(null));
    setText(warning, undefinedRows ? `${UNKNOWN}: ${warns || "no example has this score"}` : warns);
    chips.show(what);
    table.show(what);
    paint();
  };

  const paint = (): void => {
    if (width <= 0) return;
    chart = what.isCurve ? drawCurves(figure, what, width, hovered) : null;
    if (!chart) drawPoints(figure, what, width);
    const [where, words] = wordsAt(what, hovered);
    readout.show(`${where}${words.join(" · ")}`, true);
    const keys = chart ? "Left and right arrows read the values. " : "";
    plot.ariaLabel = `${root.ariaLabel}. ${keys}${words.slice(0, 6).join(", ")}`;
  };

  const point = (place: number): void => {
    if (place === hovered || !what.isCurve) return;
    hovered = place;
    paint();
  };
  on(plot, signal, {
    pointermove(event) {
      if (chart) point(nearestAt(event, picture, chart, what.card));
    },
    pointerleave: () => point(-1),
    blur: () => point(-1),
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
    Escape: () => point(-1),
  };
  keyboard(plot, signal, keys, "← →: values along the axis · Escape: means");
  watchWidth(root, signal, (now) => {
    width = now;
    paint();
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles")) update();
  };
});
