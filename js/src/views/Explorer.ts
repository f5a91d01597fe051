/** Everything in one output: what is looked at, the whole model, one head, the text, and what the model says. */

import type { RenderView, ViewContext } from "../context.ts";
import { guardKeys, h } from "../dom.ts";
import { renderHeadGrid } from "./HeadGrid.ts";
import { renderHeatmap } from "./Heatmap.ts";
import { renderLayerSlider } from "./LayerSlider.ts";
import { renderPredictions } from "./Predictions.ts";
import { methodsOf, streamsOf } from "./steps.ts";
import { renderTokenStrip } from "./TokenStrip.ts";

export const renderExplorer: RenderView = (ctx, root) => {
  const stop = new AbortController();
  const { signal } = stop;
  const title = h("span", { class: "aw-title" });
  const method = choice("method", (value) => ctx.selection.set({ method: value }), signal);
  const stream = choice("stream", (value) => ctx.selection.set({ stream: value }), signal);
  const note = h("span", { class: "aw-note" });
  const warning = h("div", { class: "aw-warning", role: "note" });
  const status = h("div", { class: "aw-status", role: "status" });
  const panels = { slider: panel(), grid: panel(), map: panel(), strip: panel(), predictions: panel() };
  const maps = h("div", { class: "aw-maps" }, panels.map, panels.grid);
  const below = h("div", { class: "aw-below" }, panels.strip, panels.predictions);
  const head = h("div", { class: "aw-explorer-head" }, title, method.field, stream.field, note);
  root.classList.add("aw-explorer");
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "attention explorer");
  const body = h("div", { class: "aw-explorer-body" }, head, warning, status, panels.slider, below, maps);
  root.replaceChildren(body);

  const update = (): void => {
    const { options } = ctx;
    const header = ctx.header();
    const { source, notes } = ctx.resolved();
    title.textContent = options.title || header.model;
    title.hidden = title.textContent === "";
    const methods = options.method ? [] : methodsOf(header, options.methods);
    method.offer(
      methods.map((m) => ({ value: m.method, label: m.title })),
      source.method,
    );
    const streams = options.stream ? [] : streamsOf(header, source.method);
    stream.offer(
      streams.map((value) => ({ value, label: value })),
      source.stream,
    );
    note.textContent = [source.note, ...notes].filter(Boolean).join(" · ");
    warning.textContent = header.warning;
    status.textContent = ctx.tiles.status().message;
    panels.grid.hidden = source.layers.length * (source.heads?.length ?? 1) < 2;
    panels.map.hidden = source.kind === "attributions" && ctx.axisOf(source.query).labels.length < 2;
    maps.toggleAttribute("data-two", !panels.grid.hidden && !panels.map.hidden);
    below.toggleAttribute("data-two", header.predictions.items.length > 0);
  };
  const inner: ViewContext = ctx.child({ title: "" });
  const cleanups = [
    renderLayerSlider(inner, panels.slider),
    renderTokenStrip(inner, panels.strip),
    renderHeatmap(inner, panels.map),
    renderHeadGrid(inner, panels.grid),
    renderPredictions(inner, panels.predictions),
  ];
  const off = ctx.onChange((changed) => {
    if (changed.size > 1 || !changed.has("hover")) update();
  });
  update();
  return () => {
    stop.abort();
    off();
    for (const clean of cleanups) clean();
    root.replaceChildren();
  };
};

function panel(): HTMLElement {
  return h("div", { class: "aw-panel" });
}

interface Choice {
  field: HTMLElement;
  /** Show what can be chosen; a single possibility is no choice and is hidden. */
  offer(items: { value: string; label: string }[], current: string): void;
}

function choice(name: string, chosen: (value: string) => void, signal: AbortSignal): Choice {
  const select = h("select", { class: "aw-select", "aria-label": name });
  const field = h("label", { class: "aw-field" }, name, select);
  guardKeys(select, signal);
  select.addEventListener("change", () => chosen(select.value), { signal });
  let drawn = "";
  return {
    field,
    offer(items, current) {
      field.hidden = items.length < 2;
      const name = JSON.stringify(items);
      if (name !== drawn) {
        drawn = name;
        select.replaceChildren(...items.map(({ value, label }) => h("option", { value }, label)));
      }
      select.value = current;
    },
  };
}
