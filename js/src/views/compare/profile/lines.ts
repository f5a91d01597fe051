/** The chart with a line for every explanation over the layers, its mode switch, and the values at the ends. */

import type { ViewContext } from "../../../context.ts";
import { setText } from "../../../dom.ts";
import { printed } from "../../../numbers.ts";
import { createFigure, type Figure } from "../../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawLine,
  drawUpright,
  indexAt,
  type LineEnd,
  labelLines,
  labelRoom,
  labelsAreBeside,
  lookOf,
  rangeOf,
} from "../../charts/lineChart.ts";
import { svg } from "../../charts/svg.ts";
import { peak } from "../../text/rowValues.ts";
import type { Profile } from "./sources.ts";

/** px: the lowest chart, a line of the legend below it, and its margins. */
const [LOWEST, LEGEND_LINE, MARGINS] = [120, 18, 8];

export interface Lines extends Pick<Figure, "element" | "plot"> {
  /** Draw values [line][layer] in a box of `width` by `height` px; `ownScale`: each line has a separate scale. */
  draw(profile: Profile, values: readonly number[][], ownScale: boolean, width: number, height: number): void;
  /** Mark the selected and the hovered layer, and write the values at the latter, or else the former, with its name. */
  mark(now: number, hovered: number): void;
  /** Index of the layer under the pointer, or -1. */
  layerAt(event: MouseEvent): number;
}

export function createLines(ctx: ViewContext): Lines {
  const figure = createFigure();
  const { element, plot, picture, legend } = figure;
  const marks = svg("g");
  let chart: Chart | null = null;
  let lines: readonly number[][] = [];
  let count = 0;
  let names: string[] = []; // of the layers
  return {
    element,
    plot,
    draw({ names: named, remarks, layers, beside }, values, ownScale, width, height) {
      const labels = [...named, ...beside.map(([name]) => name)];
      names = layers.map((layer) => ctx.layerName(layer));
      [lines, count] = [[...values, ...beside.map(([, line]) => line.map((value) => value ?? NaN))], layers.length];
      const drawn = ownScale ? lines.map((line) => line.map((value) => value / (peak(line) || 1))) : lines;
      const [low, high] = rangeOf(drawn.flat());
      const room = labelRoom(
        width,
        labels.map((name) => `${name} −0.0000 in layer 00`),
        legend,
      );
      const below = labelsAreBeside(width) ? 0 : labels.length * LEGEND_LINE;
      const tall = Math.max(LOWEST, height - below - MARGINS);
      const axis = chartOf(width, room, count, low, ownScale ? 1 : high, tall);
      chart = axis;
      const ends = drawn.map((line, i): LineEnd => {
        const last = Math.max(0, line.findLastIndex(Number.isFinite));
        const height = line[last] ?? NaN;
        const y = axis.y(Number.isFinite(height) ? height : low);
        return {
          name: labels[i] as string,
          value: "",
          look: lookOf(i, ctx.theme),
          x: axis.x(last),
          y,
          title: remarks[i] ?? "",
        };
      });
      const paths = drawn.map((line, i) => drawLine(axis, line, lookOf(i, ctx.theme)));
      const leaders = labelLines(axis, legend, ends);
      figure.fill(width, axis.height, drawAxes(axis, names), marks, ...leaders, ...paths);
    },
    mark(now, hovered) {
      if (!chart) return;
      const shown = [];
      if (now >= 0) shown.push(drawUpright(chart, now, "aw-layer-now"));
      if (hovered >= 0 && hovered !== now) shown.push(drawUpright(chart, hovered, "aw-layer-over"));
      marks.replaceChildren(...shown);
      const at = hovered >= 0 ? hovered : now;
      // Only the last value is labelled at the end of a line.
      const where = names[at] && at < count - 1 ? ` in layer ${names[at]}` : "";
      for (const [i, line] of lines.entries()) {
        const number = legend.children[i]?.querySelector("b");
        const value = line[at] ?? NaN;
        if (number) setText(number, Number.isFinite(value) ? printed(value, true) + where : "–");
      }
    },
    layerAt: (event) => (chart ? indexAt(event, picture, chart, count) : -1),
  };
}
