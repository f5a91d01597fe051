/**
 * Heads of a layer as lines between two columns of tokens: the strongest lines of every token, and all lines of the
 * current one, with its values as bars next to the tokens of the other side. At first one head is shown.
 */
import type { Change } from "../../context.ts";
import { assign, atEnd, createWatch, h, keyboard, on, onResize, setText, watchWidth } from "../../dom.ts";
import type { Axis, HeadKey, HeadViewOptions } from "../../wire/wire.ts";
import { createCopyButton, pinnedCell } from "../base/copyPython.ts";
import { filterPlace, filtersOf } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { moveLayer, placeWords, whereWords } from "../base/navigation.ts";
import { openedAt, openingWords } from "../base/opening.ts";
import { createSegments } from "../base/segmentedControl.ts";
import {
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import type { ColumnEvents } from "./column.ts";
import { createHeadChoice } from "./headChoice.ts";
import { createNumbers } from "./numbers.ts";
import { BETWEEN, type Between, isPair, type Pairs, pairsOf, relations, type Side } from "./pairs.ts";
import { createPlot } from "./plot.ts";
import { namesApart } from "./rows.ts";
import { createStrongestHeads } from "./strongestHeads.ts";
import { createCurrentToken, opposite, SIDES, type Token } from "./token.ts";
import { drawnWords, pairWords, strengthWords, tokenWords } from "./words.ts";

/** Width in px from which there is a third column. */
const THREE_COLUMNS = 1100;
const KEYS =
  "↑ ↓: token · ← →: side · Enter: pin · Escape: unpin · Page Up, Page Down: layer · " +
  "on a head, Space: show it or not, s: alone, a: all";
const NOTHING: ReadonlySet<Change> = new Set();

export const renderHeadView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const options = () => ctx.options as HeadViewOptions;
  /** Change the options, and send them to Python. */
  const keep = (values: Partial<HeadViewOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values });
    ctx.model.save_changes();
  };
  let [width, height, isWide] = [0, 0, false];
  let pairs: Pairs | null = null;
  let heads: readonly HeadKey[] = [];
  let drawing = 0;
  let spoken = false;
  const isLaidOut = createWatch();

  const between = createSegments<Between>("texts", BETWEEN, signal, () => keep({ between: between.value() }));
  const headControl = createHeadControl(ctx, signal);
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    headControl,
    createUnitControl(ctx, signal),
  );
  const current = createCurrentToken(ctx, () => pairs);
  const numbers = createNumbers(ctx, signal, () => point());
  const events = (side: Side): ColumnEvents => ({
    hover(index) {
      spoken = false;
      selection.hover(index < 0 ? null : current.cellOf(side, index));
    },
    pin: (index) => current.pin(current.cellOf(side, index)),
    toggle: (index) => togglePin(ctx, current.cellOf(side, index)),
    span: (first, last) => chooseSpan(ctx, side, first, last),
    scrolled: () => soon(),
  });
  const plot = createPlot(ctx, signal, numbers, current.get, events, (missing) => frame.lacks(missing));
  const { columns, margins } = plot;
  const choice = createHeadChoice(ctx, signal, keep, () => soon());
  const other = createStrongestHeads(ctx, signal);
  const drawn = h("span.hv-drawn");
  const copy = createCopyButton(ctx, signal, () => {
    const place = heads.length === 1 ? pinnedCell(ctx) : null;
    return place && { ...place, head: heads[0] };
  });
  const main = h("div.hv-main", choice.chips, margins.above, plot.element, margins.below);
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, choice.button, between.element],
    tags: [filterPlace(ctx)],
    legend: drawn,
    body: [main, other.element],
    hint: `Click a token to see what it ${ctx.source().words[2]}.`,
    actions: [copy.element],
  });
  root.classList.add("aw-headview");

  // ---- pictures and words ----

  const layOut = (query: Axis, key: Axis): void => {
    const { source } = ctx.resolved();
    const special = source.kind === "map" ? filtersOf(ctx).special : "show";
    if (!isLaidOut(query, key, source.causal, width, height, heads.length, between.value(), special)) return;
    pairs = pairsOf(query, key, between.value(), source.causal, { special });
    plot.layOut(pairs, width, height);
  };

  const soon = (): void => {
    drawing ||= requestAnimationFrame(paint);
  };

  const paint = (): void => {
    drawing = 0;
    if (width <= 0 || !pairs) return;
    const token = current.get();
    plot.draw({ heads, token, only: choice.over() });
    say(token);
  };

  /** Marks of the columns. Runs on every pointer move. */
  const point = (): void => {
    if (!pairs) return;
    plot.mark(current.get());
    soon();
  };

  const say = (token: Token | null): void => {
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
    plot.tellBeyond(token);
    frame.readout.show(text, spoken || root.contains(document.activeElement));
    const count = numbers.huge() ? -1 : numbers.count();
    const shown = drawnWords(words, token, count, numbers.why());
    if (setText(drawn, shown)) drawn.title = shown;
  };

  /** The third column: the pinned pair, else the strongest of the current query. */
  const showOther = (): void => {
    assign(other.element, { hidden: !isWide || !ctx.source().heads });
    if (other.element.hidden || !pairs) return;
    const { source } = ctx.resolved();
    const pinned = ctx.cell("pinned");
    const side: Side = pinned && pinned.query < 0 ? "key" : "query";
    const index = pinned ? pinned[side] : openedAt(ctx, source);
    const strongest = (): number =>
      relations(numbers.valuesOf(side, index).values, 1, pairs?.[opposite(side)].apart)[0]?.index ?? -1;
    const best = pinned && pinned[opposite(side)] >= 0 ? pinned[opposite(side)] : strongest();
    const apart = pairs.key.apart.length > 0 ? ` Grey: attention to ${namesApart(pairs.key)}.` : "";
    const about = `${strengthWords({ source })}${apart}`;
    if (side === "query") other.show(index, best, about);
    else other.show(best, index, about);
  };

  const words = (query: Axis, key: Axis): void => {
    const at = ctx.resolved();
    const { source, layer } = at;
    const [shownHead] = heads;
    const title =
      heads.length === 1
        ? placeWords(ctx, layer, shownHead as HeadKey)
        : `${heads.length} heads of layer ${ctx.layerName(layer)}`;
    const where = (heads.length === 1 && openingWords(ctx)) || source.title;
    frame.show(where, source.heads ? title : undefined);
    assign(plot.element, { ariaLabel: `${source.title}, ${whereWords(ctx, { ...at, head: "-" })}. ${KEYS}` });
    controls.show();
    copy.show();
    choice.show();
    if (choice.several()) for (const element of headControl.elements) element.hidden = true;
    assign(between.element, { hidden: !isPair(query, key) });
    const [row, column, verb, back] = source.words;
    // Queries and keys are told by what they do.
    margins.name(row === "query" ? { query: verb, key: back } : { query: row, key: column });
  };

  // ---- input ----

  const goTo = (side: Side, index: number): void => {
    if (!pairs || index < 0) return;
    spoken = true;
    selection.hover(current.cellOf(side, index));
    columns[side].reveal(index);
  };
  const step = (by: number) => (): void => {
    const { side, index } = current.cursor();
    goTo(side, columns[side].neighbour(index, by));
  };
  const cross = (side: Side) => (): void => {
    const at = current.cursor();
    if (at.side !== side) goTo(side, at.index);
  };
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
      ArrowUp: step(-1),
      ArrowDown: step(1),
      ArrowLeft: cross("query"),
      ArrowRight: cross("key"),
      Home: step(-Infinity),
      End: step(Infinity),
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
    if (wide <= 0 || tall <= 0 || (wide === width && tall === height)) return;
    [width, height] = [wide, tall];
    update(NOTHING);
  });
  watchWidth(root, signal, (now) => {
    if (isWide === now >= THREE_COLUMNS) return;
    isWide = now >= THREE_COLUMNS;
    update(NOTHING);
  });
  atEnd(signal, () => cancelAnimationFrame(drawing));

  function update(changed: ReadonlySet<Change>): void {
    if (only(changed, "hover")) {
      point();
      return;
    }
    const { source } = ctx.resolved();
    const [query, key] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    heads = choice.gather(changed);
    between.choose((options().between as Between | undefined) ?? "all");
    if (changed.has("options") || changed.has("header")) numbers.renew();
    if (width > 0) layOut(query, key);
    if (pairs) numbers.gather(heads, pairs);
    showOther();
    words(query, key);
    if (changed.has("pinned")) plot.follow();
    plot.choose();
    point();
  }
  return update;
});
