/** A chart on the page: its picture, and the names of its lines beside or below. */

import { h } from "../../dom.ts";
import { setAttributes, svg } from "./svg.ts";

export interface Figure {
  element: HTMLElement;
  /** What the pointer moves over, and what has the keys. */
  plot: HTMLElement;
  picture: SVGElement;
  legend: HTMLElement;
  /** Put this into the picture, now of this size in px. */
  fill(width: number, height: number, ...parts: SVGElement[]): void;
}

/** Read by the arrow keys. */
const BY_KEYS = { tabindex: "0", role: "application", "aria-roledescription": "line chart" };

/** `attributes` are those of its plot. */
export function createFigure(attributes: Record<string, string> = BY_KEYS): Figure {
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h("div.profile-plot", attributes, picture);
  const legend = h("ul.profile-legend");
  return {
    element: h("div.profile-figure", plot, legend),
    plot,
    picture,
    legend,
    fill(width, height, ...parts) {
      setAttributes(picture, { viewBox: `0 0 ${width} ${height}`, width, height }).replaceChildren(...parts);
    },
  };
}
