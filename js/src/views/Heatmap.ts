/**
 * One matrix: rows are queries, columns are keys. Hover previews, click pins and reads the exact row, arrows
 * move through layers and heads.
 */

import { decodeCode, topCode } from "../codec.ts";
import { heatMap, lut, type Mode } from "../colour.ts";
import type { Change, RenderView, Tile, ViewContext } from "../context.ts";
import { h, keyboard, liveRegion, watchWidth } from "../dom.ts";
import type { Axis, Cell, Source } from "../wire.ts";
import { Crosshair } from "./crosshair.ts";
import { fit, type Size } from "./fit.ts";
import { AxisLabels, labelRoom } from "./labels.ts";
import { type Matrix, maxPool, paintCells, peakCode } from "./paint.ts";
import { CellReader } from "./readout.ts";
import { ColourScale, roundUp } from "./scale.ts";
import { headWords, moveLayer, nextHead, plural, whereWords } from "./steps.ts";

export const renderHeatmap: RenderView = (ctx, root) => {
  const view = new HeatmapView(ctx, root);
  return () => view.close();
};

class HeatmapView {
  readonly #ctx: ViewContext;
  readonly #root: HTMLElement;
  readonly #stop = new AbortController();
  readonly #title = h("span", { class: "aw-title" });
  readonly #where = h("span");
  readonly #note = h("span", { class: "aw-note" });
  readonly #warning = h("div", { class: "aw-warning", role: "note" });
  readonly #status = h("div", { class: "aw-status", role: "status" });
  readonly #left = new AxisLabels("left");
  readonly #top = new AxisLabels("top");
  readonly #canvas = h("canvas", { class: "aw-cells" });
  readonly #crosshair = new Crosshair();
  readonly #busy = h("div", { class: "aw-busy", hidden: true });
  readonly #plot: HTMLElement;
  readonly #figure: HTMLElement;
  readonly #readout = h("div", { class: "aw-readout", "aria-hidden": "true" });
  readonly #common = h("button", { class: "aw-button", type: "button" });
  readonly #scale: ColourScale;
  readonly #say: (text: string) => void;
  #mode: Mode = "sqrt";
  #sameRange = false;
  #width = 0;
  #size: Size | null = null;
  #laidOut = "";
  #image: ImageData | null = null;
  #painted = "";
  #tile: Tile | null = null;
  #peaks = new WeakMap<Tile, number>();
  #drawnTile: Tile | null = null;
  readonly #reader: CellReader;
  #spoken = false;

