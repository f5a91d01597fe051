/** Influence of every training text against its distance from the test, or its own loss. */
import { roundUp, tickText } from "../../numbers.ts";
import { rule, setAttributes, svg } from "../charts/svg.ts";
import { type Influential, topOf } from "./influence.ts";

export type Against = "distance" | "loss";
export type Place = readonly [x: number, y: number] | null;

const [LEFT, TOP, BOTTOM] = [48, 18, 34];

/** Draw in this size; returns where every point lies. Filled points have the label of the test. */
export function drawScatter(
  picture: SVGElement,
  what: Influential,
  against: Against,
  label: string,
  chosen: number,
  width: number,
  height: number,
): Place[] {
  const across = (against === "loss" ? what.losses : what.distance) ?? what.losses;
  const most = roundUp(Math.max(0, ...across.map((value) => value ?? 0))) || 1;
  const top = roundUp(topOf(what.influence)) || 1;
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
  const places = what.points.map((_, i): Place => {
    const [value, at] = [what.influence[i], across[i]];
    return value === null || value === undefined || at === null || at === undefined ? null : [x(at), y(value)];
  });
  const order = [...places.keys()].sort((a, b) => Number(a === chosen) - Number(b === chosen));
  for (const i of order) {
    const place = places[i];
    if (!place) continue;
    const side = (what.influence[i] ?? 0) > 0 ? "harms" : "helps";
    const isAlike = what.labels[i] === label;
    const name = `aw-point aw-point-${side}${isAlike ? "" : " aw-point-other"}${i === chosen ? " aw-point-chosen" : ""}`;
    parts.push(svg("circle", { cx: place[0], cy: place[1], r: i === chosen ? 6 : 3.5, class: name }));
  }
  setAttributes(picture, { width, height, viewBox: `0 0 ${width} ${height}` }).replaceChildren(...parts);
  return places;
}
