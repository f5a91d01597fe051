/** Influence of every training text against its distance from the test, or against its loss. */
import { roundUp, tickText } from "../../numbers.ts";
import { rule, setAttributes, svg } from "../charts/svg.ts";
import { type Influential, topOf } from "./influence.ts";

export type Against = "distance" | "loss";
export type ChartPoint = readonly [x: number, y: number] | null;

const [LEFT, TOP, BOTTOM] = [48, 18, 34];

/** Draw in this size; returns the positions of all points. Filled points have the label of the test. */
export function drawScatter(
  picture: SVGElement,
  influential: Influential,
  against: Against,
  label: string,
  chosen: number,
  width: number,
  height: number,
): ChartPoint[] {
  const across = (against === "loss" ? influential.losses : influential.distance) ?? influential.losses;
  const most = roundUp(Math.max(0, ...across.map((value) => value ?? 0))) || 1;
  const top = roundUp(topOf(influential.influence)) || 1;
  const [right, base] = [width - 10, height - BOTTOM];
  const x = (value: number): number => LEFT + (Math.max(0, value) / most) * (right - LEFT);
  const y = (value: number): number => (TOP + base) / 2 - (value / top) * ((base - TOP) / 2);
  const parts: SVGElement[] = [];
  for (const value of [top, 0, -top]) {
    parts.push(
      rule(LEFT, y(value), right, y(value), { class: value ? "aw-scatter-line" : "aw-scatter-zero" }),
      svg("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, tickText(value)),
    );
  }
  for (const value of [0, most / 2, most]) {
    const anchor = value === most ? "end" : value ? "middle" : "start";
    parts.push(svg("text", { x: x(value), y: base + 15, "text-anchor": anchor }, tickText(value)));
  }
  parts.push(
    svg(
      "text",
      { x: right, y: height - 4, "text-anchor": "end" },
      against === "loss" ? "loss of the text →" : "distance from the test →",
    ),
    svg("text", { x: LEFT + 4, y: 12 }, "harms ↑"),
    svg("text", { x: LEFT + 4, y: height - 4 }, "helps ↓"),
  );
  const points = influential.points.map((_, i): ChartPoint => {
    const [value, at] = [influential.influence[i], across[i]];
    return value === null || value === undefined || at === null || at === undefined ? null : [x(at), y(value)];
  });
  const order = [...points.keys()].sort((a, b) => Number(a === chosen) - Number(b === chosen));
  for (const i of order) {
    const point = points[i];
    if (!point) continue;
    const side = (influential.influence[i] ?? 0) > 0 ? "harms" : "helps";
    const isAlike = influential.labels[i] === label;
    const name = `aw-point aw-point-${side}${isAlike ? "" : " aw-point-other"}${i === chosen ? " aw-point-chosen" : ""}`;
    parts.push(svg("circle", { cx: point[0], cy: point[1], r: i === chosen ? 6 : 3.5, class: name }));
  }
  setAttributes(picture, { width, height, viewBox: `0 0 ${width} ${height}` }).replaceChildren(...parts);
  return points;
}
