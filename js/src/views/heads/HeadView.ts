/**
 * Heads of a layer as lines between two columns of tokens: the strongest lines of every token, and all lines of the
 * current one, with its values as bars beside the tokens of the other side. At first one head is shown.
 */
import { barColours } from "../../colour.ts";
import type { Change } from "../../context.ts";
import {
  assign,
  atEnd,
  h,
  keyboard,
  on,
  onResize,
  quoted,
  setFlag,
  setStyles,
  setText,
  shortLabel,
  watchWidth,
} from "../../dom.ts";
import type { Axis, Cell, HeadKey, HeadViewOptions } from "../../wire/wire.ts";
import { createCopyButton, pinnedCell } from "../base/copyPython.ts";
import { filterPlace, filtersOf } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { amountText } from "../base/meters.ts";
import { headAddress, moveLayer, placeWords, whereWords } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import {
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { textWidth } from "../maps/labels.ts";
import { createChips } from "./chips.ts";
import { headColour, headInk } from "./colours.ts";
import { createColumn } from "./column.ts";
import { barRoom, createLines } from "./lines.ts";
import { createNumbers, type Token } from "./numbers.ts";
import { createOutOfSight } from "./outOfSight.ts";
import { BETWEEN, type Between, isPair, type Pairs, pairsOf, relations, type Side, type Values } from "./pairs.ts";
import { namesApart } from "./rows.ts";
import { createStrongestHeads } from "./strongestHeads.ts";
import { drawnWords, pairWords, strengthWords, tokenWords } from "./words.ts";

/** Heights of a row in px: at least, and where there is room. */
const [LOW, HIGH] = [20, 28];
/** Widths in px from which there is a third column, and below which there are no values at the left. */
const [THREE_COLUMNS, NARROW] = [1100, 420];
const SIDES = ["query", "key"] as const;
const KEYS =
  "↑ ↓: token · ← →: side · Enter: pin · Escape: unpin · Page Up, Page Down: layer · " +
  "on a head, Space: show it or not, s: alone, a: all";

const opposite = (side: Side): Side => (side === "query" ? "key" : "query");
const samePlace = (a: Cell | null, b: Cell): boolean => a?.query === b.query && a.key === b.key;

export const renderHeadView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const options = () => ctx.options as HeadViewOptions;
  /** Change the options, and send them to Python. */
  const keep = (values: Partial<HeadViewOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values });
    ctx.model.save_changes();
  };
  const between = createSegments<Between>("texts", BETWEEN, signal, () => keep({ between: between.value() }));
  const several = h("button.button", { type: "button", title: "Show several heads of the layer at once" }, "several");
  const headControl = createHeadControl(ctx, signal);
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    headControl,
    createUnitControl(ctx, signal),
  );
  const canvas = h("canvas.hv-canvas");
  const busy = h("div.busy");
  const lines = createLines(canvas);
  const columns = {
    query: createColumn("query", signal, events("query")),
    key: createColumn("key", signal, events("key")),
  };
  const beyond = createOutOfSight(signal, (index) => columns[opposite(currentToken()?.side ?? "key")].reveal(index));
  const role = { tabindex: "0", role: "application", "aria-roledescription": "lines between tokens" };
  const plot = h("div.hv-plot", role, canvas, columns.query.element, columns.key.element, beyond.element, busy);
  /** Above the columns: what is at the left of each, and at the right. */
  const over = {
    queryLane: h("span.hv-over"),
    query: h("span"),
    key: h("span"),
    keyLane: h("span.hv-over"),
  };
  const sides = h("div.hv-sides", { "aria-hidden": "true" }, ...Object.values(over));
  const [apartName, apartBar, apartValue] = [h("span.hv-name"), h("span.apart"), h("span.hv-number")];
  const apartRow = h("div.hv-apart", apartName, h("span.hv-bar", apartBar), apartValue);
  const drawn = h("span.hv-drawn");
  const copy = createCopyButton(ctx, signal, () => {
    const place = heads.length === 1 ? pinnedCell(ctx) : null;
    return place && { ...place, head: heads[0] };
  });
  const numbers = createNumbers(ctx, signal, () => point());
  const other = createStrongestHeads(ctx, signal);

  let alone = false;
  let overHead = -1;
  let [width, height, isWide] = [0, 0, false];
  let apartColour = "";
  /** The queries whose last one has been scrolled into view. */
  let sighted: Axis | null = null;
  let laidOut: unknown[] = [];
  let pairs: Pairs | null = null;
  let heads: HeadKey[] = [];
  let drawing = 0;
  let spoken = false;
  let painted = "";
  /** The scroll position that a column got from the other one. */
  const followed = { query: -1, key: -1 };
  const widths = new WeakMap<Axis, number>();

  const choose = (shown: (head: number, place: number) => boolean, isAlone = false): void => {
    alone = isAlone;
    const all = ctx.source().heads ?? [];
    const chosen = all.filter(shown);
    keep({ heads: chosen });
  };
  const chips = createChips(signal, {
    toggle: (at) => choose((head, place) => heads.includes(head) !== (place === at)),
    solo(at) {
      const head = ctx.source().heads?.[at];
      if (head === undefined) return;
      const again = heads.length === 1 && heads[0] === head;
      choose((_, place) => again || place === at, !again);
      if (!again) selection.set({ head });
    },
    all: () => choose(() => true),
    over(at) {
      overHead = heads.indexOf(ctx.source().heads?.[at] ?? "-");
      soon();
    },
  });
  const main = h("div.hv-main", chips.element, sides, plot, apartRow);
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, several, between.element],
    tags: [filterPlace(ctx)],
    legend: drawn,
    body: [main, other.element],
    hint: "Click a token to see what it reads.",
    actions: [copy.element],
  });
  root.classList.add("aw-headview");

  // ---- the current token ----

  function events(side: Side) {
    return {
      hover(index: number): void {
        spoken = false;
        selection.hover(index < 0 ? null : cellOf(side, index));
      },
      pin: (index: number) => pin(cellOf(side, index)),
      toggle: (index: number) => togglePin(ctx, cellOf(side, index)),
      span: (first: number, last: number) => chooseSpan(ctx, side, first, last),
      scrolled(): void {
        const other = opposite(side);
        const top = columns[side].top();
        // A pinned token keeps its column.
        if (Math.abs(top - followed[side]) >= 1 && !ctx.cell("pinned")) {
          columns[other].scrollTo(top);
          followed[other] = columns[other].top();
        }
        followed[side] = -1;
        soon();
      },
    };
  }

  /**
   * Pin a cell. Cells are compared in this view's unit, so that a second click also unpins a cell pinned in another
   * unit.
   */
  const pin = (cell: Cell): void => selection.pin(samePlace(ctx.cell("pinned"), cell) ? null : cell);

  /** The side of the pinned token; for a pair, the query's. */
  const pinnedSide = (pinned: Cell): Side => (pinned.query >= 0 ? "query" : "key");

  /** Hover a token; if one of the other side is pinned, the pair of both. */
  const cellOf = (side: Side, index: number): Cell => {
    const cell: Cell = { unit: ctx.source().unit, query: -1, key: -1 };
    const pinned = ctx.cell("pinned");
    if (pinned && pinnedSide(pinned) !== side) cell[opposite(side)] = pinned[opposite(side)];
    cell[side] = index;
    return cell;
  };

  /** The token that is hovered or pinned. */
  const chosenToken = (): Token | null => {
    const pinned = ctx.cell("pinned");
    const cell = ctx.cell("hover") ?? pinned;
    if (!cell) return null;
    const whole = cell.query >= 0 && cell.key >= 0;
    const side = whole && pinned ? pinnedSide(pinned) : cell.query >= 0 ? "query" : "key";
    return { side, index: cell[side], other: cell[opposite(side)] };
  };

  /** The token whose lines are all drawn: until one is chosen, the last that is not a special token. */
  const currentToken = (): Token | null => {
    const chosen = chosenToken();
    if (chosen || !pairs) return chosen;
    const index = ctx.source().kind === "attributions" ? 0 : pairs.query.lastContent;
    return index < 0 ? null : { side: "query", index, other: -1 };
  };

  // ---- sizes ----

  const columnWidth = (axis: Axis): number => {
    let widest = widths.get(axis);
    if (widest === undefined) {
      const { fontFamily } = getComputedStyle(columns.key.element.firstElementChild as Element);
      // The longest labels by number of characters: measuring all takes too long.
      const long = axis.labels.map((label) => shortLabel(label)).sort((a, b) => b.length - a.length);
      widest = Math.max(0, ...long.slice(0, 99).map((label) => textWidth(label, `13px ${fontFamily}`)));
      widths.set(axis, widest);
    }
    return Math.ceil(Math.max(34, Math.min(220, 0.24 * width, widest + 22)));
  };

  /** Widths of bars and values beside the tokens. */
  const lanesOf = (): Record<Side, number> => {
    if (width < NARROW) return { query: Math.round(0.1 * width), key: Math.round(0.3 * width) };
    return { query: Math.round(Math.min(130, 0.14 * width)), key: Math.round(Math.min(260, 0.3 * width)) };
  };

  const layOut = (query: Axis, key: Axis): void => {
    const { source } = ctx.resolved();
    const special = source.kind === "map" ? filtersOf(ctx).special : "show";
    const layoutState = [query, key, source.causal, width, height, heads.length, between.value(), special];
    if (layoutState.every((one, i) => one === laidOut[i])) return;
    laidOut = layoutState;
    pairs = pairsOf(query, key, between.value(), source.causal, { special });
    const count = Math.max(pairs.query.shown.length, pairs.key.shown.length, 1);
    const row = Math.floor(Math.max(LOW, Math.min(HIGH, height / count)));
    const lanes = lanesOf();
    const own = { query: columnWidth(query), key: columnWidth(key) };
    const off = { query: pairs.queries, key: pairs.keys };
    for (const side of SIDES) {
      const size = { row, width: lanes[side] + own[side], height, lane: lanes[side] };
      columns[side].layout(pairs[side], off[side], size);
      setStyles(over[side], { width: `${own[side]}px` });
      setStyles(over[`${side}Lane`], { width: `${lanes[side]}px` });
    }
    const right = width - lanes.key - own.key;
    setStyles(apartRow, { "--aw-from": `${right}px`, "--aw-label-width": `${own.key}px` });
    setStyles(apartBar.parentElement as HTMLElement, { width: `${barRoom(lanes.key)}px` });
    assign(apartRow, { hidden: pairs.key.apart.length === 0 });
    const rows = { query: pairs.query, key: pairs.key };
    lines.layout({ width, height, row, left: lanes.query + own.query + 2, right: right - 2, lanes, rows });
    followPin();
  };

  /** Scroll the pinned token into view, and the other column to the same height. */
  const followPin = (): void => {
    const pinned = ctx.cell("pinned");
    if (!pinned) {
      // Where the view opens, once.
      if (pairs && sighted !== pairs.query.axis)
        for (const side of SIDES) columns[side].reveal(pairs.query.lastContent);
      sighted = pairs?.query.axis ?? null;
      return;
    }
    for (const side of SIDES) columns[side].reveal(pinned[side]);
    for (const side of SIDES) if (pinned[side] < 0) columns[side].scrollTo(columns[opposite(side)].top());
  };

  // ---- pictures and words ----

  const soon = (): void => {
    drawing ||= requestAnimationFrame(paint);
  };

  const paint = (): void => {
    drawing = 0;
    if (width <= 0 || !pairs) return;
    const { source } = ctx.resolved();
    const token = currentToken();
    const missing = numbers.missing(token);
    const why = numbers.why();
    setFlag(plot, "data-stale", missing);
    plot.ariaBusy = String(missing);
    busy.hidden = !missing;
    setText(busy, why);
    // The picture of another map would be wrong, even dimmed.
    if (!missing || painted !== source.id || !why.startsWith("loading")) lines.clear();
    if (!missing) {
      painted = source.id;
      const all = source.heads ?? ["-"];
      const { palette, scale: mode } = filtersOf(ctx);
      const ink = barColours(ctx.theme, palette);
      const isAlone = heads.length < 2;
      lines.style({
        colours: isAlone ? [ink.amount] : heads.map((head) => headColour(all.indexOf(head as never), ctx.theme)),
        signs: source.signed ? [ink.against, ink.for] : null,
        mode,
        top: numbers.top(token),
        only: overHead,
        apart: apartColour,
      });
      const scroll = { query: columns.query.top(), key: columns.key.top() };
      const overview = numbers.huge() ? null : numbers.edges(...columns.query.range());
      if (overview) lines.edges(overview.edges, scroll);
      if (overview && token?.side !== "key") lines.apart(overview.apart, scroll, numbers.top(null));
      if (token) {
        const { values } = numbers.valuesOf(token.side, token.index);
        lines.look(token, values, scroll, tell(token, values));
      }
    }
    say(token);
  };

  /** Write the values of a token beside the other side; returns where its bars are full. */
  const tell = (token: Token, values: Values): number => {
    if (!pairs) return 1;
    const otherSide = opposite(token.side);
    const { shown, apart } = pairs[otherSide];
    const received = values.length === 1 ? values[0] : undefined;
    // What stands apart has the same scale; its sum has no bar where readers are shown.
    const sum = token.side === "key" ? 0 : sumOf(values, apart);
    let top = received ? Math.abs(sum) : numbers.top(null);
    for (const i of received ? shown : []) top = Math.max(top, Math.abs(received?.[i] as number) || 0);
    top ||= 1;
    const strong = token.other >= 0 ? token.other : (relations(values, 1, apart)[0]?.index ?? -1);
    const { source } = ctx.resolved();
    const scale = source.stochastic ? Math.min(top, 0.99) : top;
    const { exact } = numbers.valuesOf(token.side, token.index);
    // What rounds to zero on the way here is not known to be zero.
    const text = (value: number): string =>
      Number.isNaN(value) ? "" : amountText(value === 0 && !exact ? Number.MIN_VALUE : value, scale);
    columns[token.side].tell(null, -1);
    columns[otherSide].tell(received && width >= NARROW / 2 ? (i) => text(received[i] as number) : () => "", strong);
    const name = quoted(
      ctx.axisOf(token.side === "query" ? source.query : source.key).labels,
      token.index,
      ctx.options.indexBase,
    );
    const apartNames = pairs.key.apart.length > 0 && !numbers.huge() ? `to ${namesApart(pairs.key)}` : "";
    const lanes = [
      [over.queryLane, token.side === "key" ? `of ${name}` : apartNames],
      [over.keyLane, token.side === "query" ? `by ${name}` : ""],
    ] as const;
    for (const [lane, words] of lanes) if (setText(lane, words)) lane.title = words;
    for (const side of SIDES) setFlag(over[`${side}Lane`], "data-looked", token.side !== side);
    if (setText(apartName, namesApart(pairs.key))) apartName.title = namesApart(pairs.key);
    setText(apartValue, token.side === "query" ? text(sum) : "");
    setStyles(apartBar, { width: `${Math.min(100, (100 * Math.abs(sum)) / top)}%` });
    setFlag(apartRow, "data-empty", token.side === "key" || !values.some(Boolean));
    return top;
  };

  /** The sum over some elements, the mean over heads. */
  const sumOf = (values: Values, elements: readonly number[]): number => {
    const loaded = values.filter((one) => one !== undefined);
    let sum = 0;
    for (const one of loaded) for (const i of elements) sum += one[i] || 0;
    return sum / Math.max(1, loaded.length);
  };

  /** Marks of the columns. Runs on every pointer move. */
  const point = (): void => {
    if (!pairs) return;
    const token = currentToken();
    const pinned = ctx.cell("pinned");
    for (const side of SIDES) {
      const isTokenSide = token?.side === side;
      const hides = token && !isTokenSide && pairs.causal;
      const masked = !hides ? [-1, -1] : side === "key" ? [token.index + 1, pairs.cols] : [0, token.index];
      columns[side].mark(
        (isTokenSide ? token.index : token?.other) ?? -1,
        pinned?.[side] ?? -1,
        masked as [number, number],
      );
    }
    soon();
  };

  const say = (token: Token | null): void => {
    if (!pairs) return;
    const { source } = ctx.resolved();
    const words = { ctx, source, heads, pairs };
    let text = "Hover a token for what it reads, or who reads it; click to pin it.";
    beyond.element.hidden = !token;
    if (heads.length === 0) text = "No head is chosen.";
    else if (token) {
      const values = numbers.valuesOf(token.side, token.index);
      const is = ctx.cell("pinned")?.[token.side] === token.index ? "pinned " : "";
      text = is + (token.other < 0 ? tokenWords : pairWords)(words, token, values);
      const otherSide = opposite(token.side);
      beyond.show(values.values, pairs[otherSide], columns[otherSide].range());
    }
    frame.readout.show(text, spoken || root.contains(document.activeElement));
    setText(drawn, drawnWords(words, token, numbers.huge() ? -1 : numbers.count(), numbers.why()));
  };

  /** The third column: the pinned pair, else the strongest of the current query. */
  const showOther = (): void => {
    assign(other.element, { hidden: !isWide || !ctx.source().heads });
    if (other.element.hidden || !pairs) return;
    const { source } = ctx.resolved();
    const pinned = ctx.cell("pinned");
    const side: Side = pinned && pinned.query < 0 ? "key" : "query";
    const index = pinned ? pinned[side] : pairs.query.lastContent;
    const strongest = (): number =>
      relations(numbers.valuesOf(side, index).values, 1, pairs?.[opposite(side)].apart)[0]?.index ?? -1;
    const best = pinned && pinned[opposite(side)] >= 0 ? pinned[opposite(side)] : strongest();
    const apart = pairs.key.apart.length > 0 ? ` Grey: what goes to ${namesApart(pairs.key)}.` : "";
    const about = `${strengthWords({ ctx, source, heads, pairs })}${apart}`;
    if (side === "query") other.show(index, best, about);
    else other.show(best, index, about);
  };

  const words = (query: Axis, key: Axis): void => {
    const at = ctx.resolved();
    const { source, layer, head } = at;
    const [shownHead] = heads;
    const opening = selection.get("opening");
    const opens = opening && opening.layer === layer && opening.head === head ? opening.words : "";
    const title =
      heads.length === 1
        ? placeWords(ctx, layer, shownHead as HeadKey)
        : `${heads.length} heads of layer ${ctx.layerName(layer)}`;
    const where = heads.length === 1 ? opens || source.title : source.title;
    frame.show(where, source.heads ? title : undefined);
    plot.ariaLabel = `${source.title}, ${whereWords(ctx, { ...at, head: "-" })}. ${KEYS}`;
    controls.show();
    copy.show();
    const isSeveral = options().heads !== null && source.heads !== null;
    for (const element of headControl.elements) if (isSeveral) element.hidden = true;
    assign(several, { hidden: (source.heads?.length ?? 0) < 2, ariaPressed: String(isSeveral) });
    assign(chips.element, { hidden: !isSeveral });
    between.element.hidden = !isPair(query, key);
    const [reads, read] = source.kind === "attributions" ? ["target", "source"] : ["reads", "is read"];
    setText(over.query, reads as string);
    setText(over.key, read as string);
    if (!isSeveral) return;
    const current = selection.get("head");
    chips.show(
      (source.heads ?? []).map((one, place) => {
        const colour = source.signed ? "" : headColour(place, ctx.theme);
        return {
          name: ctx.headName(one),
          title: `head ${headAddress(ctx, layer, one)}: click shows or hides it, double-click it alone`,
          colour,
          ink: colour && headInk(colour),
          on: heads.includes(one),
          current: one === current,
        };
      }),
    );
  };

  // ---- input ----

  const goTo = (side: Side, index: number): void => {
    if (!pairs || index < 0) return;
    spoken = true;
    selection.hover(cellOf(side, index));
    columns[side].reveal(index);
  };
  /** The side in which the arrow keys move: in a pair, that of its second token. */
  const cursor = (): { side: Side; index: number } => {
    const token = chosenToken();
    if (!token) return { side: "query", index: -1 };
    return token.other < 0 ? token : { side: opposite(token.side), index: token.other };
  };
  const step = (by: number) => (): void => {
    const { side, index } = cursor();
    goTo(side, columns[side].beside(index, by));
  };
  const cross = (side: Side) => (): void => {
    const at = cursor();
    if (at.side !== side) goTo(side, at.index);
  };
  on(plot, signal, {
    blur: () => selection.hover(null),
    wheel(event) {
      // Scrolling between the columns moves both.
      if (event.ctrlKey || event.target !== plot) return;
      const tops = (): number => columns.query.top() + columns.key.top();
      const before = tops();
      for (const side of SIDES) columns[side].scrollTo(columns[side].top() + event.deltaY);
      if (tops() !== before) event.preventDefault();
    },
  });
  keyboard(
    plot,
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
        if (cell) pin(cell);
      },
    },
    KEYS,
  );
  on(several, signal, {
    click() {
      const { head, source } = ctx.resolved();
      keep({ heads: options().heads ? null : [typeof head === "number" ? head : (source.heads?.[0] ?? 0)] });
    },
  });
  onResize(plot, signal, (box) => {
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
    const all: HeadKey[] = source.heads ?? ["-"];
    // If only one head is shown, linked views show it as well.
    const current = selection.get("head");
    if (alone && changed.has("head") && all.includes(current) && !heads.includes(current)) {
      keep({ heads: [current as number] });
    }
    const chosen = options().heads;
    if (!source.heads) heads = all;
    else heads = chosen ? all.filter((head) => chosen.includes(head as number)) : [ctx.resolved().head];
    if (!apartColour || changed.has("theme")) apartColour = getComputedStyle(root).getPropertyValue("--aw-apart");
    between.choose((options().between as Between | undefined) ?? "all");
    if (changed.has("options") || changed.has("header")) numbers.renew();
    if (width > 0) layOut(query, key);
    if (pairs) numbers.gather(heads, pairs);
    showOther();
    words(query, key);
    if (changed.has("pinned")) followPin();
    const pins = ctx.pins();
    const several = pins.length > 1 ? pins : [];
    for (const side of SIDES) {
      const tokens = several.flatMap((cell) => (cell[side] < 0 ? [] : [cell[side]]));
      columns[side].choose(tokens, ctx.span(side));
    }
    point();
  }
  return update;
});

const NOTHING: ReadonlySet<Change> = new Set();
