/**
 * The values of a pair of tokens, or of a target and several sources together, in every layer: a line for each
 * explanation. It follows the pin and the pointer; a click selects a layer.
 */

import { assign, createWatch, h, keyboard, on, onResize } from "../../dom.ts";
import { createCopyButton, type NumberPlace } from "../base/copyPython.ts";
import { filtersOf } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { moveLayer, navigation, plural } from "../base/navigation.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createLayerControl, createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createLines } from "./profile/lines.ts";
import { createSources, type Profile } from "./profile/sources.ts";
import { createProfileStrips } from "./profile/strips.ts";
import { wordsAt } from "./profile/words.ts";
import { createRows } from "./rows.ts";

export const renderLayerProfile = view((ctx, root, signal) => {
  const args = (): Record<string, unknown> => ({
    query: explanations.meta?.follows === false ? null : pinnedQuery(ctx),
    unit: ctx.source().unit,
  });
  const explanations = createRows<Profile>(ctx, signal, "profile", args, () => draw(), "one");
  const controls = together(createLayerControl(ctx, signal), createUnitControl(ctx, signal));
  const lines = createLines(ctx);
  const { plot } = lines;
  const sources = createSources(ctx, explanations);
  const strips = createProfileStrips(ctx, signal, explanations, sources);
  const copy = createCopyButton(ctx, signal, () => place());
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
  let sums: number[][] = []; // [line][layer], summed over the chosen sources
  let hovered = -1; // index of the layer under the pointer
  let [width, height] = [0, 0];

  root.classList.add("aw-profile");
  root.role = "group";
  /** The first line's value at the selected layer, if it was chosen what its sources are. */
  const place = (): NumberPlace | null => {
    const { meta, stale } = explanations;
    const layer = ctx.resolved().layer;
    const isScaled = filtersOf(ctx).special === "renormalise" && meta?.shares.some(Boolean);
    const some = sources.chosen();
    if (!meta || stale || isScaled || !some.length || !meta.layers.includes(layer)) return null;
    return { of: "value", line: 0, sources: some, layer, ...args() };
  };
  const draw = (): void => {
    explanations.read(lacks);
    const { meta, stale } = explanations;
    controls.show();
    const title = show(meta ? where() : "");
    copy.show();
    if (!meta) return;
    strips.build(meta);
    if (!stale) paint();
    assign(root, { ariaLabel: `${title}, ${where()}` });
  };
  const where = (): string => {
    const scaleNote = explanations.hasOwnScales() ? "each line divided by its largest magnitude" : "";
    return [`${plural(ctx.source().unit)}, over layers`, scaleNote].filter(Boolean).join(" · ");
  };

  /**
   * Update marks and words for the layer and the chosen sources. Runs on every pointer move; lines are redrawn only
   * when they change.
   */
  const paint = (): void => {
    const { meta } = explanations;
    if (!meta || width <= 0) return;
    explanations.trim();
    const { shown } = explanations;
    const some = sources.keys();
    const hasOwnScales = explanations.hasOwnScales();
    if (isDrawn(meta, shown, some.join(), width, height, hasOwnScales, ctx.theme, ctx.options)) {
      sums = sources.sums(some);
      lines.draw(meta, sums, hasOwnScales, width, height);
    }
    const now = meta.layers.indexOf(ctx.resolved().layer);
    const at = hovered >= 0 ? hovered : now;
    lines.mark(now, hovered);
    const [about, here, highest] = wordsAt(ctx, explanations, sources, sums, some, at);
    readout.show(`${about}${here}`, true);
    assign(plot, {
      ariaLabel: `${about} over layers. Largest: ${highest}. Left and right arrows change the layer.`,
    });
    const place = Math.max(0, at);
    strips.paint(meta, shown[place] ?? new Float32Array(), place, some);
  };

  const point = (place: number): void => {
    if (place === hovered) return;
    hovered = place;
    paint();
  };
  on(plot, signal, {
    pointermove: (event) => point(lines.placeAt(event)),
    pointerleave: () => point(-1),
    click(event) {
      const layer = explanations.meta?.layers[lines.placeAt(event)];
      if (layer !== undefined) ctx.selection.set({ layer });
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowLeft: () => moveLayer(ctx, -1),
    ArrowRight: () => moveLayer(ctx, 1),
  });
  onResize(chart, signal, (box) => {
    [width, height] = [Math.floor(box.width), Math.floor(box.height)];
    paint();
  });
  return (changed) => {
    if (only(changed, "hover")) paint();
    else draw();
  };
});
