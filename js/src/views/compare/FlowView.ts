/**
 * Tokens by layers, with the input at the bottom: edges lead from a token down to the tokens it is made of. The hovered
 * or pinned token shows where its mass comes from.
 */

import { assign, createWatch, h, keyboard, on, setChildren, setFlag, setText, watchWidth } from "../../dom.ts";
import type { Tile } from "../../wire/tile.ts";
import { nameOf } from "../base/cellValues.ts";
import { navigation, plural } from "../base/navigation.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { createFigure, type Spot } from "./flow/figure.ts";
import { everyEdge, type Flow, flowOf, leastAt, placeOf, type Step, stepOf } from "./flow/mass.ts";
import { drawBars, drawDots, drawEdges, erased, type Inks, inksOf } from "./flow/paint.ts";
import { counted, countWords, KEYS, originWords, percent, strongestWords } from "./flow/words.ts";

/** The largest number of edges drawn. */
const BUDGET = 1000;

export const renderFlowView = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const heading = createHeading(ctx);
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.0025",
    value: String(placeOf(0.04)),
    "aria-label": "smallest share of the mass that an edge carries",
  });
  const least = h("output");
  const figure = createFigure();
  const { plot, grid } = figure;
  const readout = createReadout();
  const counts = h("div.note");
  let width = 0;
  const [isLaidOut, isInked] = [createWatch(), createWatch()];
  let inks: Inks;
  let steps: Step[] = [];
  let read: (Tile | undefined)[] = [];
  let every: Flow | null = null;
  let everyFor = "";
  let spot: Spot | null = null;
  let chosenLevel = -1; // level of the pinned token; -1: the last
  let frame = 0;

  root.classList.add("aw-flow");
  root.role = "group";
  setChildren(
    root,
    ...heading.elements,
    h("div.row", h("label.field", "edges of at least", slider, least, "of the mass")),
    figure.element,
    ...readout.elements,
    counts,
  );

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
      steps = (layerTiles as Tile[]).map((tile) => stepOf((row, col) => tile.value(row, col), count));
      everyFor = "";
    }
    if (missing) steps = [];
    return missing;
  };

  const layout = (): void => {
    const source = ctx.source();
    const axis = ctx.axisOf(source.key);
    if (!isLaidOut(source, axis, width, ctx.options)) return;
    const names = Array.from({ length: levels() + 1 }, (_, i) => levelName(levels() - i));
    if (figure.layout(names, axis, width)) everyFor = "";
  };

  /** The picture of all tokens: drawn once for each threshold and theme. */
  const paintBase = (): void => {
    const name = [atLeast(), ctx.theme].join("|");
    if (name === everyFor || !steps.length) return;
    everyFor = name;
    every = everyEdge(steps, atLeast(), BUDGET);
    const pen = erased(figure.base);
    if (!pen) return;
    drawEdges(pen, grid, every.edges, inks, 0.9);
    pen.globalAlpha = 0.5;
    pen.fillStyle = inks.text;
    drawDots(pen, grid, levels(), tokens(), () => Math.min(1.5, grid.cell / 5));
    pen.globalAlpha = 1;
  };

  /** The followed token: under the pointer here or in a linked view, or pinned. */
  const followed = (): Spot | null => {
    if (spot) return spot;
    const level = chosenLevel > 0 && chosenLevel <= levels() ? chosenLevel : levels();
    const over = ctx.cell("hover");
    if (over && over.query >= 0) return { level, token: over.query };
    const token = pinnedQuery(ctx);
    return token === null ? null : { level, token };
  };

  const paintFront = (): void => {
    const pen = erased(figure.front);
    const at = followed();
    const { source, layer } = ctx.resolved();
    figure.follow(at, source.layers.indexOf(layer), ctx.cell("hover")?.key, pinnedQuery(ctx) ?? undefined);
    if (!pen || !steps.length) return;
    if (!at) {
      if (every) say(null, every);
      return;
    }
    const smallest = atLeast();
    const flow = flowOf(steps, at.level, at.token, smallest, BUDGET);
    drawEdges(pen, grid, flow.edges, inks, 1);
    const most = Math.min(5, Math.max(2, grid.cell / 3));
    pen.fillStyle = inks.text;
    drawDots(pen, grid, levels(), tokens(), (level, token) => {
      const mass = flow.masses[level]?.[token] ?? 0;
      return mass >= smallest / 4 ? Math.max(1, most * Math.sqrt(mass)) : 0;
    });
    pen.fillStyle = inks.edge;
    drawBars(pen, grid, flow.masses[0] ?? new Float64Array());
    say(at, flow);
  };

  const say = (at: Spot | null, flow: Flow): void => {
    setText(counts, countWords(flow, atLeast(), BUDGET, at !== null));
    const words = at
      ? originWords(at, flow.masses[0] ?? [], named, levelName)
      : strongestWords(flow.edges, named, levelName);
    if (at) readout.show(words, root.contains(document.activeElement) || at === spot);
    else readout.show(`Hover a token to follow it to the input, click to pin it. ${words}`, false);
    assign(plot, { ariaLabel: `${words} ${KEYS}` });
  };

  const draw = (): void => {
    const source = ctx.source();
    const title = heading.show(
      `${counted(source.layers.length, "layer")} · ${plural(source.unit)}, input at the bottom`,
    );
    assign(root, { ariaLabel: `${title}: tokens by layers` });
    setText(least, percent(atLeast()));
    const missing = collect();
    layout();
    setFlag(plot, "data-stale", missing > 0);
    if (missing) {
      const why = source.layers.map((layer) => tiles.failure(source.id, layer, "-")).find(Boolean);
      readout.show(why || tiles.status().message || `fetching ${missing} layers …`, Boolean(why));
      return;
    }
    if (width <= 0) return;
    // Reading the page's colour forces layout: done once per theme.
    if (isInked(ctx.theme)) inks = inksOf(ctx.theme, root);
    paintBase();
    paintFront();
  };
  /** At most once per frame: pointers and sliders move faster. */
  const soon = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      if (!signal.aborted) draw();
    });
  };

  const hover = (at: Spot | null): void => {
    if (at?.level === spot?.level && at?.token === spot?.token) return;
    spot = at;
    const { unit } = ctx.source();
    const cellOver = at && (at.level ? { unit, query: at.token, key: -1 } : { unit, query: -1, key: at.token });
    selection.hover(cellOver);
    soon();
  };
  const pin = ({ level, token }: Spot): void => {
    const { unit, layers } = ctx.source();
    const again = pinnedQuery(ctx) === token && (chosenLevel < 0 ? levels() : chosenLevel) === level;
    chosenLevel = again || level === 0 ? -1 : level;
    selection.pin(again ? null : { unit, query: token, key: -1 });
    if (!again && level > 0) selection.set({ layer: layers[level - 1] as number });
    soon();
  };
  const step = (up: number, along: number) => (): void => {
    const at = spot ?? followed() ?? { level: levels(), token: 0 };
    const moved = spot || followed() ? { level: at.level + up, token: at.token + along } : at;
    const to = {
      level: Math.max(0, Math.min(levels(), moved.level)),
      token: Math.max(0, Math.min(tokens() - 1, moved.token)),
    };
    hover(to);
    figure.reach(to.token);
  };
  const choose = (): void => {
    const at = spot ?? followed();
    if (at) pin(at);
  };
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
  on(slider, signal, { input: soon });
  watchWidth(root, signal, (now) => {
    width = now;
    draw();
  });
  return (changed) => {
    if (only(changed, "hover")) soon();
    else draw();
  };
});
