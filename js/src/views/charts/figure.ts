/** A chart: its picture, and a legend next to or below it. */

import { h } from "../../dom.ts";
import { setAttributes, svg } from "./svg.ts";

export interface Figure {
  element: HTMLElement;
  /** The element that receives pointer events and keys. */
  plot: HTMLElement;
  picture: SVGElement;
  legend: HTMLElement;
  /** Replace the content of the picture and set its size in px. */
  fill(width: number, height: number, ...parts: SVGElement[]): void;
}

/** Called by the arrow keys. */
const BY_KEYS = { tabindex: "0", role: "application", "aria-roledescription": "line chart" };

/** `attributes` are set on the plot element. */
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
