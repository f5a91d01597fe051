/**
 * A single matrix: rows are queries, columns are keys. Hover previews, click pins and reads the exact row, arrows move
 * through layers and heads.
 *
 * A change runs `layout` (heatmap/layout.ts), `paint` (heatmap/paint.ts) and `point` (heatmap/point.ts), in this order,
 * over a shared `HeatmapState`. Each compares its input with that of its last run, so that a pointer that moves runs
 * `point` alone.
 */

import type { Change } from "../../context.ts";
import { assign, createWatch, h, keyboard, on, onResize, reserve, setText, watchBox } from "../../dom.ts";
import { createExactRows } from "../base/cellValues.ts";
import { createChosen } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { filterSlot, setFilters } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { pickCells, pinAnother } from "../base/gestures.ts";
import { kindWords } from "../base/mixers.ts";
import { headAt, navigation, whereWords } from "../base/navigation.ts";
import { openingWords } from "../base/opening.ts";
import { withSavedFallback } from "../base/savedFallback.ts";
import { joinScale } from "../base/sharedScale.ts";
import { createNavigation } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createFigure } from "./figure.ts";
import { follow, layout, mark, outline } from "./heatmap/layout.ts";
import { paint } from "./heatmap/paint.ts";
import { cellAt, isSameCell, listenAlong, movePin, point } from "./heatmap/point.ts";
import type { HeatmapState } from "./heatmap/state.ts";
import { createRowBars } from "./rowBars.ts";
import { heightBeside } from "./size.ts";

/**
 * Largest height in px of a lone map with its frame, and the part of it that the frame's lines and its body's padding
 * take.
 */
const TALLEST = 560;
const EDGES = 18;

export const renderHeatmap = view((around, root, signal) => {
  const ctx = withSavedFallback(around);
  const controls = createNavigation(ctx, signal);
  const figure = createFigure(ctx, "attention map", signal, {
    back: () => setFilters(ctx, { special: "show" }),
    move: (rows, cols) => turn(state, rows, cols),
    whole: () => toggle(state),
  });
  const bars = createRowBars();
  const body = h("div.map-body", figure.element, bars.element);
  const copy = root === ctx.el ? createCopyButton(ctx, signal) : null;
  const scale = createScale();
  const shared = joinScale(ctx, signal, () => paint(state));
  const opens = h("span");
  const opensRoom = h("span.overlay.opens", opens);
  const exactRows = createExactRows(ctx, () => point(state));
  const chosen = createChosen(figure.plot);
  const shareRows = createExactRows(ctx, () => point(state));
  const isLaidOut = createWatch();

  root.classList.add("aw-heatmap");
  const frame = createFrame(ctx, root, {
    layout: "",
    controls: controls.elements,
    tags: [opensRoom, filterSlot(ctx)],
    legend: scale.element,
    body: [body],
    skeleton: "own",
    hint: "Click a cell to pin and read it.",
    actions: copy ? [copy.element] : [],
  });

  const state: HeatmapState = {
    root,
    signal,
    ctx,
    controls,
    figure,
    bars,
    body,
    copy,
    scale,
    shared,
    opens,
    opensRoom,
    exactRows,
    chosen,
    shareRows,
    box: { width: 0, height: 0 },
    size: null,
    parts: null,
    names: "",
    hasSink: false,
    isWhole: false,
    isInside: false,
    onBar: -1,
    onSink: -1,
    pinnedSink: -1,
    laidOut: "",
    isLaidOut,
    image: null,
    painted: "",
    paintedSource: "",
    tile: null,
    spoken: false,
    frame,
  };
  listen(state);
  return (changed) => update(state, changed);
});

