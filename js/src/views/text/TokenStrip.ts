/**
 * The text, coloured by a row of a map: the row of the pinned query, of the hovered query, or otherwise the mean over
 * all queries. Attributions show the row of their target; a few targets have a strip each, many a tab each.
 *
 * `update` builds the elements of a new text (`build`), reads a row (`read`) and colours them (`paint`); an explanation
 * of the colours in words (`describe`) follows once the page has laid the text out.
 */

import { SCALE } from "../../colour.ts";
import type { Change, ViewContext } from "../../context.ts";
import { assign, atEnd, createWatch, h, setChildren, setFlag, setStyles, setText, whenShown } from "../../dom.ts";
import { roundUp, tickText } from "../../numbers.ts";
import { translateIndex } from "../../selection.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Filters } from "../../wire/viewState.ts";
import type { Axis, Cell, Source } from "../../wire/wire.ts";
import { createAccount } from "../base/account.ts";
import { createExactRows } from "../base/cellValues.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { explanationAtRest } from "../base/explained.ts";
import { filtered, filteredRow, filterSlot, filtersOf, hidesValues, insideOf, standApart } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { missingTile } from "../base/missing.ts";
import { whereWords } from "../base/navigation.ts";
import { openingQuery } from "../base/opening.ts";
import { withSavedFallback } from "../base/savedFallback.ts";
import { joinScale } from "../base/sharedScale.ts";
import { createUnitControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { peakInside } from "../maps/peak.ts";
import { createForgetting } from "./forgetting.ts";
import { peak, rowOf, topOfScale } from "./rowValues.ts";
import { createStrip, type Strip } from "./strip.ts";
import { fills, gradient, NOTHING } from "./stripColour.ts";
import type { StripHost } from "./stripTools.ts";
import { describe, type Reading, readWords, showSum, stacked, type TokenStripState } from "./stripWords.ts";

/** The filter of the tile has already hidden special tokens. */
const NOTHING_MORE: Pick<Filters, "special"> = { special: "show" };
/** Up to this many targets have a strip each; among more, the reader chooses a target. */
const STACKED = 3;

/** Whether attributions have too many targets for a strip each. */
export function hasManyTargets(ctx: ViewContext): boolean {
  const { kind, query } = ctx.source();
  return kind === "attributions" && ctx.axisOf(query).labels.length > STACKED;
}

export const renderTokenStrip = view((around, root, signal) => {
  const ctx = withSavedFallback(around);
  const isInside = root !== ctx.el;
  const units = createUnitControl(ctx, signal);
  const texts = h("div.texts");
  const description = h("span.where.what.clip");
  const [low, ramp, high] = [h("span"), h("span.ramp"), h("span")];
  const grey = h("span.hatched", { "data-grey": "" });
  const legend = h("span.scale.legend", low, ramp, high, grey);
  const sum = createAccount(signal);
  const sums = h("div.overlay", sum.element);
  const menu = h("div.form");
  const tools = h("span.strip-tools.inline");
  const host: StripHost = {
    view: ctx.el,
    texts,
    menu,
    isInside,
    labels: () => ctx.axisOf(ctx.source().key).labels,
    paint(...look) {
      [state.line, state.edge, state.intensity] = look;
      paint(state);
    },
    reach(index, chosen) {
      state.keys[0]?.reach(index, chosen);
      hover(state, index, state.queries === state.keys[0], -1); // maps of long texts move to it
    },
    note: () => "",
  };
  const copy = isInside ? null : createCopyButton(ctx, signal);
  const shared = joinScale(ctx, signal, () => {
    state.isPainted();
    paint(state);
  });
  const exactRows = createExactRows(ctx, () => update(state));
  const answers = createAnswers(ctx, signal, () => forgetting.show());
  const forgetting = createForgetting(ctx, signal, answers, texts);

  const isOfMap = ctx.source().kind === "map";
  const frame = createFrame(ctx, root, {
    layout: "",
    plain: true,
    controls: [...units.elements, tools],
    tags: [description, filterSlot(ctx, menu)],
    legend,
    body: [texts, sums],
    skeleton: "own",
    hint: isOfMap ? `Click a token to see what it ${ctx.source().words[2]}.` : "Point at a token to read its value.",
    actions: copy ? [copy.element] : [],
  });

  const state: TokenStripState = {
    root,
    ctx,
    isInside,
    units,
    texts,
    description,
    low,
    ramp,
    high,
    grey,
    legend,
    sum,
    sums,
    line: false,
    intensity: 0,
    edge: undefined,
    host,
    copy,
    shared,
    exactRows,
    forgetting,
    keys: [],
    queries: null,
    builtFor: "",
    bound: new AbortController(),
    reading: null,
    isShown: false,
    hoveredKey: -1,
    isBuilt: createWatch(),
    isRead: createWatch(),
    isPainted: createWatch(),
    isElsewhere: createWatch(),
    isOfMap,
    frame,
  };
  listen(state, signal, tools);
  return (changed) => update(state, changed);
});

function listen(state: TokenStripState, signal: AbortSignal, tools: HTMLSpanElement): void {
  const { ctx, isInside, root, texts, host, forgetting } = state;
  root.classList.add("aw-strip-view");
  root.role = "group";
  // Of a text inside another view there is the text alone: that view has the rest.
  if (isInside) setChildren(root, texts, tools);
  else texts.after(forgetting.element);

  ctx.views.StripTools?.(Object.create(ctx, { strip: { value: host } }), tools);
  atEnd(signal, () => state.bound.abort());
  // The position of a text is available once the page has laid it out.
  whenShown(texts, signal, () => {
    state.isShown = true;
    if (state.reading) describe(state, state.reading);
  });
}

function cell(ctx: ViewContext, query: number, key: number): Cell {
  return { unit: ctx.source().unit, query, key };
}

/** Without a pin, a hovered token is previewed as the query; with a pin, it is the key. */
function hover(state: TokenStripState, index: number, chooses: boolean, row: number): void {
  const { selection } = state.ctx;
  const pinned = state.ctx.cell("pinned");
  if (index < 0) selection.hover(null);
  else if (row >= 0) selection.hover(cell(state.ctx, row, index));
  else if (chooses && (!pinned || state.queries !== state.keys[0])) selection.hover(cell(state.ctx, index, -1));
  else selection.hover(cell(state.ctx, pinned?.query ?? -1, index));
}

function pin(ctx: ViewContext, index: number, chooses: boolean, row: number): void {
  const pinned = ctx.cell("pinned");
  const query = pinned?.query ?? -1;
  if (row >= 0) ctx.selection.pin(cell(ctx, row, index));
  else if (chooses) ctx.selection.pin(query === index ? null : cell(ctx, index, -1));
  else if (query >= 0) ctx.selection.pin(cell(ctx, query, pinned?.key === index ? -1 : index));
}

/** Spans are built once per pair of axes; changing layer or head keeps them. */
function build(state: TokenStripState, source: Source): void {
  const { ctx, texts } = state;
  const marks = ctx.options.marks.filter((m): m is number => typeof m === "number");
  const [queryAxis, keyAxis] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
  if (!state.isBuilt(queryAxis, keyAxis, source, ctx.options, ctx.header())) return;
  const breaks = paragraphs(ctx, keyAxis);
  const name = JSON.stringify([source.query, source.key, source.kind, marks, queryAxis.labels, keyAxis, [...breaks]]);
  if (name === state.builtFor) return;
  state.builtFor = name;
  state.bound.abort();
  state.bound = new AbortController();
  // A text that is a line shorter in another unit keeps its room.
  if (texts.firstChild) setStyles(texts, { "min-height": `${texts.getBoundingClientRect().height}px` });
  setChildren(texts);
  [state.hoveredKey, state.reading] = [-1, null];
  const same = source.query === source.key;
  const targets = source.kind === "attributions";
  const make = (axis: Axis, caption: string, chooses: boolean, row = -1): Strip => {
    const events = {
      hover: (i: number) => hover(state, i, chooses, row),
      pin: (i: number) => pin(ctx, i, chooses, row),
      toggle: (i: number) =>
        togglePin(ctx, chooses ? cell(ctx, i, -1) : cell(ctx, row >= 0 ? row : (ctx.cell("pinned")?.query ?? -1), i)),
      span: (first: number, last: number) => chooseSpan(ctx, chooses ? "query" : "key", first, last),
    };
    const strip = createStrip(
      ctx,
      axis,
      caption,
      new Set(axis === keyAxis ? marks : []),
      events,
      state.bound.signal,
      axis === keyAxis ? breaks : undefined,
    );
    texts.append(strip.box);
    return strip;
  };
  state.queries = null;
  const several = hasManyTargets(ctx);
  if (targets && queryAxis.labels.length > 1 && !several) {
    state.keys = queryAxis.labels.map((label, row) => make(keyAxis, label, false, row));
    return;
  }
  if (!same && (several || !targets)) {
    state.queries = make(queryAxis, targets ? "target (choose)" : "to: query (choose)", true);
    setFlag(state.queries.box, "data-tabs", targets);
  }
  state.keys = [make(keyAxis, several ? "attributed to" : same || targets ? "" : "from: key (coloured)", same)];
  if (same) [state.queries = null] = state.keys;
}

/** The values to show; null until the tile is loaded. */
function read(state: TokenStripState, source: Source): Reading | null {
  const { ctx, exactRows, keys, reading } = state;
  const { layer, head } = ctx.resolved();
  const [pinned, hovered] = [ctx.cell("pinned"), ctx.cell("hover")];
  const isMap = source.kind === "map";
  state.hoveredKey = hovered?.key ?? -1;
  let query = pinned && pinned.query >= 0 ? pinned.query : (hovered?.query ?? -1);
  // With a separate query strip, a hovered query is previewed even if something is pinned.
  const another = stacked(state) || (state.queries !== keys[0] && hovered && hovered.key < 0);
  if (another && hovered && hovered.query >= 0) query = hovered.query;
  const explained = query < 0 ? explanationAtRest(ctx) : null;
  const explaining = explained && tileOf(ctx, explained);
  if (explaining) {
    exactRows.rest(null);
    return { values: rowOf(explaining, 0), all: [], exact: false, query: -1, top: 0, preview: false, explained };
  }
  if (query < 0) query = isMap ? openingQuery(ctx) : 0;
  if (query >= ctx.axisOf(source.query).labels.length) query = -1;
  const preview = isMap && query !== pinned?.query;
  exactRows.rest(query >= 0 && state.hoveredKey >= 0 ? cell(ctx, query, state.hoveredKey) : null);
  const tile = ctx.tiles.get(source.id, layer, head);
  const chosen = filtersOf(ctx);
  const left = tile && filtered(ctx, tile, chosen);
  // A coarse tile lacks rows of single cells: a preview needs the exact row as well.
  const exact = query >= 0 ? exactRows(query, !preview || source.coarse) : undefined;
  if (!state.isRead(left, exact, query) && reading) return { ...reading, preview };
  const inside = (id: string): readonly number[] => insideOf(ctx.axisOf(id).special, chosen);
  const ends = isMap && query >= 0 && left ? roundUp(peakInside(left, inside(source.query), inside(source.key))) : 0;
  const top = source.stochastic ? Math.min(1, ends) : ends;
  const all = stacked(state) && left ? keys.map((_, row) => rowOf(left, row)) : [];
  if (exact && !(stacked(state) && !tile)) return { values: exact, all, exact: true, query, top, preview };
  if (!left) return null;
  if (query >= 0) return { values: rowOf(left, query), all, exact: false, query, top, preview };
  // Special tokens are excluded from the mean; the other filters apply to the mean itself.
  const counted = filtered(ctx, tile, { ...chosen, mass: 1, least: 0 });
  const { special } = ctx.axisOf(source.key);
  const mean = counted.received();
  const { special: how } = tile?.meta.whole ? chosen : NOTHING_MORE;
  const values = hidesValues(chosen) ? filteredRow(mean, special, { ...chosen, special: how }, false) : mean;
  return { values, all, exact: false, query, top, preview: false };
}

/** The tile of an explanation, which is requested if it is not loaded. */
function tileOf(ctx: ViewContext, source: Source): Tile | null {
  const layer = source.layers[0] as number;
  const tile = ctx.tiles.get(source.id, layer, "-");
  if (!tile) ctx.tiles.request(source.id, layer, "-");
  return tile ? filtered(ctx, tile, filtersOf(ctx), source) : null;
}

function paint(state: TokenStripState): void {
  const { ctx, high, line, intensity, edge, keys, reading } = state;
  if (!reading) return;
  const { theme } = ctx;
  const { signed, stochastic } = reading.explained ?? ctx.source();
  const filters = filtersOf(ctx);
  const { palette, scale, extent } = filters;
  const colouring = [theme, signed, palette, scale || SCALE] as const;
  if (
    !state.isPainted(
      keys,
      reading.values,
      reading.all,
      reading.top,
      ...colouring,
      extent,
      filters.special,
      stochastic,
      intensity,
      line,
      edge,
    )
  )
    return;
  const rows = stacked(state) ? reading.all : [reading.values];
  // Separate tokens are not coloured and do not affect the scale.
  const apart = standApart(ctx.axisOf(ctx.source().key).special, filters);
  setFlag(state.texts, "data-apart", apart.includes(true));
  const inside = apart.includes(true) ? rows.map((row) => row.filter((_, i) => !apart[i])) : rows;
  const largest = Math.max(...inside.map(peak));
  const end = state.shared.end(reading.top || largest);
  const most = extent === "all" && stochastic ? 1 : stochastic ? Math.min(1, end) : end;
  const top = topOfScale([most], intensity);
  const colours = fills(...colouring);
  keys.forEach((strip, row) => {
    const values = rows[row];
    strip.underlay.paint((i) => (apart[i] ? NOTHING : colours((values?.[i] ?? 0) / (top || 1))), line, edge);
  });
  if (state.isInside) return; // the legend is the outer view's
  setStyles(state.ramp, { background: gradient(...colouring) });
  setFlag(state.legend, "data-signed", signed);
  setText(state.low, signed ? `−${tickText(top)}` : "0");
  const isCut = intensity > 0;
  setText(high, `${signed ? "+" : ""}${tickText(top)}${isCut ? "+" : ""}`);
  assign(high, { title: isCut ? `this and more; the largest ${tickText(largest)}` : "" });
}

/** Mark the tokens chosen together, and the span. */
function markChosen(state: TokenStripState): void {
  const { ctx, keys, queries } = state;
  const pins = ctx.pins();
  const several = pins.length > 1 ? pins : [];
  const [queried, keyed] = [several.map(({ query }) => query), several.map(({ key }) => key)];
  if (queries !== keys[0]) queries?.choose(queried, [], ctx.span("query"));
  keys.forEach((strip, row) => {
    const here = several.flatMap(({ query, key }) => (stacked(state) && query !== row ? [] : [key]));
    strip.choose(queries === strip ? queried : [], stacked(state) ? here : keyed, ctx.span("key"));
  });
}

/** Follow the selection, the tiles, the options and the theme. */
function update(state: TokenStripState, changed: ReadonlySet<Change> = new Set()): void {
  const { root, ctx, isInside, description, frame } = state;
  const { source, layer, head } = ctx.resolved();
  if (!only(changed, "hover")) {
    build(state, source);
    // A nested view shows the text without a frame.
    const title = isInside ? source.title : frame.show((shown) => whereWords(ctx, shown));
    if (!isInside) state.units.show();
    state.copy?.show();
    setFlag(root, "data-pinned", ctx.cell("pinned") !== null);
    assign(root, { ariaLabel: `${title}, text coloured by weight` });
    markChosen(state);
  }
  if (!isInside) state.forgetting.show();
  state.reading = read(state, source);
  setFlag(state.texts, "data-stale", !state.reading);
  // The text itself has arrived.
  frame.lacks(state.reading ? null : { ...missingTile(ctx), part: true });
  if (state.reading) {
    paint(state);
    describe(state, state.reading);
    if (!isInside) showSum(state, source, state.reading.query);
    return;
  }
  ctx.tiles.request(source.id, layer, head);
  if (!description.textContent && state.isOfMap) setText(description, readWords(ctx, openingQuery(ctx)));
  if (isInside) frame.readout.show(missingTile(ctx).words, false);
}

/** Elements that begin a paragraph, if the labels themselves do not show line ends. */
function paragraphs(ctx: ViewContext, axis: Axis): Set<number> {
  const { axes, sources } = ctx.header();
  const { stack } = ctx.source();
  const source = sources.find((candidate) => candidate.unit === "paragraph" && candidate.stack === stack);
  const paragraphAxis = axes[source?.key ?? ""];
  if (!paragraphAxis || axis.labels.some((label) => /[\n⏎↵]/u.test(label))) return new Set();
  const inside = paragraphAxis.labels.map((_, i) => i).filter((i) => !paragraphAxis.special[i]);
  return new Set(inside.slice(1).map((i) => translateIndex(i, paragraphAxis, axis)));
}
