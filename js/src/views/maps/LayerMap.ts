/**
 * A single row of a map in every layer: rows are layers, columns are tokens. For attributions, the row of a target.
 *
 * `draw` lays out and `paint` fills the canvas; `point` moves the crosshair and the readout. `open` shows the text in
 * the layer of a row, and `close` at the input again.
 */

import { heatMap, lut } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { h, keyboard, on, reserve, setFlag, setText, spotAt, watchBox } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Resolved } from "../../selection.ts";
import { HIDDEN, LATER, valueTable } from "../../wire/codec.ts";
import type { Cell, HeadKey, Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { type Bar, boxOf, type Chosen, createChosen } from "../base/chosen.ts";
import { type ColourScale, createScale } from "../base/colourScale.ts";
import { filterSlot, filtersOf, setFilters, standApart } from "../base/filters.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { pickCells, type Spot, togglePin } from "../base/gestures.ts";
import { missingTile } from "../base/missing.ts";
import { kindWords } from "../base/mixers.ts";
import { layerWords, moveLayer, navigation, plural } from "../base/navigation.ts";
import { openedAt } from "../base/opening.ts";
import { absence } from "../base/rowFacts.ts";
import { joinScale, type SharedScale } from "../base/sharedScale.ts";
import { only, view } from "../base/view.ts";
import { peak, rowOf } from "../text/rowValues.ts";
import { type AxisPart, createAxisPart } from "./axisPart.ts";
import { createFigure, LINED } from "./figure.ts";
import { gather, maxPool, paintCells } from "./paint.ts";
import { namesApart, rowShare } from "./shares.ts";
import { type Box, heightBeside, type Size } from "./size.ts";

/** px of height without a box: of a lone map, and inside another view. */
const ALONE = 430;
const INSIDE = 300;

/** The largest code of the picture. Codes are signed square roots of a value's share of the largest. */
const TOP = 127;

type Row = Float32Array | undefined;

/** Its elements, and the state that they show. */
interface LayerMapState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly figure: ReturnType<typeof createFigure>;
  readonly back: HTMLButtonElement;
  readonly scale: ColourScale;
  readonly shared: SharedScale;
  box: Box;
  parts: readonly [layers: AxisPart, key: AxisPart] | null;
  isWhole: boolean;
  size: Size | null;
  laidOut: string;
  rows: Row[];
  /** The same attributions at the input, whose row is above those of the layers; null without such a row. */
  input: Resolved | null;
  spot: [number, number] | null;
  readonly chosen: Chosen;
  readonly frame: Frame;
  /** Exact rows of coarse matrices; null: requested. */
  readonly exact: Map<string, Float32Array<ArrayBufferLike> | null>;
}

