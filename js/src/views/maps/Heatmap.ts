/**
 * One matrix: rows are queries, columns are keys. Hover previews, click pins and reads the exact row, arrows
 * move through layers and heads.
 */

import { heatMap, lut } from "../../colour.ts";
import { assign, createWatch, h, keyboard, on, setChildren, setFlag, setText, spotAt, watchWidth } from "../../dom.ts";
import { roundUp } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Axis, Cell, Source } from "../../wire/wire.ts";
import { createExactRows, describeCells } from "../base/cellValues.ts";
import { createChosen, drawOnMap } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { filtered, filterPlace, filtersOf, hidesValues, setFilters } from "../base/filters.ts";
import { movePinned, pickCells, pinAnother } from "../base/gestures.ts";
import { navigation, placeWords, plural, whereWords } from "../base/navigation.ts";
import { withSavedFallback } from "../base/savedFallback.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { createFigure } from "./figure.ts";
import { type Matrix, maxPool, paintCells } from "./paint.ts";
import type { Size } from "./size.ts";

export const renderHeatmap = view((around, root, signal) => {
  const ctx = withSavedFallback(around);
  const { selection, tiles } = ctx;
  const heading = createHeading(ctx, filterPlace(ctx));
  const busy = h("div.busy");
  const {
    element: figure,
    plot,
    canvas,
    crosshair,
    left,
    top,
    layout: layOut,
    show,
  } = createFigure("attention map", busy);
  const readout = createReadout();
  const scale = createScale(signal, true, () =>
    setFilters(ctx, { scale: scale.mode(), extent: scale.common() ? "all" : "map" }),
  );
  const copy = root === ctx.el ? createCopyButton(ctx, signal) : null;
  const exactRows = createExactRows(ctx, () => point());
  const chosen = createChosen(plot);
  let width = 0;
  let size: Size | null = null;
  let laidOut = "";
  const isLaidOut = createWatch();
  let image: ImageData | null = null;
  /** What the canvas shows. */
  let painted = "";
  let paintedSource = "";
  let tile: Tile | null = null;
  let spoken = false;

  root.classList.add("aw-heatmap");
  setChildren(root, ...heading.elements, figure, ...readout.elements, ...(copy ? [copy.element] : []), scale.element);

  const words = (): void => {
    const source = ctx.source();
    const kind = source.kind === "attributions" ? "target → source" : "query → key";
    const where = whereWords(ctx);
    const title = heading.show((shown) => `${whereWords(ctx, shown)} · ${plural(shown.source.unit)}, ${kind}`);
    const [rows, cols] = [ctx.axisOf(source.query), ctx.axisOf(source.key)].map((axis) => axis.labels.length);
    assign(plot, {
      ariaLabel:
        `${title}, ${where}: ${rows} by ${cols}, ${kind}. ` +
        "Up and down arrows change the layer, left and right the head; Enter pins a cell, Shift and arrows move it, Shift and Enter pin another, Escape unpins.",
    });
  };

  /** Lay out sizes and labels. Does nothing unless the width or an axis changed. */
  const layout = (): void => {
    if (width <= 0) return;
    const source = ctx.source();
    const { marks } = ctx.options;
    const [query, key] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    if (!isLaidOut(source, query, key, width, marks)) return;
    const name = [source.query, source.key, width, ...[query, key].map(fingerprint), JSON.stringify(marks)].join("|");
    if (name === laidOut) return;
    laidOut = name;
    painted = "";
    size = layOut(query, key, width);
    crosshair.mark(size, marks);
  };

  const range = (shown: Tile, source: Source): readonly [number, number] => {
    const all = scale.common() ? largest(shown, source) : 0;
    const end = all || Math.min(roundUp(shown.peak()), source.stochastic ? 1 : Infinity);
    return source.signed ? [-end, end] : [0, end];
  };

  /** Draw the tile, or dim the old picture until the tile arrives. */
  const paint = (): void => {
    const { source, layer, head } = ctx.resolved();
    const whatItIs = tiles.get(source.id, layer, head);
    const chosen = filtersOf(ctx);
    tile = whatItIs ? filtered(ctx, whatItIs, chosen) : null;
    scale.follow(chosen.scale || "sqrt", chosen.extent === "all");
    tiles.request(source.id, layer, head);
    setFlag(plot, "data-stale", !tile);
    assign(plot, { ariaBusy: String(!tile) });
    assign(busy, { hidden: tile !== null });
    if (!tile) {
      const why = tiles.failure(source.id, layer, head);
      const what = placeWords(ctx, layer, head);
      setText(busy, why ? `${what}: ${why}` : `loading ${what}`);
      // The picture of another map would be wrong, even dimmed.
      if (paintedSource !== source.id) {
        image = null;
        canvas.width = 0;
      }
      painted = "";
      return;
    }
    if (!size) return;
    const map = heatMap(source.signed, ctx.theme, chosen.palette);
    const ends = range(tile, source);
    const name = [source.id, layer, head, map, JSON.stringify(chosen), ends].join("|");
    if (name === painted) return;
    [painted, paintedSource] = [name, source.id];
    const { codes, meta } = tile;
    const { rows, cols } = meta;
    const fullMatrix: Matrix = { codes, start: 0, rows, cols, causal: source.causal && rows === cols };
    // The number of cells per code and per pixel.
    const coarse = Math.ceil(tile.cols / cols);
    const pool = coarse * Math.max(1, Math.ceil(size.pool / coarse));
    const matrix = maxPool(fullMatrix, pool / coarse);
    if (image?.width !== matrix.cols || image.height !== matrix.rows) image = new ImageData(matrix.cols, matrix.rows);
    const signed = tile.meta.codec === "i8";
    const table = lut(map, { ...tile.meta, range: ends, mode: scale.mode(), signed });
    paintCells(new Uint32Array(image.data.buffer), matrix, table);
    show(image);
    setFlag(plot, "data-causal", fullMatrix.causal);
    setFlag(plot, "data-holes", whatItIs?.codes instanceof Int16Array);
    let pooled = pool > 1 ? `; each pixel is the largest of ${pool} × ${pool} cells` : "";
    if (meta.whole && hidesValues(chosen)) pooled += ", none left out: filters need words or sentences";
    scale.show({ map, range: ends, words: valueWords(source) + pooled, button: rangeButton(source) });
  };

  /** The end of a common range for all layers and heads; 0 if unknown. */
  const largest = (shown: Tile, source: Source): number => {
    if (source.stochastic) return shown.meta.scale;
    if (source.computed || source.parts) return 0;
    return roundUp(Math.max(0, ...(tiles.thumbs(source.id)?.meta.scale.flat() ?? [])));
  };

  const rangeButton = (source: Source): readonly [string, string] | null => {
    const maps = source.layers.length * (source.heads?.length ?? 1);
    if (!source.stochastic && (maps < 2 || source.computed || source.parts)) return null;
    return scale.common()
      ? [
          source.stochastic && !source.signed ? "range: 0–1" : "range: all maps",
          "One range for all layers and heads, so that they can be compared. Click for the range of this matrix.",
        ]
      : ["range: this matrix", "The range reaches up to this matrix's own largest value. Click for one range for all."];
  };

  /** Update crosshair, pinned cell and readout. Runs on every pointer move and creates no nodes. */
  const point = (): void => {
    if (!size) return;
    const [hover, pinned] = [ctx.cell("hover"), ctx.cell("pinned")];
    crosshair.move(size, hover, pinned);
    left.mark(hover?.query, pinned?.query);
    top.mark(hover?.key, pinned?.key);
    copy?.show();
    const text = describeCells(ctx, exactRows, tile, hover, pinned);
    readout.show(text, spoken || root.contains(document.activeElement));
  };

  const cellAt = (event: MouseEvent): Cell | null => {
    const spot = size && spotAt(event, plot, size.rows, size.cols);
    return spot && { unit: ctx.source().unit, query: spot[0], key: spot[1] };
  };

  const samePlace = (a: Cell | null, b: Cell): boolean => a?.query === b.query && a.key === b.key;

  /** Pin the cell next to the pinned or hovered one; the same cell again unpins it. */
  const movePin = (rows: number, cols: number) => (): void => {
    if (!size) return;
    const pinned = ctx.cell("pinned");
    const now = pinned ?? ctx.cell("hover");
    const clamp = (i: number, n: number): number => Math.max(0, Math.min(n - 1, i));
    const query = clamp((now?.query ?? 0) + rows, size.rows);
    const key = clamp((now?.key ?? 0) + cols, size.cols);
    const to: Cell = { unit: ctx.source().unit, query, key };
    spoken = true;
    if (!samePlace(pinned, to)) movePinned(ctx, to);
    else if (rows === 0 && cols === 0) movePinned(ctx, null);
  };

  pickCells(
    ctx,
    { plot, left, top },
    () => size,
    signal,
    ([query, key]) => ({ unit: ctx.source().unit, query, key }),
  );
  on(plot, signal, {
    pointermove(event) {
      spoken = false;
      selection.hover(cellAt(event));
    },
    pointerleave: () => selection.hover(null),
    click(event) {
      const cell = cellAt(event);
      // Cells are compared in this view's unit, so that a second click also unpins a cell pinned in another unit.
      if (cell) selection.pin(samePlace(ctx.cell("pinned"), cell) ? null : cell);
    },
  });
  keyboard(
    plot,
    signal,
    {
      ...navigation(ctx),
      "Shift+ArrowUp": movePin(-1, 0),
      "Shift+ArrowDown": movePin(1, 0),
      "Shift+ArrowLeft": movePin(0, -1),
      "Shift+ArrowRight": movePin(0, 1),
      Enter: movePin(0, 0),
      "Shift+Enter": () => pinAnother(ctx, size),
    },
    "↑ ↓: layer · ← →: head · Shift + arrows, Enter: move the pinned cell · Shift + Enter: pin another · Escape: unpin",
  );
  const draw = (): void => {
    layout();
    paint();
    point();
    if (size) drawOnMap(chosen, ctx, size);
  };
  watchWidth(root, signal, (now) => {
    width = now;
    draw();
  });
  return (changed) => {
    if (only(changed, "hover")) {
      point();
      return;
    }
    words();
    draw();
  };
});

function valueWords(source: Source): string {
  if (source.stochastic) return "share of the row";
  return `${source.kind === "attributions" ? "attribution" : "weight"}${source.signed ? ", signed" : ""}`;
}

/** Enough of an axis to notice when it changes. */
function fingerprint(axis: Axis): string {
  return `${axis.unit} ${axis.labels.length} ${axis.labels.slice(0, 512).join("\u0001")}`;
}
