/** Shares of a site as a map: layers by tokens, or layers by heads; tokens that both runs share are folded. */
import { colourAt, cssOf, heatMap, scalePosition } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { density, h, type KeyHandlers, keyboard, on, setChildren, setSizes, setStyles, spotAt } from "../../../dom.ts";
import { rectangle } from "../../../selection.ts";
import { type Box, type Chosen, createChosen } from "../../base/chosen.ts";
import { createPicking } from "../../base/gestures.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { word } from "../words.ts";
import { type Activation, activationAt, endOf, indexOf, type Patching, SITES, type Site, widthOf } from "./patching.ts";

/** px of the folded column of tokens before the first difference. */
export const FOLDED = 36;
/** px of a column from which its label is upright. */
const UPRIGHT = 30;
/** Width in px that a label needs among others. */
const NARROW = 13;
/** Most activations that can be patched together. */
const MOST = 64;
const LABELS = 18;
const TALL_LABELS = 58;

export interface SiteMap {
  element: HTMLElement;
  site: Site;
  /** Height in px of the header above the cells. */
  head(patching: Patching, width: number): number;
  /** Draw into a width in px, with rows of a height. */
  draw(patching: Patching, width: number, row: number, head: number): void;
  mark(patching: Patching, chosen: readonly Activation[], column: number): void;
}

export interface MapEvents {
  choose(activations: readonly Activation[], adds: boolean): void;
  hover(activation: Activation | null): void;
  keys(site: Site): KeyHandlers;
}

/** The first token of the columns of a site: the first difference. */
const firstOf = ({ first }: Patching, site: Site): number => (site === "head" ? 0 : first);

export const columnsOf = (patching: Patching, site: Site): number => widthOf(patching, site) - firstOf(patching, site);

/** The elements of the map, and the state that they show. */
interface SiteMapState {
  readonly ctx: ViewContext;
  readonly site: Site;
  readonly name: HTMLDivElement;
  readonly labels: HTMLDivElement;
  readonly folded: HTMLDivElement;
  readonly canvas: HTMLCanvasElement;
  readonly over: SVGElement;
  readonly plot: HTMLDivElement;
  readonly chosen: Chosen;
  readonly band: SVGElement;
  readonly dots: SVGElement;
  /** The data drawn last. */
  shown: Patching | null;
  /** px of a cell and of a row. */
  size: { cell: number; row: number };
}

export function createSiteMap(ctx: ViewContext, site: Site, signal: AbortSignal, events: MapEvents): SiteMap {
  const name = h("div.patch-name.fine");
  const labels = h("div.patch-labels.fine", { "aria-hidden": "true" });
  const folded = h("div.patch-folded", { title: "the same tokens in both texts: nothing can differ here" });
  const canvas = h("canvas.cells");
  const over = svg("svg", { class: "aw-patch-over", "aria-hidden": "true" });
  const plot = h(
    "div.plot.patch-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "map of shares" },
    canvas,
  );
  const holder = h("div.patch-cells", folded, h("div.patch-holder", plot, over));
  const element = h("div.patch-map", { role: "group", "aria-label": SITES[site] }, name, labels, holder);
  const chosen = createChosen(plot);
  const band = svg("rect", { class: "aw-patch-column" });
  const dots = svg("g");

  const state: SiteMapState = {
    ctx,
    site,
    name,
    labels,
    folded,
    canvas,
    over,
    plot,
    chosen,
    band,
    dots,
    shown: null,
    size: { cell: 0, row: 0 },
  };
  over.append(band, dots);
  createPicking(
    plot,
    { element: plot, size: () => state.shown && [state.shown.layers, columnsOf(state.shown, site)] },
    signal,
    {
      most: MOST,
      toggle: (at) => events.choose([activationOf(state, at)], true),
      drag: (from, to, adds) =>
        events.choose(
          rectangle(from, to).map((at) => activationOf(state, at)),
          adds,
        ),
    },
  );
  on(plot, signal, {
    click(event) {
      const activation = spotOf(state, event);
      if (activation) events.choose([activation], false);
    },
    pointermove: (event) => events.hover(spotOf(state, event)),
    pointerleave: () => events.hover(null),
  });
  keyboard(plot, signal, events.keys(site), "← → ↑ ↓: another place · Shift+click, drag: several · Escape: one");
  return {
    element,
    site,
    head: (patching, width) => {
      const columns = Math.max(1, columnsOf(patching, site));
      const cell = (width - (firstOf(patching, site) ? FOLDED : 0)) / columns;
      return site !== "head" && cell < UPRIGHT ? TALL_LABELS : LABELS;
    },
    draw: (patching, width, row, head) => draw(state, patching, width, row, head),
    mark: (patching, activations, column) => mark(state, patching, activations, column),
  };
}

function spotOf(state: SiteMapState, event: MouseEvent): Activation | null {
  const { shown } = state;
  if (!shown) return null;
  const at = spotAt(event, state.plot, shown.layers, columnsOf(shown, state.site));
  return at && activationOf(state, at);
}

