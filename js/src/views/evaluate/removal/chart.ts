/** The curve of an explanation with those of chance and single removals, with a point at the current step. */

import type { ViewContext } from "../../../context.ts";
import { on } from "../../../dom.ts";
import { roundUp } from "../../../numbers.ts";
import { styleValue } from "../../base/styleValue.ts";
import { createFigure } from "../../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  type Look,
  lookOf,
  placeAt,
} from "../../charts/lineChart.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { textWidth } from "../../maps/labels.ts";
import { alongLine, type Box, freePlace, type Point } from "./freePlace.ts";
import { dropWords, type Mode, type Removal, valueWithAll } from "./steps.ts";

export interface RemovalChart {
  element: HTMLElement;
  /** `what` names the current point. */
  show(removal: Removal, mode: Mode, step: number, what: string, size: { width: number; height: number }): void;
}

/** px of a line of a label, and below the axis for its title. */
const LINE = 16;
const TITLE = 18;
/** px between lines that can be told apart. */
const APART = 6;

interface Line {
  name: string;
  look: Look;
  heights: readonly number[];
  /** The k of every value. */
  places: readonly number[];
}

/** `pick` is called with the step under the pointer; `units` names what is removed. */
export function createChart(
  ctx: ViewContext,
  signal: AbortSignal,
  pick: (step: number) => void,
  units: () => string,
): RemovalChart {
  const { element, plot, picture, fill } = createFigure({});
  const bar = svg("line", { class: "aw-layer-now" });
  const point = svg("circle", { class: "aw-point", r: 6 });
  const told = svg("g", { class: "aw-chart-told" });
  let chart: Chart | null = null;
  let shown: Removal | null = null;
  let drawnKey = "";
  /** Where the lines run, and the boxes of their names. */
  let paths: Point[][] = [];
  let occupied: Box[] = [];
  let scale = 1;

  const font = (weight: number): string => `${weight} 12px ${styleValue(ctx, element, "font-family")}`;
  const areaOf = ({ left, right, top, bottom }: Chart): Box => ({
    ...{ x: left + 4, y: top, width: right - left - 4, height: bottom - top - 2 },
  });
  const write = (words: readonly string[], { x, y, width }: Box, colour: string, end = false): SVGElement[] =>
    words.map((text, i) =>
      svg(
        "text",
        {
          ...{ class: "aw-chart-name", x: end ? x + width : x, y: y + LINE * i + 12, fill: colour },
          "text-anchor": end ? "end" : "start",
        },
        text,
      ),
    );

  const linesOf = ({ steps, values, baselines }: Removal, mode: Mode): Line[] => {
    const quiet: Look = { stroke: "var(--aw-apart)", dash: "" };
    const own: Line = {
      ...{ name: "this order", look: { stroke: "var(--aw-text)", dash: "" } },
      ...{ heights: values[mode], places: steps },
    };
    if (!baselines) return [own];
    const { mean, best, steps: places, draws } = baselines;
    return [
      own,
      { name: `random order, mean and range of ${draws}`, look: quiet, heights: mean[mode], places },
      {
        name: "order of single removals",
        look: { ...lookOf(1, ctx.theme), dash: "2 3" },
        heights: best[mode],
        places,
      },
    ];
  };

  const draw = (removal: Removal, mode: Mode, width: number, tall: number): Chart => {
    const { order, score, baselines } = removal;
    scale = score === "probability" ? 100 : 1;
    const scaled = (values: readonly number[]): number[] => values.map((value) => scale * value);
    const lines = linesOf(removal, mode).map((line) => ({ ...line, heights: scaled(line.heights) }));
    const range = baselines ? [baselines.low[mode], baselines.high[mode]].map(scaled) : [];
    const every = [...lines.map(({ heights }) => heights), ...range].flat().filter(Number.isFinite);
    const ceiling = roundUp(Math.max(0, ...every)) || scale;
    const least = Math.min(0, ...every);
    const axis = chartOf(
      width,
      8,
      order.length + 1,
      least < 0 ? -roundUp(-least) : 0,
      score === "probability" ? Math.min(100, ceiling) : ceiling,
      tall - TITLE,
    );
    const { x, y, top, bottom, left, right } = axis;
    const numbers = Array.from({ length: order.length + 1 }, (_, i) => String(i));
    const title = svg("text", { x: (left + right) / 2, y: tall - 6, "text-anchor": "middle" });
    title.textContent = `${units()} ${mode === "kept" ? "kept" : "removed"}`;
    const axes = drawAxes(axis, numbers);
    axes.append(title);
    const [low, high] = range;
    const band = low && high && baselines ? [drawBand(axis, low, high, "var(--aw-apart)", baselines.steps)] : [];
    paths = lines.map(({ heights, places }) =>
      alongLine(heights.map((value, i): Point => [x(places[i] ?? i), y(value)])),
    );
    occupied = [];
    const written = lines.flatMap(({ name, look }, i) => {
      const others = paths.filter((_, other) => other !== i).flat();
      // It is named where it can be told apart.
      const clear = (paths[i] ?? []).filter(([x, y]) => others.every((to) => Math.hypot(x - to[0], y - to[1]) > APART));
      const size = { width: textWidth(name, font(i ? 400 : 600)) + 4, height: LINE };
      // No room for it.
      if (size.width > right - left) return [];
      const box = freePlace(areaOf(axis), size, clear.length ? clear : (paths[i] ?? []), others, occupied);
      occupied.push(box);
      const texts = write([name], box, i === 1 ? "var(--aw-quiet)" : look.stroke);
      if (i === 0) setAttributes(texts[0] as SVGElement, { "font-weight": 600 });
      return texts;
    });
    const strokes = lines.map(({ heights, places, look }) => drawLine(axis, heights, look, places));
    setAttributes(bar, { y1: top, y2: bottom });
    fill(width, tall, axes, ...band, bar, ...strokes.reverse(), ...written, point, told);
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
    show(removal, mode, step, what, { width, height }) {
      shown = removal;
      const stateKey = JSON.stringify([removal.requestKey, Boolean(removal.baselines), mode, width, height, ctx.theme]);
      if (stateKey !== drawnKey || !chart) {
        drawnKey = stateKey;
        chart = draw(removal, mode, width, height);
      }
      const k = removal.steps[step] ?? 0;
      const [at, value = NaN] = [chart.x(k), removal.values[mode][step]];
      setAttributes(bar, { x1: at, x2: at });
      point.style.display = Number.isNaN(value) ? "none" : "";
      const to: Point = [at, Number.isNaN(value) ? 0 : chart.y(scale * value)];
      setAttributes(point, { cx: to[0], cy: to[1] });
      const words = what && !Number.isNaN(value) ? [what, dropWords(removal, value - valueWithAll(removal))] : [];
      const size = { width: Math.max(0, ...words.map((text) => textWidth(text, font(600)))) + 4, height: 2 * LINE };
      const box = freePlace(areaOf(chart), size, [to], paths.flat(), occupied);
      told.replaceChildren(...write(words, box, "var(--aw-accent)", box.x + box.width < at));
    },
  };
}
