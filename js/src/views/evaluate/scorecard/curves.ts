/** A curve for every row over the positions of a scorecard; methods have bands for their intervals. */

import { shortLabel } from "../../../dom.ts";
import type { Figure } from "../../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  drawUpright,
  type LineEnd,
  type Look,
  labelLines,
  labelRoom,
  pointedAt,
  rangeOf,
} from "../../charts/lineChart.ts";
import { type Card, numbersOf, type Shown, scoreWords } from "./scores.ts";

/** A baseline that is this many times higher than all methods would flatten their curves, and is cut off. */
const FAR = 1.5;

/** Positions of the values on the horizontal axis, from 0 to their number minus 1. */
export function positionsOf(labels: readonly (number | string)[]): number[] {
  const values = labels.map(Number);
  const rises =
    labels.every((label) => typeof label === "number") && values.every((x, i) => i === 0 || x > (values[i - 1] ?? x));
  const [first = 0, last = 0] = [values[0], values.at(-1)];
  if (!rises || last <= first) return [...labels.keys()];
  return values.map((x) => ((x - first) / (last - first)) * (labels.length - 1));
}

/** Index of the value nearest to the pointer; -1 outside the axes. */
export function nearestAt(event: MouseEvent, picture: Element, chart: Chart, card: Card): number {
  const x = pointedAt(event, picture, chart);
  const all = positionsOf(card.places).map((position) => Math.abs(chart.x(position) - x));
  return all.indexOf(Math.min(...all));
}

/**
 * Draw in this size; `hovered` is the index whose values label the curves, -1: their ends. `banded` is the row
 * whose interval is drawn.
 */
export function drawCurves(
  figure: Figure,
  scores: Shown,
  width: number,
  tall: number,
  hovered: number,
  banded: number,
): Chart {
  const { card, mean, low, high, shown, looks } = scores;
  const { rows, places: labels } = card;
  const { legend } = figure;
  const positions = positionsOf(labels);
  const lines = [mean, low, high].map((part) => part.map(numbersOf));
  const [curves, lows, highs] = lines as [number[][], number[][], number[][]];
  const isMethod = (row: number): boolean => !rows[row]?.[1];
  const ends = (some: readonly number[]): number[] =>
    some.flatMap((row) => lines.flatMap((part) => part[row] as number[])).filter(Number.isFinite);
  const highest = Math.max(0, ...ends(shown.filter(isMethod)));
  const isFar = (row: number): boolean => {
    const values = (curves[row] as number[]).filter(Number.isFinite);
    return !isMethod(row) && highest > 0 && values.length > 0 && Math.min(...values) > FAR * highest;
  };
  const inRange = shown.filter((row) => !isFar(row));
  const nameOf = (row: number): string => shortLabel((rows[row] as [string, boolean])[0], 32);
  const room = labelRoom(
    width,
    shown.map((row) => `${nameOf(row)} −0.0000 at 0.00`),
    legend,
  );
  const axis = chartOf(width, room, labels.length, ...rangeOf(ends(inRange)), tall);
  const marks = hovered < 0 ? [] : [drawUpright(axis, positions[hovered] ?? hovered, "aw-layer-over")];
  const bands = inRange
    .filter((row) => row === banded)
    .map((row) =>
      drawBand(axis, lows[row] as number[], highs[row] as number[], (looks[row] as Look).stroke, positions),
    );
  const paths = inRange.map((row) => drawLine(axis, curves[row] as number[], looks[row] as Look, positions));
  const labelled = shown.map((row): LineEnd => {
    const heights = curves[row] as number[];
    const last = heights.findLastIndex(Number.isFinite);
    const away = isFar(row);
    return {
      name: `${nameOf(row)}${away ? " ↑" : ""}`,
      value: `${scoreWords(mean[row]?.[hovered < 0 ? last : hovered])}${hovered < 0 ? "" : ` at ${labels[hovered]}`}`,
      look: looks[row] as Look,
      x: last < 0 ? axis.right : axis.x(positions[last] ?? last),
      y: last < 0 ? axis.bottom : away ? axis.top : axis.y(heights[last] as number),
      title: away ? "above the top of the picture" : "",
    };
  });
  const leaders = labelLines(axis, legend, labelled);
  const names = labels.map((label) =>
    typeof label === "number" ? String(Number(label.toPrecision(3))) : shortLabel(label, 12),
  );
  const parts = [drawAxes(axis, names, positions), ...marks, ...bands, ...leaders, ...paths.reverse()];
  figure.fill(axis.width, axis.height, ...parts);
  return axis;
}
