/** Norms of the tokens' states after the shown layer: over the picture, and as a histogram; outliers are named. */
import type { ViewContext } from "../../context.ts";
import { createWatch, h, setStyles, setText } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import type { Axis } from "../../wire/wire.ts";
import { createProgress, failed, type Missing, missingAnswer } from "../base/missing.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { rule, setAttributes, svg } from "../charts/svg.ts";
import { elementsOf } from "./elements.ts";
import { overMap, paintHeat } from "./heat.ts";
import type { Picture } from "./picture.ts";

export interface Norms {
  element: HTMLElement;
  /** Show the norms of a stack after a layer, by its index; `width` in px. */
  show(stack: string, axis: Axis, layer: number, width: number, tall: number): void;
}

interface NormsMeta {
  layers: number;
  outlier: number;
  /** Names of the registers that were added. */
  registers: readonly string[];
}

const [BINS, HISTOGRAM, FOOT] = [24, 40, 18];
/** px of the picture, at most. */
const LARGEST = 276;

/** A round step between ticks, for about `count` of them. */
export function tickStep(span: number, count: number): number {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return ([1, 2, 5, 10].find((step) => step * power >= rough) ?? 10) * power;
}

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? (sorted[half] as number) : ((sorted[half - 1] as number) + (sorted[half] as number)) / 2;
};

/** The elements of the view, and its state. */
interface NormsState {
  readonly answers: Answers;
  readonly heat: HTMLCanvasElement;
  readonly plot: HTMLDivElement;
  readonly chart: SVGElement;
}

export function createNorms(
  ctx: ViewContext,
  signal: AbortSignal,
  answers: Answers,
  picture: Picture,
  again: () => void,
): Norms {
  const [title, about, verdict] = [h("b", "norms"), h("span.where"), h("span.image-verdict")];
  const [below, heat] = [h("canvas.image-below"), h("canvas.image-heat")];
  const plot = h("div.image-norms-plot", { role: "img" }, below, heat);
  const chart = svg("svg", { role: "img" });

  const state: NormsState = {
    answers,
    heat,
    plot,
    chart,
  };
  const progress = createProgress(signal);
  const body = h("div.image-norms-body", plot, h("div.image-head", h("b", "how many patches"), verdict), chart);
  const registers = createSegments("registers", { off: "as it is", on: "with test-time registers" }, signal, again);
  registers.element.hidden = !(ctx.options as { registers?: boolean }).registers;
  const element = h("div.image-norms", h("div.image-head", title, about), registers.element, progress.element, body);
  const isOther = createWatch();

  return {
    element,
    show(stack, axis, layer, width, tall) {
      const isOn = registers.value() === "on";
      const args = { stack, ...(isOn && { registers: true }) };
      const answer = answers.get<NormsMeta>("norms", args, true);
      progress.show(answer ? null : missing(state, args));
      body.hidden = !answer;
      if (!answer) return;
      const { cells, grid, patches: order, others: rest } = elementsOf(axis);
      const [rows, cols] = grid;
      const ratio = picture.ratio() ?? rows / (cols || 1);
      const side = Math.max(80, Math.min(LARGEST, width, (tall - (registers.element.hidden ? 130 : 166)) / ratio));
      const [wide, high] = [Math.round(side), Math.round(side * ratio)];
      const dimmed = picture.dimmed(wide * 2, high * 2);
      if (!isOther(answer, axis, layer, wide, dimmed, width, ctx.theme, ctx.options.indexBase)) return;
      const bytes = answer.buffers[0] as DataView;
      const index = Math.min(layer, answer.meta.layers - 1);
      const norm = (i: number): number => bytes.getFloat32(4 * (index * cells.length + i), true);
      const patches = order.map(norm);
      const added = answer.meta.registers.map((name, i, { length }) => {
        const values = answer.buffers[1] as DataView;
        return [name, values.getFloat32(4 * (index * length + i), true)] as const;
      });
      const fromAxis = rest.filter((i) => axis.special[i]).map((i) => [axis.labels[i] as string, norm(i)] as const);
      const special = [...fromAxis, ...added];
      [below.width, below.height] = [wide * 2, high * 2];
      if (dimmed) below.getContext("2d")?.drawImage(dimmed, 0, 0);
      setStyles(plot, { width: `${wide}px`, height: `${high}px` });
      paint(state, patches, axis, special, Math.max(80, width));
      const middle = median(patches);
      const bound = answer.meta.outlier * middle;
      const outliers = patches.flatMap((value, i) =>
        value > bound ? [axis.labels[order[i] as number] as string] : [],
      );
      setText(
        about,
        `after layer ${ctx.layerName(ctx.resolved().source.layers[index] ?? index)}, median ${printed(middle, true)}`,
      );
      const names = outliers.length > 3 ? `${outliers.length} patches` : `patch ${outliers.join(", ")}`;
      setText(verdict, outliers.length ? `outliers: ${names}` : "no outliers");
      verdict.title = `${outliers.length ? names : "No patch is"} above ${answer.meta.outlier} times the median, ${printed(bound, true)}`;
    },
  };
}

