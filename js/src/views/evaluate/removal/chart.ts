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
  indexAt,
  type Look,
  lookOf,
} from "../../charts/lineChart.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { textWidth } from "../../maps/labels.ts";
import { alongLine, type Box, freePosition, type Point } from "./freePosition.ts";
import { dropWords, type Mode, type Removal, valueWithAll } from "./steps.ts";

export interface RemovalChart {
  element: HTMLElement;
  /** `label` names the current point. */
  show(removal: Removal, mode: Mode, step: number, label: string, size: { width: number; height: number }): void;
}

/** px of a line of a label, and below the axis for its title. */
const LINE = 16;
const TITLE = 18;
/** px between lines that are far enough apart to be distinguished. */
const APART = 6;

interface Line {
  name: string;
  look: Look;
  heights: readonly number[];
  /** The k of every value. */
  steps: readonly number[];
}

/** Its elements, and the state that they show. */
interface ChartState {
  readonly ctx: ViewContext;
  readonly pick: (step: number) => void;
  readonly units: () => string;
  readonly element: HTMLElement;
  readonly picture: SVGElement;
  readonly fill: (width: number, height: number, ...parts: SVGElement[]) => void;
  readonly bar: SVGElement;
  readonly point: SVGElement;
  readonly caption: SVGElement;
  /** The axes; null until the first curve is drawn. */
  chart: Chart | null;
  /** The curve that is drawn. */
  shown: Removal | null;
  /** The input of the drawn curve. */
  drawnKey: string;
  /** Where the lines run, and the boxes of their names. */
  paths: Point[][];
  occupied: Box[];
  /** The factor of the axis: 100 for probabilities, in percent. */
  scale: number;
}

/** `pick` is called with the step under the pointer; `units` names the removed elements. */
export function createChart(
  ctx: ViewContext,
  signal: AbortSignal,
  pick: (step: number) => void,
  units: () => string,
): RemovalChart {
  const { element, plot, picture, fill } = createFigure({});
  const bar = svg("line", { class: "aw-layer-now" });
  const point = svg("circle", { class: "aw-point", r: 6 });
  const caption = svg("g", { class: "aw-chart-told" });

  const state: ChartState = {
    ctx,
    pick,
    units,
    element,
    picture,
    fill,
    bar,
    point,
    caption,
    chart: null,
    shown: null,
    drawnKey: "",
    paths: [],
    occupied: [],
    scale: 1,
  };
  on(plot, signal, {
    pointerdown: (event) => follow(state, event),
    pointermove: (event) => {
      if (event.buttons & 1) follow(state, event);
    },
  });
  return {
    element,
    show: (removal, mode, step, label, at4) => show(state, removal, mode, step, label, at4),
  };
}

function font(state: ChartState, weight: number): string {
  return `${weight} 12px ${styleValue(state.ctx, state.element, "font-family")}`;
}

function areaOf({ left, right, top, bottom }: Chart): Box {
  return {
    ...{ x: left + 4, y: top, width: right - left - 4, height: bottom - top - 2 },
  };
}

function write(words: readonly string[], { x, y, width }: Box, colour: string, end = false): SVGElement[] {
  return words.map((text, i) =>
    svg(
      "text",
      {
        ...{ class: "aw-chart-name", x: end ? x + width : x, y: y + LINE * i + 12, fill: colour },
        "text-anchor": end ? "end" : "start",
      },
      text,
    ),
  );
}

function linesOf(ctx: ViewContext, { steps, values, baselines }: Removal, mode: Mode): Line[] {
  const quiet: Look = { stroke: "var(--aw-apart)", dash: "" };
  const curve: Line = {
    ...{ name: "this order", look: { stroke: "var(--aw-text)", dash: "" } },
    ...{ heights: values[mode], steps },
  };
  if (!baselines) return [curve];
  const { mean, best, steps: baselineSteps, draws } = baselines;
  return [
    curve,
    { name: `random order, mean and range of ${draws}`, look: quiet, heights: mean[mode], steps: baselineSteps },
    {
      name: "order of single removals",
      look: { ...lookOf(1, ctx.theme), dash: "2 3" },
      heights: best[mode],
      steps: baselineSteps,
    },
  ];
}

