/**
 * The model's predictions after each layer: top tokens, the rank of an answer over the layers, and a cell in detail.
 *
 * `update` reads the lens and its controls, `lay` fits the table and the curve into the room, `point` marks the cell
 * under the pointer in both and in the readout.
 */

import { heatMap, rampCss } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import {
  assign,
  directionOf,
  h,
  iconButton,
  type KeyHandlers,
  on,
  onResize,
  reserve,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
} from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Cell } from "../../wire/wire.ts";
import { type CopyButton, createCopyButton, type NumberAddress } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { createCurve } from "./lens/curve.ts";
import {
  type Lens,
  type LensOptions,
  MEASURES,
  type Measure,
  ranksAt,
  readLens,
  topOf,
  topValue,
  valueAt,
} from "./lens/lens.ts";
import { createLensPanel } from "./lens/panel.ts";
import { foldedWords, rowsShown, withRow } from "./lens/rows.ts";
import { createTable, type Table } from "./lens/table.ts";
import { chance, decimal, inQuotes, word } from "./words.ts";

type Kind = "plain" | "fitted";

/** px of a row at least and at most, of the header above the rows, and of the caption. */
const [LEAST, MOST_ROW] = [18, 24];
const [HEADS, CAPTION] = [26, 24];
/** px from which the panel has its own column, and from which there are two columns. */
const [THREE, TWO] = [960, 560];

/** The elements of the view, and the state that they show. */
interface LensState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly kinds: Segments<Kind>;
  readonly colours: Menu;
  readonly range: HTMLInputElement;
  readonly number: HTMLOutputElement;
  readonly less: HTMLButtonElement;
  readonly more: HTMLButtonElement;
  readonly text: HTMLDivElement;
  readonly chips: HTMLSpanElement;
  readonly answer: HTMLButtonElement;
  readonly table: Table;
  readonly curve: ReturnType<typeof createCurve>;
  readonly panel: ReturnType<typeof createLensPanel>;
  readonly folded: HTMLSpanElement;
  readonly legend: HTMLSpanElement;
  readonly side: Segments<"rank" | "top">;
  readonly rankTitle: HTMLElement;
  readonly rankAt: HTMLSpanElement;
  readonly middle: HTMLDivElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly body: HTMLElement;
  /** The numbers at every layer and token; null until they have arrived. */
  lens: Lens | null;
  /** The other kind of lens, for its curve; null if there is none. */
  other: Lens | null;
  /** The row and the token under the pointer. */
  over: readonly [number, number] | null;
  /** px of the body. */
  box: { width: number; height: number };
  /** The selection after this view's last update, to tell others' choices from those made here. */
  selectionSeen: string;
  /** The tokens that the text was written for. */
  writtenFor: readonly string[];
  /** The elements of the text, by token. */
  tokens: HTMLElement[];
}

export const renderLensView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const kinds = createSegments<Kind>("lens", { plain: "plain", fitted: "fitted" }, signal, () =>
    save(ctx, { fitted: kinds.value() === "fitted" }),
  );
  const colours = createMenu("colour", signal, (measure) => save(ctx, { color: measure as Measure }));
  const range = h("input.range", { type: "range", min: "0", "aria-label": "layer" });
  const number = h("output");
  const less = iconButton(signal, "‹", "previous layer", () => move(state, -1, 0));
  const more = iconButton(signal, "›", "next layer", () => move(state, 1, 0));
  const layer = h("span.group", { role: "group", "aria-label": "layer" }, less, range, number, more);
  const text = h("div.lens-text", { role: "group", "aria-label": "text" });
  const chips = h("span.lens-chips.inline");
  const answer = h("button.lens-answer.ghost", { type: "button" });
  const lead = h("div.inline", text, chips, h("span.lens-room"), answer);
  const table = createTable(
    ctx,
    signal,
    {
      choose: (row, token) => choose(state, row, token),
      hover: (cell) => hover(state, cell),
    },
    cellKeys(ctx, (rows, tokens) => move(state, rows, tokens)),
  );
  const curve = createCurve(ctx, signal, (row) => choose(state, row, options(ctx).cell[1]));
  const panel = createLensPanel(signal, {
    answer: (id) => options(ctx).runs && save(ctx, { answer: id }),
    patch() {
      const [row, token] = options(ctx).cell;
      ctx.selection.set({ layer: row, pinned: pinOf(row, token) });
    },
  });
  const [title, folded] = [h("b", "top token"), h("span.lens-folded")];
  const legend = h("span.lens-legend", { role: "img" });
  const side = createSegments("second column", { rank: "rank", top: "top" }, signal, () => lay(state));
  const [rankTitle, rankAt] = [h("b"), h("span.lens-folded")];
  const left = h("div.lens-left", h("div.lens-caption.inline", title, folded, legend), table.element);
  const middle = h("div.lens-middle", h("div.lens-caption.inline", rankTitle, rankAt, side.element), curve.element);
  const copy = createCopyButton(ctx, signal, () => numberOfCell(state));
  const frame = createFrame(ctx, root, {
    layout: ".column.flush.untitled",
    controls: [kinds.element, colours.field, layer],
    lead: [lead],
    body: [h("div.lens-body", left, middle, panel.element)],
    skeleton: "cells",
    hint: "Click a cell to see its most probable tokens.",
    says: true,
    actions: [copy.element],
  });
  const body = root.querySelector(".aw-lens-body") as HTMLElement;

  const state: LensState = {
    ctx,
    root,
    answers,
    kinds,
    colours,
    range,
    number,
    less,
    more,
    text,
    chips,
    answer,
    table,
    curve,
    panel,
    folded,
    legend,
    side,
    rankTitle,
    rankAt,
    middle,
    copy,
    frame,
    body,
    lens: null,
    other: null,
    over: null,
    box: { width: 0, height: 0 },
    selectionSeen: "",
    writtenFor: [],
    tokens: [],
  };
  listen(state, signal);
  return (changed) => {
    if (only(changed, "hover")) point(state);
    else update(state);
  };
});

