/** The curve of an explanation beside chance and single removals, with a point at the current step. */

import type { ViewContext } from "../../../context.ts";
import { on, setText } from "../../../dom.ts";
import { roundUp } from "../../../numbers.ts";
import { createFigure } from "../../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  type LineEnd,
  type Look,
  labelLines,
  labelRoom,
  lookOf,
  placeAt,
} from "../../charts/lineChart.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { type Mode, type Removal, valueWords } from "./steps.ts";

interface Line {
  heights: number[];
  /** The k of every value. */
  places: number[];
}

/** The value of a line at k, interpolated between its steps. */
function valueAt(removal: Removal, { heights, places }: Line, k: number): string {
  const after = places.findIndex((place) => place >= k);
  const [from = k, to = k] = [places[after - 1], places[after]];
  if (to === k) return valueWords(removal, heights[after]);
  const [low = NaN, high = NaN] = [heights[after - 1], heights[after]];
  const between = valueWords(removal, low + ((k - from) / (to - from)) * (high - low));
  return between === "–" ? between : `≈ ${between}`;
}

export interface RemovalChart {
  element: HTMLElement;
  show(removal: Removal, mode: Mode, step: number, width: number): void;
}

/** `pick` is called with the step under the pointer. */
export function createChart(ctx: ViewContext, signal: AbortSignal, pick: (step: number) => void): RemovalChart {
  const { element, plot, picture, legend, fill } = createFigure({});
  const bar = svg("line", { class: "aw-layer-now" });
  const point = svg("circle", { class: "aw-point", r: 6 });
  let chart: Chart | null = null;
  let shown: Removal | null = null;
  let lines: Line[] = [];
  let drawnKey = "";

  const draw = ({ order, steps, score, values, baselines }: Removal, mode: Mode, width: number): Chart => {
    const heights = values[mode];
    const others = baselines ? [baselines.low, baselines.high, baselines.best].flatMap((part) => part[mode]) : [];
    const every = [...heights, ...others].filter(Number.isFinite);
    const ceiling = roundUp(Math.max(0, ...every)) || 1;
    const most = score === "probability" ? Math.min(1, ceiling) : ceiling;
    const least = Math.min(0, ...every);
    const floor = least < 0 ? -roundUp(-least) : 0;
    const quiet: Look = { stroke: "currentColor", dash: "6 3" };
    const looks: Look[] = [lookOf(0, ctx.theme), quiet, { ...lookOf(1, ctx.theme), dash: "2 3" }];
    const names = ["this explanation", `${baselines?.draws ?? 0} random orders`, "single removals (oracle)"];
    const notes = [
      "",
      "their mean, with the range from the lowest to the highest",
      "in the order of how much each, removed alone, lowers it",
    ];
    const texts = names.map((name) => `${name} ≈ 99.9 %`);
    const room = labelRoom(width, texts, legend);
    const axis = chartOf(width, room, order.length + 1, floor, most, Math.max(150, Math.min(190, width / 2)));
    const { height, top, bottom } = axis;
    lines = [{ heights, places: steps }];
    const numbers = Array.from({ length: order.length + 1 }, (_, i) => String(i));
    const parts: SVGElement[] = [drawAxes(axis, numbers)];
    if (baselines) {
      const { mean, low, high, best, steps: places } = baselines;
      lines.push({ heights: mean[mode], places }, { heights: best[mode], places });
      parts.push(drawBand(axis, low[mode], high[mode], "currentColor", places));
    }
    const paths = lines.map(({ heights, places }, i) => drawLine(axis, heights, looks[i] as Look, places));
    const ends = lines.map(({ heights, places }, i): LineEnd => {
      const last = heights.findLastIndex(Number.isFinite);
      return {
        name: names[i] as string,
        value: "",
        look: looks[i] as Look,
        x: axis.x(places[Math.max(0, last)] ?? 0),
        y: axis.y(last < 0 ? floor : (heights[last] as number)),
        title: notes[i] ?? "",
      };
    });
    const leaders = labelLines(axis, legend, ends);
    setAttributes(bar, { y1: top, y2: bottom });
    setAttributes(point, { fill: looks[0]?.stroke ?? "" });
    fill(width, height, ...parts, bar, ...leaders, ...paths.reverse(), point);
    return axis;
  };

  const follow = (event: PointerEvent): void => {
    if (!chart || !shown) return;
    const { order, steps } = shown;
    const k = placeAt(event, picture, chart, order.length + 1);
    const away = (i: number): number => Math.abs((steps[i] ?? 0) - k);
    if (k >= 0) pick(steps.reduce((best, _, i) => (away(i) < away(best) ? i : best), 0));
  };
  on(plot, signal, {
    pointerdown: follow,
    pointermove: (event) => {
      if (event.buttons & 1) follow(event);
    },
  });

  return {
    element,
    /** Only what moves with the slider is redrawn; the lines stay. */
    show(removal, mode, step, width) {
      shown = removal;
      const stateKey = JSON.stringify([removal.requestKey, Boolean(removal.baselines), mode, width, ctx.theme]);
      if (stateKey !== drawnKey || !chart) {
        drawnKey = stateKey;
        chart = draw(removal, mode, width);
      }
      const k = removal.steps[step] ?? 0;
      const [x, value = NaN] = [chart.x(k), removal.values[mode][step]];
      setAttributes(bar, { x1: x, x2: x });
      point.style.display = Number.isNaN(value) ? "none" : "";
      setAttributes(point, { cx: x, cy: Number.isNaN(value) ? 0 : chart.y(value) });
      for (const [i, item] of [...legend.children].entries()) {
        setText(item.querySelector("b") as Element, valueAt(removal, lines[i] as Line, k));
      }
    },
  };
}
