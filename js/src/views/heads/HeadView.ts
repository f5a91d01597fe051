/**
 * Heads of a layer as lines between two columns of tokens: what the current token reads, or who reads it, by head;
 * without a current token, the strongest pairs.
 */
import type { Change } from "../../context.ts";
import { atEnd, h, keyboard, on, setChildren, setFlag, setText, shortLabel, watchWidth } from "../../dom.ts";
import type { Axis, Cell, HeadKey, HeadViewOptions } from "../../wire/wire.ts";
import { createCopyButton, pinnedCell } from "../base/copyPython.ts";
import { filterPlace, filtersOf } from "../base/filters.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { headAddress, moveLayer, plural, stacksOf, whereWords } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { renderLayerSlider } from "../maps/LayerSlider.ts";
import { textWidth } from "../maps/labels.ts";
import { createChips } from "./chips.ts";
import { headColour, inkOn, signColours } from "./colours.ts";
import { createColumn } from "./column.ts";
import { createLines } from "./lines.ts";
import { createNumbers, type Token } from "./numbers.ts";
import { createOutOfSight } from "./outOfSight.ts";
import { BETWEEN, type Between, isPair, type Pairs, pairsOf, type Side } from "./pairs.ts";
import { captionWords, edgeWords, pairWords, tokenWords } from "./words.ts";

