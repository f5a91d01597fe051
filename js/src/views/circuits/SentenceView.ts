/**
 * A text as a column of sentences, with arcs at its side from each to those that it depends on. A chosen sentence is
 * highlighted: its arcs stand out, the text is coloured by them, and both sides are listed with their values.
 */

import { colourAt, cssOf, heatMap, inkOn, scalePosition } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, h, type KeyHandlers, keyboard, on, onResize, setChildren, setFlag, shortLabel } from "../../dom.ts";
import { approximately, printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import type { Axis, Cell } from "../../wire/wire.ts";
import { createExactRows, type ExactRows } from "../base/cellValues.ts";
import { type ColourScale, createScale } from "../base/colourScale.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { missingTile } from "../base/missing.ts";
import { moveHead, plural, whereWords } from "../base/navigation.ts";
import { lastContent } from "../base/opening.ts";
import { type Control, createHeadControl, createLayerControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { svg } from "../charts/svg.ts";
import { drawArcs } from "./sentences/arcs.ts";
import { around, type Link, type Links, linksOf, strongest } from "./sentences/links.ts";
import { createSentencePanel } from "./sentences/panel.ts";

interface SentenceOptions extends ViewOptions {
  /** Share of the largest value from which arcs are drawn. */
  least: number;
  /** Sentences that are nearer to each other are left out. */
  distance: number;
}

/** Characters of a sentence that are shown, of more than three lines of text. */
const LONGEST = 400;
/** Smallest width in px with the lists next to the text, and the widths of the arcs. */
const WIDE = 700;
const [ROOM, NARROW] = [116, 64];
/** The position of the weakest arcs on the ramp, so that they are visible on the page. */
const PALEST = 0.3;
const DISTANCES = [1, 2, 4];

/** The elements of the view, and the state that they show. */
interface SentenceState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly controls: Control;
  readonly distances: Menu;
  readonly slider: HTMLInputElement;
  readonly least: HTMLOutputElement;
  readonly scale: ColourScale;
  readonly arcs: SVGElement;
  readonly list: HTMLDivElement;
  readonly pane: HTMLDivElement;
  readonly panel: ReturnType<typeof createSentencePanel>;
  readonly exact: ExactRows;
  readonly copy: CopyButton;
  readonly frame: Frame;
  /** The chosen sentence; it stays chosen while a pair is pinned in the lists. */
  focus: number;
  /** The smallest weight of a link that is drawn. */
  keep: number;
  /** The weights between sentences; null until they arrive. */
  tile: Tile | null;
  /** The dependences between sentences, from `linksFor`. */
  links: Links;
  linksFor: string;
  /** The elements of the sentences. */
  rows: HTMLElement[];
  /** The sentences that the rows were written for. */
  writtenFor: readonly string[] | null;
  /** px of the picture; 0 while it is not visible. */
  width: number;
}

export const renderSentenceView = view((ctx, root, signal) => {
  const controls = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const distances = createMenu("distance", signal, (value) => save(ctx, { distance: Number(value) }));
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.01",
    "aria-label": "smallest arc, as a share of the largest value",
  });
  const least = h("output");
  on(slider, signal, {
    input() {
      least.textContent = percent(slider.valueAsNumber);
      draw(state);
    },
    change: () => save(ctx, { least: slider.valueAsNumber }),
  });
  const scale = createScale();
  const arcs = svg("svg", { "aria-hidden": "true", class: "aw-sentence-arcs" });
  const list = h("div.sentence-list", { role: "listbox", tabindex: "0" });
  const pane = h("div.sentence-pane", arcs as unknown as HTMLElement, list);
  const panel = createSentencePanel(signal, ({ query, key }) => {
    state.keep = state.focus;
    pin(ctx, { unit: ctx.source().unit, query, key });
    reveal(state, query === state.focus ? key : query);
  });
  const exact = createExactRows(ctx, () => point(state));
  const copy = createCopyButton(ctx, signal);
  const frame = createFrame(ctx, root, {
    layout: ".column.flush",
    controls: [...controls.elements, distances.field, h("label.group.sentence-least", "arcs from", slider, least)],
    legend: scale.element,
    body: [h("div.sentence-body.column", pane, panel.element)],
    skeleton: "rows",
    hint: "Click a sentence: what does it depend on?",
    actions: [copy.element],
  });

  const state: SentenceState = {
    ctx,
    root,
    controls,
    distances,
    slider,
    least,
    scale,
    arcs,
    list,
    pane,
    panel,
    exact,
    copy,
    frame,
    focus: -1,
    keep: -1,
    tile: null,
    links: { count: 0, all: [], top: 0 },
    linksFor: "",
    rows: [],
    writtenFor: null,
    width: 0,
  };
  listen(state, signal);
  return (changed) => {
    if (only(changed, "hover")) point(state);
    else update(state);
  };
});

