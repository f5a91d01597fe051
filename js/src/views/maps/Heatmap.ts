/**
 * One matrix: rows are queries, columns are keys. Hover previews, click pins and reads the exact row, arrows
 * move through layers and heads.
 */

import { heatMap, lut } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  keyboard,
  on,
  onResize,
  reserve,
  setFlag,
  setStyles,
  setText,
  spotAt,
  watchBox,
} from "../../dom.ts";
import { roundUp } from "../../numbers.ts";
import { NOT_COMPARED, valueTable } from "../../wire/codec.ts";
import { peaksOf } from "../../wire/sheets.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Axis, Cell, Source } from "../../wire/wire.ts";
import { createExactRows, describeCells, describeShare, nameOf } from "../base/cellValues.ts";
import { createChosen, drawOnMap } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton } from "../base/copyPython.ts";
import {
  filtered,
  filterPlace,
  filtersOf,
  hidesValues,
  setFilters,
  showsSpecial,
  standApart,
} from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { movePinned, pickCells, pinAnother } from "../base/gestures.ts";
import { missingTile } from "../base/missing.ts";
import { kindWords, meaningOf } from "../base/mixers.ts";
import { headAt, navigation, whereWords } from "../base/navigation.ts";
import { openingQuery, openingWords } from "../base/opening.ts";
import { readWords, rowWords, SINK_NAME, sinkWords, toSink } from "../base/rowFacts.ts";
import { withSavedFallback } from "../base/savedFallback.ts";
import { joinScale } from "../base/sharedScale.ts";
import { createNavigation } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { rowOf } from "../text/rowValues.ts";
import { type AxisPart, createAxisPart } from "./axisPart.ts";
import { createFigure, LINED } from "./figure.ts";
import { gather, type Matrix, maxPool, paintCells } from "./paint.ts";
import { peakInside } from "./peak.ts";
import { createRowBars } from "./rowBars.ts";
import { namesApart, type RowShare, rowShare } from "./shares.ts";
import { type Box, heightBeside, type Size } from "./size.ts";

/** px that a lone map may take in all, and those of them that the frame's lines and its body's padding take. */
const TALLEST = 560;
const EDGES = 18;
/** Smallest width in px at which a single map has bars of the pinned row next to it, and their width. */
const WIDE = 676;
const BARS_ROOM = 180;

