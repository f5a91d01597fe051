/** Everything in one output: what is looked at, the whole model, one head, the text, and what the model says. */

import { h, on } from "../dom.ts";
import { createHeading, only, view } from "./frame.ts";
import { renderHeadGrid } from "./HeadGrid.ts";
import { renderHeatmap } from "./Heatmap.ts";
import { renderLayerSlider } from "./LayerSlider.ts";
import { renderPredictions } from "./Predictions.ts";
import { methodsOf, streamsOf } from "./steps.ts";
import { renderTokenStrip } from "./TokenStrip.ts";

export const renderExplorer = view((ctx, root, signal) => {
  const choice = (name: "method" | "stream"): Choice => {
    const made = createChoice(name);
    on(made.select, signal, { change: () => ctx.selection.set({ [name]: made.select.value }) });
    return made;
  };
  const [method, stream] = [choice("method"), choice("stream")];
  const heading = createHeading(ctx, method.field, stream.field);
  const panel = (): HTMLElement => h("div.aw-panel");
  const [slider, map, strip, grid, predictions] = [panel(), panel(), panel(), panel(), panel()];
  // In the order of reading on a narrow page; on a wide one the second column of panels comes to the left.
  const [main, side] = [h("div.aw-column", map, strip), h("div.aw-column.aw-side", grid, predictions)];
  const body = h("div.aw-explorer-body", slider, main, side);
  root.classList.add("aw-explorer");
  root.role = "region";
  root.ariaLabel = "attention explorer";
  root.replaceChildren(...heading.elements, body);
  const inner = ctx.child({ title: "" });

  const update = (): void => {
    const { options } = ctx;
    const header = ctx.header();
    const { source } = ctx.resolved();
    heading.show("", header.model);
    method.offer(options.method ? [] : methodsOf(header, options.methods), source.method);
    const streams = options.stream ? [] : streamsOf(header, source.method);
    stream.offer(
      streams.map((name) => ({ value: name, label: name })),
      source.stream,
    );
    grid.hidden = source.layers.length * (source.heads?.length ?? 1) < 2;
    map.hidden = source.kind === "attributions" && ctx.axisOf(source.query).labels.length < 2;
    body.toggleAttribute("data-two", !map.hidden && !(grid.hidden && header.predictions.items.length === 0));
  };
  update();
  renderLayerSlider(inner, slider);
  renderHeatmap(inner, map);
  renderTokenStrip(inner, strip);
  renderHeadGrid(inner, grid);
  renderPredictions(inner, predictions);
  return (changed) => {
    if (!only(changed, "hover")) update();
  };
});

interface Choice {
  field: HTMLElement;
  select: HTMLSelectElement;
  /** Show what can be chosen; a single possibility is no choice and is hidden. */
  offer(items: { value: string; label: string }[], current: string): void;
}

function createChoice(name: string): Choice {
  const select = h("select.aw-button");
  const field = h("label.aw-field", name, select);
  let drawn = "";
  return {
    field,
    select,
    offer(items, current) {
      field.hidden = items.length < 2;
      const offered = JSON.stringify(items);
      if (offered !== drawn) {
        drawn = offered;
        select.replaceChildren(...items.map(({ value, label }) => h("option", { value }, label)));
      }
      select.value = current;
    },
  };
}
