/** The controls and overlays of an ImageView. */
import { h, on } from "../../dom.ts";
import { svg } from "../charts/svg.ts";
import type { Atlas } from "./atlas.ts";
import type { Norms } from "./norms.ts";

const OUTLINES: readonly (readonly [string, string])[] = [
  ["", "none"],
  ["0.5", "half of it"],
  ["0.6", "60 % of it"],
  ["0.8", "80 % of it"],
  ["0.95", "95 % of it"],
];

const SCALES: readonly (readonly [string, string])[] = [
  ["map", "this head"],
  ["layer", "this layer"],
  ["all", "all layers"],
];

const options = (choices: readonly (readonly [string, string])[]): HTMLElement[] =>
  choices.map(([value, name]) => h("option", { value }, name));

/** Controls of how a map is shaded: its opacity, the outline of its largest values, and the scale of its colours. */
export function createShading() {
  const heat = h("input.range.image-opacity", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.05",
    value: "1",
    "aria-label": "heat",
  });
  const heatField = h("label.group.image-heat-field", "heat", heat);
  const around = h("select.button", { "aria-label": "outline" }, ...options(OUTLINES));
  const extent = h("select.button.image-extent", { "aria-label": "scale" }, ...options(SCALES));
  const [least, ramp, most] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
  const legend = h("span.scale.image-legend", ramp, least, h("span", "–"), most, h("label.image-of", "scale:", extent));
  const outlineField = h("label.group.image-heat-field", "outline", around);
  return { heat, heatField, around, outlineField, extent, least, ramp, most, legend };
}

/** The picture, with the heat and the outline over it. */
export function createOverlay() {
  const [below, warm] = [h("canvas.image-below"), h("canvas.image-heat")];
  const line = svg("path", { class: "aw-image-contour" });
  const lines = svg("svg", { class: "aw-image-lines", "aria-hidden": "true", preserveAspectRatio: "none" });
  lines.append(line);
  const plot = h(
    "div.plot.image-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "picture of patches" },
    below,
    warm,
    lines,
  );
  return { plot, below, warm, line, lines };
}

type Pane = "heads" | "norms";

const PANES: Record<Pane, string> = { heads: "all heads", norms: "norms" };

/**
 * Buttons that switch between panels if a single panel fits: first those inside the panels, then those of the caption.
 */
export function createSwaps(norms: Norms, atlas: Atlas, signal: AbortSignal, swap: (pane: Pane) => void) {
  const button = (name: Pane, panel: Element | null, kind: string) => {
    const button = h(`button.button.${kind}`, { type: "button" }, PANES[name]);
    panel?.append(button);
    on(button, signal, { click: () => swap(name) });
    return { name, button };
  };
  return [
    button("heads", norms.element.firstElementChild, "image-option"),
    button("norms", atlas.element.firstElementChild, "image-option"),
    button("heads", null, "image-alone"),
    button("norms", null, "image-alone"),
  ];
}
