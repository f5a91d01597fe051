/**
 * Two texts under the same method: both as coloured columns on a common axis with the difference as bars, or as maps
 * side by side; their predictions, and a sentence about the largest changes. Where the texts differ, a dashed frame
 * goes through all rows.
 *
 * `draw` requests the comparison and draws controls, outcomes, rows or maps, and the sentence; `point` marks the pinned
 * and hovered column and row in all of them.
 */

import { SCALE } from "../../colour.ts";
import type { Change } from "../../context.ts";
import { assign, createWatch, h, onResize, setChildren, setFlag, setStyles, setText, shortLabel } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import { baseKey, keyWithTargets } from "../../wire/keys.ts";
import type { Axis, Cell } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { filteredRow, filterSlot, filtersOf, hidesSpecial, hidesValues, standApart } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu, type Item } from "../base/menu.ts";
import { chooseMethod, showMethod, shownTargets } from "../base/methodChoice.ts";
import { methodsOf, stacksOf, whereWords } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createHeadControl, createLayerControl, createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { gradient } from "../text/stripColour.ts";
import { buildTokens } from "../text/tokens.ts";
import { createMaps } from "./twoTexts/maps.ts";
import { createBars, createChips, type Outcomes } from "./twoTexts/outcomes.ts";
import { createRows, type Shown } from "./twoTexts/rows.ts";
import {
  ask,
  cellOf,
  chosen,
  copied,
  queryOf,
  type Spot,
  type TwoTextsState,
  targetNames,
  targetWords,
  totalsOf,
} from "./twoTexts/state.ts";
import {
  addressOf,
  columnOf,
  type MapsMeta,
  matricesIn,
  queriesOf,
  type Rows,
  type RowsMeta,
  rowIn,
  rowsIn,
  settings,
  type Texts,
} from "./twoTexts/texts.ts";
import { attributionSentence, readout, rowSentence } from "./twoTexts/words.ts";

/** Smallest width in px with the predictions next to the rows, and largest with the totals below them. */
const [WIDE, NARROW] = [1000, 600];
/** Tokens in the line of a text: of a longer text, those around the current column. */
const MOST_TOKENS = 160;

const PANES = { row: "row", maps: "maps" };
const NONE = "none";

