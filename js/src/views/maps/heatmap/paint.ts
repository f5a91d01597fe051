/** The cells, the shares of elements apart, the sink and the bars: everything that depends on the values. */

import { heatMap, lut } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { assign, setFlag, setStyles } from "../../../dom.ts";
import { roundUp } from "../../../numbers.ts";
import { NOT_COMPARED, valueTable } from "../../../wire/codec.ts";
import { peaksOf } from "../../../wire/sheets.ts";
import type { Tile } from "../../../wire/tile.ts";
import type { Source } from "../../../wire/wire.ts";
import { nameOf } from "../../base/cellValues.ts";
import { filtered, filtersOf, hidesValues, showsSpecial } from "../../base/filters.ts";
import { missingTile } from "../../base/missing.ts";
import { meaningOf } from "../../base/mixers.ts";
import { openingQuery } from "../../base/opening.ts";
import { SINK_NAME, toSink } from "../../base/rowFacts.ts";
import { rowOf } from "../../text/rowValues.ts";
import type { AxisPart } from "../axisPart.ts";
import { LINED } from "../figure.ts";
import { gather, type Matrix, maxPool, paintCells } from "../paint.ts";
import { peakInside } from "../peak.ts";
import { type RowShare, rowShare } from "../shares.ts";
import type { Size } from "../size.ts";
import type { HeatmapState } from "./state.ts";

/** Draw the tile, or dim the old picture until the tile arrives. */
export function paint(state: HeatmapState): void {
  const { ctx, figure, scale, size, parts, hasSink, frame } = state;
  const { tiles } = ctx;
  const { plot, canvas } = figure;
  const { source, layer, head } = ctx.resolved();
  const unfiltered = tiles.get(source.id, layer, head);
  const chosen = filtersOf(ctx);
  state.tile = unfiltered ? filtered(ctx, unfiltered, chosen) : null;
  scale.follow(chosen);
  tiles.request(source.id, layer, head);
  setFlag(plot, "data-stale", !state.tile);
  assign(plot, { ariaBusy: String(!state.tile) });
  if (!state.tile) {
    // The picture of another map would be wrong, even dimmed.
    if (state.paintedSource !== source.id) {
      state.image = null;
      canvas.width = 0;
    }
    state.painted = "";
    const isBlank = canvas.width === 0;
    setFlag(plot, "data-blank", isBlank);
    if (isBlank) showBars(state);
    frame.lacks({ ...missingTile(ctx), other: isBlank });
    return;
  }
  setFlag(plot, "data-blank", false);
  frame.lacks(null);
  if (!size || !parts) return;
  const map = heatMap(source.signed, ctx.theme, chosen.palette);
  const ends = range(state, state.tile, source);
  const window = parts.map((part) => part.start);
  const name = [source.id, layer, head, map, JSON.stringify(chosen), ends, window].join("|");
  if (name === state.painted) return;
  [state.painted, state.paintedSource] = [name, source.id];
  const { codes, meta } = state.tile;
  const causal = source.causal && meta.rows === meta.cols;
  const [drawnRows, drawnCols] = meta.whole
    ? [[...Array(meta.rows).keys()], [...Array(meta.cols).keys()]]
    : (parts.map((part) => part.drawn()) as [number[], number[]]);
  const drawnCodes = gather(codes, meta.cols, drawnRows, drawnCols, causal);
  const [rows, cols] = [drawnRows.length, drawnCols.length];
  const fullMatrix: Matrix = { codes: drawnCodes, start: 0, rows, cols, causal: false };
  // The number of cells per code and per pixel.
  const coarse = Math.ceil(state.tile.cols / meta.cols);
  const pool = coarse * Math.max(1, Math.ceil(size.pool / coarse));
  const matrix = maxPool(fullMatrix, pool / coarse);
  if (state.image?.width !== matrix.cols || state.image.height !== matrix.rows)
    state.image = new ImageData(matrix.cols, matrix.rows);
  const signed = state.tile.meta.codec === "i8";
  const table = lut(map, { ...state.tile.meta, range: ends, mode: scale.mode(), signed });
  paintCells(new Uint32Array(state.image.data.buffer), matrix, table);
  figure.show(state.image);
  if (pool > 1 || meta.whole) figure.ink.clear();
  else {
    const values = valueTable(signed, meta.gamma, meta.scale);
    const value = (byte: number): number => values[byte] as number;
    figure.ink.write(size, drawnCodes, table, value, ends[1], source.stochastic);
  }
  if (state.names && unfiltered)
    figure.shares.draw(
      size,
      drawnRows.map((row) => shareOf(state, unfiltered, row, source)),
    );
  setFlag(plot, "data-lines", Math.min(size.cellWidth, size.cellHeight) >= LINED);
  setFlag(plot, "data-causal", causal);
  if (causal) setStyles(plot, { "--aw-later": laterArea(size, parts) });
  showBars(state);
  setFlag(plot, "data-holes", unfiltered?.codes instanceof Int16Array);
  if (hasSink) {
    const sinkShares = drawnRows.map((row) => toSink(state.tile, row) ?? 0);
    figure.sink.draw(size, sinkShares, map, scale.mode());
  }
  let pooled = pool > 1 ? `; each pixel is the largest of ${pool} × ${pool} cells` : "";
  if (meta.whole && hidesValues(chosen)) pooled += ", none left out: filters need words or sentences";
  const common = scale.common() && largest(ctx, state.tile, source) > 0 ? "; one range for all layers and heads" : "";
  const empty = meta.compared ? NOT_COMPARED : "";
  const words = valueWords(ctx) + common + pooled;
  scale.show({ map, range: ends, words, empty, sink: hasSink ? SINK_NAME : "" });
}

