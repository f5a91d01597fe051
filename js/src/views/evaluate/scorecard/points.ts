/** A number for each row: a point with its interval, in a line each. */

import { setChildren, shortLabel } from "../../../dom.ts";
import { printed } from "../../../numbers.ts";
import type { Figure } from "../../charts/figure.ts";
import { type Look, rangeOf } from "../../charts/lineChart.ts";
import { rule, svg } from "../../charts/svg.ts";
import { numberOf, type Score, type Shown, UNKNOWN } from "./scores.ts";

const ROW = 20;

/** Draw at this width. */
export function drawPoints(
  { legend, fill: put }: Figure,
  { card, mean, low, high, shown, looks }: Shown,
  width: number,
): void {
  const of = (values: Score[][], row: number): number => numberOf(values[row]?.[0]);
  const [least, most] = rangeOf(shown.flatMap((row) => [of(mean, row), of(low, row), of(high, row)]));
  const left = Math.min(180, width * 0.4);
  const right = width - 12;
  const bottom = ROW * shown.length + 4;
  const x = (value: number): number => left + ((value - least) / (most - least)) * (right - left);
  const group = svg("g", { class: "aw-axes" });
  for (const value of [least, (least + most) / 2, most]) {
    const attributes = { x: x(value), y: bottom + 15, "text-anchor": value === most ? "end" : "middle" };
    group.append(rule(x(value), 0, x(value), bottom), svg("text", attributes, printed(value, false)));
  }
  const lines = shown.flatMap((row, i) => {
    const y = ROW * i + ROW / 2 + 2;
    const [name = "", baseline] = card.rows[row] ?? [];
    const { stroke } = looks[row] as Look;
    const words = shortLabel(name, Math.floor(left / 7.2));
    const label = svg("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, words);
    const [value, from, to] = [of(mean, row), of(low, row), of(high, row)];
    if (Number.isNaN(value)) return [label, svg("text", { x: left + 6, y: y + 4 }, UNKNOWN)];
    const span = Number.isFinite(from) ? [rule(x(from), y, x(to), y, { stroke, "stroke-width": 2 })] : [];
    const shape = baseline
      ? svg("path", { d: `M${x(value)} ${y - 5}l5 5l-5 5l-5-5Z`, fill: stroke })
      : svg("circle", { cx: x(value), cy: y, r: 4.5, fill: stroke });
    return [label, ...span, shape];
  });
  setChildren(legend);
  put(width, bottom + 22, group, ...lines);
}
