/** The map of the chosen element in every layer and head, each on its own range; a click shows the head. */
import { heatMap, LAST_COLOUR, mapTable, type Rgb, scalePosition } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { createWatch, density, h, keyboard, on, setBox, setChildren, setSizes, setText, spotAt } from "../../dom.ts";
import { moveHead, moveLayer, plural } from "../base/navigation.ts";
import type { PatchRows } from "./rows.ts";

export interface Atlas {
  element: HTMLElement;
  /** Show maps in a box of this height in px. */
  show(rows: PatchRows, words: string, palette: string, tall: number): void;
  /** Outline the shown map, by the indices of layer and head. */
  select(layer: number, head: number): void;
}

/** px of a map with the line after it, at most, and of the width for all of them. */
const [LARGEST, WIDE] = [33, 204];

/** The elements of the atlas, and its state. */
interface AtlasState {
  readonly ctx: ViewContext;
  readonly canvas: HTMLCanvasElement;
  readonly plot: HTMLDivElement;
  readonly tops: HTMLDivElement;
  readonly lefts: HTMLDivElement;
  readonly title: HTMLElement;
  readonly about: HTMLSpanElement;
  readonly element: HTMLDivElement;
  readonly isOther: (...values: unknown[]) => boolean;
  /** The number of layers and of heads. */
  count: readonly [number, number];
  /** px of a map. */
  cell: readonly [number, number];
}

/** `choose` is called with the indices of a layer and a head. */
export function createAtlas(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (layer: number, head: number) => void,
  over: (layer: number, head: number) => void,
): Atlas {
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const plot = h(
    "div.plot.atlas-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "maps of all heads" },
    canvas,
    hovered,
    selected,
  );
  const [tops, lefts] = [h("div.atlas-heads"), h("div.atlas-layers")];
  const [title, about] = [h("b"), h("span.where")];
  const element = h("div.atlas", h("div.image-head", title, about), h("div.atlas-figure", h("i"), tops, lefts, plot));
  const isOther = createWatch();

  const state: AtlasState = {
    ctx,
    canvas,
    plot,
    tops,
    lefts,
    title,
    about,
    element,
    isOther,
    count: [0, 0],
    cell: [0, 0],
  };
  on(plot, signal, {
    pointermove(event) {
      const spot = at(state, event);
      outlineAt(state, hovered, spot?.[0] ?? -1, spot?.[1] ?? -1);
      over(spot?.[0] ?? -1, spot?.[1] ?? -1);
    },
    pointerleave() {
      hovered.hidden = true;
      over(-1, -1);
    },
    click(event) {
      const spot = at(state, event);
      if (spot) choose(...spot);
    },
  });
  keyboard(
    plot,
    signal,
    {
      ArrowUp: () => moveLayer(ctx, -1),
      ArrowDown: () => moveLayer(ctx, 1),
      ArrowLeft: () => moveHead(ctx, -1),
      ArrowRight: () => moveHead(ctx, 1),
      Home: () => moveLayer(ctx, -Infinity),
      End: () => moveLayer(ctx, Infinity),
      Escape: () => ctx.selection.clear(),
    },
    "↑ ↓: layer · ← →: head · Escape: unpin",
  );
  hovered.hidden = true;
  return {
    element,
    show: (rows, words, palette, tall) => show(state, rows, words, palette, tall),
    select: (layer, head) => outlineAt(state, selected, layer, head),
  };
}

function layout(
  state: AtlasState,
  layers: number,
  heads: number,
  [rows, cols]: readonly [number, number],
  tall: number,
): void {
  const { ctx } = state;
  const scale = Math.min(
    (Math.min(LARGEST, Math.floor(WIDE / heads)) - 1) / cols,
    (Math.min(LARGEST, Math.floor(tall / layers)) - 1) / rows,
  );
  state.cell = [Math.max(3, Math.round(scale * rows)) + 1, Math.max(3, Math.round(scale * cols)) + 1];
  state.count = [layers, heads];
  const [high, wide] = state.cell;
  const source = ctx.source();
  const names = (all: readonly string[], size: number, least: number): HTMLElement[] =>
    all.map((name, i) => {
      const step = Math.ceil(least / size);
      return h("span", i % step ? "" : name);
    });
  setSizes(state.element, {
    "atlas-wide": wide,
    "atlas-high": high,
    "atlas-all": wide * heads,
    "atlas-tall": high * layers,
  });
  const isOfHeads = source.kind === "map" && source.heads !== null;
  setChildren(state.tops, ...names(isOfHeads ? (source.heads ?? []).map((head) => ctx.headName(head)) : [], wide, 20));
  setChildren(state.lefts, ...names(layers > 1 ? source.layers.map((layer) => ctx.layerName(layer)) : [], high, 14));
}

function paint(state: AtlasState, rows: PatchRows, palette: string): void {
  const { ctx, canvas } = state;
  const dots = Math.max(1, Math.min(2, Math.round(density())));
  const [layers, heads] = state.count;
  const [high, wide] = state.cell;
  [canvas.width, canvas.height] = [heads * wide * dots, layers * high * dots];
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const { signed } = ctx.source();
  const map = heatMap(signed, ctx.theme, palette);
  const table = mapTable(map);
  const [down, across] = rows.grid;
  const small = document.createElement("canvas");
  [small.width, small.height] = [across, down];
  const smallPen = small.getContext("2d");
  if (!smallPen) return;
  const image = new ImageData(across, down);
  pen.imageSmoothingEnabled = Math.min(high, wide) * dots < Math.max(down, across);
  for (let at = 0; at < layers * heads; at += 1) {
    const [layer, head] = [Math.floor(at / heads), at % heads];
    const values = rows.map(layer, head);
    const top = rows.peak(layer, head) || 1;
    for (let i = 0; i < values.length; i += 1) {
      const from = 3 * Math.round(LAST_COLOUR * scalePosition(values[i] as number, [signed ? -top : 0, top], "sqrt"));
      image.data.set([...(table.subarray(from, from + 3) as unknown as Rgb), 255], 4 * i);
    }
    smallPen.putImageData(image, 0, 0);
    pen.drawImage(small, head * wide * dots, layer * high * dots, (wide - 1) * dots, (high - 1) * dots);
  }
}

function outlineAt(state: AtlasState, el: HTMLElement, layer: number, head: number): void {
  const [high, wide] = state.cell;
  const isThere = layer >= 0 && head >= 0;
  setBox(el, isThere ? head * wide : -1, layer * high, wide - 1, high - 1);
}

function at(state: AtlasState, event: MouseEvent): readonly [number, number] | null {
  return spotAt(event, state.plot, ...state.count);
}

function show(state: AtlasState, rows: PatchRows, words: string, palette: string, tall: number): void {
  const { ctx, about, element } = state;
  const layers = rows.layers.length;
  const total = layers * rows.heads;
  const source = ctx.source();
  const unit = source.kind === "attributions" ? "map" : source.heads ? "head" : "layer";
  setText(state.title, `${total} ${total === 1 ? unit : plural(unit)}`);
  if (setText(about, words)) about.title = words;
  state.plot.ariaLabel = `${total} maps, ${words}. Arrow keys change layer and head.`;
  element.hidden = layers < 2 || !rows.patches.length;
  if (element.hidden || !state.isOther(rows, ctx.theme, palette, source, tall, ctx.options.indexBase, density()))
    return;
  layout(state, layers, rows.heads, rows.grid, tall);
  paint(state, rows, palette);
}