/** The number of the chosen cell, as Python names it. */
function numberOfCell({ ctx, lens }: LensState): NumberAddress | null {
  const { color, fitted, answer, cell } = options(ctx);
  return lens ? { of: "lens", measure: color, fitted, answer, row: cell[0], token: cell[1] } : null;
}

function hover(state: LensState, cell: readonly [number, number] | null): void {
  state.over = cell;
  state.ctx.selection.hover(cell && { unit: "token", query: cell[1], key: -1 });
  point(state);
}

/** The keys that move the chosen cell, by layers and by tokens. */
function cellKeys(ctx: ViewContext, by: (layers: number, tokens: number) => void): KeyHandlers {
  return {
    ArrowUp: () => by(-1, 0),
    ArrowDown: () => by(1, 0),
    ArrowLeft: () => by(0, -1),
    ArrowRight: () => by(0, 1),
    Home: () => by(-Infinity, 0),
    End: () => by(Infinity, 0),
    Escape: () => ctx.selection.clear(),
  };
}

function listen(state: LensState, signal: AbortSignal): void {
  const { ctx, root, body, range, text, answer } = state;
  on(range, signal, { input: () => choose(state, range.valueAsNumber, options(ctx).cell[1]) });
  on(answer, signal, { click: () => save(ctx, { answer: null }) });
  on(text, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      if (at !== undefined) choose(state, options(ctx).cell[0], Number(at));
    },
    pointermove(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      ctx.selection.hover(at === undefined ? null : { unit: "token", query: Number(at), key: -1 });
    },
    pointerleave: () => ctx.selection.hover(null),
  });
  root.classList.add("aw-lens");
  root.role = "group";
  onResize(body, signal, ({ width, height }) => {
    const next = { width: Math.floor(width), height: Math.floor(height) };
    if (next.width <= 0 || (next.width === state.box.width && next.height === state.box.height)) return;
    state.box = next;
    lay(state);
    point(state);
  });
}

function options(ctx: ViewContext): LensOptions {
  return ctx.options as LensOptions;
}

function save(ctx: ViewContext, values: Partial<LensOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

function move(state: LensState, down: number, right: number): void {
  const { lens } = state;
  if (!lens) return;
  const [row, token] = options(state.ctx).cell;
  const within = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));
  choose(state, within(row + down, lens.layers + 1), within(token + right, lens.tokens.length));
}

function rowName(state: LensState, row: number): string {
  return row === state.lens?.layers ? "output" : `layer ${state.ctx.layerName(row)}`;
}

function pinOf(row: number, token: number): Cell {
  return { unit: "token", query: token, key: -1, layer: row };
}

function snapshot(ctx: ViewContext): string {
  return JSON.stringify([ctx.selection.get("layer"), ctx.selection.get("pinned")]);
}

/** Choose a cell, here and in the other views of the text; other views have no row for the output. */
function choose(state: LensState, row: number, token: number): void {
  const { lens } = state;
  if (!lens) return;
  const isOutput = row === lens.layers;
  const pinned: Cell = isOutput ? { unit: "token", query: token, key: -1 } : pinOf(row, token);
  state.ctx.selection.set({ layer: Math.min(row, lens.layers - 1), pinned });
  state.selectionSeen = snapshot(state.ctx);
  save(state.ctx, { cell: [row, token] });
}

