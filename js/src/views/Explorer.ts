/** Everything in one output: what is looked at, the whole model, one head, the text, and what the model says. */

import { fill, flag, h } from "../dom.ts";
import { filterPlace } from "../filters.ts";
import { chooseMethod } from "./asked.ts";
import { createHeading, only, view } from "./frame.ts";
import { renderHeatmap } from "./Heatmap.ts";
import { renderLayerSlider } from "./LayerSlider.ts";
import { createMenu } from "./menu.ts";
import { renderPredictions } from "./Predictions.ts";
import { methodsOf, streamsOf } from "./steps.ts";
import { hasManyTargets, renderTokenStrip } from "./TokenStrip.ts";

export const renderExplorer = view((ctx, root, signal) => {
  const method = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const stream = createMenu("stream", signal, (name) => ctx.selection.set({ stream: name }));
  const heading = createHeading(ctx, method.field, stream.field, filterPlace(ctx));
  const panel = (): HTMLElement => h("div.panel");
  const [slider, map, strip, layers, grid, predictions] = [panel(), panel(), panel(), panel(), panel(), panel()];
  // In the order of reading on a narrow page; on a wide one the second column of panels comes to the left.
  const [main, side] = [h("div.column", map, strip, layers), h("div.column.side", grid, predictions)];
  const features = panel();
  const body = h("div.explorer-body", slider, main, side, features);
  root.classList.add("aw-explorer");
  root.role = "group";
  root.ariaLabel = "attention explorer";
  fill(root, ...heading.elements, body);
  const inner = ctx.child({ title: "" });

  const update = (): void => {
    const { options } = ctx;
    const header = ctx.header();
    const { source } = ctx.resolved();
    heading.show("", header.model);
    const lost = ctx.tiles.status().state === "no-kernel";
    method.offer(options.method ? [] : methodsOf(header, options.methods, lost), source.method);
    const streams = options.stream ? [] : streamsOf(header, source.method);
    stream.offer(
      streams.map((name) => ({ value: name, label: name })),
      source.stream,
    );
    const attributed = source.kind === "attributions";
    grid.hidden = attributed || source.layers.length * (source.heads?.length ?? 1) < 2;
    map.hidden = attributed && !hasManyTargets(ctx);
    layers.hidden = !attributed || ctx.layered().source.layers.length < 2;
    flag(body, "data-two", !(grid.hidden && header.predictions.items.length === 0));
  };
  update();
  renderLayerSlider(inner, slider);
  renderHeatmap(inner, map);
  renderTokenStrip(inner, strip);
  ctx.views.LayerMap?.(inner, layers);
  ctx.views.HeadGrid?.(inner, grid);
  renderPredictions(inner, predictions);
  const { saes } = ctx.options as { saes?: unknown };
  if (saes) ctx.views.FeatureStrip?.(inner, features);
  features.hidden = !saes;
  return (changed) => {
    if (!only(changed, "hover")) update();
  };
});