  constructor(ctx: ViewContext, root: HTMLElement) {
    this.#ctx = ctx;
    this.#root = root;
    this.#reader = new CellReader(ctx, () => this.#point());
    const { signal } = this.#stop;
    this.#plot = h(
      "div",
      { class: "aw-plot", tabindex: "0", role: "application", "aria-roledescription": "attention map" },
      this.#canvas,
      ...this.#crosshair.elements,
      this.#busy,
    );
    const axes = h("div", { class: "aw-corner", "aria-hidden": "true" });
    this.#figure = h("div", { class: "aw-figure" }, axes, this.#top.element, this.#left.element, this.#plot);
    this.#common.addEventListener("click", () => this.#setRange(!this.#sameRange), { signal });
    this.#scale = new ColourScale(signal, (mode) => this.#setMode(mode), this.#common);
    root.classList.add("aw-heatmap");
    const head = h("div", { class: "aw-head" }, this.#title, this.#where, this.#note);
    root.replaceChildren(head, this.#warning, this.#status, this.#figure, this.#readout, this.#scale.element);
    this.#say = liveRegion(root);
    this.#listen(signal);
    const off = ctx.onChange((changed) => this.#update(changed));
    signal.addEventListener("abort", off);
    ctx.signal.addEventListener("abort", () => this.#stop.abort(), { signal });
    watchWidth(root, (width) => this.#resize(width), signal);
    this.#update(null);
  }

  close(): void {
    this.#stop.abort();
    this.#root.replaceChildren();
  }

  #setMode(mode: Mode): void {
    this.#mode = mode;
    this.#paint();
  }

  #setRange(same: boolean): void {
    this.#sameRange = same;
    this.#paint();
  }

  #resize(width: number): void {
    this.#width = width;
    this.#layout();
    this.#paint();
    this.#point();
  }

  #listen(signal: AbortSignal): void {
    const { selection } = this.#ctx;
    this.#plot.addEventListener("pointermove", (e) => this.#hover(this.#cellAt(e)), { signal });
    this.#plot.addEventListener("pointerleave", () => selection.hover(null), { signal });
    this.#plot.addEventListener(
      "click",
      (e) => {
        const cell = this.#cellAt(e);
        if (cell) this.#choose(cell);
      },
      { signal },
    );
    const layer = (by: number) => () => moveLayer(this.#ctx, by);
    const head = (by: number) => () => {
      const { source, head: now } = this.#ctx.resolved();
      selection.set({ head: nextHead(source, now, by) });
    };
    const end = (last: boolean) => () => {
      const { layers } = this.#ctx.source();
      const to = last ? layers[layers.length - 1] : layers[0];
      if (to !== undefined) selection.set({ layer: to });
    };
    const move = (rows: number, cols: number) => () => this.#movePin(rows, cols);
    keyboard(
      this.#plot,
      {
        ArrowUp: layer(-1),
        ArrowDown: layer(1),
        ArrowLeft: head(-1),
        ArrowRight: head(1),
        Home: end(false),
        End: end(true),
        "Shift+ArrowUp": move(-1, 0),
        "Shift+ArrowDown": move(1, 0),
        "Shift+ArrowLeft": move(0, -1),
        "Shift+ArrowRight": move(0, 1),
        Enter: move(0, 0),
        Escape: () => selection.pin(null),
      },
      signal,
    );
  }

  /** Cell under the pointer; null outside the map and above the diagonal of a causal one. */
  #cellAt(event: MouseEvent): Cell | null {
    const size = this.#size;
    if (!size) return null;
    const box = this.#plot.getBoundingClientRect();
    const query = Math.floor(((event.clientY - box.top) / box.height) * size.rows);
    const key = Math.floor(((event.clientX - box.left) / box.width) * size.cols);
    if (query < 0 || key < 0 || query >= size.rows || key >= size.cols) return null;
    return { unit: this.#ctx.source().unit, query, key };
  }

