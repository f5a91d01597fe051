/**
 * Tokens by layers, with the input at the bottom: edges lead from a token down to the tokens it is made of. A token is
 * followed down to the input: the hovered token, the pinned token, or at first the last that is not special.
 *
 * `collect` reads the layers that have arrived, `layout` arranges them, `paintBase` draws all edges behind, and
 * `paintFront` those of the followed token; `soon` draws at most once a frame.
 */

import type { ViewContext } from "../../context.ts";
import { assign, createWatch, h, keyboard, on, onResize, setText } from "../../dom.ts";
import { ByteLru } from "../../wire/lru.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { type Chosen, createChosen, drawOnColumns } from "../base/chosen.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { pickAlong } from "../base/gestures.ts";
import { failed, type Missing } from "../base/missing.ts";
import { navigation } from "../base/navigation.ts";
import { openedAt } from "../base/opening.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { type Control, createUnitControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { largestOf } from "../text/rowValues.ts";
import { createFigure, type Figure, type Spot } from "./flow/figure.ts";
import { everyEdge, type Flow, flowOf, leastAt, positionOf, type Step, stepOf } from "./flow/mass.ts";
import { drawBars, drawDots, drawEdges, erased, inksOf } from "./flow/paint.ts";
import { countWords, KEYS, originWords, outsideWords, percent } from "./flow/words.ts";

/** The largest number of edges drawn. */
const BUDGET = 1000;
/** Bytes of cached flows. */
const CACHE_BYTES = 2 ** 22;

/** The elements of the view, and the state that they show. */
interface FlowState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly units: Control;
  readonly slider: HTMLInputElement;
  readonly least: HTMLOutputElement;
  readonly figure: Figure;
  readonly chosen: Chosen;
  readonly earlier: HTMLSpanElement;
  readonly later: HTMLSpanElement;
  readonly counts: HTMLSpanElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
  readonly isLaidOut: (...values: unknown[]) => boolean;
  readonly isOther: (...values: unknown[]) => boolean;
  /** Counts layouts: flows of an earlier layout are drawn again. */
  layouts: number;
  /** The steps between levels, from the lowest. */
  steps: Step[];
  /** Flows by the query, the least weight and the layout. */
  flows: ByteLru<Flow>;
  /** The tiles that `flows` and `masses` were computed from. */
  read: (Tile | undefined)[];
  /** The share of the tokens' sources that each cell carries. */
  masses: ArrayLike<number>;
  /** The state of the canvas behind the chosen flow. */
  everyFor: string;
  /** The cell under the pointer. */
  spot: Spot | null;
  /** The level of the last click; the highest level at first. */
  chosenLevel: number;
  /** The requested frame, and whether it draws. */
  nextDraw: number;
  isDue: boolean;
  /** The last readout about the levels that a layer reaches. */
  reached: string;
}

export const renderFlowView = view((ctx, root, signal) => {
  const units = createUnitControl(ctx, signal);
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.0025",
    value: String(positionOf(0.04)),
    "aria-label": "smallest share of the mass that an edge carries",
  });
  const least = h("output");
  const figure = createFigure(signal, () => sayOutside(state));
  const chosen = createChosen(figure.front);
  const [earlier, later] = [h("span"), h("span")];
  const counts = h("span.note");
  const pane = h("div.flow-pane", figure.element);
  const copy = createCopyButton(ctx, signal, () => {
    const at = pinnedSpot(state);
    return at && at.level > 0 && state.steps.length
      ? {
          of: "share",
          query: at.token,
          key: origin(state, at),
          layer: ctx.source().layers[at.level - 1],
          unit: ctx.source().unit,
        }
      : null;
  });
  const frame = createFrame(ctx, root, {
    controls: [...units.elements, h("label.group.flow-least", "edges of at least", slider, least)],
    legend: counts,
    body: [pane, h("div.flow-outside", earlier, later)],
    skeleton: "chart",
    hint: "Click a token to follow where it comes from.",
    actions: [copy.element],
  });
  const [isLaidOut, isOther] = [createWatch(), createWatch()];

  const state: FlowState = {
    ctx,
    root,
    signal,
    units,
    slider,
    least,
    figure,
    chosen,
    earlier,
    later,
    counts,
    copy,
    frame,
    width: 0,
    height: 0,
    isLaidOut,
    isOther,
    layouts: 0,
    steps: [],
    flows: new ByteLru<Flow>(CACHE_BYTES),
    read: [],
    masses: [],
    everyFor: "",
    spot: null,
    chosenLevel: -1,
    nextDraw: 0,
    isDue: false,
    reached: "",
  };
  listen(state, pane);
  return (changed) => {
    if (only(changed, "hover")) soon(state, false);
    else draw(state);
  };
});

