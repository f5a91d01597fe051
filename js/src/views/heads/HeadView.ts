/**
 * Heads of a layer as lines between two columns of tokens: the strongest lines of every token, and all lines of the
 * current token, with its values as bars next to the tokens of the other side. At first a single head is shown.
 */
import type { Change, ViewContext } from "../../context.ts";
import { assign, atEnd, createWatch, h, keyboard, on, onResize, setText, watchWidth } from "../../dom.ts";
import type { HeadViewOptions } from "../../wire/viewState.ts";
import type { Axis, HeadKey } from "../../wire/wire.ts";
import { type CopyButton, createCopyButton, pinnedCell } from "../base/copyPython.ts";
import { filterSlot, filtersOf } from "../base/filters.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { addressWords, moveLayer, whereWords } from "../base/navigation.ts";
import { openedAt, openingWords } from "../base/opening.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import {
  type Control,
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createHeadChoice, type HeadChoice } from "./headChoice.ts";
import { createNumbers, type HeadNumbers } from "./numbers.ts";
import { BETWEEN, type Between, isPair, type Pairs, pairsOf, relations, type Side } from "./pairs.ts";
import { createPlot } from "./plot.ts";
import { namesApart } from "./rows.ts";
import { createStrongestHeads, type StrongestHeads } from "./strongestHeads.ts";
import { type CurrentToken, createCurrentToken, opposite, SIDES, type Token } from "./token.ts";
import { drawnWords, pairWords, strengthWords, tokenWords } from "./words.ts";

/** Width in px from which there is a third column. */
const THREE_COLUMNS = 1100;
const KEYS =
  "↑ ↓: token · ← →: side · Enter: pin · Escape: unpin · Page Up, Page Down: layer · " +
  "on a head, Space: show it or not, s: alone, a: all";
const NOTHING: ReadonlySet<Change> = new Set();

/** The elements of the view, and the state that they show. */
interface HeadState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
  /** Whether heads and tokens are next to each other. */
  isWide: boolean;
  /** The two axes, as they are drawn. */
  pairs: Pairs | null;
  /** The heads whose lines are drawn. */
  heads: readonly HeadKey[];
  /** The requested frame. */
  drawing: number;
  /** Whether the readout is spoken: after a key, not after the pointer. */
  spoken: boolean;
  readonly isLaidOut: (...values: unknown[]) => boolean;
  readonly between: Segments<"all" | "A-A" | "A-B" | "B-A" | "B-B">;
  readonly headControl: Control;
  readonly controls: Control;
  readonly current: CurrentToken;
  readonly numbers: HeadNumbers;
  readonly plot: ReturnType<typeof createPlot>;
  readonly choice: HeadChoice;
  readonly other: StrongestHeads;
  readonly drawn: HTMLSpanElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
}

export const renderHeadView = view((ctx, root, signal) => {
  const isLaidOut = createWatch();

  const between = createSegments<Between>("texts", BETWEEN, signal, () => keep(ctx, { between: between.value() }));
  const headControl = createHeadControl(ctx, signal);
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    headControl,
    createUnitControl(ctx, signal),
  );
  const current = createCurrentToken(ctx, () => state.pairs);
  const numbers = createNumbers(ctx, signal, () => point(state));
  const plot = createPlot(
    ctx,
    signal,
    numbers,
    current.get,
    (side) => ({
      hover: (index) => hover(state, side, index),
      pin: (index) => current.pin(current.cellOf(side, index)),
      toggle: (index) => togglePin(ctx, current.cellOf(side, index)),
      span: (first, last) => chooseSpan(ctx, side, first, last),
      scrolled: () => soon(state),
    }),
    (missing) => frame.lacks(missing),
  );
  const { margins } = plot;
  const choice = createHeadChoice(
    ctx,
    signal,
    (values) => keep(ctx, values),
    () => soon(state),
  );
  const other = createStrongestHeads(ctx, signal);
  const drawn = h("span.hv-drawn.fine");
  const copy = createCopyButton(ctx, signal, () => {
    const cell = state.heads.length === 1 ? pinnedCell(ctx) : null;
    return cell && { ...cell, head: state.heads[0] };
  });
  const main = h("div.hv-main.column", choice.chips, margins.above, plot.element, margins.below);
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, choice.button, between.element],
    tags: [filterSlot(ctx)],
    legend: drawn,
    body: [main, other.element],
    hint: `Click a token to see what it ${ctx.source().words[2]}.`,
    actions: [copy.element],
  });

  const state: HeadState = {
    ctx,
    root,
    width: 0,
    height: 0,
    isWide: false,
    pairs: null,
    heads: [],
    drawing: 0,
    spoken: false,
    isLaidOut,
    between,
    headControl,
    controls,
    current,
    numbers,
    plot,
    choice,
    other,
    drawn,
    copy,
    frame,
  };
  listen(state, signal);
  return (changed) => update(state, changed);
});

