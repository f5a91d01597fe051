/** Arcs at the side of a text, from sentences to those that they depend on. */
import { setAttributes, svg } from "../../charts/svg.ts";
import type { Link } from "./links.ts";

export interface ArcsState {
  links: readonly Link[];
  /** The sentence with highlighted arcs. */
  followed: number;
  /** px of the middle of every sentence from the top. */
  middles: readonly number[];
  width: number;
  height: number;
  /** The end of the scale. */
  top: number;
  colour(value: number): string;
}

/** Width in px of the widest arc next to the text, and the height at which arcs reach half of it. */
const [WIDEST, GAP, HALF] = [6, 4, 120];

export function drawArcs(picture: SVGElement, state: ArcsState): void {
  const { links, followed, middles, width, height, top, colour } = state;
  setAttributes(picture, { width, height, viewBox: `0 0 ${width} ${height}` });
  const right = width - GAP;
  const paths = [...links].reverse().map(({ query, key, value }) => {
    const share = top > 0 ? Math.abs(value) / top : 0;
    const [from, to] = [middles[query] ?? 0, middles[key] ?? 0];
    const reach = (right - WIDEST) * (1 - 2 ** (-Math.abs(from - to) / HALF)) * (4 / 3);
    const left = Math.max(-width / 4, right - reach);
    const isOn = query === followed || key === followed;
    return svg("path", {
      d: `M${right} ${from}C${left} ${from} ${left} ${to} ${right} ${to}`,
      "stroke-width": (0.75 + (WIDEST - 0.75) * share).toFixed(2),
      stroke: colour(value),
      class: isOn ? "aw-sentence-arc aw-sentence-on" : "aw-sentence-arc",
    });
  });
  // Highlighted arcs are drawn on top.
  paths.sort((a, b) => Number(a.classList.contains("aw-sentence-on")) - Number(b.classList.contains("aw-sentence-on")));
  picture.replaceChildren(...paths);
}