function activationOf(state: SiteMapState, [layer, column]: readonly [number, number]): Activation {
  return activationAt(state.site, layer, column + (state.shown ? firstOf(state.shown, state.site) : 0));
}

function write(state: SiteMapState, patching: Patching, cell: number, row: number): void {
  const { site, labels } = state;
  const first = firstOf(patching, site);
  const columns = columnsOf(patching, site);
  const step = Math.max(1, Math.ceil((site === "head" ? 16 : NARROW) / cell));
  setChildren(
    labels,
    ...(first && site !== "head" ? [h("span.patch-same", { style: `width:${FOLDED}px` }, "same")] : []),
    ...Array.from({ length: Math.ceil(columns / step) }, (_, i) => {
      const at = first + i * step;
      const [clean = "", corrupt = ""] = [patching.cleanTokens[at], patching.corruptTokens[at]];
      const text = site === "head" ? state.ctx.headName(at) : word(clean, 16);
      const label = h("span.patch-label.clip", h("bdi", text));
      if (site !== "head" && patching.differs.includes(at)) {
        label.dataset.differs = "";
        label.title = `${clean} / ${corrupt}`;
      } else label.title = clean;
      setStyles(label, {
        left: `${(first && site !== "head" ? FOLDED : 0) + i * step * cell}px`,
        width: `${cell * step}px`,
      });
      return label;
    }),
  );
  labels.toggleAttribute("data-tall", site !== "head" && cell < UPRIGHT);
  setSizes(labels, { row });
}

function paint(state: SiteMapState, patching: Patching): void {
  const { site, canvas } = state;
  const { cell, row } = state.size;
  const [columns, first] = [columnsOf(patching, site), firstOf(patching, site)];
  const [width, height] = [columns * cell, patching.layers * row];
  const scale = density();
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  setStyles(canvas, { width: `${width}px`, height: `${height}px` });
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(scale, scale);
  const map = heatMap(true, state.ctx.theme);
  const end = endOf(patching);
  const gap = Math.min(cell, row) >= 5 ? 1 : 0;
  const all = patching.raw[site] ?? [];
  const wide = widthOf(patching, site);
  for (let layer = 0; layer < patching.layers; layer += 1) {
    for (let column = 0; column < columns; column += 1) {
      const value = (all[layer * wide + first + column] ?? Number.NaN) / (patching.gap ?? 1);
      if (Number.isNaN(value)) continue; // a head that the layer does not have
      pen.fillStyle = cssOf(colourAt(map, scalePosition(Math.max(-end, Math.min(end, value)), [-end, end], "linear")));
      pen.fillRect(column * cell, layer * row, cell - gap, row - gap);
    }
  }
}

function draw(state: SiteMapState, patching: Patching, width: number, row: number, head: number): void {
  const { site, name, folded, plot } = state;
  state.shown = patching;
  const first = firstOf(patching, site);
  const columns = Math.max(1, columnsOf(patching, site));
  const foldedWidth = first ? FOLDED : 0;
  state.size = { cell: (width - foldedWidth) / columns, row };
  const height = patching.layers * row;
  setChildren(name, h("b", SITES[site]));
  if (site === "head") name.append(` ${patching.layers} × ${columns}`);
  plot.ariaLabel = `${site === "head" ? "heads" : SITES[site]}, layers by ${site === "head" ? "heads" : "tokens"}: shares of the difference`;
  setStyles(state.labels, { height: `${head}px` });
  folded.hidden = !first;
  setStyles(folded, { width: `${FOLDED - 3}px`, height: `${height - 1}px` });
  setStyles(plot, { width: `${columns * state.size.cell}px`, height: `${height}px` });
  setAttributes(state.over, { width: columns * state.size.cell, height });
  write(state, patching, state.size.cell, row);
  paint(state, patching);
}

function mark(state: SiteMapState, patching: Patching, activations: readonly Activation[], column: number): void {
  const { site } = state;
  const { cell, row } = state.size;
  const first = firstOf(patching, site);
  const at = (activation: Activation): number => indexOf(activation) - first;
  const here = activations.filter((activation) => activation[0] === site && at(activation) >= 0);
  state.chosen.draw(here.map((activation): Box => [at(activation) * cell - 0.5, activation[1] * row - 0.5, cell, row]));
  const inside = site !== "head" && column >= first;
  setAttributes(state.band, {
    x: inside ? (column - first) * cell : 0,
    width: inside ? cell - 1 : 0,
    height: patching.layers * row - 1,
  });
  state.dots.replaceChildren(
    ...patching.checked
      .filter(([of, , token, head]) => of === site && ((site === "head" ? head : token) ?? -1) >= first)
      .map(([of, layer, token, head]) =>
        svg("circle", {
          cx: (((of === "head" ? head : token) as number) - first + 0.5) * cell - 0.5,
          cy: (layer + 0.5) * row - 0.5,
          r: Math.max(1.5, Math.min(3, row / 4)),
        }),
      ),
  );
}