export const renderHeatmap = view((around, root, signal) => {
  const ctx = withSavedFallback(around);
  const { selection, tiles } = ctx;
  const controls = createNavigation(ctx, signal);
  const figure = createFigure(ctx, "attention map", signal, {
    back: () => setFilters(ctx, { special: "show" }),
    move: (rows, cols) => turn(rows, cols),
    whole: () => toggle(),
  });
  const { plot, canvas, crosshair, left, top, shares, sink } = figure;
  const bars = createRowBars();
  const body = h("div.map-body", figure.element, bars.element);
  const copy = root === ctx.el ? createCopyButton(ctx, signal) : null;
  const scale = createScale();
  const shared = joinScale(ctx, signal, () => paint());
  const opens = h("span");
  const opensRoom = h("span.overlay.opens", opens);
  const exactRows = createExactRows(ctx, () => point());
  const chosen = createChosen(plot);
  const shareRows = createExactRows(ctx, () => point());
  let box: Box = { width: 0, height: 0 };
  let size: Size | null = null;
  /** The drawn part of each axis. */
  let parts: readonly [query: AxisPart, key: AxisPart] | null = null;
  let names = "";
  let hasSink = false;
  let isWhole = false;
  /** Whether the pointer is on this map, and the row whose bar or whose cell of the sink it is on. */
  let isInside = false;
  let onBar = -1;
  let onSink = -1;
  /** The row that was pinned by its cell of the sink. */
  let pinnedSink = -1;
  let laidOut = "";
  const isLaidOut = createWatch();
  let image: ImageData | null = null;
  /** What the canvas shows. */
  let painted = "";
  let paintedSource = "";
  let tile: Tile | null = null;
  let spoken = false;

  root.classList.add("aw-heatmap");
  const frame = createFrame(ctx, root, {
    controls: controls.elements,
    tags: [opensRoom, filterPlace(ctx)],
    legend: scale.element,
    body: [body],
    skeleton: "own",
    hint: "Click a cell to pin and read it.",
    actions: copy ? [copy.element] : [],
  });

  const words = (): void => {
    if (root === ctx.el) controls.show(); // an outer view has its own
    const source = ctx.source();
    const kind = source.words.slice(0, 2).join(" → ");
    const where = whereWords(ctx);
    // An outer view has the method, the layer and the head in its toolbar.
    const at = ctx.resolved();
    const isHead = root !== ctx.el && typeof at.head === "number";
    const nameAt = (layer: number): string =>
      [headAt(ctx, layer, at.head), kindWords(source, layer, at.head)].filter(Boolean).join(" · ");
    const title = isHead
      ? frame.show("", nameAt(at.layer), source.mixers ? source.layers.map(nameAt) : [])
      : frame.show((shown) => whereWords(ctx, shown));
    const opening = openingWords(ctx);
    if (opening) reserve(opensRoom, opening);
    setText(opens, opening);
    const [rows, cols] = [ctx.axisOf(source.query), ctx.axisOf(source.key)].map((axis) => axis.labels.length);
    assign(plot, {
      ariaLabel:
        `${title}, ${where}: ${rows} by ${cols}, ${kind}. ` +
        "Up, down: layer; left, right: head; Enter pins a cell, Shift and arrows move it, Shift and Enter pin another, Escape unpins.",
    });
  };

  /** Lay out sizes and labels. Does nothing unless the box, an axis or what stands apart changed. */
  const layout = (): void => {
    if (box.width <= 0) return;
    const source = ctx.source();
    const { marks } = ctx.options;
    const { special } = filtersOf(ctx);
    const axes = [ctx.axisOf(source.query), ctx.axisOf(source.key)] as const;
    // Of the largest values of several heads, and of cells that share a code, no row is known.
    hasSink = source.sink && !source.coarse && ctx.resolved().head !== "max";
    if (!isLaidOut(source, ...axes, box, marks, special, isWhole, hasSink)) return;
    const settings = JSON.stringify([marks, special === "apart", isWhole, source.coarse, hasSink]);
    const name = [source.query, source.key, box.width, box.height, ...axes.map(fingerprint), settings].join("|");
    if (name === laidOut) return;
    laidOut = name;
    painted = "";
    // Cells that share a code cannot be told apart.
    const how = source.coarse ? "show" : special;
    const [query, key] = axes.map((axis) => createAxisPart(axis, standApart(axis.special, { special: how }))) as [
      AxisPart,
      AxisPart,
    ];
    const { labels } = axes[1];
    names = namesApart(labels, key.apart);
    const hasBars = root === ctx.el && box.width >= WIDE;
    const whole = isWhole || source.coarse;
    size = figure.layout({ query, key, names, box, whole, numbers: !source.stochastic, sink: hasSink });
    parts = [query, key];
    assign(bars.element, { hidden: !hasBars || box.width - figure.element.offsetWidth < BARS_ROOM });
    const opening = openingQuery(ctx);
    const [row, most = -1] = selection.get("opening")?.pair ?? [];
    if (reveal({ unit: source.unit, query: opening, key: row === opening ? most : -1 })) figure.label();
    follow();
    mark();
  };

  const mark = (): void => {
    const cells = ctx.options.marks.filter((cell): cell is [number, number] => Array.isArray(cell));
    if (size && parts) {
      const [query, key] = parts;
      crosshair.mark(
        size,
        cells.map(([row, col]) => [query.place(row), key.place(col)] as const),
      );
    }
  };

  /** Move the window to a cell, of which a key of -1 stands for the query's own; whether it moved. */
  const reveal = (cell: Cell | null): boolean => {
    if (!cell || !parts) return false;
    const { query: rows, key: cols } = ctx.source();
    const col = cell.key < 0 && rows === cols ? cell.query : cell.key;
    return [parts[0].reveal(cell.query), parts[1].reveal(col)].some(Boolean);
  };

  /** Move the window to the pinned cell, or to the place that another view points at; whether it moved. */
  const follow = (): boolean => {
    const hover = isInside ? null : ctx.cell("hover");
    const moved = [reveal(ctx.cell("pinned")), reveal(hover)].some(Boolean);
    if (moved) figure.label();
    return moved;
  };

  /** Move the window by pages. */
  const turn = (rows: number, cols: number): void => {
    if (!parts) return;
    const moved = parts.map((part, i) => part.move((i ? cols : rows) * Math.max(1, part.count - 2)));
    if (moved.some(Boolean)) redraw();
  };
  const toggle = (): void => {
    isWhole = !isWhole;
    draw();
  };
  const redraw = (): void => {
    figure.label();
    mark();
    paint();
    point();
    outline();
  };
  const outline = (): void => {
    if (size) drawOnMap(chosen, ctx, size, (side, i) => parts?.[side === "query" ? 0 : 1].place(i) ?? -1);
  };

  const range = (shown: Tile, source: Source): readonly [number, number] => {
    const all = scale.common() ? largest(shown, source) : 0;
    const own = roundUp(parts ? peakInside(shown, parts[0].inside, parts[1].inside) : shown.peak());
    // Targets and the text share the scale of the layers.
    const joint = source.kind === "attributions" ? shared.end(own) : own;
    const end = all || Math.min(joint, source.stochastic ? 1 : Infinity);
    return source.signed ? [-end, end] : [0, end];
  };

  /** Draw the tile, or dim the old picture until the tile arrives. */
  const paint = (): void => {
    const { source, layer, head } = ctx.resolved();
    const whatItIs = tiles.get(source.id, layer, head);
    const chosen = filtersOf(ctx);
    tile = whatItIs ? filtered(ctx, whatItIs, chosen) : null;
    scale.follow(chosen);
    tiles.request(source.id, layer, head);
    setFlag(plot, "data-stale", !tile);
    assign(plot, { ariaBusy: String(!tile) });
    if (!tile) {
      // The picture of another map would be wrong, even dimmed.
      if (paintedSource !== source.id) {
        image = null;
        canvas.width = 0;
      }
      painted = "";
      const isBlank = canvas.width === 0;
      setFlag(plot, "data-blank", isBlank);
      if (isBlank) showBars();
      frame.lacks({ ...missingTile(ctx), other: isBlank });
      return;
    }
    setFlag(plot, "data-blank", false);
    frame.lacks(null);
    if (!size || !parts) return;
    const map = heatMap(source.signed, ctx.theme, chosen.palette);
    const ends = range(tile, source);
    const window = parts.map((part) => part.start);
    const name = [source.id, layer, head, map, JSON.stringify(chosen), ends, window].join("|");
    if (name === painted) return;
    [painted, paintedSource] = [name, source.id];
    const { codes, meta } = tile;
    const causal = source.causal && meta.rows === meta.cols;
    const [drawnRows, drawnCols] = meta.whole
      ? [[...Array(meta.rows).keys()], [...Array(meta.cols).keys()]]
      : (parts.map((part) => part.drawn()) as [number[], number[]]);
    const drawnCodes = gather(codes, meta.cols, drawnRows, drawnCols, causal);
    const [rows, cols] = [drawnRows.length, drawnCols.length];
    const fullMatrix: Matrix = { codes: drawnCodes, start: 0, rows, cols, causal: false };
    // The number of cells per code and per pixel.
    const coarse = Math.ceil(tile.cols / meta.cols);
    const pool = coarse * Math.max(1, Math.ceil(size.pool / coarse));
    const matrix = maxPool(fullMatrix, pool / coarse);
    if (image?.width !== matrix.cols || image.height !== matrix.rows) image = new ImageData(matrix.cols, matrix.rows);
    const signed = tile.meta.codec === "i8";
    const table = lut(map, { ...tile.meta, range: ends, mode: scale.mode(), signed });
    paintCells(new Uint32Array(image.data.buffer), matrix, table);
    figure.show(image);
    if (pool > 1 || meta.whole) figure.ink.clear();
    else {
      const values = valueTable(signed, meta.gamma, meta.scale);
      const value = (byte: number): number => values[byte] as number;
      figure.ink.write(size, drawnCodes, table, value, ends[1], source.stochastic);
    }
    if (names && whatItIs)
      shares.draw(
        size,
        drawnRows.map((row) => shareOf(whatItIs, row, source)),
      );
    setFlag(plot, "data-lines", Math.min(size.cellWidth, size.cellHeight) >= LINED);
    setFlag(plot, "data-causal", causal);
    if (causal) setStyles(plot, { "--aw-later": laterArea(size, parts) });
    showBars();
    setFlag(plot, "data-holes", whatItIs?.codes instanceof Int16Array);
    if (hasSink) {
      const given = drawnRows.map((row) => toSink(tile, row) ?? 0);
      sink.draw(size, given, map, scale.mode());
    }
    let pooled = pool > 1 ? `; each pixel is the largest of ${pool} × ${pool} cells` : "";
    if (meta.whole && hidesValues(chosen)) pooled += ", none left out: filters need words or sentences";
    const common = scale.common() && largest(tile, source) > 0 ? "; one range for all layers and heads" : "";
    const empty = meta.compared ? NOT_COMPARED : "";
    const words = valueWords(ctx) + common + pooled;
    scale.show({ map, range: ends, words, empty, sink: hasSink ? SINK_NAME : "" });
  };

  /** The end of a common range for all layers and heads; 0 if unknown. */
  const largest = (shown: Tile, source: Source): number => {
    if (source.stochastic) return shown.meta.scale;
    if (source.computed || source.parts) return 0;
    const sheet = tiles.thumbs(source.id, showsSpecial(ctx, source));
    return roundUp(sheet ? Math.max(0, ...peaksOf(sheet).flat()) : 0);
  };

  const shareOf = (from: Tile, row: number, source: Source): RowShare => {
    const apart = parts?.[1].apart ?? [];
    if (!source.stochastic) {
      return rowShare(rowOf(from, row), apart, from.meta.scale, from.meta.codec === "i8" ? 127 : 255);
    }
    const some = apart.map((col) => from.value(row, col));
    const { part, error } = rowShare(some, [...some.keys()], from.meta.scale, from.meta.codec === "i8" ? 127 : 255);
    return { part, all: 1, error };
  };

  /** The pinned row as bars, where there is room for them. */
  const showBars = (): void => {
    if (bars.element.hidden || !parts) return;
    const source = ctx.source();
    const row = ctx.cell("pinned")?.query ?? openingQuery(ctx);
    const { labels } = ctx.axisOf(source.key);
    if (row < 0 || !tile) {
      bars.show("Click a row to see its largest values.", [], labels, [], "", 0);
      return;
    }
    const exact = exactRows(row, false);
    bars.show(
      `${nameOf(ctx, source.query, row)} ${source.words[2]}`,
      exact ?? rowOf(tile, row),
      labels,
      parts[1].apart,
      names,
      ctx.options.indexBase,
      hasSink ? toSink(tile, row) : undefined,
    );
  };

  /** Update crosshair, pinned cell and readout. Runs on every pointer move and creates no nodes. */
  const point = (): void => {
    if (!size || !parts) return;
    const [hover, pinned] = [ctx.cell("hover"), ctx.cell("pinned")];
    const [query, key] = parts;
    const drawn = (cell: Cell | null): Cell | null =>
      cell && { unit: cell.unit, query: query.place(cell.query), key: key.place(cell.key) };
    const opening = openingQuery(ctx);
    const shown = hover ?? (opening < 0 ? null : { unit: "", query: opening, key: -1 });
    const [over, pin] = [drawn(shown), drawn(pinned)];
    crosshair.move(size, over, pin);
    left.mark(over?.query, pin?.query);
    top.mark(over?.key, pin?.key);
    const isApart = (cell: Cell | null): boolean => cell !== null && key.apart.includes(cell.key);
    shares.mark(
      size,
      onBar >= 0 || isApart(hover) ? (over?.query ?? -1) : -1,
      isApart(pinned) ? (pin?.query ?? -1) : -1,
    );
    sink.mark(size, query.place(onSink), isPinnedSink(pinned) ? (pin?.query ?? -1) : -1);
    copy?.show();
    if (frame.readout.isSilent) return;
    const text =
      onBar >= 0
        ? barWords(onBar, key.apart)
        : onSink >= 0
          ? [`${nameOf(ctx, ctx.source().query, onSink)} → ${sinkWords(tile, onSink)}`, readWords(tile, onSink)]
              .filter(Boolean)
              .join(" · ")
          : describeCells(ctx, exactRows, tile, hover, pinned);
    frame.readout.show(text, spoken || root.contains(document.activeElement));
  };

  /** What a bar stands for: what a row gives to the elements apart; and what else there is to say of the row. */
  const barWords = (row: number, apart: readonly number[]): string => {
    const { labels } = ctx.axisOf(ctx.source().key);
    const named = apart.length > 0 ? describeShare(ctx, shareRows, row, apart, namesApart(labels, apart)) : "";
    return [named || nameOf(ctx, ctx.source().query, row), rowWords(tile, row)].filter(Boolean).join(" · ");
  };

  const cellAt = (event: MouseEvent): Cell | null => {
    const spot = size && parts && spotAt(event, plot, size.rows, size.cols);
    if (!spot || !parts) return null;
    const [query = -1, key = -1] = spot.map((at, i) => (parts as readonly AxisPart[])[i]?.drawn()[at] ?? -1);
    return { unit: ctx.source().unit, query, key };
  };
  /** The row whose bar, or whose cell of the sink, is under the pointer. */
  const rowAt = (event: MouseEvent, strip: HTMLElement): Cell | null => {
    const at = size && spotAt(event, strip, size.rows, 1);
    const query = at ? parts?.[0].drawn()[at[0]] : undefined;
    return query === undefined ? null : { unit: ctx.source().unit, query, key: -1 };
  };

  const isPinnedSink = (pinned: Cell | null): boolean =>
    hasSink && pinned !== null && pinned.key < 0 && pinned.query === pinnedSink;
  const samePlace = (a: Cell | null, b: Cell): boolean => a?.query === b.query && a.key === b.key;

  /** Pin the cell next to the pinned or hovered one; the same cell again unpins it. */
  const movePin = (rows: number, cols: number) => (): void => {
    if (!parts) return;
    const pinned = ctx.cell("pinned");
    const now = pinned ?? ctx.cell("hover");
    const [query = -1, key = -1] = parts.map((part, i) => {
      const at = part.inside.indexOf((i ? now?.key : now?.query) ?? -1);
      // The sink stands before the first key.
      const least = i && hasSink ? -1 : 0;
      const from = i && (isPinnedSink(pinned) || (!pinned && onSink >= 0)) ? -1 : Math.max(0, at);
      return part.inside[Math.max(least, Math.min(part.inside.length - 1, from + (i ? cols : rows)))] ?? -1;
    });
    pinnedSink = key < 0 ? query : -1;
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
    ([row, col]) => ({
      unit: ctx.source().unit,
      query: parts?.[0].drawn()[row] ?? -1,
      key: parts?.[1].drawn()[col] ?? -1,
    }),
  );
  on(plot, signal, {
    pointermove(event) {
      spoken = false;
      isInside = true;
      selection.hover(cellAt(event));
    },
    pointerleave() {
      isInside = false;
      selection.hover(null);
    },
    click(event) {
      const cell = cellAt(event);
      // Cells are compared in this view's unit, so that a second click also unpins a cell pinned in another unit.
      if (cell) selection.pin(samePlace(ctx.cell("pinned"), cell) ? null : cell);
    },
  });
  /** Let a row be hovered and pinned by what stands next to the cells. `on` takes the row under the pointer, -1: none. */
  const listenAlong = (strip: HTMLElement, isOn: (row: number) => void, pinning: (row: number) => void): void => {
    on(strip, signal, {
      pointermove(event) {
        const cell = rowAt(event, strip);
        spoken = false;
        isInside = true;
        isOn(cell?.query ?? -1);
        selection.hover(cell);
        point();
      },
      pointerleave() {
        isInside = false;
        isOn(-1);
        selection.hover(null);
      },
      click(event) {
        const cell = rowAt(event, strip);
        if (!cell) return;
        const isPinned = samePlace(ctx.cell("pinned"), cell);
        pinning(isPinned ? -1 : cell.query);
        selection.pin(isPinned ? null : cell);
      },
    });
  };
  listenAlong(
    shares.bars,
    (row) => {
      onBar = row;
    },
    () => {},
  );
  listenAlong(
    sink.element,
    (row) => {
      onSink = row;
    },
    (row) => {
      pinnedSink = row;
    },
  );
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
      "Shift+Enter": () => pinAnother(ctx),
      PageUp: () => turn(-1, 0),
      PageDown: () => turn(1, 0),
      "Shift+PageUp": () => turn(0, -1),
      "Shift+PageDown": () => turn(0, 1),
    },
    "↑ ↓: layer · ← →: head · Shift + arrows, Enter: move the pinned cell · Shift + Enter: pin another · Page up, down (with Shift: left, right): move the part of a long text · Escape: unpin",
  );
  const draw = (): void => {
    layout();
    paint();
    point();
    outline();
  };
  // A view that holds this one gives its root a height and `data-box`.
  const refit = (): void => {
    const given = root.dataset.box !== undefined;
    const around = given ? 0 : heightBeside(body.parentElement as HTMLElement) + EDGES;
    box = {
      width: body.clientWidth,
      height: (given ? root.clientHeight : (ctx.options.height ?? TALLEST)) - around - heightBeside(body),
    };
    draw();
  };
  watchBox(root, signal, refit);
  // Controls and words may wrap later.
  if (root === ctx.el)
    for (const row of root.querySelectorAll<HTMLElement>(".aw-toolbar, .aw-caption")) onResize(row, signal, refit);
  return (changed) => {
    if (only(changed, "hover", "pinned") && follow()) redraw();
    if (only(changed, "hover")) {
      point();
      return;
    }
    words();
    draw();
  };
});

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

/** Enough of an axis to notice when it changes. */
function fingerprint(axis: Axis): string {
  return `${axis.unit} ${axis.labels.length} ${axis.labels.slice(0, 512).join("\u0001")}`;
}
