/** Everything in one output: what is looked at, the whole model, one head, the text, and what the model says. */

import type { RenderView, ViewContext } from "../context.ts";
import { h, keyboard } from "../dom.ts";
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
  // In the order of reading; the style sheet places them by name.
  const panels = {
    slider: panel("slider"),
    grid: panel("grid"),
    map: panel("map"),
    strip: panel("strip"),
    predictions: panel("predictions"),
  };
  const head = h("div", { class: "aw-explorer-head" }, title, method.field, stream.field, note, warning, status);
  root.classList.add("aw-explorer");
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "attention explorer");
  const body = h("div", { class: "aw-explorer-body" }, head, ...Object.values(panels));
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
    const beside = !panels.grid.hidden || header.predictions.items.length > 0;
    body.toggleAttribute("data-two", beside && !panels.map.hidden);
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

function panel(area: string): HTMLElement {
  const element = h("div", { class: "aw-panel" });
  element.style.setProperty("--aw-area", area);
  return element;
}

interface Choice {
  field: HTMLElement;
  /** Show what can be chosen; a single possibility is no choice and is hidden. */
  offer(items: { value: string; label: string }[], current: string): void;
}

function choice(name: string, chosen: (value: string) => void, signal: AbortSignal): Choice {
  const select = h("select", { class: "aw-select", "aria-label": name });
  const field = h("label", { class: "aw-field" }, name, select);
  keyboard(select, {}, signal);
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