function paint(
  state: NormsState,
  patches: readonly number[],
  axis: Axis,
  others: readonly (readonly [string, number])[],
  width: number,
): void {
  const [low, high] = [Math.min(...patches), Math.max(...patches)];
  paintHeat(
    state.heat,
    patches.map((value) => value - low),
    elementsOf(axis).grid,
    { map: overMap(false, ""), mode: "linear", range: [0, high - low || 1] },
  );
  state.plot.ariaLabel = `norms of ${patches.length} patches over the picture, ${printed(low, true)} to ${printed(high, true)}`;
  const all = [...patches, ...others.map(([, value]) => value)];
  drawHistogram(state, patches, others, [Math.min(...all), Math.max(...all)], width);
}

function drawHistogram(
  state: NormsState,
  patches: readonly number[],
  others: readonly (readonly [string, number])[],
  [low, high]: readonly [number, number],
  width: number,
): void {
  const { chart } = state;
  const step = tickStep(high - low || 1, 5);
  const [first, last] = [Math.floor(low / step) * step, Math.ceil((high + step * 1e-9) / step) * step];
  const x = (value: number): number => ((value - first) / (last - first || 1)) * width;
  const counts = Array.from({ length: BINS }, () => 0);
  for (const value of patches) {
    const bin = Math.min(BINS - 1, Math.floor((x(value) / width) * BINS));
    counts[bin] = (counts[bin] as number) + 1;
  }
  const most = Math.max(1, ...counts);
  const bars = counts.map((n, i) => {
    const tall = n ? Math.max(1, (n / most) * (HISTOGRAM - 12)) : 0;
    return svg("rect", {
      x: (i * width) / BINS + 0.5,
      y: HISTOGRAM - tall,
      width: width / BINS - 1,
      height: tall,
      class: "aw-image-count",
    });
  });
  const ticks: SVGElement[] = [];
  for (let value = first; value <= last + step / 2; value += step) {
    const anchor = value === first ? "start" : value + step > last + step / 2 ? "end" : "middle";
    const label = printed(Number(value.toPrecision(6)), false);
    ticks.push(svg("text", { x: x(value), y: HISTOGRAM + 14, "text-anchor": anchor }, label));
  }
  const marks = others.flatMap(([name, value]) => {
    const at = x(value);
    const anchor = at > width / 2 ? "end" : "start";
    const label = svg(
      "text",
      { x: at + (anchor === "end" ? -5 : 5), y: 10, "text-anchor": anchor },
      `${name} ${printed(Number(value.toFixed(1)), true)}`,
    );
    return [rule(at, 2, at, HISTOGRAM, { class: "aw-image-mark" }), label];
  });
  const size = { viewBox: `0 0 ${width} ${HISTOGRAM + FOOT}`, width, height: HISTOGRAM + FOOT };
  setAttributes(chart, size).replaceChildren(
    ...bars,
    rule(0, HISTOGRAM + 0.5, width, HISTOGRAM + 0.5, { class: "aw-image-axis" }),
    ...ticks,
    ...marks,
  );
  chart.ariaLabel = `histogram of the norms of ${patches.length} patches`;
}

function missing(state: NormsState, args: Record<string, unknown>): Missing {
  const { answers } = state;
  const why = answers.failure("norms", args);
  return why ? failed("norms", why) : missingAnswer(answers, "norms", args, "norms");
}