  #hover(cell: Cell | null): void {
    this.#spoken = false;
    this.#ctx.selection.hover(cell);
  }

  #choose(cell: Cell): void {
    // Compared in this view's unit, so that a second click unpins what another unit pinned.
    const now = this.#ctx.cell("pinned");
    const again = now !== null && now.query === cell.query && now.key === cell.key;
    this.#ctx.selection.pin(again ? null : cell);
  }

  #movePin(rows: number, cols: number): void {
    const size = this.#size;
    if (!size) return;
    const now = this.#ctx.cell("pinned") ?? this.#ctx.cell("hover");
    const clamp = (i: number, n: number): number => Math.max(0, Math.min(n - 1, i));
    const to: Cell = {
      unit: this.#ctx.source().unit,
      query: clamp((now?.query ?? 0) + rows, size.rows),
      key: clamp((now?.key ?? 0) + cols, size.cols),
    };
    const pinned = this.#ctx.cell("pinned");
    if (pinned && pinned.query === to.query && pinned.key === to.key) {
      if (rows === 0 && cols === 0) this.#ctx.selection.pin(null);
      return;
    }
    this.#spoken = true;
    this.#ctx.selection.pin(to);
  }

  #update(changed: Set<Change> | null): void {
    if (changed?.size === 1 && changed.has("hover")) {
      this.#point();
      return;
    }
    this.#words();
    this.#layout();
    this.#paint();
    this.#point();
  }

  #words(): void {
    const { options } = this.#ctx;
    const { source, head, notes } = this.#ctx.resolved();
    const header = this.#ctx.header();
    const title = options.title || source.title;
    this.#title.textContent = title;
    const kind = source.kind === "attributions" ? "target → source" : "query → key";
    const name =
      typeof head === "number"
        ? ` (${this.#ctx.layerName(this.#ctx.resolved().layer)}-${this.#ctx.headName(head)})`
        : "";
    const stream = source.stream === "self" ? "" : `${source.stream} · `;
    this.#where.textContent = `${stream}${whereWords(this.#ctx)}${name} · ${plural(source.unit)}, ${kind}`;
    this.#note.textContent = [source.note, ...notes].filter(Boolean).join(" · ");
    this.#warning.textContent = header.warning;
    this.#status.textContent = this.#ctx.tiles.status().message;
    const query = this.#ctx.axisOf(source.query);
    const key = this.#ctx.axisOf(source.key);
    this.#plot.setAttribute(
      "aria-label",
      `${title}, ${whereWords(this.#ctx)}: ${query.labels.length} queries by ${key.labels.length} keys. ` +
        "Up and down arrows change the layer, left and right the head; Enter pins a cell, Shift and arrows move it, Escape unpins.",
    );
  }

  /** Sizes and labels. Nothing happens unless the width or an axis changed. */
  #layout(): void {
    if (this.#width <= 0) return;
    const source = this.#ctx.source();
    const [query, key] = [this.#ctx.axisOf(source.query), this.#ctx.axisOf(source.key)];
    const marks = JSON.stringify(this.#ctx.options.marks);
    const name = [source.query, source.key, this.#width, fingerprint(query), fingerprint(key), marks].join("|");
    if (name === this.#laidOut) return;
    this.#laidOut = name;
    const style = getComputedStyle(this.#left.element);
    const font = `${style.fontSize || "11px"} ${style.fontFamily || "sans-serif"}`;
    const [rows, cols] = [query.labels.length, key.labels.length];
    const all = AxisLabels.shown(rows, fit(rows, cols, this.#width).cellHeight);
    const leftRoom = labelRoom(query.labels, all, font, Math.min(132, Math.floor(this.#width * 0.28)));
    const size = fit(rows, cols, this.#width - leftRoom - 2);
    const topRoom = labelRoom(key.labels, AxisLabels.shown(cols, size.cellWidth), font, 110);
    this.#size = size;
    this.#left.layout({ labels: query.labels, special: query.special, cell: size.cellHeight, room: leftRoom });
    this.#top.layout({ labels: key.labels, special: key.special, cell: size.cellWidth, room: topRoom });
    const set = this.#figure.style;
    set.setProperty("--aw-left", `${leftRoom}px`);
    set.setProperty("--aw-top", `${this.#top.flat ? 18 : topRoom}px`);
    set.setProperty("--aw-width", `${size.width}px`);
    set.setProperty("--aw-height", `${size.height}px`);
    this.#crosshair.mark(size, this.#ctx.options.marks);
    this.#painted = "";
  }

  /** Put the tile on the canvas, or keep the old picture dimmed while the tile is on its way. */
  #paint(): void {
    const { source, layer, head } = this.#ctx.resolved();
    const { tiles } = this.#ctx;
    const tile = tiles.get(source.id, layer, head) ?? null;
    tiles.request(source.id, layer, head);
    this.#plot.toggleAttribute("data-stale", tile === null);
    this.#plot.setAttribute("aria-busy", String(tile === null));
    this.#busy.hidden = tile !== null;
    if (!tile) {
      const heads = headWords(this.#ctx, head);
      const why = tiles.failure(source.id, layer, head);
      const what = `layer ${this.#ctx.layerName(layer)}${heads ? `, ${heads}` : ""}`;
      this.#busy.textContent = why ? `${what}: ${why}` : `loading ${what}`;
      this.#tile = null;
      if (this.#image && this.#image.width * this.#image.height > 0 && this.#painted.split("|")[0] === source.id)
        return;
    }
    if (!this.#size || this.#width <= 0) return;
    if (!tile) {
      // Another map's picture would be a lie, even dimmed.
      this.#canvas.getContext("2d")?.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
      this.#painted = "";
      return;
    }
    this.#tile = tile;
    const map = heatMap(source.signed, this.#ctx.theme);
    const range = this.#range(tile, source);
    const name = [source.id, layer, head, map, this.#mode, range, tile.meta.scale].join("|");
    if (name === this.#painted && this.#drawnTile === tile) return;
    this.#painted = name;
    this.#drawnTile = tile;
    const { rows, cols, codec, gamma, scale } = tile.meta;
    const whole: Matrix = { codes: tile.codes, start: 0, rows, cols, causal: source.causal && rows === cols };
    const matrix = maxPool(whole, this.#size.pool);
    if (this.#image?.width !== matrix.cols || this.#image.height !== matrix.rows) {
      this.#canvas.width = matrix.cols;
      this.#canvas.height = matrix.rows;
      this.#image = new ImageData(matrix.cols, matrix.rows);
    }
    const table = lut(map, { gamma, scale, range, mode: this.#mode, signed: codec === "i8" });
    paintCells(new Uint32Array(this.#image.data.buffer), matrix, table);
    this.#canvas.getContext("2d")?.putImageData(this.#image, 0, 0);
    this.#plot.toggleAttribute("data-causal", whole.causal);
    const pooled =
      this.#size.pool > 1 ? `; each pixel is the largest of ${this.#size.pool} × ${this.#size.pool} cells` : "";
    this.#scale.show({ map, mode: this.#mode, range, words: `${valueWords(source)}${pooled}` });
    const top = source.stochastic && !source.signed ? "0–1" : "fixed";
    this.#common.textContent = this.#sameRange ? `range: ${top}` : "range: this matrix";
    this.#common.title = this.#sameRange
      ? "One range for all layers and heads, so that they compare. Click for the range of this matrix."
      : "The range reaches up to this matrix's own largest value. Click for one range for all.";
    this.#common.setAttribute("aria-pressed", String(this.#sameRange));
    // Where the encoding follows each tile's own maximum there is no common range to offer.
    this.#common.hidden = !source.stochastic;
  }

  #range(tile: Tile, source: Source): readonly [number, number] {
    const { codec, gamma, scale } = tile.meta;
    let top = scale;
    if (!(this.#sameRange && source.stochastic)) {
      let peak = this.#peaks.get(tile);
      if (peak === undefined) {
        peak = decodeCode(peakCode(tile.codes), topCode(codec), gamma, scale);
        this.#peaks.set(tile, peak);
      }
      top = Math.min(roundUp(peak), source.stochastic ? 1 : Number.POSITIVE_INFINITY);
    }
    return source.signed ? [-top, top] : [0, top];
  }

  /** Crosshair, pinned cell and readout. Runs on every pointer move: no nodes are made here. */
  #point(): void {
    if (this.#stop.signal.aborted) return;
    const size = this.#size;
    if (!size) return;
    const [hover, pinned] = [this.#ctx.cell("hover"), this.#ctx.cell("pinned")];
    this.#crosshair.move(size, hover, pinned);
    this.#left.mark("hover", hover?.query ?? -1);
    this.#top.mark("hover", hover?.key ?? -1);
    this.#left.mark("pin", pinned?.query ?? -1);
    this.#top.mark("pin", pinned?.key ?? -1);
    const text = this.#reader.read(this.#tile, hover, pinned);
    if (this.#readout.textContent === text) return;
    this.#readout.textContent = text;
    if (this.#spoken || this.#root.contains(document.activeElement)) this.#say(text);
  }
}

function valueWords(source: Source): string {
  if (source.kind === "attributions") return source.signed ? "attribution, signed" : "attribution";
  if (source.stochastic) return "share of the row";
  return source.signed ? "weight, signed" : "weight";
}

/** Enough of an axis to notice that it is another one. */
function fingerprint(axis: Axis): string {
  return `${axis.unit} ${axis.labels.length} ${axis.labels.slice(0, 512).join("\u0001")}`;
}