function listen(state: FlowState, pane: HTMLDivElement): void {
  const { ctx, signal, slider, figure, root } = state;
  const { selection } = ctx;
  const { plot } = figure;

  root.classList.add("aw-flow");
  root.role = "group";
  pickAlong(ctx, plot, figure.picture, "cols", "query", signal, (query) => ({
    unit: ctx.source().unit,
    query,
    key: -1,
  }));
  on(plot, signal, {
    pointermove: (event) => hover(state, figure.find(event)),
    pointerleave: () => hover(state, null),
    blur: () => hover(state, null),
    click(event) {
      const at = figure.find(event);
      if (at) pin(state, at);
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowUp: step(state, 1, 0),
    ArrowDown: step(state, -1, 0),
    ArrowLeft: step(state, 0, -1),
    ArrowRight: step(state, 0, 1),
    Home: step(state, 0, -Infinity),
    End: step(state, 0, Infinity),
    Enter: () => choose(state),
    " ": () => choose(state),
    Escape() {
      hover(state, null);
      selection.clear();
    },
  });
  on(slider, signal, { input: () => soon(state, true) });
  onResize(pane, signal, (box) => {
    [state.width, state.height] = [Math.floor(box.width), Math.floor(box.height)];
    draw(state);
  });
}

function tokens(ctx: ViewContext): number {
  return ctx.axisOf(ctx.source().key).labels.length;
}

function levels(ctx: ViewContext): number {
  return ctx.source().layers.length;
}

function named(ctx: ViewContext, token: number): string {
  return nameOf(ctx, ctx.source().key, token);
}

function levelName(ctx: ViewContext, level: number): string {
  return level === 0 ? "input" : `layer ${ctx.layerName(ctx.source().layers[level - 1] as number)}`;
}

function atLeast(state: FlowState): number {
  return leastAt(Number(state.slider.value));
}

/** Read the loaded matrices; missing matrices are requested. */
function collect(state: FlowState): number {
  const { tiles } = state.ctx;
  const { source, head } = state.ctx.resolved();
  const layerTiles = source.layers.map((layer) => {
    const tile = tiles.get(source.id, layer, head);
    if (!tile) tiles.request(source.id, layer, head, `flow ${layer}`);
    return tile;
  });
  const missing = layerTiles.filter((tile) => !tile).length;
  if (missing === 0 && layerTiles.some((tile, i) => tile !== state.read[i])) {
    state.read = layerTiles;
    const count = tokens(state.ctx);
    state.steps = (layerTiles as Tile[]).map((tile) => stepOf((row, col) => tile.value(row, col) || 0, count));
    state.flows = new ByteLru<Flow>(CACHE_BYTES);
    state.everyFor = "";
  }
  if (missing) state.steps = state.read = [];
  return missing;
}

function layout(state: FlowState): void {
  const { ctx, width, height } = state;
  const source = ctx.source();
  const axis = ctx.axisOf(source.key);
  if (!state.isLaidOut(source, axis, width, height, ctx.options)) return;
  const names = Array.from({ length: levels(ctx) + 1 }, (_, i) => levelName(ctx, levels(ctx) - i));
  if (!state.figure.layout(names, axis, width, height)) return;
  state.layouts += 1;
  state.everyFor = state.reached = "";
}

/** The picture of all tokens: drawn once for each threshold and theme. */
function paintBase(state: FlowState): void {
  const { ctx, steps } = state;
  const { grid } = state.figure;
  const name = [atLeast(state), ctx.theme].join("|");
  if (name === state.everyFor || !steps.length) return;
  state.everyFor = name;
  const { edges } = everyEdge(steps, atLeast(state), BUDGET);
  const pen = erased(state.figure.base);
  const inks = inksOf(ctx, state.root);
  if (!pen) return;
  drawEdges(pen, grid, edges, inks, 0.9, special(ctx));
  pen.globalAlpha = 0.5;
  pen.fillStyle = inks.text;
  drawDots(pen, grid, levels(ctx), tokens(ctx), () => Math.min(1.5, grid.cell / 5));
  pen.globalAlpha = 1;
}

function special(ctx: ViewContext): readonly number[] {
  return ctx.axisOf(ctx.source().key).special;
}

/** The pinned token, else that at which the maps of the text open. */
function restingSpot(state: FlowState): Spot {
  const { ctx, chosenLevel } = state;
  const level = chosenLevel > 0 && chosenLevel <= levels(ctx) ? chosenLevel : levels(ctx);
  return { level, token: pinnedQuery(ctx) ?? openedAt(ctx, ctx.source()) };
}

function pinnedSpot(state: FlowState): Spot | null {
  return pinnedQuery(state.ctx) === null ? null : restingSpot(state);
}

/** The followed token: the token under the pointer here or in a linked view, else the resting token. */
function followed(state: FlowState): Spot {
  const { spot } = state;
  if (spot) return spot;
  const over = state.ctx.cell("hover");
  const resting = restingSpot(state);
  return over && over.query >= 0 ? { ...resting, token: over.query } : resting;
}

function flowAt(state: FlowState, { level, token }: Spot): Flow {
  const { flows } = state;
  const name = [level, token, atLeast(state)].join();
  let flow = flows.get(name);
  if (!flow) {
    flow = flowOf(state.steps, level, token, atLeast(state), BUDGET);
    flows.set(name, flow, 8 * tokens(state.ctx) * (level + 1) + 64 * flow.edges.length);
  }
  return flow;
}

/** The input token that is named first: the pinned key, else the strongest. */
function origin(state: FlowState, at: Spot): number {
  const key = state.ctx.cell("pinned")?.key ?? -1;
  return key >= 0 && key < tokens(state.ctx) ? key : (largestOf(flowAt(state, at).masses[0] ?? [], 1)[0] ?? 0);
}

/** The flow into the followed token: drawn only when it differs. */
function drawFlow(state: FlowState, flow: Flow): void {
  const { ctx } = state;
  const { grid } = state.figure;
  if (!state.isOther(flow, ctx.theme, state.layouts)) return;
  const pen = erased(state.figure.front);
  const inks = inksOf(ctx, state.root);
  if (!pen) return;
  const apart = special(ctx);
  const smallest = atLeast(state);
  drawEdges(pen, grid, flow.edges, inks, 1, apart);
  const most = Math.min(5, Math.max(2, grid.cell / 3));
  const sizeOf = (level: number, token: number): number => {
    const mass = flow.masses[level]?.[token] ?? 0;
    return mass >= smallest / 4 ? Math.max(1, most * Math.sqrt(mass)) : 0;
  };
  for (const [ink, kind] of [
    [inks.text, false],
    [inks.apart, true],
  ] as const) {
    pen.fillStyle = ink;
    drawDots(pen, grid, levels(ctx), tokens(ctx), (level, token) =>
      Boolean(apart[token]) === kind ? sizeOf(level, token) : 0,
    );
  }
  drawBars(pen, grid, flow.masses[0] ?? new Float64Array(), inks, apart);
  setText(state.counts, countWords(flow, smallest));
}

/** Runs on every pointer move. */
function paintFront(state: FlowState): void {
  const { ctx, figure, steps, spot } = state;
  const at = followed(state);
  const { source, layer } = ctx.resolved();
  const pinned = pinnedQuery(ctx) ?? undefined;
  if (steps.length) drawFlow(state, flowAt(state, at));
  figure.follow(at, source.layers.indexOf(layer), spot?.level === 0 ? spot.token : ctx.cell("hover")?.key, pinned);
  if (!steps.length) return;
  state.masses = flowAt(state, at).masses[0] ?? [];
  const first = spot || !pinnedSpot(state) ? (largestOf(state.masses, 1)[0] ?? 0) : origin(state, at);
  const words = originWords(
    at,
    state.masses,
    first,
    (token) => named(ctx, token),
    (level) => levelName(ctx, level),
  );
  state.frame.readout.show(words, state.root.contains(document.activeElement) || at === spot);
  assign(figure.plot, { ariaLabel: `${words} ${KEYS}` });
  // The followed token scrolls into view, unless the reader scrolled away from it.
  const reached = spot ? state.reached : String(at.token);
  if (reached !== state.reached) figure.reach(at.token);
  state.reached = reached;
  sayOutside(state);
}

function sayOutside(state: FlowState): void {
  const [before, after] = outsideWords(state.figure.window(), state.masses, tokens(state.ctx));
  setText(state.earlier, before && `‹ ${before}`);
  setText(state.later, after && `${after} ›`);
}

function lacking(ctx: ViewContext, { id, layers }: Source, missing: number): Missing {
  const why = layers.map((layer) => ctx.tiles.failure(id, layer, "-")).find(Boolean);
  if (why) return failed("flow", why);
  const { state: kernel, message } = ctx.tiles.status();
  if (kernel === "no-kernel") return failed("flow", message);
  const job = { text: "fetching layers", done: layers.length - missing, total: layers.length };
  return { kind: "awaited", words: job.text, job };
}

function draw(state: FlowState): void {
  const { ctx, frame } = state;
  const source = ctx.source();
  state.isDue = false;
  state.units.show();
  const title = frame.show("");
  assign(state.root, { ariaLabel: `${title}: tokens by layers` });
  setText(state.least, percent(atLeast(state)));
  const missing = collect(state);
  layout(state);
  frame.lacks(missing ? lacking(ctx, source, missing) : null);
  if (missing) return;
  state.copy.show();
  if (state.width <= 0) return;
  paintBase(state);
  paintFront(state);
  drawOnColumns(state.chosen, ctx, "query", state.figure.cells());
}

/** At most once per frame: pointers and sliders move faster. Without `all`, only the followed token is drawn. */
function soon(state: FlowState, all: boolean): void {
  state.isDue ||= all;
  cancelAnimationFrame(state.nextDraw);
  state.nextDraw = requestAnimationFrame(() => {
    if (state.signal.aborted) return;
    if (state.isDue || !state.steps.length || state.width <= 0) draw(state);
    else paintFront(state);
  });
}

function hover(state: FlowState, at: Spot | null): void {
  const { ctx } = state;
  if (at?.level === state.spot?.level && at?.token === state.spot?.token) return;
  state.spot = at;
  const { unit } = ctx.source();
  const cellOver = at && (at.level ? { unit, query: at.token, key: -1 } : { unit, query: -1, key: at.token });
  ctx.selection.hover(cellOver);
  soon(state, false);
}

function pin(state: FlowState, { level, token }: Spot): void {
  const { ctx } = state;
  const { selection } = ctx;
  const { unit, layers } = ctx.source();
  const again = pinnedQuery(ctx) === token && (state.chosenLevel < 0 ? levels(ctx) : state.chosenLevel) === level;
  state.chosenLevel = again || level === 0 ? -1 : level;
  selection.pin(again ? null : { unit, query: token, key: -1 });
  if (!again && level > 0) selection.set({ layer: layers[level - 1] as number });
  soon(state, true);
}

function step(state: FlowState, up: number, along: number): () => void {
  return (): void => {
    const at = followed(state);
    const to = {
      level: Math.max(0, Math.min(levels(state.ctx), at.level + up)),
      token: Math.max(0, Math.min(tokens(state.ctx) - 1, at.token + along)),
    };
    hover(state, to);
    state.figure.reach(to.token);
  };
}

function choose(state: FlowState): void {
  pin(state, followed(state));
}
