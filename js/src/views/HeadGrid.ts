/** Every layer and head at a glance: one atlas of max-pooled thumbnails, rows are layers, columns are heads. */
import { decodeCode } from "../codec.ts";
import { heatMap, lut, type Mode } from "../colour.ts";
import type { Change, Codes, RenderView, ThumbSheet, ViewContext } from "../context.ts";
import { h, keyboard, liveRegion, thinned, watchWidth } from "../dom.ts";
import type { Source, Thumbs } from "../wire.ts";
import { paintFrame, peakCode } from "./paint.ts";
import { ColourScale } from "./scale.ts";
import { moveLayer, nextHead } from "./steps.ts";

const LARGEST = 72;
const TALLEST = 640;
const MODE: Mode = "sqrt";

export const renderHeadGrid: RenderView = (ctx, root) => {
  const view = new HeadGridView(ctx, root);
  return () => view.close();
};

/** Index of the first code of every thumbnail; layers may differ in their number of heads. */
export function thumbOffsets(meta: Thumbs): number[][] {
  let at = 0;
  return meta.scale.map((heads) =>
    heads.map(() => {
      const start = at;
      at += meta.rows * meta.cols;
      return start;
    }),
  );
}

/** Side of a thumbnail in px: whole pixels, as wide as fits, small for few heads. */
export function thumbSide(layers: number, heads: number, room: number): number {
  return Math.max(3, Math.floor(Math.min(LARGEST, room / Math.max(1, heads), TALLEST / Math.max(1, layers))));
}

interface Spot {
  row: number;
  col: number;
}

class HeadGridView {
  readonly #ctx: ViewContext;
  readonly #root: HTMLElement;
  readonly #stop = new AbortController();
  readonly #title = h("span", { class: "aw-title" });
  readonly #where = h("span");
  readonly #note = h("span", { class: "aw-note" });
  readonly #canvas = h("canvas", { class: "aw-atlas" });
  readonly #hovered = h("div", { class: "aw-spot", hidden: true });
  readonly #selected = h("div", { class: "aw-spot aw-spot-selected", hidden: true });
  readonly #plot: HTMLElement;
  readonly #rows = h("div", { class: "aw-grid-rows", "aria-hidden": "true" });
  readonly #cols = h("div", { class: "aw-grid-cols", "aria-hidden": "true" });
  readonly #figure: HTMLElement;
  readonly #readout = h("div", { class: "aw-readout", "aria-hidden": "true" });
  readonly #common = h("button", { class: "aw-button", type: "button" });
  readonly #scale: ColourScale;
  readonly #say: (text: string) => void;
  #ownScale = true;
  #width = 0;
  #side = 0;
  #painted = "";
  #sheet: ThumbSheet | undefined;
  #spot: Spot | null = null;