/** A method's title without its target. */
const methodWords = (title: string): string => title.split(/ for ['"]/)[0] ?? title;

export const renderTwoTexts = view((ctx, root, signal) => {
  const { selection } = ctx;
  const answers: Answers = createAnswers(ctx, signal, () => draw(state));
  const methods = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const stacks = createMenu("stack", signal, (name) => selection.set({ stack: name }));
  const where = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const units = createUnitControl(ctx, signal);
  const targets = createMenu("for", signal, (id) => choose(state, Number(id), chosen(state)[1]));
  const foils = createMenu("rather than", signal, (id) =>
    choose(state, chosen(state)[0], id === NONE ? null : Number(id)),
  );
  const panes = createSegments("what is shown", PANES, signal, () => draw(state));
  const sides = [0, 1].map(() => {
    const [name, line] = [h("b.two-name.clip"), h("div.two-line")];
    const chips = createChips(ctx, signal);
    return { name, line, chips, element: h("div.two-side", name, h("div.two-of", line, chips.element)) };
  });
  const rowsPicture = createRows(signal, {
    hover: (key) => hover(state, { query: -1, key }),
    pin: (key) => pin(state, { query: state.spot.query, key: key === state.spot.key ? -1 : key }),
    step: (by, differing) => step(state, by, differing),
  });
  const mapsPicture = createMaps(signal, {
    hover: (query, key) => hover(state, { query, key }),
    pin: (query, key) =>
      pin(state, query === state.spot.query && key === state.spot.key ? { query: -1, key: -1 } : { query, key }),
  });
  const bars = createBars();
  const sentence = h("p.two-sentence.fine", { role: "status" });
  const filterWords = filterSlot(ctx);
  const [low, ramp, high] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
  const legend = h("span.scale", { role: "img" }, low, ramp, high);
  const pictures = h("div.two-pictures", rowsPicture.element, mapsPicture.element);
  const body = h("div.two-body", pictures, h("div.two-said", bars.element, sentence));
  const copy = createCopyButton(ctx, signal, () => copied(state));
  const frame = createFrame(ctx, root, {
    controls: [methods.field, targets.field, foils.field, stacks.field, ...where.elements, ...units.elements],
    lead: [h("div.two-sides", ...sides.map((side) => side.element))],
    legend,
    tags: [panes.element, filterWords],
    body: [body],
    actions: [copy.element],
    hint: "Click a column to pin it.",
  });
  const isOtherTexts = createWatch();
  const isOtherSight = createWatch();

  const state: TwoTextsState = {
    ctx,
    root,
    answers,
    methods,
    stacks,
    where,
    units,
    targets,
    foils,
    panes,
    sides,
    rowsPicture,
    mapsPicture,
    bars,
    sentence,
    low,
    ramp,
    high,
    legend,
    pictures,
    copy,
    frame,
    isOtherTexts,
    isOtherSight,
    texts: null,
    outcomes: null,
    rowsMeta: null,
    rows: null,
    spot: { query: -1, key: -1 },
    over: { query: -1, key: -1 },
    pinnedFrom: undefined,
    tokens: [],
  };

  root.classList.add("aw-two");
  root.role = "group";
  onResize(root, signal, ({ width }) => {
    setFlag(root, "data-wide", width >= WIDE);
    setFlag(root, "data-narrow", width < NARROW);
  });
  return (changed) => update(state, changed);
});

function choose(state: TwoTextsState, target: number | null, foil: number | null): void {
  const { ctx } = state;
  const named = (id: number | null): { id: number; label: string } | null =>
    id === null ? null : { id, label: state.outcomes?.rows.find(([row]) => row === id)?.[1] ?? String(id) };
  const pair = [named(target), named(foil === target ? null : foil)] as const;
  showMethod(ctx, keyWithTargets(ctx.source().method, ...pair), [...pair]);
}

function pin(state: TwoTextsState, to: Spot): void {
  const { ctx } = state;
  state.spot = addressOf(ctx).isMap ? to : { query: -1, key: to.key };
  const cell = cellOf(state, state.spot);
  state.pinnedFrom = cell;
  ctx.selection.pin(cell);
  state.pinnedFrom = ctx.cell("pinned");
  draw(state);
}

function hover(state: TwoTextsState, to: Spot): void {
  if (to.query === state.over.query && to.key === state.over.key) return;
  state.over = to;
  state.ctx.selection.hover(cellOf(state, to));
  point(state);
}

function step(state: TwoTextsState, by: number, differing: boolean): void {
  const { same } = state.texts?.keys ?? { same: [] };
  let at = state.spot.key < 0 ? (by > 0 ? -1 : same.length) : state.spot.key;
  do at += by;
  while (differing && same[at]);
  if (at < 0 || at >= same.length) return;
  state.over = { query: -1, key: -1 }; // the pointer rests while keys are pressed
  pin(state, { query: state.spot.query, key: at });
  state.rowsPicture.reveal(at);
}

/** The cell that another view pinned; null where this view pinned it. */
function follow(state: TwoTextsState): void {
  const { ctx, texts } = state;
  const cell = ctx.cell("pinned");
  const same = (cell: Cell | null | undefined): string =>
    JSON.stringify(cell ? [cell.query, cell.key, cell.unit] : null);
  if (!texts || (state.pinnedFrom !== undefined && same(cell) === same(state.pinnedFrom))) return;
  state.pinnedFrom = cell;
  state.spot = cell
    ? { query: columnOf(queriesOf(texts), cell.query), key: columnOf(texts.keys, cell.key) }
    : { query: -1, key: -1 };
  if (!addressOf(ctx).isMap) state.spot.query = -1;
}

function draw(state: TwoTextsState): void {
  const { ctx, root, answers, panes, copy, frame } = state;
  copy.show();
  const { address, isMap } = addressOf(ctx);
  drawControls(state, isMap);
  const arguments_ = { stack: address.stack, unit: address.unit };
  state.texts = answers.get<Texts>("texts", arguments_)?.meta ?? null;
  const [target, foil] = shownTargets(ctx).map((target) => target?.id ?? null) as [number | null, number | null];
  state.outcomes = answers.get<Outcomes>("predictions", { target, foil })?.meta ?? state.outcomes;
  setFlag(panes.element, "hidden", !isMap);
  const pane = isMap ? panes.value() : "row";
  setFlag(root, "data-maps", pane === "maps");
  const [about, contrast] = targetNames(state);
  const words = `${methodWords(ctx.source().title)} for “${about}”${contrast && ` rather than “${contrast}”`}`;
  const title = frame.show(isMap ? whereWords(ctx) : "", isMap || !about ? undefined : words);
  assign(root, { ariaLabel: `${title}: two texts` });
  drawOutcomes(state);
  if (!state.texts) {
    frame.readout.show(answers.failure("texts", arguments_) ?? "aligning the texts …", true);
    return;
  }
  follow(state);
  drawLines(state, state.texts);
  const { row, maps, why, first } = ask(state, state.texts);
  const isHere = Boolean(row ?? maps) && !why;
  setFlag(state.pictures, "data-stale", !isHere);
  if (!isHere) {
    [state.rows, state.rowsMeta] = [null, null];
    setChildren(state.sentence, "");
    frame.readout.show(why, true);
    return;
  }
  const isWhole = maps !== undefined && row === undefined;
  state.rows = isWhole ? rowIn(maps as Answer<MapsMeta>, queryOf(state)) : rowsIn(row as Answer<RowsMeta>);
  state.rowsMeta = isWhole ? { query: queryOf(state), shares: maps?.meta.shares ?? false } : (row?.meta ?? null);
  if (pane === "maps" && maps) {
    const { meta } = maps;
    state.mapsPicture.draw({
      names: settings(ctx).names,
      matrices: matricesIn(maps),
      shape: meta.shape,
      first,
      queries: queriesOf(state.texts),
      keys: state.texts.keys,
      leavesOut: filtersOf(ctx).special !== "show",
      theme: ctx.theme,
      filters: filtersOf(ctx),
    });
  }
  drawRows(state, state.texts, state.rows);
  drawSentence(state, state.texts, state.rows);
  copy.show();
  if (state.isOtherSight(state.texts))
    state.rowsPicture.reveal(state.spot.key >= 0 ? state.spot.key : Math.max(0, state.texts.keys.same.indexOf(0)));
  point(state);
}

/** A method has a single entry in the menu, for all its targets. */
function drawControls(state: TwoTextsState, isMap: boolean): void {
  const { ctx, where } = state;
  const { source } = ctx.resolved();
  const isLost = ctx.tiles.status().state === "no-kernel";
  const items = new Map<string, Item>();
  for (const item of methodsOf(ctx.header(), ctx.options.methods, isLost)) {
    const value = baseKey(item.value);
    if (value.endsWith(":layers") || items.has(value)) continue;
    items.set(value, { ...item, value, label: methodWords(item.label) });
  }
  state.methods.offer([...items.values()], baseKey(source.method).replace(/:layers$/, ""));
  state.stacks.offer(
    stacksOf(ctx.header(), source.method).map((name) => ({ value: name, label: name })),
    source.stack,
  );
  where.show();
  for (const element of where.elements) setFlag(element, "data-off", !isMap);
  state.units.show();
}

function drawOutcomes(state: TwoTextsState): void {
  const { ctx, outcomes } = state;
  const isTargeted = ctx.source().targets;
  const [target, foil] = isTargeted ? chosen(state) : [null, null];
  const items = (outcomes?.rows ?? []).map(([id, label]) => ({
    value: String(id),
    label: shortLabel(label.replace(/^[␣▁]/, "") || label, 24),
  }));
  const contrast = [{ value: NONE, label: "nothing" }, ...items.filter(({ value }) => value !== String(target))];
  state.targets.offer(isTargeted ? items : [], String(target));
  state.foils.offer(isTargeted && items.length > 1 ? contrast : [], foil === null ? NONE : String(foil));
  const { names } = settings(ctx);
  state.sides.forEach(({ name, chips }, i) => {
    setText(name, names[i as 0 | 1]);
    chips.show(outcomes?.chips[i as 0 | 1] ?? [], [target, foil], outcomes?.titles[i as 0 | 1] ?? "");
  });
  setFlag(state.root, "data-predicts", Boolean(outcomes?.chips.some((chips) => chips.length > 0)));
  if (outcomes) state.bars.show(outcomes, [target, foil], names);
}

/** The line of each text, with frames around differences. */
function drawLines(state: TwoTextsState, now: Texts): void {
  const { keys } = now;
  const near = state.spot.key >= 0 ? state.spot.key : Math.max(0, keys.same.indexOf(0));
  const from = keys.same.length <= MOST_TOKENS ? 0 : Math.max(0, near - MOST_TOKENS / 2);
  const to = Math.min(keys.same.length, from + MOST_TOKENS);
  if (!state.isOtherTexts(now, from)) return;
  state.tokens = [];
  state.sides.forEach(({ line, name }, side) => {
    const columns = keys.elements.flatMap((pair, i) => ((pair[side] ?? -1) >= 0 && i >= from && i < to ? [i] : []));
    const axis: Axis = {
      unit: state.ctx.source().unit,
      labels: columns.map((column) => keys.labels[side as 0 | 1][column] ?? ""),
      spans: null,
      special: columns.map((column) => keys.special[column] ?? 0),
      segment: columns.map(() => 0),
      boundary: null,
      grid: null,
      cells: null,
      times: null,
    };
    const { list, spans, spaced } = buildTokens(axis, `text ${name.textContent}`, new Set(), new Set());
    setFlag(list, "data-spaced", spaced);
    spans.forEach((span, i) => {
      const column = columns[i] as number;
      setFlag(span, "data-differs", !keys.same[column]);
      state.tokens.push([span, column]);
    });
    list.addEventListener("click", ({ target }) => chooseToken(state, (target as Element).closest(".aw-tok")));
    const more = [from > 0, to < keys.same.length].map((is) => (is ? [h("span.dim", " … ")] : []));
    setChildren(line, ...(more[0] ?? []), list, ...(more[1] ?? []));
    const differing = spans[columns.findIndex((column) => !keys.same[column])];
    line.scrollLeft = 0;
    // By boxes, since positions are negative in a line that runs from right to left.
    const [at, room] = [differing ?? line, line].map((el) => el.getBoundingClientRect()) as [DOMRect, DOMRect];
    if (differing) line.scrollLeft += at.left - room.left - room.width / 2;
  });
}

/** A token of the lines: the query of maps, else the pinned column. */
function chooseToken(state: TwoTextsState, token: Element | null): void {
  const column = state.tokens.find(([span]) => span === token)?.[1] ?? -1;
  if (column < 0 || !state.texts) return;
  const isQuery = addressOf(state.ctx).isMap && !state.texts.queries;
  if (isQuery) pin(state, { query: column === state.spot.query ? -1 : column, key: state.spot.key });
  else pin(state, { query: state.spot.query, key: column === state.spot.key ? -1 : column });
  state.rowsPicture.reveal(column);
}

function drawRows(state: TwoTextsState, now: Texts, values: Rows): void {
  const { ctx, low, high, rowsMeta } = state;
  const { keys } = now;
  const filters = filtersOf(ctx);
  const apart = standApart(keys.special, filters);
  const shares = rowsMeta?.shares ?? false;
  const hide = (row: Float32Array): Float32Array =>
    hidesValues(filters) ? filteredRow(row, keys.special, filters, shares) : row;
  const [first, second] = [hide(values[0]), hide(values[1])];
  const difference = hidesValues(filters) ? first.map((value, i) => value - (second[i] ?? 0)) : values[2];
  let [top, isSigned] = [0, false];
  for (const row of [first, second]) {
    row.forEach((value, i) => {
      if (Number.isNaN(value) || apart[i]) return;
      top = Math.max(top, Math.abs(value));
      isSigned ||= value < 0;
    });
  }
  const isLeft = hidesSpecial(filters);
  const shown: Shown = {
    columns: keys,
    names: settings(ctx).names,
    rows: values,
    filtered: [first, second, difference],
    apart: isLeft ? keys.special.map(() => false) : apart,
    top,
    isSigned,
    theme: ctx.theme,
    filters,
    totals: totalsOf(state, keys, values),
  };
  state.rowsPicture.draw(shown);
  const look = [ctx.theme, isSigned, filters.palette, filters.scale || SCALE] as const;
  setStyles(state.ramp, { background: gradient(...look) });
  const [target, foil] = rowsMeta?.about ? targetNames(state) : ["", ""];
  const end = tickText(top);
  setChildren(low, ...(isSigned ? [h("bdi", foil), `${foil && " "}−${end}`] : ["0"]));
  setChildren(high, ...(isSigned ? [`+${end}${target && " "}`, h("bdi", target)] : [end]));
  assign(state.legend, { ariaLabel: `${low.textContent} to ${high.textContent}` });
}

function drawSentence(state: TwoTextsState, now: Texts, values: Rows): void {
  const { ctx, sentence, rowsMeta } = state;
  const { names } = settings(ctx);
  const { unit } = ctx.source();
  if (rowsMeta?.about) {
    setChildren(
      sentence,
      ...attributionSentence(now.keys, values, rowsMeta.rests ?? null, targetWords(state), unit, names),
    );
    assign(sentence, { title: rowsMeta.verdict ?? "" });
    return;
  }
  const queries = queriesOf(now);
  const labels = queries.labels.map((side) => side[queryOf(state)] ?? "");
  const query = `\u2068“${shortLabel((labels[0] || labels[1] || "").replace(/^[␣▁]/, ""), 24)}”\u2069`;
  setChildren(sentence, ...rowSentence(now.keys, values, query, rowsMeta?.shares ?? false, names));
  assign(sentence, { title: "" });
}

/** Marks and numbers of the current columns. Runs on every pointer move. */
function point(state: TwoTextsState): void {
  const { ctx, texts, rows, spot, over } = state;
  if (!texts) return;
  const { isMap } = addressOf(ctx);
  const [key, query] = [over.key >= 0 ? over.key : spot.key, isMap ? queryOf(state) : -1];
  const isSquare = isMap && !texts.queries;
  state.rowsPicture.mark(spot.key, over.key, isSquare ? query : -1);
  state.mapsPicture.mark(over.query >= 0 ? over.query : spot.query, key);
  for (const [span, column] of state.tokens) {
    setFlag(span, "data-pinned", column === spot.key);
    setFlag(span, "data-over", column === over.key);
    setFlag(span, "data-query", isSquare && column === query);
  }
  if (!rows) return;
  const { names } = settings(ctx);
  // Only the row of the query has arrived: for other rows of the maps, only their position is available.
  const isOtherRow = over.query >= 0 && over.query !== query;
  const words = key < 0 || isOtherRow ? "" : readout(texts.keys, rows, key, names);
  state.frame.readout.show(words || (isOtherRow ? "click to read this row" : ""), true);
}

function update(state: TwoTextsState, changed: ReadonlySet<Change>): void {
  if (!only(changed, "hover")) {
    draw(state);
    return;
  }
  if (state.over.key >= 0 || state.over.query >= 0) return;
  const cell = state.ctx.cell("hover");
  if (!state.texts) return;
  const from = state.over;
  state.over = { query: -1, key: cell ? columnOf(state.texts.keys, cell.key) : -1 };
  point(state);
  state.over = from;
}
