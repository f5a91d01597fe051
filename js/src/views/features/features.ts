/** The SAEs that Python describes, and which SAE and feature are selected. */

import type { ViewContext } from "../../context.ts";
import { h, on, setFlag, shortLabel } from "../../dom.ts";
import { nearest, translateIndex } from "../../selection.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import type { Axis } from "../../wire/wire.ts";
import { createMenu } from "../base/menu.ts";
import { type Control, createLayerControl } from "../base/toolbar.ts";
import { type Fill, NOTHING } from "../text/stripColour.ts";
import { writeLabel } from "../text/tokens.ts";

/** An SAE. The twin of `ShownSae.describe` in attnwidgets/views/features/features.py. */
export interface Sae {
  layer: number | null;
  features: number;
  site: string;
  stack: string;
  /** Whether its activations on a text are available. */
  onText: boolean;
  /** Whether the first token is a decoder's start token, on which no SAE is trained. */
  skipsFirst: boolean;
  /** Whether there are statistics over a corpus. */
  counted: boolean;
  names: Record<string, string>;
}

export interface FeatureOptions extends ViewOptions {
  saes?: Sae[];
  tabs?: number[];
}

export const optionsOf = (ctx: ViewContext): FeatureOptions => ctx.options;

/** Index of the shown SAE: among several, the SAE nearest to the selected layer. */
export function shownSae(ctx: ViewContext): number {
  const saes = optionsOf(ctx).saes ?? [];
  const layers = saes.flatMap(({ layer }) => (layer === null ? [] : [layer]));
  if (layers.length < 2) return 0;
  const layer = nearest(layers, ctx.selection.get("layer"));
  return saes.findIndex((sae) => sae.layer === layer);
}

/** A choice among SAEs of several layers: the layer control, or a menu if the shown source lacks layers. */
export function createSaeControl(ctx: ViewContext, signal: AbortSignal): Control {
  const control = createLayerControl(ctx, signal);
  const menu = createMenu("layer", signal, (layer) => ctx.selection.set({ layer: Number(layer) }));
  const field = h("span.sae-layer", ...control.elements, menu.field);
  return {
    elements: [field],
    show() {
      const { saes = [] } = optionsOf(ctx);
      const layers = [...new Set(saes.flatMap(({ layer }) => (layer === null ? [] : [layer])))];
      field.hidden = layers.length < 2;
      control.show();
      const offered = ctx.layered().source.layers.length > 1 ? [] : layers;
      menu.offer(
        offered.map((layer) => ({ value: String(layer), label: `layer ${ctx.layerName(layer)}` })),
        String(saes[shownSae(ctx)]?.layer),
      );
    },
  };
}

/** "#12 royalty" */
export function nameOfFeature(sae: Sae | undefined, feature: number): string {
  const name = sae?.names[feature];
  return name ? `#${feature} ${shortLabel(name, 40)}` : `#${feature}`;
}

/** A button with a feature's name that selects it in all linked views. */
export function featureButton(
  ctx: ViewContext,
  sae: Sae | undefined,
  feature: number,
  signal: AbortSignal,
): HTMLElement {
  const name = nameOfFeature(sae, feature);
  const button = h("button.button.feature", { type: "button", title: name }, name);
  on(button, signal, { click: () => ctx.selection.set({ feature }) });
  return button;
}

/** A token as text, with its whitespace visible, over the fill of a share of the largest activation. */
export function tokenSpan(label: string, { css, flips }: Fill = NOTHING): HTMLElement {
  const span = h("span.hit");
  writeLabel(span, label);
  span.style.background = css;
  setFlag(span, "data-flip", flips);
  return span;
}

/** A share of all tokens: "1.2 %", "0.013 %". */
export function percentage(share: number): string {
  const size = 100 * share;
  return `${size === 0 ? "0" : size >= 10 ? size.toFixed(0) : String(Number(size.toPrecision(2)))} %`;
}

/** The axis of the text that the SAE was applied to, in the current unit. */
export function axisOfText(ctx: ViewContext, sae: Sae): { axis: Axis; unit: string } {
  const { sources, axes } = ctx.header();
  const { unit } = ctx.source();
  const ofStack = sources.filter(({ stack }) => stack === sae.stack);
  const source = ofStack.find((source) => source.unit === unit) ?? ofStack[0] ?? ctx.source();
  return { axis: axes[source.key] as Axis, unit: source.unit };
}

/** The pinned element of the text, or the hovered element of any linked view; -1: none. */
export function tokenAt(ctx: ViewContext, which: "pinned" | "hover", sae: Sae): number {
  const cell = ctx.selection.get(which);
  if (!cell) return -1;
  const { axis, unit } = axisOfText(ctx, sae);
  const element = cell.key >= 0 ? cell.key : cell.query;
  if (cell.unit === unit) return element < axis.labels.length ? element : -1;
  const { sources, axes } = ctx.header();
  const from = sources.find((source) => source.unit === cell.unit && source.stack === sae.stack);
  const origin = from && axes[from.key];
  return origin ? translateIndex(element, origin, axis) : -1;
}