function listen(state: HeadState, signal: AbortSignal): void {
  const { ctx, current, plot, root } = state;
  const { selection } = ctx;
  const { columns } = plot;
  root.classList.add("aw-headview");
  on(plot.element, signal, {
    blur: () => selection.hover(null),
    wheel(event) {
      // Scrolling between the columns moves both.
      if (event.ctrlKey || event.target !== plot.element) return;
      const tops = (): number => columns.query.top() + columns.key.top();
      const before = tops();
      for (const side of SIDES) columns[side].scrollTo(columns[side].top() + event.deltaY);
      if (tops() !== before) event.preventDefault();
    },
  });
  keyboard(
    plot.element,
    signal,
    {
      ArrowUp: step(state, -1),
      ArrowDown: step(state, 1),
      ArrowLeft: cross(state, "query"),
      ArrowRight: cross(state, "key"),
      Home: step(state, -Infinity),
      End: step(state, Infinity),
      PageUp: () => moveLayer(ctx, -1),
      PageDown: () => moveLayer(ctx, 1),
      Escape: () => selection.clear(),
      Enter: () => {
        const cell = ctx.cell("hover");
        if (cell) current.pin(cell);
      },
    },
    KEYS,
  );
  onResize(plot.element, signal, (box) => {
    const [wide, tall] = [Math.floor(box.width), Math.floor(box.height)];
    if (wide <= 0 || tall <= 0 || (wide === state.width && tall === state.height)) return;
    [state.width, state.height] = [wide, tall];
    update(state, NOTHING);
  });
  watchWidth(root, signal, (now) => {
    if (state.isWide === now >= THREE_COLUMNS) return;
    state.isWide = now >= THREE_COLUMNS;
    update(state, NOTHING);
  });
  atEnd(signal, () => cancelAnimationFrame(state.drawing));
}

function options(ctx: ViewContext): HeadViewOptions {
  return ctx.options as HeadViewOptions;
}

/** Change the options, and send them to Python. */
function keep(ctx: ViewContext, values: Partial<HeadViewOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values });
  ctx.model.save_changes();
}

function hover(state: HeadState, side: Side, index: number): void {
  state.spoken = false;
  state.ctx.selection.hover(index < 0 ? null : state.current.cellOf(side, index));
}

// ---- pictures and words ----
function layOut(state: HeadState, query: Axis, key: Axis): void {
  const { ctx, width, height, between } = state;
  const { source } = ctx.resolved();
  const special = source.kind === "map" ? filtersOf(ctx).special : "show";
  if (!state.isLaidOut(query, key, source.causal, width, height, state.heads.length, between.value(), special)) return;
  state.pairs = pairsOf(query, key, between.value(), source.causal, { special });
  state.plot.layOut(state.pairs, width, height);
}

function soon(state: HeadState): void {
  state.drawing ||= requestAnimationFrame(() => paint(state));
}

function paint(state: HeadState): void {
  state.drawing = 0;
  if (state.width <= 0 || !state.pairs) return;
  const token = state.current.get();
  state.plot.draw({ heads: state.heads, token, only: state.choice.over() });
  say(state, token);
}

/** Marks of the columns. Runs on every pointer move. */
function point(state: HeadState): void {
  if (!state.pairs) return;
  state.plot.mark(state.current.get());
  soon(state);
}