  constructor(ctx: ViewContext, root: HTMLElement) {
    this.#ctx = ctx;
    this.#root = root;
    const { signal } = this.#stop;
    this.#plot = h(
      "div",
      { class: "aw-plot aw-grid-plot", tabindex: "0", role: "application", "aria-roledescription": "grid of heads" },
      this.#canvas,
      this.#hovered,
      this.#selected,
    );
    this.#figure = h("div", { class: "aw-grid" }, h("div"), this.#cols, this.#rows, this.#plot);
    this.#common.addEventListener(
      "click",
      () => {
        this.#ownScale = !this.#ownScale;
        this.#draw();
      },
      { signal },
    );
    this.#scale = new ColourScale(signal, null, this.#common);
    root.classList.add("aw-headgrid");
    const head = h("div", { class: "aw-head" }, this.#title, this.#where, this.#note);
    root.replaceChildren(head, this.#figure, this.#readout, this.#scale.element);
    this.#say = liveRegion(root);
    this.#listen(signal);
    const off = ctx.onChange((changed) => this.#update(changed));
    signal.addEventListener("abort", off);
    ctx.signal.addEventListener("abort", () => this.#stop.abort(), { signal });
    watchWidth(
      root,
      (width) => {
        this.#width = width;
        this.#draw();
      },
      signal,
    );
    this.#update(null);
  }

  close(): void {
    this.#stop.abort();
    this.#root.replaceChildren();
  }

  #listen(signal: AbortSignal): void {
    const { selection } = this.#ctx;
    this.#plot.addEventListener("pointermove", (e) => this.#hover(this.#spotAt(e)), { signal });
    this.#plot.addEventListener("pointerleave", () => this.#hover(null), { signal });
    this.#plot.addEventListener(
      "click",
      (event) => {
        const spot = this.#spotAt(event);
        const source = this.#ctx.source();
        const layer = spot && source.layers[spot.row];
        if (typeof layer !== "number") return;
        if (!spot) return;
        const head = source.heads?.[spot.col];
        selection.set(head === undefined ? { layer } : { layer, head });
      },
      { signal },
    );
    const head = (by: number) => () => {
      const { source, head: now } = this.#ctx.resolved();
      if (source.heads) selection.set({ head: nextHead(source, now, by) });
    };
    const end = (last: boolean) => () => {
      const { layers } = this.#ctx.source();
      const to = last ? layers[layers.length - 1] : layers[0];
      if (to !== undefined) selection.set({ layer: to });
    };
    keyboard(
      this.#plot,
      {
        ArrowUp: () => moveLayer(this.#ctx, -1),
        ArrowDown: () => moveLayer(this.#ctx, 1),
        ArrowLeft: head(-1),
        ArrowRight: head(1),
        Home: end(false),
        End: end(true),
        Escape: () => selection.pin(null),
      },
      signal,
    );
  }

  #spotAt(event: MouseEvent): Spot | null {
    if (this.#side <= 0) return null;
    const box = this.#plot.getBoundingClientRect();
    const { layers, heads } = this.#ctx.source();
    const row = Math.floor((event.clientY - box.top) / this.#side);
    const col = Math.floor((event.clientX - box.left) / this.#side);
    if (row < 0 || col < 0 || row >= layers.length || col >= (heads?.length ?? 1)) return null;
    return { row, col };
  }

  #hover(spot: Spot | null): void {
    if (spot?.row === this.#spot?.row && spot?.col === this.#spot?.col) return;
    this.#spot = spot;
    this.#point();
  }

  #update(changed: Set<Change> | null): void {
    if (changed?.size === 1 && (changed.has("hover") || changed.has("pinned"))) return;
    const { options } = this.#ctx;
    const { source, notes } = this.#ctx.resolved();
    const title = options.title || source.title;
    this.#title.textContent = title;
    const heads = source.heads ? ` × ${source.heads.length} ${source.heads.length === 1 ? "head" : "heads"}` : "";
    const stream = source.stream === "self" ? "" : `${source.stream} · `;
    const layers = source.layers.length;
    this.#where.textContent = `${stream}${layers} ${layers === 1 ? "layer" : "layers"}${heads} · ${source.unit}s`;
    this.#note.textContent = notes.filter((note) => !note.startsWith("head")).join(" · ");
    this.#plot.setAttribute(
      "aria-label",
      `${title}: ${this.#where.textContent}. Up and down arrows change the layer, left and right the head.`,
    );
    this.#draw();
  }

  /** Atlas and labels; only when the source, the width, the theme or the thumbnails changed. */
  #draw(): void {
    const { source } = this.#ctx.resolved();
    const sheet = this.#ctx.tiles.thumbs(source.id);
    this.#sheet = sheet;
    if (this.#width > 0) {
      const rows = source.layers.length;
      const cols = source.heads?.length ?? 1;
      const map = heatMap(source.signed, this.#ctx.theme);
      const side = thumbSide(rows, cols, this.#width - 34);
      const dots = Math.max(1, Math.min(2, Math.round(globalThis.devicePixelRatio || 1)));
      const name = [source.id, rows, cols, side, dots, map, this.#ownScale, this.#ctx.options.indexBase].join("|");
      if (name !== this.#painted || sheet !== this.#drawnSheet) {
        this.#painted = name;
        this.#drawnSheet = sheet;
        this.#side = side;
        this.#figure.style.setProperty("--aw-width", `${side * cols}px`);
        this.#figure.style.setProperty("--aw-height", `${side * rows}px`);
        this.#labels(source, side);
        if (sheet) this.#atlas(source, sheet, side, dots);
        this.#legend(source, sheet);
      }
    }
    this.#point();
  }

  #drawnSheet: ThumbSheet | undefined;

  #labels(source: Source, side: number): void {
    const name = (text: string, at: number, edge: "left" | "top"): HTMLElement => {
      const span = h("span", { class: "aw-grid-lab" }, text);
      span.style[edge] = `${(at + 0.5) * side}px`;
      return span;
    };
    const layers = thinned(source.layers.length, side, 13);
    this.#rows.replaceChildren(...layers.map((i) => name(this.#ctx.layerName(source.layers[i] as number), i, "top")));
    const heads = source.heads ?? [];
    const last = heads[heads.length - 1] ?? 0;
    const shown = thinned(heads.length, side, 8 + 7 * String(last + this.#ctx.options.indexBase).length);
    this.#cols.replaceChildren(...shown.map((i) => name(this.#ctx.headName(heads[i] as number), i, "left")));
  }

  #atlas(source: Source, { meta, codes }: ThumbSheet, side: number, dots: number): void {
    const rows = source.layers.length;
    const cols = source.heads?.length ?? 1;
    const px = side * dots;
    const gap = Math.min(dots * (side >= 12 ? 2 : 1), Math.floor(px / 4));
    this.#canvas.width = px * cols;
    this.#canvas.height = px * rows;
    const image = new ImageData(px * cols, px * rows);
    const pixels = new Uint32Array(image.data.buffer);
    const map = heatMap(source.signed, this.#ctx.theme);
    const peaks = this.#peaks(meta, codes);
    const largest = Math.max(0, ...peaks.flat());
    const causal = source.causal && meta.rows === meta.cols;
    const table = (scale: number, top: number): Uint32Array =>
      lut(map, {
        gamma: meta.gamma,
        scale,
        range: meta.signed ? [-top, top] : [0, top],
        mode: MODE,
        signed: meta.signed,
      });
    const offsets = thumbOffsets(meta);
    for (const [row, heads] of offsets.entries()) {
      for (const [col, start] of heads.entries()) {
        if (row >= rows || col >= cols) continue;
        const frame = { x: col * px, y: row * px, width: px - gap, height: px - gap };
        const matrix = { codes, start, rows: meta.rows, cols: meta.cols, causal };
        const top = this.#ownScale ? (peaks[row]?.[col] ?? 0) : largest;
        const colours = table(meta.scale[row]?.[col] ?? 0, top);
        paintFrame(pixels, px * cols, frame, matrix, colours);
      }
    }
    this.#canvas.getContext("2d")?.putImageData(image, 0, 0);
  }

  /** Largest absolute value of every thumbnail, read once from a sheet. */
  #peaks(meta: Thumbs, codes: Codes): number[][] {
    if (this.#peaksOf?.codes !== codes) {
      const length = meta.rows * meta.cols;
      const top = meta.signed ? 127 : 255;
      const values = thumbOffsets(meta).map((heads, row) =>
        heads.map((at, col) =>
          decodeCode(peakCode(codes.subarray(at, at + length)), top, meta.gamma, meta.scale[row]?.[col] ?? 0),
        ),
      );
      this.#peaksOf = { codes, values };
    }
    return this.#peaksOf.values;
  }

  #peaksOf: { codes: Codes; values: number[][] } | null = null;

  #legend(source: Source, sheet: ThumbSheet | undefined): void {
    const map = heatMap(source.signed, this.#ctx.theme);
    this.#common.textContent = this.#ownScale ? "scale: each its own" : "scale: common";
    this.#common.setAttribute("aria-pressed", String(!this.#ownScale));
    this.#common.title = this.#ownScale
      ? "Every thumbnail is scaled to its own maximum. Click for one scale, so that they compare."
      : "All thumbnails share one scale. Click to scale each to its own maximum.";
    const top = this.#ownScale || !sheet ? 1 : Math.max(0, ...this.#peaks(sheet.meta, sheet.codes).flat());
    this.#scale.show({
      map,
      mode: MODE,
      range: source.signed ? [-top, top] : [0, top],
      words: sheet
        ? `max-pooled${this.#ownScale ? ", × each thumbnail's own maximum" : ", one scale for all"}`
        : "no thumbnails were sent for this map",
    });
  }

  /** Outlines and the line of text. Runs on every pointer move. */
  #point(): void {
    const { source, layer, head } = this.#ctx.resolved();
    const side = this.#side;
    outline(this.#hovered, side, this.#spot?.row ?? -1, this.#spot?.col ?? -1, 1);
    const row = source.layers.indexOf(layer);
    if (source.heads && typeof head !== "number") outline(this.#selected, side, row, 0, source.heads.length);
    else
      outline(this.#selected, side, row, source.heads && typeof head === "number" ? source.heads.indexOf(head) : 0, 1);
    const spot = this.#spot;
    const text = spot
      ? this.#name(spot)
      : `selected: ${this.#words(layer, typeof head === "number" ? this.#ctx.headName(head) : head)}`;
    if (this.#readout.textContent === text) return;
    this.#readout.textContent = text;
    if (this.#root.contains(document.activeElement)) this.#say(text);
  }

  #words(layer: number, head: string): string {
    const words = `layer ${this.#ctx.layerName(layer)}`;
    if (head === "-" || head === "") return words;
    return head === "mean" || head === "max" ? `${words}, ${head} of heads` : `${words}, head ${head}`;
  }

  #name({ row, col }: Spot): string {
    const source = this.#ctx.source();
    const head = source.heads?.[col];
    const peak = this.#sheet && this.#peaks(this.#sheet.meta, this.#sheet.codes)[row]?.[col];
    const most = peak === undefined ? "" : ` · largest value ≈ ${Number(peak.toPrecision(2))}`;
    return this.#words(source.layers[row] ?? 0, head === undefined ? "" : this.#ctx.headName(head)) + most;
  }
}

function outline(el: HTMLElement, side: number, row: number, col: number, cols: number): void {
  el.hidden = row < 0 || col < 0 || side <= 0;
  if (el.hidden) return;
  el.style.transform = `translate(${col * side}px, ${row * side}px)`;
  el.style.width = `${cols * side}px`;
  el.style.height = `${side}px`;
}
