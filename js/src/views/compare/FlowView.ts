/**
 * Tokens by layers, with the input at the bottom: edges lead from a token down to the tokens it is made of. One token is
 * followed down to the input: the hovered one, the pinned one, or at first the last that is not special.
 */

import { assign, createWatch, h, keyboard, on, onResize, setText } from "../../dom.ts";
import { ByteLru } from "../../wire/lru.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { createChosen, drawOnColumns } from "../base/chosen.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { pickAlong } from "../base/gestures.ts";
import { failed, type Missing } from "../base/missing.ts";
import { navigation } from "../base/navigation.ts";
import { openedAt } from "../base/opening.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createUnitControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { largestOf } from "../text/rowValues.ts";
import { createFigure, type Spot } from "./flow/figure.ts";
import { everyEdge, type Flow, flowOf, leastAt, placeOf, type Step, stepOf } from "./flow/mass.ts";
import { drawBars, drawDots, drawEdges, erased, inksOf } from "./flow/paint.ts";
import { countWords, KEYS, originWords, outsideWords, percent } from "./flow/words.ts";

/** The largest number of edges drawn. */
const BUDGET = 1000;
/** Bytes of followed tokens that are kept. */
const KEPT = 2 ** 22;

export const renderFlowView = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const units = createUnitControl(ctx, signal);
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.0025",
    value: String(placeOf(0.04)),
    "aria-label": "smallest share of the mass that an edge carries",
  });
  const least = h("output");
  const figure = createFigure(signal, () => sayOutside());
  const { plot, grid } = figure;
  const chosen = createChosen(figure.front);
  const [earlier, later] = [h("span"), h("span")];
  const counts = h("span.note");
  const pane = h("div.flow-pane", figure.element);
  const copy = createCopyButton(ctx, signal, () => {
    const at = pinnedSpot();
    return at && at.level > 0 && steps.length
      ? {
          of: "share",
          query: at.token,
          key: origin(at),
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
  const { readout } = frame;
  let [width, height] = [0, 0];
  const [isLaidOut, isOther] = [createWatch(), createWatch()];
  let layouts = 0;
  let steps: Step[] = [];
  let flows = new ByteLru<Flow>(KEPT);
  let read: (Tile | undefined)[] = [];
  let masses: ArrayLike<number> = [];
  let everyFor = "";
  let spot: Spot | null = null;
  let chosenLevel = -1; // level of the pinned token; -1: the last
  let nextDraw = 0;
  let isDue = false; // whether the next draw is of everything
  let reached = "";

  root.classList.add("aw-flow");
  root.role = "group";
  const tokens = (): number => ctx.axisOf(ctx.source().key).labels.length;
  const levels = (): number => ctx.source().layers.length;
  const named = (token: number): string => nameOf(ctx, ctx.source().key, token);
  const levelName = (level: number): string =>
    level === 0 ? "input" : `layer ${ctx.layerName(ctx.source().layers[level - 1] as number)}`;
  const atLeast = (): number => leastAt(Number(slider.value));

  /** The loaded matrices; the missing ones are requested. */
  const collect = (): number => {
    const { source, head } = ctx.resolved();
    const layerTiles = source.layers.map((layer) => {
      const tile = tiles.get(source.id, layer, head);
      if (!tile) tiles.request(source.id, layer, head, `flow ${layer}`);
      return tile;
    });
    const missing = layerTiles.filter((tile) => !tile).length;
    if (missing === 0 && layerTiles.some((tile, i) => tile !== read[i])) {
      read = layerTiles;
      const count = tokens();
      steps = (layerTiles as Tile[]).map((tile) => stepOf((row, col) => tile.value(row, col) || 0, count));
      flows = new ByteLru<Flow>(KEPT);
      everyFor = "";
    }
    if (missing) steps = read = [];
    return missing;
  };

  const layout = (): void => {
    const source = ctx.source();
    const axis = ctx.axisOf(source.key);
    if (!isLaidOut(source, axis, width, height, ctx.options)) return;
    const names = Array.from({ length: levels() + 1 }, (_, i) => levelName(levels() - i));
    if (!figure.layout(names, axis, width, height)) return;
    layouts += 1;
    everyFor = reached = "";
  };

  /** The picture of all tokens: drawn once for each threshold and theme. */
  const paintBase = (): void => {
    const name = [atLeast(), ctx.theme].join("|");
    if (name === everyFor || !steps.length) return;
    everyFor = name;
    const { edges } = everyEdge(steps, atLeast(), BUDGET);
    const pen = erased(figure.base);
    const inks = inksOf(ctx, root);
    if (!pen) return;
    drawEdges(pen, grid, edges, inks, 0.9, special());
    pen.globalAlpha = 0.5;
    pen.fillStyle = inks.text;
    drawDots(pen, grid, levels(), tokens(), () => Math.min(1.5, grid.cell / 5));
    pen.globalAlpha = 1;
  };

  const special = (): readonly number[] => ctx.axisOf(ctx.source().key).special;
  /** The pinned token, else that at which the maps of the text open. */
  const restingSpot = (): Spot => {
    const level = chosenLevel > 0 && chosenLevel <= levels() ? chosenLevel : levels();
    return { level, token: pinnedQuery(ctx) ?? openedAt(ctx, ctx.source()) };
  };
  const pinnedSpot = (): Spot | null => (pinnedQuery(ctx) === null ? null : restingSpot());
  /** The followed token: under the pointer here or in a linked view, or the one that rests. */
  const followed = (): Spot => {
    if (spot) return spot;
    const over = ctx.cell("hover");
    const resting = restingSpot();
    return over && over.query >= 0 ? { ...resting, token: over.query } : resting;
  };
  const flowAt = ({ level, token }: Spot): Flow => {
    const name = [level, token, atLeast()].join();
    let flow = flows.get(name);
    if (!flow) {
      flow = flowOf(steps, level, token, atLeast(), BUDGET);
      flows.set(name, flow, 8 * tokens() * (level + 1) + 64 * flow.edges.length);
    }
    return flow;
  };
  /** The input token that is named first: the pinned key, else the strongest. */
  const origin = (at: Spot): number => {
    const key = ctx.cell("pinned")?.key ?? -1;
    return key >= 0 && key < tokens() ? key : (largestOf(flowAt(at).masses[0] ?? [], 1)[0] ?? 0);
  };

  /** What reaches the followed token: drawn only when it differs. */
  const drawFlow = (flow: Flow): void => {
    if (!isOther(flow, ctx.theme, layouts)) return;
    const pen = erased(figure.front);
    const inks = inksOf(ctx, root);
    if (!pen) return;
    const apart = special();
    const smallest = atLeast();
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
      drawDots(pen, grid, levels(), tokens(), (level, token) =>
        Boolean(apart[token]) === kind ? sizeOf(level, token) : 0,
      );
    }
    drawBars(pen, grid, flow.masses[0] ?? new Float64Array(), inks, apart);
    setText(counts, countWords(flow, smallest));
  };

  /** Runs on every pointer move. */
  const paintFront = (): void => {
    const at = followed();
    const { source, layer } = ctx.resolved();
    const pinned = pinnedQuery(ctx) ?? undefined;
    if (steps.length) drawFlow(flowAt(at));
    figure.follow(at, source.layers.indexOf(layer), spot?.level === 0 ? spot.token : ctx.cell("hover")?.key, pinned);
    if (!steps.length) return;
    masses = flowAt(at).masses[0] ?? [];
    const first = spot || !pinnedSpot() ? (largestOf(masses, 1)[0] ?? 0) : origin(at);
    const words = originWords(at, masses, first, named, levelName);
    readout.show(words, root.contains(document.activeElement) || at === spot);
    assign(plot, { ariaLabel: `${words} ${KEYS}` });
    // The followed token comes into sight, unless the reader scrolled away from it.
    const wanted = spot ? reached : String(at.token);
    if (wanted !== reached) figure.reach(at.token);
    reached = wanted;
    sayOutside();
  };
  const sayOutside = (): void => {
    const [before, after] = outsideWords(figure.window(), masses, tokens());
    setText(earlier, before && `‹ ${before}`);
    setText(later, after && `${after} ›`);
  };

  const lacking = ({ id, layers }: Source, missing: number): Missing => {
    const why = layers.map((layer) => tiles.failure(id, layer, "-")).find(Boolean);
    if (why) return failed("flow", why);
    const { state, message } = tiles.status();
    if (state === "no-kernel") return failed("flow", message);
    const job = { text: "fetching layers", done: layers.length - missing, total: layers.length };
    return { kind: "awaited", words: job.text, job };
  };
  const draw = (): void => {
    const source = ctx.source();
    isDue = false;
    units.show();
    const title = frame.show("");
    assign(root, { ariaLabel: `${title}: tokens by layers` });
    setText(least, percent(atLeast()));
    const missing = collect();
    layout();
    frame.lacks(missing ? lacking(source, missing) : null);
    if (missing) return;
    copy.show();
    if (width <= 0) return;
    paintBase();
    paintFront();
    drawOnColumns(chosen, ctx, "query", figure.cells());
  };
  /** At most once per frame: pointers and sliders move faster. Without `all`, only the followed token is drawn. */
  const soon = (all: boolean): void => {
    isDue ||= all;
    cancelAnimationFrame(nextDraw);
    nextDraw = requestAnimationFrame(() => {
      if (signal.aborted) return;
      if (isDue || !steps.length || width <= 0) draw();
      else paintFront();
    });
  };

  const hover = (at: Spot | null): void => {
    if (at?.level === spot?.level && at?.token === spot?.token) return;
    spot = at;
    const { unit } = ctx.source();
    const cellOver = at && (at.level ? { unit, query: at.token, key: -1 } : { unit, query: -1, key: at.token });
    selection.hover(cellOver);
    soon(false);
  };
  const pin = ({ level, token }: Spot): void => {
    const { unit, layers } = ctx.source();
    const again = pinnedQuery(ctx) === token && (chosenLevel < 0 ? levels() : chosenLevel) === level;
    chosenLevel = again || level === 0 ? -1 : level;
    selection.pin(again ? null : { unit, query: token, key: -1 });
    if (!again && level > 0) selection.set({ layer: layers[level - 1] as number });
    soon(true);
  };
  const step = (up: number, along: number) => (): void => {
    const at = followed();
    const to = {
      level: Math.max(0, Math.min(levels(), at.level + up)),
      token: Math.max(0, Math.min(tokens() - 1, at.token + along)),
    };
    hover(to);
    figure.reach(to.token);
  };
  const choose = (): void => {
    pin(followed());
  };
  pickAlong(ctx, plot, figure.picture, "cols", "query", signal, (query) => ({
    unit: ctx.source().unit,
    query,
    key: -1,
  }));
  on(plot, signal, {
    pointermove: (event) => hover(figure.find(event)),
    pointerleave: () => hover(null),
    blur: () => hover(null),
    click(event) {
      const at = figure.find(event);
      if (at) pin(at);
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowUp: step(1, 0),
    ArrowDown: step(-1, 0),
    ArrowLeft: step(0, -1),
    ArrowRight: step(0, 1),
    Home: step(0, -Infinity),
    End: step(0, Infinity),
    Enter: choose,
    " ": choose,
    Escape() {
      hover(null);
      selection.clear();
    },
  });
  on(slider, signal, { input: () => soon(true) });
  onResize(pane, signal, (box) => {
    [width, height] = [Math.floor(box.width), Math.floor(box.height)];
    draw();
  });
  return (changed) => {
    if (only(changed, "hover")) soon(false);
    else draw();
  };
});