function range(state: HeatmapState, shown: Tile, source: Source): readonly [number, number] {
  const { parts } = state;
  const all = state.scale.common() ? largest(state.ctx, shown, source) : 0;
  const peak = roundUp(parts ? peakInside(shown, parts[0].inside, parts[1].inside) : shown.peak());
  // Targets and the text share the scale of the layers.
  const joint = source.kind === "attributions" ? state.shared.end(peak) : peak;
  const end = all || Math.min(joint, source.stochastic ? 1 : Infinity);
  return source.signed ? [-end, end] : [0, end];
}

/** The end of a common range for all layers and heads; 0 if unknown. */
function largest(ctx: ViewContext, shown: Tile, source: Source): number {
  if (source.stochastic) return shown.meta.scale;
  if (source.computed || source.parts) return 0;
  const sheet = ctx.tiles.thumbs(source.id, showsSpecial(ctx, source));
  return roundUp(sheet ? Math.max(0, ...peaksOf(sheet).flat()) : 0);
}

function shareOf(state: HeatmapState, from: Tile, row: number, source: Source): RowShare {
  const apart = state.parts?.[1].apart ?? [];
  if (!source.stochastic) {
    return rowShare(rowOf(from, row), apart, from.meta.scale, from.meta.codec === "i8" ? 127 : 255);
  }
  const some = apart.map((col) => from.value(row, col));
  const { part, error } = rowShare(some, [...some.keys()], from.meta.scale, from.meta.codec === "i8" ? 127 : 255);
  return { part, all: 1, error };
}

/** The pinned row as bars, where there is room for them. */
function showBars(state: HeatmapState): void {
  const { ctx, bars, parts, tile } = state;
  if (bars.element.hidden || !parts) return;
  const source = ctx.source();
  const row = ctx.cell("pinned")?.query ?? openingQuery(ctx);
  const { labels } = ctx.axisOf(source.key);
  if (row < 0 || !tile) {
    bars.show("Click a row to see its largest values.", [], labels, [], "", 0);
    return;
  }
  const exact = state.exactRows(row, false);
  bars.show(
    `${nameOf(ctx, source.query, row)} ${source.words[2]}`,
    exact ?? rowOf(tile, row),
    labels,
    parts[1].apart,
    state.names,
    ctx.options.indexBase,
    state.hasSink ? toSink(tile, row) : undefined,
  );
}

/** The area of cells that come later than their row's token, as a CSS polygon. */
function laterArea({ cellWidth, cellHeight, height }: Size, [query, key]: readonly [AxisPart, AxisPart]): string {
  const at = (y: number): number => (y / cellHeight + query.start - key.start) * cellWidth;
  return `polygon(${at(0)}px 0, 9999px 0, 9999px ${height}px, ${at(height)}px ${height}px)`;
}

function valueWords(ctx: ViewContext): string {
  const { source, layer, head } = ctx.resolved();
  const meaning = meaningOf(source, layer, head);
  if (meaning) return meaning;
  if (source.stochastic) return "share of the row";
  return `${source.kind === "attributions" ? "attribution" : "weight"}${source.signed ? ", signed" : ""}`;
}