export const renderLayerMap = view((ctx, root, signal) => {
  const figure = createFigure(ctx, "layers by tokens", signal, {
    back: () => setFilters(ctx, { special: "show" }),
    move(_rows, cols) {
      if (state.parts?.[1].move(cols * Math.max(1, state.parts[1].count - 2))) relabel(state);
    },
    whole() {
      state.isWhole = !state.isWhole;
      draw(state);
    },
  });
  const { element, plot, left, top } = figure;
  const back = h("button.button", { type: "button" });
  const scale = createScale();
  const shared = joinScale(ctx, signal, () => draw(state));

  const chosen = createChosen(plot);

  plot.dataset.empty = "";
  root.classList.add("aw-layermap");
  const frame = createFrame(ctx, root, {
    layout: "",
    tags: [filterSlot(ctx)],
    legend: h("span.ends", back, scale.element),
    body: [element],
    skeleton: "own",
  });

  /** Exact rows of coarse matrices; null: requested. */
  const exact = new Map<string, Float32Array | null>();

  const state: LayerMapState = {
    ctx,
    root,
    signal,
    figure,
    back,
    scale,
    shared,
    box: { width: 0, height: 0 },
    parts: null,
    isWhole: false,
    size: null,
    laidOut: "",
    rows: [],
    input: null,
    spot: null,
    chosen,
    frame,
    exact,
  };
  on(back, signal, { click: () => close(ctx) });
  pickCells(
    ctx,
    { plot, left, top },
    () => state.size,
    signal,
    (at) => cellAt(state, at),
    ["key"],
  );
  on(plot, signal, {
    pointermove: (event) => hover(state, find(state, event)),
    pointerleave: () => hover(state, null),
    blur: () => hover(state, null),
    click(event) {
      const row = find(state, event)?.[0] ?? -1;
      if (row >= 0) open(state, row);
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowUp: step(state, -1, 0),
    ArrowDown: step(state, 1, 0),
    ArrowLeft: step(state, 0, -1),
    ArrowRight: step(state, 0, 1),
    Enter: () => open(state, rowAt(state, ctx.layered().layer)),
    "Shift+Enter": () => state.spot && togglePin(ctx, cellAt(state, state.spot)),
  });
  watchBox(root, signal, (now) => {
    const height = root === ctx.el ? ALONE : INSIDE;
    const isGiven = root.dataset.box !== undefined;
    state.box = { width: now.width, height: isGiven ? now.height - heightBeside(element) : height };
    draw(state);
  });
  return (changed) => {
    if (only(changed, "hover") && follow(state)) relabel(state);
    else if (only(changed, "hover", "layer")) point(state);
    else draw(state);
  };
});

/** Whether rows are targets rather than tokens. */
function ofTargets({ query, key }: Source): boolean {
  return query !== key;
}

/** The shown row (target or query): the pinned row, else the first target, or the query at which the text opens. */
function rowShown(ctx: ViewContext, source: Source): number {
  const count = ctx.axisOf(source.query).labels.length;
  const row = ctx.cell("pinned")?.query ?? -1;
  if (row >= 0 && row < count) return row;
  return ofTargets(source) ? 0 : openedAt(ctx, source);
}

function exactly(state: LayerMapState, ...address: [string, number, HeadKey, number]): Row {
  const { exact } = state;
  const name = address.join();
  if (!exact.has(name)) {
    exact.set(name, null);
    void state.ctx.tiles.row(...address, true).then((values) => {
      if (values) exact.set(name, values);
      else exact.delete(name); // requested again on the next change
      if (values && !state.signal.aborted) draw(state);
    });
  }
  return exact.get(name) ?? undefined;
}

/** The row in a layer if it is loaded; otherwise its matrix is requested, unless it is yet to be computed. */
function read(state: LayerMapState, layer: number): Row {
  const { tiles } = state.ctx;
  const { source, head } = state.ctx.layered();
  if (source.coarse) return exactly(state, source.id, layer, head, rowShown(state.ctx, source));
  const tile = tiles.get(source.id, layer, head);
  if (tile) return rowOf(tile, rowShown(state.ctx, source));
  if (source.computed?.includes(layer) !== false) tiles.request(source.id, layer, head, `layer ${layer}`);
  return undefined;
}

function inputOf(ctx: ViewContext): Resolved | null {
  const other = inside(ctx) ? ctx.counterpart() : ctx.resolved();
  const { source } = ctx.layered();
  return source.states?.input && other && other.source !== source ? other : null;
}

function readInput(ctx: ViewContext, { source, layer, head }: Resolved): Row {
  const tile = ctx.tiles.get(source.id, layer, head);
  if (!tile) ctx.tiles.request(source.id, layer, head);
  return tile && rowOf(tile, rowShown(ctx, source));
}

/** The row of a layer, and the layer of a row; undefined: the input. */
function rowAt(state: LayerMapState, layer: number): number {
  return state.ctx.layered().source.layers.indexOf(layer) + Number(state.input !== null);
}

function layerAt(state: LayerMapState, row: number): number | undefined {
  return state.ctx.layered().source.layers[row - Number(state.input !== null)];
}

function rowWords(state: LayerMapState, row: number): string {
  const { ctx } = state;
  const { source } = ctx.layered();
  const layer = layerAt(state, row);
  if (layer === undefined) return source.states?.input ?? "";
  return [layerWords(ctx, source, layer), kindWords(source, layer)].filter(Boolean).join(" · ");
}

function draw(state: LayerMapState): void {
  const { ctx, figure, box, isWhole, frame } = state;
  if (state.root.hidden) return;
  const { source } = ctx.layered();
  const { layers } = source;
  state.input = inputOf(ctx);
  const key = ctx.axisOf(source.key);
  const about = `${ofTargets(source) ? "for" : "in the row of"} ${nameOf(ctx, source.query, rowShown(ctx, source))}`;
  const title = frame.show(about, `${plural(source.unit)} in every layer`);
  // The hidden button still takes its room, so that a click does not move the picture away from the pointer.
  state.back.style.visibility = inside(ctx) ? "" : "hidden";
  figure.plot.ariaLabel = `${title}, ${about}. Up and down arrows change the layer, left and right the ${source.unit}; Enter shows the text in that layer, or at the input again.`;
  const ofLayers = layers.map((layer) => read(state, layer));
  state.rows = state.input ? [readInput(ctx, state.input), ...ofLayers] : ofLayers;
  frame.lacks(ofLayers.some(Boolean) || source.computed ? null : missingTile(ctx, ctx.layered()));
  if (box.width <= 0) return;
  const filters = filtersOf(ctx);
  const settings = [box.width, box.height, ctx.options.indexBase, filters.special, isWhole];
  const names = state.rows.map((_, row) => rowWords(state, row));
  const name = [source.id, ...settings, names, key.labels].join("|");
  if (name !== state.laidOut) {
    state.laidOut = name;
    state.parts = [
      createAxisPart({ labels: names, special: [] }, []),
      createAxisPart(key, standApart(key.special, filters)),
    ];
    const [query, cols] = state.parts;
    const numbers = source.stochastic ? false : "always";
    state.size = figure.layout({
      query,
      key: cols,
      names: namesApart(key.labels, cols.apart),
      box,
      whole: isWhole,
      numbers,
    });
  }
  follow(state);
  paint(state, source, key.labels.length);
  point(state);
  if (state.size) drawChosen(state, source, state.size);
}

/** The cell of a layer and token, in the shown row. */
function cellAt(state: LayerMapState, [row, key]: Spot): Cell {
  const { source } = state.ctx.layered();
  const at = state.parts?.[1].drawn()[key] ?? -1;
  const cell = { unit: source.unit, query: rowShown(state.ctx, source), key: at };
  const layer = layerAt(state, row);
  return layer === undefined ? cell : { ...cell, layer };
}

/** Outline the cells of this row chosen in a layer, and draw the span. */
function drawChosen(state: LayerMapState, source: Source, shown: Size): void {
  const { ctx } = state;
  const span = ctx.span("key");
  const row = rowShown(ctx, source);
  const positionOf = (key: number): number => state.parts?.[1].positionOf(key) ?? -1;
  const wide = shown.cellWidth;
  const [start, stop] = span ?? [0, 0];
  const covered = Array.from({ length: stop - start }, (_, i) => positionOf(start + i)).filter((at) => at >= 0);
  const line = ({ layer }: Cell): number =>
    layer === undefined ? Number(Boolean(state.input)) - 1 : source.layers.includes(layer) ? rowAt(state, layer) : -1;
  const here = ctx.pins().filter((cell) => cell.query === row && line(cell) >= 0);
  state.chosen.draw(
    here
      .map((cell) => ({ query: line(cell), key: positionOf(cell.key) }))
      .filter(({ key }) => key >= 0)
      .map((cell) => boxOf(cell, shown)),
    [],
    covered.map((at): Bar => [at * wide, (at + 1) * wide]),
  );
}

function relabel(state: LayerMapState): void {
  const { ctx } = state;
  state.figure.label();
  const { source } = ctx.layered();
  paint(state, source, ctx.axisOf(source.key).labels.length);
  point(state);
}

/** Move the window to the token that another view points at; whether it moved. */
function follow(state: LayerMapState): boolean {
  const { ctx } = state;
  const keys = [ctx.cell("pinned"), state.spot ? null : ctx.cell("hover")].map((cell) => cell?.key ?? -1);
  const moved = keys.map((key) => key >= 0 && state.parts?.[1].reveal(key)).some(Boolean);
  if (moved) state.figure.label();
  return moved;
}

function paint(state: LayerMapState, { signed, stochastic }: Source, cols: number): void {
  const { ctx, figure, scale, parts, size, rows } = state;
  const { plot } = figure;
  if (!size || !parts) return;
  const [query, key] = parts;
  const high = rows.length;
  const inside = rows.map((values) => (values ? key.inside.map((i) => values[i] as number) : []));
  const end = state.shared.end(Math.max(0, ...inside.map(peak)));
  const codes = new Int16Array(high * cols).fill(HIDDEN); // missing or unread values are not zeros
  rows.forEach((values, r) => {
    values?.forEach((value, c) => {
      if (Number.isNaN(value)) return;
      const share = Math.min(1, Math.abs(value) / (end || 1)); // elements apart may have larger values
      codes[r * cols + c] = Math.sign(value) * Math.round(TOP * Math.sqrt(share));
    });
  });
  const filters = filtersOf(ctx);
  scale.follow(filters);
  const range = [signed ? -end : 0, end] as const;
  const map = heatMap(signed, ctx.theme, filters.palette);
  const table = lut(map, { gamma: 0.5, scale: end, range, mode: scale.mode(), signed: true });
  const drawn = gather(codes, cols, query.drawn(), key.drawn(), false);
  const matrix = maxPool({ codes: drawn, start: 0, rows: query.count, cols: key.count, causal: false }, size.pool);
  const image = new ImageData(matrix.cols, matrix.rows);
  paintCells(new Uint32Array(image.data.buffer), matrix, table);
  if (size.pool > 1) figure.ink.clear();
  else {
    const values = valueTable(true, 0.5, end);
    figure.ink.write(size, drawn, table, (byte) => values[byte] as number, end, stochastic);
  }
  if (key.apart.length > 0 || !stochastic) {
    const empty = { part: Number.NaN, all: Number.NaN, error: 0 };
    const ofRow = (row: number): typeof empty => {
      const values = rows[row];
      return values ? rowShare(values, key.apart, peak(values), TOP) : empty;
    };
    figure.shares.draw(size, query.drawn().map(ofRow));
  }
  setFlag(plot, "data-lines", Math.min(size.cellWidth, size.cellHeight) >= LINED);
  const missing = rows.filter((values) => !values).length;
  setFlag(
    plot,
    "data-holes",
    rows.some((values) => values?.some(Number.isNaN)),
  );
  figure.show(image);
  const words = `one scale for all layers${missing ? `; ${missing} not computed yet` : ""}`;
  scale.show({ map, range, words });
}

/** Update outlines and readout. Runs on every pointer move. */
function point(state: LayerMapState): void {
  const { ctx, figure, back, parts, size, input, spot } = state;
  if (!size || !parts) return;
  const { source, layer } = ctx.layered();
  const at = rowAt(state, layer);
  const backWords = (at: number): string => `text: ${layerWords(ctx, source, at)} · back to the input`;
  setText(back, backWords(layer));
  reserve(back, backWords(source.layers.at(-1) ?? layer));
  // The readout describes the row of the text, except for the keyboard, which moves through the layers.
  const isFocused = state.root.contains(document.activeElement);
  const shownRow = inside(ctx) || isFocused || !input ? at : 0;
  const [row, key] = spot ?? [shownRow, ctx.cell("hover")?.key ?? -1];
  const [position, col] = [parts[0].positionOf(row), parts[1].positionOf(key)];
  const outlined = inside(ctx) || isFocused || input ? shownRow : -1;
  figure.crosshair.move(
    size,
    { unit: "", query: spot ? position : -1, key: col },
    { unit: "", query: outlined, key: -1 },
  );
  figure.left.mark(spot ? position : -1, outlined);
  figure.top.mark(col, -1);
  const values = state.rows[row] ?? new Float32Array();
  const word = (i: number): string => `${nameOf(ctx, source.key, i)} ${printed(values[i] ?? Number.NaN, false)}`;
  const sizeOf = (i: number): number => Math.abs(values[i] as number) || 0;
  const of = layerAt(state, row);
  const tile = of === undefined ? null : ctx.tiles.get(source.id, of, ctx.layered().head);
  const why = values.length > 0 && key >= 0 ? absence(source, tile, rowShown(ctx, source), key) : "";
  const most = [...values.keys()].sort((a, b) => sizeOf(b) - sizeOf(a)).slice(0, 3);
  const words = !values.length
    ? "not computed yet, click to compute it"
    : key >= 0
      ? why || Number.isNaN(values[key])
        ? `${nameOf(ctx, source.key, key)}: ${why || LATER}`
        : `≈ ${word(key)}`
      : `largest ≈ ${most.map(word).join(", ")}`;
  state.frame.readout.show(`${rowWords(state, row)}: ${words}`, isFocused);
}

function hover(state: LayerMapState, at: [number, number] | null): void {
  const { ctx } = state;
  state.spot = at;
  const { source } = ctx.layered();
  const query = ofTargets(source) ? rowShown(ctx, source) : -1;
  ctx.selection.hover(at && { unit: source.unit, query, key: at[1] });
  point(state);
}

function find(state: LayerMapState, event: MouseEvent): [number, number] | null {
  const { parts, size } = state;
  const at = size && parts && spotAt(event, state.figure.plot, size.rows, size.cols);
  if (!at || !parts) return null;
  const [row = -1, key = -1] = at.map((position, i) => (parts as readonly AxisPart[])[i]?.drawn()[position] ?? -1);
  return [row, key];
}

function step(state: LayerMapState, layers: number, keys: number): () => void {
  return (): void => {
    if (layers) moveLayer(state.ctx, layers);
    if (!state.parts || !(keys || state.spot)) return;
    const { layer } = state.ctx.layered();
    const { inside } = state.parts[1];
    const position = inside.indexOf(state.spot?.[1] ?? -1);
    const key = inside[Math.max(0, Math.min(inside.length - 1, position + keys))] ?? -1;
    if (state.parts[1].reveal(key)) relabel(state);
    hover(state, [rowAt(state, layer), key]);
  };
}

/** Whether the text shows a layer rather than the input. */
function inside(ctx: ViewContext): boolean {
  return ctx.source() === ctx.layered().source;
}

/** Show the text in a layer; for the layer that is already shown, return to the input. */
function open(state: LayerMapState, row: number): void {
  const { ctx } = state;
  const { source, layer: now, head } = ctx.layered();
  const layer = layerAt(state, row);
  if (layer === undefined || (inside(ctx) && layer === now)) {
    close(ctx);
    return;
  }
  // For maps with a row for every token, pin the shown row.
  const pinned = { unit: source.unit, query: rowShown(ctx, source), key: -1 };
  ctx.selection.set({ layer, inside: true, ...(ofTargets(source) ? {} : { pinned }) });
  ctx.tiles.request(source.id, layer, head);
}

function close(ctx: ViewContext): void {
  const method = ctx.selection.get("method").replace(":layers", "");
  ctx.selection.set({ method, inside: false, ...(ofTargets(ctx.layered().source) ? {} : { pinned: null }) });
}
