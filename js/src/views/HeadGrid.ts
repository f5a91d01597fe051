/** Every layer and head at a glance: one atlas of max-pooled thumbnails, rows are layers, columns are heads. */
import { decodeCode, peakCode } from "../codec.ts";
import { heatMap, lut } from "../colour.ts";
import type { ThumbSheet } from "../context.ts";
import { density, fill, flag, h, keyboard, on, place, setSizes, spotAt, thinned, watchWidth } from "../dom.ts";
import { tickText } from "../numbers.ts";
import type { Source, Thumbs } from "../wire.ts";
import { createHeading, createReadout, only, view } from "./frame.ts";
import { paintFrame } from "./paint.ts";
import { createScale } from "./scale.ts";
import { navigation, placeWords, plural } from "./steps.ts";

const LARGEST = 72;
const TALLEST = 640;
/** px left of the grid for the layers' names. */
const NAMES = 34;

/** Index of the first code of every thumbnail; layers may differ in their number of heads. */
export function thumbOffsets(meta: Thumbs): number[][] {
  let at = -meta.rows * meta.cols;
  const next = (): number => {
    at += meta.rows * meta.cols;
    return at;
  };
  return meta.scale.map((heads) => heads.map(next));
}

/** Side of a thumbnail in px: whole pixels, as wide as fits, small for few heads. */
export function thumbSide(layers: number, heads: number, room: number): number {
  return Math.max(3, Math.floor(Math.min(LARGEST, room / Math.max(1, heads), TALLEST / Math.max(1, layers))));
}

/** Largest absolute value of every thumbnail. */
function peaksOf({ meta, codes }: ThumbSheet): number[][] {
  const length = meta.rows * meta.cols;
  return thumbOffsets(meta).map((heads, row) =>
    heads.map((at, col) => {
      const code = peakCode(codes.subarray(at, at + length));
      return decodeCode(code, meta.signed ? 127 : 255, meta.gamma, meta.scale[row]?.[col] ?? 0);
    }),
  );
}