/** Handle the pointer and the keys, which choose cells, rows and heads, and lay out again when the room changes. */
function listen(state: HeatmapState): void {
  const { ctx, signal, figure, root } = state;
  const { selection } = ctx;
  const { plot, left, top, shares, sink } = figure;

  pickCells(
    ctx,
    { plot, left, top },
    () => state.size,
    signal,
    ([row, col]) => ({
      unit: ctx.source().unit,
      query: state.parts?.[0].drawn()[row] ?? -1,
      key: state.parts?.[1].drawn()[col] ?? -1,
    }),
  );
  on(plot, signal, {
    pointermove(event) {
      state.spoken = false;
      state.isInside = true;
      selection.hover(cellAt(state, event));
    },
    pointerleave() {
      state.isInside = false;
      selection.hover(null);
    },
    click(event) {
      const cell = cellAt(state, event);
      // Cells are compared in this view's unit, so that a second click also unpins a cell pinned in another unit.
      if (cell) selection.pin(isSameCell(ctx.cell("pinned"), cell) ? null : cell);
    },
  });
  listenAlong(
    state,
    shares.bars,
    (row) => {
      state.onBar = row;
    },
    () => {},
  );
  listenAlong(
    state,
    sink.element,
    (row) => {
      state.onSink = row;
    },
    (row) => {
      state.pinnedSink = row;
    },
  );
  keyboard(
    plot,
    signal,
    {
      ...navigation(ctx),
      "Shift+ArrowUp": movePin(state, -1, 0),
      "Shift+ArrowDown": movePin(state, 1, 0),
      "Shift+ArrowLeft": movePin(state, 0, -1),
      "Shift+ArrowRight": movePin(state, 0, 1),
      Enter: movePin(state, 0, 0),
      "Shift+Enter": () => pinAnother(ctx),
      PageUp: () => turn(state, -1, 0),
      PageDown: () => turn(state, 1, 0),
      "Shift+PageUp": () => turn(state, 0, -1),
      "Shift+PageDown": () => turn(state, 0, 1),
    },
    "↑ ↓: layer · ← →: head · Shift + arrows, Enter: move the pinned cell · Shift + Enter: pin another · Page up, down (with Shift: left, right): move the part of a long text · Escape: unpin",
  );
  watchBox(root, signal, () => refit(state));
  // Controls and words may wrap later.
  if (root === ctx.el)
    for (const row of root.querySelectorAll<HTMLElement>(".aw-toolbar, .aw-caption"))
      onResize(row, signal, () => refit(state));
}

function words(state: HeatmapState): void {
  const { root, ctx, frame } = state;
  if (root === ctx.el) state.controls.show(); // the outer view has these controls
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
  if (opening) reserve(state.opensRoom, opening);
  setText(state.opens, opening);
  const [rows, cols] = [ctx.axisOf(source.query), ctx.axisOf(source.key)].map((axis) => axis.labels.length);
  assign(state.figure.plot, {
    ariaLabel:
      `${title}, ${where}: ${rows} by ${cols}, ${kind}. ` +
      "Up, down: layer; left, right: head; Enter pins a cell, Shift and arrows move it, Shift and Enter pin another, Escape unpins.",
  });
}

/** Move the window by pages. */
function turn(state: HeatmapState, rows: number, cols: number): void {
  const { parts } = state;
  if (!parts) return;
  const moved = parts.map((part, i) => part.move((i ? cols : rows) * Math.max(1, part.count - 2)));
  if (moved.some(Boolean)) redraw(state);
}

function toggle(state: HeatmapState): void {
  state.isWhole = !state.isWhole;
  draw(state);
}

function redraw(state: HeatmapState): void {
  state.figure.label();
  mark(state);
  paint(state);
  point(state);
  outline(state);
}

function draw(state: HeatmapState): void {
  layout(state);
  paint(state);
  point(state);
  outline(state);
}

// An outer view gives the root of this view a height and `data-box`.
function refit(state: HeatmapState): void {
  const { root, body } = state;
  const given = root.dataset.box !== undefined;
  const around = given ? 0 : heightBeside(body.parentElement as HTMLElement) + EDGES;
  state.box = {
    width: body.clientWidth,
    height: (given ? root.clientHeight : (state.ctx.options.height ?? TALLEST)) - around - heightBeside(body),
  };
  draw(state);
}

function update(state: HeatmapState, changed: ReadonlySet<Change>): void {
  if (only(changed, "hover", "pinned") && follow(state)) redraw(state);
  if (only(changed, "hover")) {
    point(state);
    return;
  }
  words(state);
  draw(state);
}