function say(state: HeadState, token: Token | null): void {
  const { ctx, pairs, heads, numbers, drawn } = state;
  if (!pairs) return;
  const { source } = ctx.resolved();
  const words = { ctx, source, heads, pairs, tile: numbers.tile() };
  let text = `Hover a token to see what it ${source.words[2]} or ${source.words[3]}; click to pin it.`;
  if (heads.length === 0) text = "No head is chosen.";
  else if (token) {
    const values = numbers.valuesOf(token.side, token.index);
    const is = ctx.cell("pinned")?.[token.side] === token.index ? "pinned " : "";
    text = is + (token.other < 0 ? tokenWords : pairWords)(words, token, values);
  }
  state.plot.tellBeyond(token);
  state.frame.readout.show(text, state.spoken || state.root.contains(document.activeElement));
  const count = numbers.huge() ? -1 : numbers.count();
  const shown = drawnWords(words, token, count, numbers.why());
  if (setText(drawn, shown)) drawn.title = shown;
}

/** The third column: the pinned pair, else the strongest of the current query. */
function showOther(state: HeadState): void {
  const { ctx, pairs, other } = state;
  assign(other.element, { hidden: !state.isWide || !ctx.source().heads });
  if (other.element.hidden || !pairs) return;
  const { source } = ctx.resolved();
  const pinned = ctx.cell("pinned");
  const side: Side = pinned && pinned.query < 0 ? "key" : "query";
  const index = pinned ? pinned[side] : openedAt(ctx, source);
  const strongest = (): number =>
    relations(state.numbers.valuesOf(side, index).values, 1, pairs?.[opposite(side)].apart)[0]?.index ?? -1;
  const best = pinned && pinned[opposite(side)] >= 0 ? pinned[opposite(side)] : strongest();
  const apart = pairs.key.apart.length > 0 ? ` Grey: attention to ${namesApart(pairs.key)}.` : "";
  const about = `${strengthWords({ source })}${apart}`;
  if (side === "query") other.show(index, best, about);
  else other.show(best, index, about);
}

function words(state: HeadState, query: Axis, key: Axis): void {
  const { ctx, heads, plot, choice } = state;
  const at = ctx.resolved();
  const { source, layer } = at;
  const [shownHead] = heads;
  const title =
    heads.length === 1
      ? addressWords(ctx, layer, shownHead as HeadKey)
      : `${heads.length} heads of layer ${ctx.layerName(layer)}`;
  const where = (heads.length === 1 && openingWords(ctx)) || source.title;
  state.frame.show(where, source.heads ? title : undefined);
  assign(plot.element, { ariaLabel: `${source.title}, ${whereWords(ctx, { ...at, head: "-" })}. ${KEYS}` });
  state.controls.show();
  state.copy.show();
  choice.show();
  if (choice.several()) for (const element of state.headControl.elements) element.hidden = true;
  assign(state.between.element, { hidden: !isPair(query, key) });
  const [row, column, verb, back] = source.words;
  // Queries and keys are named by their roles.
  plot.margins.name(row === "query" ? { query: verb, key: back } : { query: row, key: column });
}

// ---- input ----
function goTo(state: HeadState, side: Side, index: number): void {
  if (!state.pairs || index < 0) return;
  state.spoken = true;
  state.ctx.selection.hover(state.current.cellOf(side, index));
  state.plot.columns[side].reveal(index);
}

function step(state: HeadState, by: number): () => void {
  return (): void => {
    const { side, index } = state.current.cursor();
    goTo(state, side, state.plot.columns[side].neighbour(index, by));
  };
}

function cross(state: HeadState, side: Side): () => void {
  return (): void => {
    const at = state.current.cursor();
    if (at.side !== side) goTo(state, side, at.index);
  };
}

function update(state: HeadState, changed: ReadonlySet<Change>): void {
  const { ctx, numbers, plot } = state;
  if (only(changed, "hover")) {
    point(state);
    return;
  }
  const { source } = ctx.resolved();
  const [query, key] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
  state.heads = state.choice.gather(changed);
  state.between.choose((options(ctx).between as Between | undefined) ?? "all");
  if (changed.has("options") || changed.has("header")) numbers.renew();
  if (state.width > 0) layOut(state, query, key);
  if (state.pairs) numbers.gather(state.heads, state.pairs);
  showOther(state);
  words(state, query, key);
  if (changed.has("pinned")) plot.follow();
  plot.choose();
  point(state);
}
