/**
 * A text under several explanations: rows over a common axis, each on its own scale or all on a common scale, the
 * difference of two as bars, and how similarly any two of them rank the text. The text itself is coloured by one of
 * them.
 */

import { SCALE } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, createWatch, h, onResize, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Cell } from "../../wire/wire.ts";
import { type Chosen, createChosen, drawOnColumns, pinnedTogether } from "../base/chosen.ts";
import { type CopyButton, createCopyButton, type NumberAddress } from "../base/copyPython.ts";
import { filtersOf } from "../base/filters.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { pickAlong, textPicks } from "../base/gestures.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import { type Control, createLayerControl, createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createStrip, type Strip } from "../text/strip.ts";
import { fills, gradient, NOTHING } from "../text/stripColour.ts";
import { type Agreement, createAgreement } from "./agreement.ts";
import { type Compared, createPicture, type Pair, type Picture } from "./picture.ts";
import { createRows, currentElement, type ExplanationRows } from "./rows.ts";
import { type CompareWords, createCompareWords } from "./words.ts";

/** Minimum width in px for placing the matrix next to the rows. */
const WIDE = 940;

const PANES = { rows: "rows", agreement: "agreement" };

/** The elements of the view, and the state that they show. */
interface CompareState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly explanations: ExplanationRows<Compared>;
  readonly words: CompareWords;
  readonly controls: Control;
  readonly panes: Segments<"rows" | "agreement">;
  readonly picture: Picture;
  readonly chosen: Chosen;
  readonly agreement: Agreement;
  readonly body: HTMLDivElement;
  readonly text: HTMLDivElement;
  readonly low: HTMLSpanElement;
  readonly ramp: HTMLSpanElement;
  readonly high: HTMLSpanElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly isOtherText: (...values: unknown[]) => boolean;
  /** The text above the rows; null inside another view. */
  strip: Strip | null;
  /** Ends the listeners of the last text. */
  bound: AbortController;
  /** The two rows whose difference is shown. */
  pair: Pair;
  /** The row whose method is explained; -1: none. */
  open: number;
  readonly isOtherQuery: (...values: unknown[]) => boolean;
}

export const renderCompareView = view((ctx, root, signal) => {
  const explanations = createRows<Compared>(
    ctx,
    signal,
    "strips",
    () => args(state),
    () => draw(state),
    "own",
  );
  const words = createCompareWords(ctx, explanations);
  const controls = together(createLayerControl(ctx, signal), createUnitControl(ctx, signal));
  const panes = createSegments("what is shown", PANES, signal, () => showPane(state));
  const picture = createPicture(ctx, signal, explanations, {
    hover: (index) => hover(ctx, index),
    pin: (index) => pin(state, index),
    resized: () => drawChosen(state),
    open(row) {
      state.open = row;
      draw(state);
    },
  });
  const chosen = createChosen(picture.canvas);
  pickAlong(ctx, picture.columns.element, picture.columns, "cols", "key", signal, (key) => cellOf(state, key));
  const agreement = createAgreement(
    ctx,
    signal,
    explanations,
    (row, col) => choose(state, row, col),
    picture.point,
    () => drawAgreement(state),
  );
  const body = h("div.compare-body", picture.element, agreement.element);
  const text = h("div.compare-text");
  const [low, ramp, high] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
  const copy = createCopyButton(ctx, signal, () => numberAddress(state));
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, explanations.scales],
    lead: [text],
    legend: h("span.scale.field", low, ramp, high),
    tags: [panes.element, explanations.form],
    body: [body],
    hint: "Click a token to compare its value in every row.",
    actions: [copy.element],
  });
  const isOtherText = createWatch(); // the row that colours the text
  const isOtherQuery = createWatch();

  const state: CompareState = {
    ctx,
    root,
    explanations,
    words,
    controls,
    panes,
    picture,
    chosen,
    agreement,
    body,
    text,
    low,
    ramp,
    high,
    copy,
    frame,
    isOtherText,
    strip: null,
    bound: new AbortController(),
    pair: [0, 1],
    open: 0,
    isOtherQuery,
  };

  root.classList.add("aw-compare");
  root.role = "group";
  signal.addEventListener("abort", () => state.bound.abort());
  onResize(root, signal, ({ width }) => setFlag(root, "data-wide", width >= WIDE));
  return (changed) => {
    if (only(changed, "hover")) point(state);
    else draw(state);
  };
});

function requestedRow(state: CompareState): number | null {
  return state.explanations.meta?.follows === false ? null : pinnedQuery(state.ctx);
}

function args(state: CompareState): Record<string, unknown> {
  const { source, layer } = state.ctx.resolved();
  return { layer: source.kind === "map" ? layer : 0, query: requestedRow(state), unit: source.unit };
}

function hover(ctx: ViewContext, index: number): void {
  ctx.selection.hover(index < 0 ? null : { unit: ctx.source().unit, query: -1, key: index });
}

