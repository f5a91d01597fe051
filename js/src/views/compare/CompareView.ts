/**
 * One text under several explanations: rows over one axis, each on its own scale or all on one, the difference of two as
 * bars, and how similarly every two of them rank the text. The text itself is coloured by one of them.
 */

import { SCALE } from "../../colour.ts";
import { assign, createWatch, h, onResize, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Cell } from "../../wire/wire.ts";
import { createChosen, drawOnColumns, pinnedTogether } from "../base/chosen.ts";
import { createCopyButton, type NumberPlace } from "../base/copyPython.ts";
import { filtersOf } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { pickAlong, textPicks } from "../base/gestures.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createLayerControl, createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createStrip, type Strip } from "../text/strip.ts";
import { fills, gradient, NOTHING } from "../text/stripColour.ts";
import { createAgreement } from "./agreement.ts";
import { type Compared, createPicture, type Pair } from "./picture.ts";
import { createRows, currentElement } from "./rows.ts";
import { createCompareWords } from "./words.ts";

/** Minimum width in px for placing the matrix next to the rows. */
const WIDE = 940;

const PANES = { rows: "rows", agreement: "agreement" };

export const renderCompareView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const rowWanted = (): number | null => (explanations.meta?.follows === false ? null : pinnedQuery(ctx));
  const args = (): Record<string, unknown> => {
    const { source, layer } = ctx.resolved();
    return { layer: source.kind === "map" ? layer : 0, query: rowWanted(), unit: source.unit };
  };
  const hover = (index: number): void => {
    selection.hover(index < 0 ? null : { unit: ctx.source().unit, query: -1, key: index });
  };
  /** Pin an element of the rows. */
  const pin = (index: number): void => {
    const now = ctx.cell("pinned");
    const query = rowWanted() ?? -1;
    const again = now?.key === index;
    selection.pin(again && query < 0 ? null : { unit: ctx.source().unit, query, key: again ? -1 : index });
  };
  /** Choose the query whose row is read; where none is, pin the element. */
  const chooseQuery = (index: number): void => {
    if (!explanations.meta?.follows) pin(index);
    else selection.pin(rowWanted() === index ? null : { unit: ctx.source().unit, query: index, key: -1 });
  };
  const choose = (row: number, col: number): void => {
    if (row === col) return;
    pair = [row, col];
    draw();
  };

  const explanations = createRows<Compared>(ctx, signal, "strips", args, () => draw(), "own");
  const words = createCompareWords(ctx, explanations);
  const controls = together(createLayerControl(ctx, signal), createUnitControl(ctx, signal));
  const panes = createSegments("what is shown", PANES, signal, () => showPane());
  const picture = createPicture(ctx, signal, explanations, {
    hover,
    pin,
    resized: () => drawChosen(),
    open(row) {
      open = row;
      draw();
    },
  });
  const chosen = createChosen(picture.canvas);
  const cellOf = (key: number): Cell => ({ unit: ctx.source().unit, query: rowWanted() ?? -1, key });
  /** A token of the text: the query whose row is read, where there is one. */
  const tokenOf = (index: number): Cell =>
    explanations.meta?.follows ? { unit: ctx.source().unit, query: index, key: -1 } : cellOf(index);
  pickAlong(ctx, picture.columns.element, picture.columns, "cols", "key", signal, cellOf);
  const agreement = createAgreement(ctx, signal, explanations, choose, picture.point, () => drawAgreement());
  const body = h("div.compare-body", picture.element, agreement.element);
  const text = h("div.compare-text");
  const [low, ramp, high] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
  const copy = createCopyButton(ctx, signal, () => place());
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, explanations.scales],
    lead: [text],
    legend: h("span.scale.field", low, ramp, high),
    tags: [panes.element, explanations.form],
    body: [body],
    hint: "Click a token to compare its value in every row.",
    actions: [copy.element],
  });
  const isOtherText = createWatch();
  let strip: Strip | null = null;
  let bound = new AbortController();
  let pair: Pair = [0, 1];
  let open = 0; // the row that colours the text
  const isOtherQuery = createWatch();

  root.classList.add("aw-compare");
  root.role = "group";
  signal.addEventListener("abort", () => bound.abort());

  /** The number to copy: the pinned element's value in the row that the text shows, or the pair's agreement. */
  const place = (): NumberPlace | null => {
    const { meta, stale } = explanations;
    const key = ctx.cell("pinned")?.key ?? -1;
    if (!meta || stale) return null;
    if (key < 0) return agreement.place();
    const isScaled = filtersOf(ctx).special === "renormalise" && meta.shares[open];
    return isScaled ? null : { of: "value", strip: open, element: key, ...args() };
  };
  const buildText = (): void => {
    const axis = explanations.axis();
    if (!isOtherText(axis)) return;
    bound.abort();
    bound = new AbortController();
    strip = createStrip(
      ctx,
      axis,
      "",
      new Set(),
      { hover, pin: chooseQuery, ...textPicks(ctx, "key", tokenOf) },
      bound.signal,
    );
    setChildren(text, strip.box);
  };
  const showPane = (): void => {
    setFlag(body, "data-second", panes.value() === "agreement");
  };

  const draw = (): void => {
    controls.show();
    explanations.read(frame.lacks);
    const { meta, stale } = explanations;
    const title = frame.show(meta ? words.heading() : "");
    assign(root, { ariaLabel: `${title}: one text, several explanations` });
    copy.show();
    if (!meta) return;
    const { length } = meta.names;
    if (Math.max(...pair) >= length) pair = [0, 1];
    if (open >= length) open = 0;
    buildText();
    if (!stale) {
      explanations.trim();
      paint();
    }
    drawAgreement();
  };
  const paint = (): void => {
    const { shown, extents, apart } = explanations;
    const { palette, scale } = filtersOf(ctx);
    picture.draw(pair, open);
    const { top = 1, signed = false } = extents[open] ?? {};
    const look = [ctx.theme, signed, palette, scale || SCALE] as const;
    const fill = fills(...look);
    const row = shown[open] ?? new Float32Array();
    strip?.underlay.paint((i) => (apart[i] ? NOTHING : fill((row[i] ?? 0) / (top || 1))));
    setFlag(text, "data-apart", apart.some(Boolean));
    setStyles(ramp, { background: gradient(...look) });
    const end = explanations.hasOwnScales() ? "largest of the row" : tickText(top);
    setText(low, signed ? `−${end}`.replace("−largest of the row", "−") : "0");
    setText(high, end);
  };
  const drawChosen = (): void => drawOnColumns(chosen, ctx, "key", picture.cells());
  /** Marks and numbers of the current element. Runs on every pointer move. */
  const point = (): void => {
    const { meta } = explanations;
    if (!meta) return;
    const key = currentElement(ctx);
    const query = meta.how === "row" && meta.maps.some(Boolean) ? (meta.query ?? -1) : -1;
    strip?.mark("aw-key", key);
    strip?.mark("aw-query", query);
    strip?.choose(pinnedTogether(ctx, "query"), pinnedTogether(ctx, "key"), ctx.span("key"));
    drawChosen();
    if (isOtherQuery(strip, query)) strip?.keepIn(text, query);
    picture.mark(key, query, (i) => words.value(i, key));
    const similar = key < 0 ? agreement.words() : "";
    frame.readout.show([similar, words.read(key, pair, open)].filter(Boolean).join(" · "), true);
  };
  const drawAgreement = (): void => {
    agreement.show(args(), pair);
    copy.show();
    if (!explanations.stale) point();
  };
  onResize(root, signal, ({ width }) => setFlag(root, "data-wide", width >= WIDE));
  return (changed) => {
    if (only(changed, "hover")) point();
    else draw();
  };
});