const BUDGETS = [200, 1000, 3000];
const TALLEST = 560;
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
  const stack = h("select.button", { "aria-label": "stack" });
  const heading = createHeading(ctx, stack, filterPlace(ctx));
  const slider = h("div");
  const everything = h("button.button", { type: "button" }, "all tokens");
  everything.title = "Show lines of all tokens while none is hovered or pinned";
  const choices = BUDGETS.map((most) => h("option", { value: String(most) }, `≤ ${most} lines`));
  const budget = h("select.button", { "aria-label": "most lines" }, ...choices);
  const between = createSegments<Between>("texts", BETWEEN, signal, () => keep({ between: between.value() }));
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
  const names = [h("span"), h("span")] as const;
  const readout = createReadout();
  const caption = h("div.line");
  const copy = createCopyButton(ctx, signal, () => {
    const place = heads.length === 1 ? pinnedCell(ctx) : null;
    return place && { ...place, head: heads[0] };
  });
  const numbers = createNumbers(ctx, signal, () => point());

  let alone = false;
  let overHead = -1;
  let showsAll = true;
  let width = 0;
  let laidOut: unknown[] = [];
  let pairs: Pairs | null = null;
  let heads: HeadKey[] = [];
  let frame = 0;
  let spoken = false;
  let painted = "";
  /** The scroll position that a column got from the other one. */
  const followed = { query: -1, key: -1 };
  const widths = new WeakMap<Axis, number>();

  budget.value = "1000";
  root.classList.add("aw-headview");
  const choose = (shown: (head: number, place: number) => boolean, isAlone = false): void => {
    alone = isAlone;
    const all = ctx.source().heads ?? [];
    const chosen = all.filter(shown);
    keep({ heads: chosen.length < all.length ? chosen : null });
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
  const controls = h("div.row.hv-controls", chips.element, everything, budget, between.element);
  const sides = h("div.hv-sides", { "aria-hidden": "true" }, ...names);
  setChildren(root, ...heading.elements, slider, controls, sides, plot, ...readout.elements, caption, copy.element);
  renderLayerSlider(ctx.child({ title: "" }), slider);

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

  const currentToken = (): Token | null => {
    const pinned = ctx.cell("pinned");
    const cell = ctx.cell("hover") ?? pinned;
    if (!cell) return null;
    const whole = cell.query >= 0 && cell.key >= 0;
    const side = whole && pinned ? pinnedSide(pinned) : cell.query >= 0 ? "query" : "key";
    return { side, index: cell[side], other: cell[opposite(side)] };
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
    return Math.ceil(Math.max(34, Math.min(260, 0.26 * width, widest + 18)));
  };

  const layOut = (query: Axis, key: Axis): void => {
    const { source } = ctx.resolved();
    const layoutState = [query, key, source.causal, width, heads.length, between.value()];
    if (layoutState.every((one, i) => one === laidOut[i])) return;
    laidOut = layoutState;
    pairs = pairsOf(query, key, between.value(), source.causal);
    const count = Math.max(pairs.rows, pairs.cols);
    const row = Math.floor(Math.max(18, Math.min(26, 520 / count)));
    const height = Math.min(count * row, TALLEST);
    const lane = Math.round(Math.min(heads.length < 2 ? 90 : 11 * heads.length, 0.16 * width));
    const [left, right] = [lane + columnWidth(query), lane + columnWidth(key)];
    plot.style.height = `${height}px`;
    root.style.setProperty("--aw-lane", `${lane + 8}px`);
    [names[0].style.width, names[1].style.width] = [`${left}px`, `${right}px`];
    columns.query.layout(query, row, left, height, pairs.queries);
    columns.key.layout(key, row, right, height, pairs.keys);
    lines.layout({ width, height, row, left: left + 2, right: width - right - 2, lane });
    followPin();
  };

  /** Scroll the pinned token into view, and the other column to the same height. */
  const followPin = (): void => {
    const pinned = ctx.cell("pinned");
    if (!pinned) return;
    for (const side of SIDES) columns[side].reveal(pinned[side]);
    for (const side of SIDES) if (pinned[side] < 0) columns[side].scrollTo(columns[opposite(side)].top());
  };

  // ---- pictures and words ----

  const soon = (): void => {
    frame ||= requestAnimationFrame(paint);
  };

  const paint = (): void => {
    frame = 0;
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
      lines.style({
        colours: heads.map((head) => headColour((all as HeadKey[]).indexOf(head), ctx.theme)),
        signs: source.signed ? signColours(ctx.theme, palette) : null,
        mode,
        top: numbers.top(token),
        only: overHead,
      });
      const scroll = { query: columns.query.top(), key: columns.key.top() };
      if (token) lines.look(token, numbers.valuesOf(token.side, token.index).values, scroll);
      else if (showsAll && !numbers.huge()) lines.edges(edges(), scroll);
    }
    say(token);
  };

  const edges = () => numbers.edges(...columns.query.range(), Number(budget.value));

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
    const names = { ctx, source, heads, pairs };
    const all = !token && showsAll && !numbers.huge() && heads.length > 0 ? edges() : null;
    let text = "Hover a token for what it reads, or who reads it; click to pin it.";
    beyond.element.hidden = !token;
    if (heads.length === 0) text = "No head is chosen.";
    else if (token) {
      const values = numbers.valuesOf(token.side, token.index);
      const is = ctx.cell("pinned")?.[token.side] === token.index ? "pinned " : "";
      text = is + (token.other < 0 ? tokenWords : pairWords)(names, token, values);
      beyond.show(values.values, columns[opposite(token.side)].range());
    } else if (all?.shown.length) text = `strongest: ${edgeWords(names, all.shown)}`;
    readout.show(text, spoken || root.contains(document.activeElement));
    const [first, last] = columns.query.range();
    setText(caption, captionWords(names, all, last - first, numbers.huge() ? -1 : numbers.count(), numbers.why()));
  };

  const words = (query: Axis, key: Axis): void => {
    const at = ctx.resolved();
    const { source, layer } = at;
    const kind = source.kind === "attributions" ? ["target", "source"] : ["query", "key"];
    const where = `${whereWords(ctx, { ...at, head: "-" })} · ${plural(source.unit)}, ${kind.join(" → ")}`;
    const title = heading.show(where);
    plot.ariaLabel = `${title}, ${where}. ${KEYS}`;
    const stacks = ctx.options.stack ? [] : stacksOf(ctx.header(), source.method);
    stack.hidden = stacks.length < 2;
    if (stack.childElementCount !== stacks.length) {
      setChildren(stack, ...stacks.map((name) => h("option", { value: name }, name)));
    }
    stack.value = source.stack;
    between.element.hidden = !isPair(query, key);
    names.forEach((el, i) => void setText(el, kind[i] as string));
    everything.ariaPressed = String(showsAll);
    everything.hidden = numbers.huge();
    budget.hidden = numbers.huge() || !showsAll;
    const current = selection.get("head");
    chips.show(
      (source.heads ?? []).map((head, place) => {
        const colour = source.signed ? "" : headColour(place, ctx.theme);
        return {
          name: ctx.headName(head),
          title: `head ${headAddress(ctx, layer, head)}: click shows or hides it, double-click it alone`,
          colour,
          ink: colour && inkOn(colour),
          on: heads.includes(head),
          current: head === current,
        };
      }),
    );
  };

  // ---- input ----

  const goTo = (side: Side, index: number): void => {
    if (!pairs) return;
    const to = Math.max(0, Math.min((side === "query" ? pairs.rows : pairs.cols) - 1, index));
    spoken = true;
    selection.hover(cellOf(side, to));
    columns[side].reveal(to);
  };
  /** The side in which the arrow keys move: in a pair, that of its second token. */
  const cursor = (): { side: Side; index: number } => {
    const token = currentToken();
    if (!token) return { side: "query", index: columns.query.range()[0] - 1 };
    return token.other < 0 ? token : { side: opposite(token.side), index: token.other };
  };
  const step = (by: number) => (): void => goTo(cursor().side, cursor().index + by);
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
  on(everything, signal, {
    click() {
      showsAll = !showsAll;
      update(NOTHING);
    },
  });
  on(budget, signal, { change: soon });
  on(stack, signal, { change: () => selection.set({ stack: stack.value }) });
  watchWidth(root, signal, (now) => {
    width = now;
    update(NOTHING);
  });
  atEnd(signal, () => cancelAnimationFrame(frame));

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
    const chosen = source.heads && options().heads;
    heads = all.filter((head) => !chosen || chosen.includes(head as number));
    between.choose((options().between as Between | undefined) ?? "all");
    if (changed.has("options") || changed.has("header")) numbers.renew();
    if (width > 0) layOut(query, key);
    if (pairs) numbers.gather(heads, pairs);
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