function follow(state: LensState): void {
  const { lens } = state;
  const now = snapshot(state.ctx);
  if (now === state.selectionSeen || !lens) return;
  const isFirst = !state.selectionSeen;
  state.selectionSeen = now;
  if (isFirst) return;
  const [layerNow, pinned] = JSON.parse(now) as [number, Cell | null];
  const [row, token] = options(state.ctx).cell;
  const at = pinned?.unit === "token" ? Math.max(pinned.query, pinned.key) : -1;
  const isToken = at >= 0 && at < lens.tokens.length;
  const next: [number, number] = [Math.min(layerNow, lens.layers), isToken ? at : token];
  if (next[0] !== row || next[1] !== token) save(state.ctx, { cell: next });
}

function fetchLens(state: LensState, fitted: boolean, id: number | null, isMain: boolean): Lens | null {
  const { answers } = state;
  const args = { fitted, answer: id };
  const isStored = id === null && options(state.ctx).held.includes(fitted);
  const topic = isStored ? "lens" : "more_lens";
  const answer = answers.get<never>(topic, args, !isMain);
  if (answer) return readLens(answer);
  if (isMain) state.frame.lacks(missingAnswer(answers, topic, args, "predictions by layer"));
  return null;
}

function read(state: LensState): void {
  const { fitted, answer: id, kinds: offered } = options(state.ctx);
  const main = fetchLens(state, fitted, id, true);
  if (main) state.frame.lacks(null);
  state.lens = main ?? state.lens;
  const isPair = main !== null && offered.length > 1;
  state.other = isPair ? fetchLens(state, !fitted, id, false) : null;
}

function write(state: LensState, l: Lens): void {
  const { text, answer } = state;
  if (state.writtenFor !== l.tokens) {
    state.writtenFor = l.tokens;
    state.tokens = l.tokens.map((label, i) => h("span.lens-token", { "data-i": String(i) }, h("bdi", word(label))));
    setChildren(text, ...state.tokens);
    text.dir = directionOf(l.tokens);
  }
  setChildren(
    state.chips,
    "→",
    ...l.predicted
      .slice(0, 2)
      .map(([label, p]) => h("span.lens-chip", h("bdi", word(label, 14)), " ", h("b", p.toFixed(2)))),
  );
  setChildren(answer, "answer ", h("b", h("bdi", word(l.answer))), options(state.ctx).answer === null ? "" : " ×");
  answer.disabled = options(state.ctx).answer === null; // the default is active
  answer.title =
    options(state.ctx).answer === null
      ? "the token whose rank and probability are followed"
      : "follow the given answer again";
}

function lay(state: LensState): void {
  const { ctx, table, curve, panel, folded, side, body, other, box } = state;
  const l = state.lens;
  if (!l || box.width <= 0) return;
  const columns = box.width >= THREE ? 3 : box.width >= TWO ? 2 : 1;
  body.dataset.columns = String(columns);
  assign(side.element, { hidden: columns === 3 });
  const isTop = columns < 3 && side.value() === "top";
  setFlag(body, "data-top", isTop);
  // In two columns the panel replaces the curve, under its heading.
  const panelParent = columns < 3 ? state.middle : body;
  if (panel.element.parentElement !== panelParent) panelParent.append(panel.element);
  curve.element.style.display = isTop ? "none" : "";
  panel.element.hidden = columns < 3 && !isTop;
  const panelWidth = columns === 3 ? 310 : 0;
  const middleWidth =
    columns === 1 ? box.width : Math.round(Math.max(250, 0.27 * box.width + (columns === 2 ? 0.1 * box.width : 0)));
  const width = (columns === 1 ? box.width : box.width - middleWidth - panelWidth) - 26;
  setSizes(body, { middle: middleWidth, panel: panelWidth });
  const [row, token] = options(ctx).cell;
  const most = Math.max(4, Math.floor((box.height - CAPTION - HEADS - 14) / LEAST));
  const count = l.layers + 1;
  const rows = withRow(rowsShown(count, ranksAt(l, token), columns === 1 ? 16 : most), row);
  const high =
    columns === 1
      ? LEAST + 1
      : Math.max(LEAST, Math.min(MOST_ROW, Math.floor((box.height - CAPTION - HEADS - 14) / rows.length)));
  const [from, to] = table.window(l, token);
  const window =
    to - from < l.tokens.length
      ? `tokens ${from + ctx.options.indexBase} to ${to - 1 + ctx.options.indexBase} of ${l.tokens.length}`
      : "";
  setText(folded, [foldedWords(rows, count), window].filter(Boolean).join(" · "));
  folded.title = "The arrow keys and the slider reach folded layers.";
  table.show({
    lens: l,
    rows,
    measure: options(ctx).color,
    cell: [row, token],
    column: columnOver(state),
    row: high,
    width,
  });
  setText(state.rankTitle, `rank of ${word(l.answer)}`);
  setText(state.rankAt, `at ${inQuotes(l.tokens[token] ?? "")}`);
  const { fitted } = options(ctx);
  const names = fitted ? ["fitted", "plain"] : ["plain", "fitted"];
  const lines = [l, ...(other ? [other] : [])].map((reading, i) => ({
    name: names[i] as string,
    ranks: ranksAt(reading, token),
    isShown: i === 0,
  }));
  curve.show({ lines, rows, chosen: row, width: middleWidth - 26, row: high, top: HEADS });
  curve.element.setAttribute(
    "aria-label",
    `rank of ${l.answer} over the layers: ${rows.map((at) => `${rowName(state, at)} ${(lines[0]?.ranks[at] ?? 0) + 1}`).join(", ")}`,
  );
  panel.show({ lens: l, other, fitted, cell: [row, token], name: rowName(state, row), canPatch: row < l.layers });
}