export const renderHeadGrid = view((ctx, root, signal) => {
  const heading = createHeading(ctx);
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "grid of heads" };
  const plot = h("div.plot.grid-plot", role, canvas, hovered, selected);
  const rowNames = h("div.grid-rows", { "aria-hidden": "true" });
  const colNames = h("div.grid-cols", { "aria-hidden": "true" });
  const figure = h("div.figure.grid", h("i"), colNames, rowNames, plot);
  const readout = createReadout();
  const scale = createScale(signal, false, () => draw());
  let width = 0;
  let side = 0;
  let drawn = "";
  let sheet: ThumbSheet | undefined;
  let peaks: number[][] = [];
  let spot: [number, number] | null = null;

  root.classList.add("aw-headgrid");
  fill(root, ...heading.elements, figure, ...readout.elements, scale.element);

  const sizes = ({ layers, heads }: Source): [number, number] => [layers.length, heads?.length ?? 1];

  const words = (): void => {
    const { source } = ctx.resolved();
    const [layers, heads] = sizes(source);
    if (spot && (spot[0] >= layers || spot[1] >= heads)) spot = null;
    const across = source.heads ? ` × ${heads} ${heads === 1 ? "head" : "heads"}` : "";
    const where = `${layers} ${layers === 1 ? "layer" : "layers"}${across} · ${plural(source.unit)}`;
    const title = heading.show(where);
    plot.ariaLabel = `${title}: ${where}. Up and down arrows change the layer, left and right the head.`;
  };

  /** Atlas and labels; only when the source, the width, the theme or the thumbnails changed. */
  const draw = (): void => {
    if (width <= 0) return;
    const source = ctx.source();
    const found = ctx.tiles.thumbs(source.id);
    const [rows, cols] = sizes(source);
    const why = found ? "" : (ctx.tiles.failure(source.id) ?? (ctx.tiles.status().message || "loading thumbnails …"));
    const dots = Math.max(1, Math.min(2, Math.round(density())));
    const look = [source.id, rows, cols, width, dots, ctx.theme, scale.common(), ctx.options.indexBase, why].join("|");
    if (look !== drawn || found !== sheet) {
      if (found && found !== sheet) peaks = peaksOf(found);
      [drawn, sheet] = [look, found];
      side = thumbSide(rows, cols, width - NAMES);
      setSizes(figure, { width: side * cols, height: side * rows });
      names(source);
      // Its size set anew, a canvas is empty: no pixels of another map stay while thumbnails are on their way.
      [canvas.width, canvas.height] = [side * dots * cols, side * dots * rows];
      flag(plot, "data-empty", !found || source.computed !== null);
      plot.ariaBusy = String(!found);
      const common = Math.max(0, ...peaks.flat());
      if (found) atlas(source, found, side * dots, common);
      legend(source, found ? common : 1, why);
    }
    point();
  };

  const names = ({ layers, heads }: Source): void => {
    const label = (text: string, at: number, edge: "left" | "top"): HTMLElement => {
      const span = h("span", text);
      span.style[edge] = `${(at + 0.5) * side}px`;
      return span;
    };
    const shownLayers = thinned(layers.length, side, 13);
    fill(rowNames, ...shownLayers.map((i) => label(ctx.layerName(layers[i] as number), i, "top")));
    const all = (heads ?? []).map((head) => ctx.headName(head));
    const shownHeads = thinned(all.length, side, 8 + 7 * (all.at(-1)?.length ?? 0));
    fill(colNames, ...shownHeads.map((i) => label(all[i] as string, i, "left")));
  };

  const atlas = (source: Source, { meta, codes }: ThumbSheet, px: number, common: number): void => {
    const [rows, cols] = sizes(source);
    const gap = px < 12 ? 1 : Math.min(4, Math.floor(px / 12));
    const image = new ImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const map = heatMap(source.signed, ctx.theme);
    const { gamma, signed } = meta;
    for (const [row, starts] of thumbOffsets(meta).slice(0, rows).entries()) {
      for (const [col, start] of starts.slice(0, cols).entries()) {
        const frame = { x: col * px, y: row * px, width: px - gap, height: px - gap };
        const causal = source.causal && meta.rows === meta.cols;
        const matrix = { codes, start, rows: meta.rows, cols: meta.cols, causal };
        const top = scale.common() ? common : (peaks[row]?.[col] ?? 0);
        const range = [signed ? -top : 0, top] as const;
        const own = meta.scale[row]?.[col] ?? 0;
        paintFrame(pixels, canvas.width, frame, matrix, lut(map, { gamma, scale: own, range, mode: "sqrt", signed }));
      }
    }
    canvas.getContext("2d")?.putImageData(image, 0, 0);
  };

  const legend = (source: Source, common: number, why: string): void => {
    const top = scale.common() ? common : 1;
    scale.show({
      map: heatMap(source.signed, ctx.theme),
      range: [source.signed ? -top : 0, top],
      words: why || (scale.common() ? "max-pooled, one scale for all" : "max-pooled, × each thumbnail's own maximum"),
      button: scale.common()
        ? ["scale: common", "All thumbnails share one scale. Click to scale each to its own maximum."]
        : ["scale: each its own", "Every thumbnail is scaled to its own maximum. Click for one scale for all."],
    });
  };

  /** Outlines and the line of text. Runs on every pointer move. */
  const point = (): void => {
    const { source, layer, head } = ctx.resolved();
    const outline = (el: HTMLElement, row: number, col: number, cols: number): void =>
      place(el, col * side, row * side, cols * side, side);
    const [row, col] = spot ?? [-1, -1];
    outline(hovered, row, col, 1);
    const one = !source.heads || typeof head === "number";
    const at = source.heads && typeof head === "number" ? source.heads.indexOf(head) : 0;
    outline(selected, source.layers.indexOf(layer), at, one ? 1 : sizes(source)[1]);
    const peak = sheet && peaks[row]?.[col];
    const later =
      source.computed?.includes(source.layers[row] as number) === false ? " · computed when it is opened" : "";
    const most = peak === undefined ? later : ` · largest value ≈ ${tickText(peak)}`;
    const text = spot
      ? placeWords(ctx, source.layers[row] as number, source.heads?.[col] ?? "-") + most
      : `selected: ${placeWords(ctx, layer, head)}`;
    readout.show(text, root.contains(document.activeElement));
  };

  const find = (event: MouseEvent): [number, number] | null => spotAt(event, plot, ...sizes(ctx.source()));
  const hover = (at: [number, number] | null): void => {
    if (String(at) === String(spot)) return;
    spot = at;
    point();
  };
  on(plot, signal, {
    pointermove: (event) => hover(find(event)),
    pointerleave: () => hover(null),
    click(event) {
      const at = find(event);
      if (!at) return;
      const { layers, heads } = ctx.source();
      const layer = layers[at[0]] as number;
      ctx.selection.set(heads ? { layer, head: heads[at[1]] as number } : { layer });
    },
  });
  keyboard(plot, signal, navigation(ctx), "↑ ↓: layer · ← →: head");
  watchWidth(
    root,
    (now) => {
      width = now;
      draw();
    },
    signal,
  );
  return (changed) => {
    if (only(changed, "hover", "pinned")) return;
    words();
    draw();
  };
});