function listen(state: SentenceState, signal: AbortSignal): void {
  const { ctx, list, root } = state;
  const { selection } = ctx;
  const body = root.querySelector(".aw-sentence-body") as HTMLElement;
  root.classList.add("aw-sentences");
  root.role = "group";
  const handlers: KeyHandlers = {
    ArrowUp: () => choose(state, state.focus - 1),
    ArrowDown: () => choose(state, state.focus + 1),
    ArrowLeft: () => follow(state, "on"),
    ArrowRight: () => follow(state, "of"),
    Home: () => choose(state, 0),
    End: () => choose(state, Infinity),
    "[": () => moveHead(ctx, -1),
    "]": () => moveHead(ctx, 1),
    Escape() {
      state.keep = -1;
      selection.clear();
    },
  };
  keyboard(
    list,
    signal,
    handlers,
    "↑ ↓: another sentence · ←: to what it depends on most · →: to what depends most on it · [ ]: head · Esc: let go",
  );
  on(list, signal, {
    click(event) {
      const at = sentenceAt(event);
      if (at < 0) return;
      const pinned = ctx.cell("pinned");
      if (pinned?.query === at && pinned.key < 0) pin(ctx, null);
      else choose(state, at);
    },
    pointermove(event) {
      const at = sentenceAt(event);
      selection.hover(at < 0 ? null : { unit: ctx.source().unit, query: at, key: -1 });
    },
    pointerleave: () => selection.hover(null),
  });
  onResize(body, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === state.width) return;
    state.width = now;
    body.dataset.wide = String(state.width >= WIDE);
    body.style.setProperty("--aw-arcs", `${state.width >= WIDE ? ROOM : NARROW}px`);
    if (state.rows.length && state.tile) {
      point(state);
      reveal(state, state.focus);
    }
  });
}

function options(ctx: ViewContext): SentenceOptions {
  return ctx.options as SentenceOptions;
}