function columnOver(state: LensState): number {
  const { over } = state;
  const hovered = state.ctx.selection.get("hover");
  return over ? over[1] : hovered?.unit === "token" ? Math.max(hovered.query, hovered.key) : -1;
}

function point(state: LensState): void {
  const l = state.lens;
  if (!l) return;
  const [row, token] = state.over ?? options(state.ctx).cell;
  state.tokens.forEach((el, i) => {
    el.toggleAttribute("data-chosen", i === options(state.ctx).cell[1]);
    el.toggleAttribute("data-over", i === columnOver(state));
  });
  const best = topOf(l, row, token)[0];
  const rank = valueAt(l, "rank", row, token) + 1;
  const isAnswer = best?.label === l.answer;
  const first = `${rowName(state, row)}, ${inQuotes(l.tokens[token] ?? "")} → ${inQuotes(best?.label ?? "")} ${chance(best?.p ?? 0)}`;
  const more = isAnswer
    ? ""
    : ` · p(${word(l.answer)}) ${chance(valueAt(l, "probability", row, token))}, rank ${rank.toLocaleString("en")}`;
  const rest = ` · entropy ${decimal(valueAt(l, "entropy", row, token))} · KL ${decimal(valueAt(l, "kl", row, token))}`;
  state.frame.readout.show(`${first}${more}${rest}`, state.root.contains(document.activeElement));
}

function showLegend(state: LensState, l: Lens): void {
  const { legend } = state;
  const { color } = options(state.ctx);
  const top = topValue(l, color);
  const [low, high] =
    color === "probability"
      ? ["0", "1"]
      : color === "rank"
        ? [(top + 1).toLocaleString("en"), "1st"]
        : ["0", decimal(top, 1)];
  const ramp = h("span.ramp", { "aria-hidden": "true" });
  setStyles(ramp, { background: rampCss(heatMap(false, state.ctx.theme)) });
  setChildren(legend, color === "probability" ? `p(${word(l.answer, 12)})` : MEASURES[color], " ", low, ramp, high);
  legend.ariaLabel = `${MEASURES[color]}, ${low} to ${high}`;
}

function update(state: LensState): void {
  const { ctx, kinds, range, number } = state;
  read(state);
  const { fitted, kinds: offered, color, cell } = options(ctx);
  kinds.choose(fitted ? "fitted" : "plain");
  assign(kinds.element, { hidden: offered.length < 2 });
  state.colours.offer(
    (Object.keys(MEASURES) as Measure[]).map((value) => ({ value, label: MEASURES[value] })),
    color,
  );
  const name = state.frame.show("", state.lens?.title);
  state.root.ariaLabel = `lens: ${name}`;
  if (!state.lens) return;
  follow(state);
  const last = state.lens.layers;
  assign(range, { max: String(last), ariaValueText: rowName(state, cell[0]) });
  assign(range, { value: String(cell[0]) });
  setText(number, cell[0] === last ? "output" : `layer ${ctx.layerName(cell[0])} / ${ctx.layerName(last)}`);
  reserve(number, `layer ${ctx.layerName(last)} / ${ctx.layerName(last)}`);
  assign(state.less, { disabled: cell[0] <= 0 });
  assign(state.more, { disabled: cell[0] >= last });
  write(state, state.lens);
  showLegend(state, state.lens);
  state.table.element.ariaLabel = `top tokens by ${state.lens.title}, layers by tokens`;
  lay(state);
  point(state);
  state.copy.show();
}
