/**
 * The values of a pair of tokens, or of a target and several sources together, in every layer: a line for each
 * explanation. It follows the pin and the pointer; a click selects a layer.
 */

import type { Readout, ViewContext } from "../../context.ts";
import { assign, createWatch, h, keyboard, on, onResize } from "../../dom.ts";
import type { Resolved } from "../../selection.ts";
import { type CopyButton, createCopyButton, type NumberAddress } from "../base/copyPython.ts";
import { filtersOf } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import type { Missing } from "../base/missing.ts";
import { moveLayer, navigation, plural } from "../base/navigation.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { type Control, createLayerControl, createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createLines, type Lines } from "./profile/lines.ts";
import { createSources, type Profile, type Sources } from "./profile/sources.ts";
import { createProfileStrips, type ProfileStrips } from "./profile/strips.ts";
import { wordsAt } from "./profile/words.ts";
import { createRows, type ExplanationRows } from "./rows.ts";

/** The elements of the view, and the state that they show. */
interface LayerProfileState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly explanations: ExplanationRows<Profile>;
  readonly controls: Control;
  readonly lines: Lines;
  readonly sources: Sources;
  readonly strips: ProfileStrips;
  readonly copy: CopyButton;
  readonly show: (where: string | ((shown: Resolved) => string), title?: string, names?: readonly string[]) => string;
  readonly lacks: (missing: Missing | null) => void;
  readonly readout: Readout;
  readonly isDrawn: (...values: unknown[]) => boolean;
  /** The sum of every layer, by explanation. */
  sums: number[][];
  /** The layer under the pointer; -1: none. */
  hovered: number;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
}

export const renderLayerProfile = view((ctx, root, signal) => {
  const explanations = createRows<Profile>(
    ctx,
    signal,
    "profile",
    () => args(state),
    () => draw(state),
    "one",
  );
  const controls = together(createLayerControl(ctx, signal), createUnitControl(ctx, signal));
  const lines = createLines(ctx);
  const { plot } = lines;
  const sources = createSources(ctx, explanations);
  const strips = createProfileStrips(ctx, signal, explanations, sources);
  const copy = createCopyButton(ctx, signal, () => numberAddress(state));
  const chart = h("div.profile-chart", lines.element);
  const { show, lacks, readout } = createFrame(ctx, root, {
    controls: [...controls.elements, explanations.scales],
    tags: [explanations.form],
    body: [chart, strips.element],
    skeleton: "chart",
    hint: "Click a layer to show it in every view.",
    actions: [copy.element],
  });
  const isDrawn = createWatch();

  const state: LayerProfileState = {
    ctx,
    root,
    explanations,
    controls,
    lines,
    sources,
    strips,
    copy,
    show,
    lacks,
    readout,
    isDrawn,
    sums: [],
    hovered: -1,
    width: 0,
    height: 0,
  };

  root.classList.add("aw-profile");
  root.role = "group";
  on(plot, signal, {
    pointermove: (event) => point(state, lines.layerAt(event)),
    pointerleave: () => point(state, -1),
    click(event) {
      const layer = explanations.meta?.layers[lines.layerAt(event)];
      if (layer !== undefined) ctx.selection.set({ layer });
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowLeft: () => moveLayer(ctx, -1),
    ArrowRight: () => moveLayer(ctx, 1),
  });
  onResize(chart, signal, (box) => {
    [state.width, state.height] = [Math.floor(box.width), Math.floor(box.height)];
    paint(state);
  });
  return (changed) => {
    if (only(changed, "hover")) paint(state);
    else draw(state);
  };
});

function args(state: LayerProfileState): Record<string, unknown> {
  return {
    query: state.explanations.meta?.follows === false ? null : pinnedQuery(state.ctx),
    unit: state.ctx.source().unit,
  };
}

/** The first line's value at the selected layer, if the reader chose its sources. */
function numberAddress(state: LayerProfileState): NumberAddress | null {
  const { ctx } = state;
  const { meta, stale } = state.explanations;
  const layer = ctx.resolved().layer;
  const isScaled = filtersOf(ctx).special === "renormalise" && meta?.shares.some(Boolean);
  const some = state.sources.chosen();
  if (!meta || stale || isScaled || !some.length || !meta.layers.includes(layer)) return null;
  return { of: "value", line: 0, sources: some, layer, ...args(state) };
}

function draw(state: LayerProfileState): void {
  const { explanations } = state;
  explanations.read(state.lacks);
  const { meta, stale } = explanations;
  state.controls.show();
  const title = state.show(meta ? where(state) : "");
  state.copy.show();
  if (!meta) return;
  state.strips.build(meta);
  if (!stale) paint(state);
  assign(state.root, { ariaLabel: `${title}, ${where(state)}` });
}

function where(state: LayerProfileState): string {
  const scaleNote = state.explanations.hasSeparateScales() ? "each line divided by its largest magnitude" : "";
  return [`${plural(state.ctx.source().unit)}, over layers`, scaleNote].filter(Boolean).join(" · ");
}

/**
 * Update marks and words for the layer and the chosen sources. Runs on every pointer move; lines are redrawn only
 * when they change.
 */
function paint(state: LayerProfileState): void {
  const { ctx, explanations, lines, sources, hovered, width, height } = state;
  const { meta } = explanations;
  if (!meta || width <= 0) return;
  explanations.trim();
  const { shown } = explanations;
  const some = sources.keys();
  const hasOwnScales = explanations.hasSeparateScales();
  if (state.isDrawn(meta, shown, some.join(), width, height, hasOwnScales, ctx.theme, ctx.options)) {
    state.sums = sources.sums(some);
    lines.draw(meta, state.sums, hasOwnScales, width, height);
  }
  const now = meta.layers.indexOf(ctx.resolved().layer);
  const at = hovered >= 0 ? hovered : now;
  lines.mark(now, hovered);
  const [about, here, highest] = wordsAt(ctx, explanations, sources, state.sums, some, at);
  state.readout.show(`${about}${here}`, true);
  assign(lines.plot, {
    ariaLabel: `${about} over layers. Largest: ${highest}. Left and right arrows change the layer.`,
  });
  const position = Math.max(0, at);
  state.strips.paint(meta, shown[position] ?? new Float32Array(), position, some);
}

function point(state: LayerProfileState, position: number): void {
  if (position === state.hovered) return;
  state.hovered = position;
  paint(state);
}