function save(ctx: ViewContext, values: Partial<SentenceOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

function axis(ctx: ViewContext): Axis {
  return ctx.axisOf(ctx.source().query);
}

function name(ctx: ViewContext, sentence: number): string {
  return String(sentence + ctx.options.indexBase);
}

function label(ctx: ViewContext, sentence: number): string {
  return axis(ctx).labels[sentence] ?? "";
}

function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

function unitName(ctx: ViewContext): string {
  return ctx.source().unit;
}

function pin(ctx: ViewContext, cell: Cell | null): void {
  ctx.selection.set({ pinned: cell });
}

function choose(state: SentenceState, sentence: number): void {
  const { rows } = state;
  if (!rows.length) return;
  const at = Math.max(0, Math.min(rows.length - 1, sentence));
  state.keep = -1;
  pin(state.ctx, { unit: state.ctx.source().unit, query: at, key: -1 });
  reveal(state, at);
}

/** Scroll the text, and nothing around it, to a sentence. */
function reveal(state: SentenceState, sentence: number): void {
  const { pane } = state;
  const row = state.rows[sentence];
  if (!row) return;
  const [start, end] = [row.offsetTop, row.offsetTop + row.offsetHeight];
  if (start < pane.scrollTop) pane.scrollTop = start - 8;
  else if (end > pane.scrollTop + pane.clientHeight) pane.scrollTop = end - pane.clientHeight + 8;
}

function follow(state: SentenceState, side: "on" | "of"): void {
  const [link] = around(state.links, state.focus)[side];
  if (link) choose(state, side === "on" ? link.key : link.query);
}

function sentenceAt(event: Event): number {
  return Number((event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i ?? -1);
}

function write(state: SentenceState): void {
  const { labels, special } = axis(state.ctx);
  if (state.writtenFor === labels) return;
  state.writtenFor = labels;
  state.rows = labels.map((text, i) =>
    h(
      "div.sentence-row",
      {
        role: "option",
        id: `aw-sentence-${state.root.id || "view"}-${i}`,
        "data-i": String(i),
        ...(special[i] ? { "data-apart": "" } : {}),
      },
      h("span.sentence-number.fine", name(state.ctx, i)),
      h("span.sentence-text", { dir: "auto" }, shortLabel(text, LONGEST)),
    ),
  );
  setChildren(state.list, ...state.rows);
}

/** The initial sentence: the last, or if it is without an arc, the sentence with the strongest. */
function opening(state: SentenceState): number {
  const last = lastContent(axis(state.ctx));
  const drawn = strongest(state.links, options(state.ctx).least);
  return drawn.some(({ query, key }) => query === last || key === last) ? last : (drawn[0]?.query ?? last);
}

/** Set the chosen sentence: the pinned sentence, else that of the opening. */
function settle(state: SentenceState): void {
  const pinned = state.ctx.cell("pinned");
  if (!pinned) state.keep = -1;
  const at = pinned ? (pinned.query >= 0 ? pinned.query : pinned.key) : -1;
  const isOfFocus = state.keep >= 0 && (pinned?.query === state.keep || pinned?.key === state.keep);
  state.focus = isOfFocus ? state.keep : at >= 0 ? at : opening(state);
  if (!isOfFocus) state.keep = -1;
}

function read(state: SentenceState): boolean {
  const { ctx, frame } = state;
  const { tiles } = ctx;
  const { source, layer, head } = ctx.resolved();
  const { labels, special } = axis(ctx);
  const count = labels.length;
  if (count < 2 || special.filter((is) => !is).length < 2) {
    const units = plural(unitName(ctx));
    frame.lacks({
      kind: "none",
      words: `This text has one ${unitName(ctx)}, and arcs lead between ${units}.`,
      advice: 'Give a longer text, or smaller pieces of this one: unit="word", or spans of tokens.',
    });
    return false;
  }
  state.tile = tiles.get(source.id, layer, head) ?? null;
  if (!state.tile) {
    tiles.request(source.id, layer, head);
    frame.lacks(missingTile(ctx));
    return false;
  }
  frame.lacks(null);
  const { distance } = options(ctx);
  const key = [source.id, layer, head, distance].join();
  if (key !== state.linksFor || state.links.count !== count) {
    state.linksFor = key;
    const shown = state.tile;
    state.links = linksOf((row, col) => shown.value(row, col) || 0, count, distance, special);
  }
  return true;
}

function end(state: SentenceState): number {
  return state.links.top;
}

function colour(state: SentenceState, value: number, palest: number = 0): string {
  return cssOf(shade(state, value, palest));
}

function shade(state: SentenceState, value: number, palest: number): readonly [number, number, number] {
  const { ctx } = state;
  const isSigned = ctx.source().signed;
  const share = scalePosition(Math.abs(value), [0, end(state)], "linear");
  const at = palest + (1 - palest) * share;
  return colourAt(heatMap(isSigned, ctx.theme), isSigned ? 0.5 + (Math.sign(value) * at) / 2 : at);
}

function followed(state: SentenceState): number {
  const over = state.ctx.cell("hover");
  const at = over ? (over.query >= 0 ? over.query : over.key) : -1;
  return at >= 0 && at < state.rows.length ? at : state.focus;
}

function tint(state: SentenceState, sentence: number): void {
  const { on: before, of: after } = around(state.links, sentence);
  const values = new Map<number, number>();
  for (const { query, value } of after) values.set(query, value);
  for (const { key, value } of before) values.set(key, value);
  state.rows.forEach((row, i) => {
    const text = row.lastElementChild as HTMLElement;
    const value = values.get(i) ?? 0;
    const fill = shade(state, value, 0);
    const isPlain = Math.abs(value) < 0.02 * end(state) || i === sentence;
    text.style.background = isPlain ? "" : cssOf(fill);
    text.style.color = isPlain ? "" : inkOn(fill);
    setFlag(row, "data-over", i === sentence && i !== state.focus);
  });
}

function draw(state: SentenceState): void {
  const { rows, width } = state;
  if (width <= 0 || !rows.length || !state.tile) return;
  const arcs = {
    links: strongest(state.links, state.slider.valueAsNumber),
    followed: followed(state),
    middles: rows.map((row) => row.offsetTop + row.offsetHeight / 2),
    width: width >= WIDE ? ROOM : NARROW,
    height: state.list.offsetHeight,
    top: end(state),
    colour: (value: number) => colour(state, value, PALEST),
  };
  drawArcs(state.arcs, arcs);
}

function textOf(state: SentenceState, { query, key, value }: Link): string {
  const { tile } = state;
  const row = query === state.focus ? state.exact(query, state.ctx.cell("pinned") !== null) : undefined;
  const exact = row?.[key];
  if (exact !== undefined && !Number.isNaN(exact)) return printed(exact, true);
  return tile ? tile.text(query, key) : printed(value, false);
}

function list2(state: SentenceState, some: readonly Link[], other: "query" | "key"): string {
  return some
    .slice(0, 3)
    .map((link) => `${name(state.ctx, link[other])} ${textWithSign(state, link)}`)
    .join(", ");
}

function textWithSign(state: SentenceState, link: Link): string {
  const text = textOf(state, link);
  const isExact = link.query === state.focus && state.exact(link.query, false) !== undefined;
  return isExact ? text : approximately(text);
}

function words(state: SentenceState, sentence: number): string {
  const { on: before, of: after } = around(state.links, sentence);
  const start = `${name(state.ctx, sentence)} \u2068“${shortLabel(label(state.ctx, sentence), 40)}”\u2069`;
  const first = before.length ? `depends on ${list2(state, before, "key")}` : "depends on nothing above the threshold";
  const second = after.length
    ? `${list2(state, after, "query")} depend${after.length > 1 ? "" : "s"} on it`
    : "nothing depends on it";
  return `${start} ${first} · ${second}`;
}

function point(state: SentenceState): void {
  const { ctx, root, focus, rows } = state;
  if (!state.tile || !rows.length) return;
  const at = followed(state);
  tint(state, at);
  draw(state);
  rows.forEach((row, i) => {
    row.ariaSelected = String(i === focus);
  });
  const chosen = rows[focus];
  if (chosen) state.list.setAttribute("aria-activedescendant", chosen.id);
  const pinned = ctx.cell("pinned");
  const { on: before, of: after } = around(state.links, focus);
  const { distance } = options(ctx);
  state.panel.show({
    name: (sentence) => name(ctx, sentence),
    label: (sentence) => label(ctx, sentence),
    sentence: focus,
    on: before,
    of: after,
    top: Math.max(...[...before, ...after].map(({ value }) => Math.abs(value))),
    signed: ctx.source().signed,
    text: (at) => textOf(state, at),
    pinned: pinned && pinned.query >= 0 && pinned.key >= 0 ? { ...pinned, value: 0 } : null,
    note:
      distance > 1
        ? `Only ${plural(unitName(ctx))} that are ${distance} or more apart.`
        : "Adjacent sentences always score high: compare pairs at the same distance.",
  });
  state.frame.readout.show(words(state, at), root.contains(root.ownerDocument.activeElement));
}

function update(state: SentenceState): void {
  const { ctx, scale } = state;
  const { layers, heads } = ctx.source();
  const title = state.frame.show(layers.length > 1 || heads ? whereWords(ctx) : "");
  state.root.ariaLabel = `${title}: sentences and what they depend on`;
  state.list.ariaLabel = `${title}: ${plural(unitName(ctx))}`;
  state.controls.show();
  const { distance, least: share } = options(ctx);
  const words = (far: number): string => (far === 1 ? "all distances" : `${far} or more apart`);
  const offered = [...new Set([...DISTANCES, distance])].sort((a, b) => a - b);
  state.distances.offer(
    offered.map((far) => ({ value: String(far), label: words(far) })),
    String(distance),
  );
  assign(state.slider, { value: String(share) });
  state.least.textContent = percent(share);
  write(state);
  const isThere = read(state);
  assign(scale.element, { hidden: !isThere });
  if (!isThere) return;
  const before = state.focus;
  settle(state);
  if (before < 0) requestAnimationFrame(() => reveal(state, state.focus));
  const { source } = ctx.resolved();
  scale.show({
    map: heatMap(source.signed, ctx.theme),
    range: source.signed ? [-end(state), end(state)] : [0, end(state)],
    words: source.title,
  });
  point(state);
  state.copy.show();
}