function draw(state: ChartState, removal: Removal, mode: Mode, width: number, tall: number): Chart {
  const { bar } = state;
  const { order, score, baselines } = removal;
  state.scale = score === "probability" ? 100 : 1;
  const scaled = (values: readonly number[]): number[] => values.map((value) => state.scale * value);
  const lines = linesOf(state.ctx, removal, mode).map((line) => ({ ...line, heights: scaled(line.heights) }));
  const range = baselines ? [baselines.low[mode], baselines.high[mode]].map(scaled) : [];
  const every = [...lines.map(({ heights }) => heights), ...range].flat().filter(Number.isFinite);
  const ceiling = roundUp(Math.max(0, ...every)) || state.scale;
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
  title.textContent = `${state.units()} ${mode === "kept" ? "kept" : "removed"}`;
  const axes = drawAxes(axis, numbers);
  axes.append(title);
  const [low, high] = range;
  const band = low && high && baselines ? [drawBand(axis, low, high, "var(--aw-apart)", baselines.steps)] : [];
  state.paths = lines.map(({ heights, steps }) =>
    alongLine(heights.map((value, i): Point => [x(steps[i] ?? i), y(value)])),
  );
  state.occupied = [];
  const written = lines.flatMap(({ name, look }, i) => {
    const others = state.paths.filter((_, other) => other !== i).flat();
    // A line is named where it is clear of the others.
    const clear = (state.paths[i] ?? []).filter(([x, y]) =>
      others.every((to) => Math.hypot(x - to[0], y - to[1]) > APART),
    );
    const size = { width: textWidth(name, font(state, i ? 400 : 600)) + 4, height: LINE };
    // No room for it.
    if (size.width > right - left) return [];
    const box = freePosition(areaOf(axis), size, clear.length ? clear : (state.paths[i] ?? []), others, state.occupied);
    state.occupied.push(box);
    const texts = write([name], box, i === 1 ? "var(--aw-quiet)" : look.stroke);
    if (i === 0) setAttributes(texts[0] as SVGElement, { "font-weight": 600 });
    return texts;
  });
  const strokes = lines.map(({ heights, steps, look }) => drawLine(axis, heights, look, steps));
  setAttributes(bar, { y1: top, y2: bottom });
  state.fill(width, tall, axes, ...band, bar, ...strokes.reverse(), ...written, state.point, state.caption);
  return axis;
}

function follow(state: ChartState, event: PointerEvent): void {
  const { chart, shown } = state;
  if (!chart || !shown) return;
  const { order, steps } = shown;
  const k = indexAt(event, state.picture, chart, order.length + 1);
  const away = (i: number): number => Math.abs((steps[i] ?? 0) - k);
  if (k >= 0) state.pick(steps.reduce((best, _, i) => (away(i) < away(best) ? i : best), 0));
}

/** Only the parts that move with the slider are redrawn; the lines stay. */
function show(
  state: ChartState,
  removal: Removal,
  mode: Mode,
  step: number,
  label: string,
  { width, height }: { width: number; height: number },
): void {
  const { point } = state;
  state.shown = removal;
  const stateKey = JSON.stringify([
    removal.requestKey,
    Boolean(removal.baselines),
    mode,
    width,
    height,
    state.ctx.theme,
  ]);
  if (stateKey !== state.drawnKey || !state.chart) {
    state.drawnKey = stateKey;
    state.chart = draw(state, removal, mode, width, height);
  }
  const k = removal.steps[step] ?? 0;
  const [at, value = NaN] = [state.chart.x(k), removal.values[mode][step]];
  setAttributes(state.bar, { x1: at, x2: at });
  point.style.display = Number.isNaN(value) ? "none" : "";
  const to: Point = [at, Number.isNaN(value) ? 0 : state.chart.y(state.scale * value)];
  setAttributes(point, { cx: to[0], cy: to[1] });
  const words = label && !Number.isNaN(value) ? [label, dropWords(removal, value - valueWithAll(removal))] : [];
  const size = { width: Math.max(0, ...words.map((text) => textWidth(text, font(state, 600)))) + 4, height: 2 * LINE };
  const box = freePosition(areaOf(state.chart), size, [to], state.paths.flat(), state.occupied);
  state.caption.replaceChildren(...write(words, box, "var(--aw-accent)", box.x + box.width < at));
}