/** Pin an element of the rows. */
function pin(state: CompareState, index: number): void {
  const { ctx } = state;
  const now = ctx.cell("pinned");
  const query = requestedRow(state) ?? -1;
  const again = now?.key === index;
  ctx.selection.pin(again && query < 0 ? null : { unit: ctx.source().unit, query, key: again ? -1 : index });
}

/** Choose the query whose row is read; in maps without queries, pin the element. */
function chooseQuery(state: CompareState, index: number): void {
  const { ctx } = state;
  if (!state.explanations.meta?.follows) pin(state, index);
  else ctx.selection.pin(requestedRow(state) === index ? null : { unit: ctx.source().unit, query: index, key: -1 });
}

function choose(state: CompareState, row: number, col: number): void {
  if (row === col) return;
  state.pair = [row, col];
  draw(state);
}

function cellOf(state: CompareState, key: number): Cell {
  return { unit: state.ctx.source().unit, query: requestedRow(state) ?? -1, key };
}

/** A token of the text: the query whose row is read, where maps have queries. */
function tokenOf(state: CompareState, index: number): Cell {
  return state.explanations.meta?.follows
    ? { unit: state.ctx.source().unit, query: index, key: -1 }
    : cellOf(state, index);
}

/** The number to copy: the pinned element's value in the row that the text shows, or the pair's agreement. */
function numberAddress(state: CompareState): NumberAddress | null {
  const { ctx, open } = state;
  const { meta, stale } = state.explanations;
  const key = ctx.cell("pinned")?.key ?? -1;
  if (!meta || stale) return null;
  if (key < 0) return state.agreement.numberAddress();
  const isScaled = filtersOf(ctx).special === "renormalise" && meta.shares[open];
  return isScaled ? null : { of: "value", strip: open, element: key, ...args(state) };
}

function buildText(state: CompareState): void {
  const { ctx } = state;
  const axis = state.explanations.axis();
  if (!state.isOtherText(axis)) return;
  state.bound.abort();
  state.bound = new AbortController();
  state.strip = createStrip(
    ctx,
    axis,
    "",
    new Set(),
    {
      hover: (index) => hover(ctx, index),
      pin: (index) => chooseQuery(state, index),
      ...textPicks(ctx, "key", (index) => tokenOf(state, index)),
    },
    state.bound.signal,
  );
  setChildren(state.text, state.strip.box);
}

function showPane(state: CompareState): void {
  setFlag(state.body, "data-second", state.panes.value() === "agreement");
}

function draw(state: CompareState): void {
  const { explanations, frame } = state;
  state.controls.show();
  explanations.read(frame.lacks);
  const { meta, stale } = explanations;
  const title = frame.show(meta ? state.words.heading() : "");
  assign(state.root, { ariaLabel: `${title}: one text, several explanations` });
  state.copy.show();
  if (!meta) return;
  const { length } = meta.names;
  if (Math.max(...state.pair) >= length) state.pair = [0, 1];
  if (state.open >= length) state.open = 0;
  buildText(state);
  if (!stale) {
    explanations.trim();
    paint(state);
  }
  drawAgreement(state);
}

function paint(state: CompareState): void {
  const { ctx, explanations, open } = state;
  const { shown, extents, apart } = explanations;
  const { palette, scale } = filtersOf(ctx);
  state.picture.draw(state.pair, open);
  const { top = 1, signed = false } = extents[open] ?? {};
  const look = [ctx.theme, signed, palette, scale || SCALE] as const;
  const fill = fills(...look);
  const row = shown[open] ?? new Float32Array();
  state.strip?.underlay.paint((i) => (apart[i] ? NOTHING : fill((row[i] ?? 0) / (top || 1))));
  setFlag(state.text, "data-apart", apart.some(Boolean));
  setStyles(state.ramp, { background: gradient(...look) });
  const end = explanations.hasSeparateScales() ? "largest of the row" : tickText(top);
  setText(state.low, signed ? `−${end}`.replace("−largest of the row", "−") : "0");
  setText(state.high, end);
}

function drawChosen(state: CompareState): void {
  drawOnColumns(state.chosen, state.ctx, "key", state.picture.cells());
}

/** Marks and numbers of the current element. Runs on every pointer move. */
function point(state: CompareState): void {
  const { ctx, words, strip } = state;
  const { meta } = state.explanations;
  if (!meta) return;
  const key = currentElement(ctx);
  const query = meta.how === "row" && meta.maps.some(Boolean) ? (meta.query ?? -1) : -1;
  strip?.mark("aw-key", key);
  strip?.mark("aw-query", query);
  strip?.choose(pinnedTogether(ctx, "query"), pinnedTogether(ctx, "key"), ctx.span("key"));
  drawChosen(state);
  if (state.isOtherQuery(strip, query)) strip?.keepIn(state.text, query);
  state.picture.mark(key, query, (i) => words.value(i, key));
  const similar = key < 0 ? state.agreement.words() : "";
  state.frame.readout.show([similar, words.read(key, state.pair, state.open)].filter(Boolean).join(" · "), true);
}

function drawAgreement(state: CompareState): void {
  state.agreement.show(args(state), state.pair);
  state.copy.show();
  if (!state.explanations.stale) point(state);
}
