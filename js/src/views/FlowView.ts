/**
 * Tokens by layers, the input at the bottom: edges lead from a token down to what it is made of. A token under the
 * pointer, or the pinned one, shows where its mass comes from.
 */

import type { Theme, Tile } from "../context.ts";
import { assign, createWatch, density, dress, fill, flag, h, keyboard, on, put, watchWidth } from "../dom.ts";
import { everyEdge, type Flow, flowOf, leastAt, placeOf, type Step, stepOf } from "./flow/followed.ts";
import { createHeading, createReadout, only, view } from "./frame.ts";
import { createLabels, labelRoom } from "./map/labels.ts";
import { pinnedQuery } from "./pinned.ts";
import { nameOf } from "./readout.ts";
import { navigation, plural } from "./steps.ts";
import { largestOf } from "./text/reading.ts";

/** As many edges are drawn at once. */
const BUDGET = 1000;
const NARROWEST = 6; // px of a token: longer texts scroll
const WIDEST = 64;
const TALLEST = 600;
const BARS = 34; // px of the bars below the input
/** Edges between tokens. */
const HUES: Record<Theme, string> = { light: "#d96a00", dark: "#ffab52" };
/** Shades of edges, from faint to full. */
const SHADES = 8;

interface Spot {
  level: number;
  token: number;
}

export const renderFlowView = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const heading = createHeading(ctx);
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.0025",
    value: String(placeOf(0.04)),
    "aria-label": "least share of the mass that an edge carries",
  });
  const least = h("output");
  const [base, front] = [h("canvas.flow-base"), h("canvas.flow-front")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "graph of tokens by layers" };
  const spotMark = h("div.flow-spot");
  const plot = h("div.flow-plot", role, base, front, spotMark);
  const [left, bottom] = [createLabels("left"), createLabels("top")];
  const figure = h("div.flow-figure", left.element, plot, h("i"), bottom.element);
  const scroller = h("div.flow-scroll", figure);
  const readout = createReadout();
  const counts = h("div.note");
  let width = 0;
  let cell = 0;
  let gap = 0;
  let laidOut = "";
  const [isLaidOut, isInked] = [createWatch(), createWatch()];
  let ink = "";
  let steps: Step[] = [];
  let read: (Tile | undefined)[] = [];
  let every: Flow | null = null;
  let everyFor = "";
  let spot: Spot | null = null;
  let chosenLevel = -1; // level of the pinned token; -1: the last
  let frame = 0;

  root.classList.add("aw-flow");
  root.role = "group";
  fill(
    root,
    ...heading.elements,
    h("div.row", h("label.field", "edges of at least", slider, least, "of the mass")),
    scroller,
    ...readout.elements,
    counts,
  );

  const tokens = (): number => ctx.axisOf(ctx.source().key).labels.length;
  const levels = (): number => ctx.source().layers.length;
  const named = (token: number): string => nameOf(ctx, ctx.source().key, token);
  const levelName = (level: number): string =>
    level === 0 ? "input" : `layer ${ctx.layerName(ctx.source().layers[level - 1] as number)}`;
  const atLeast = (): number => leastAt(Number(slider.value));
  const y = (level: number): number => (levels() - level + 0.5) * gap;
  const x = (token: number): number => (token + 0.5) * cell;

  /** The matrices that are here; those that are not are asked for. */
  const collect = (): number => {
    const { source, head } = ctx.resolved();
    const found = source.layers.map((layer) => {
      const tile = tiles.get(source.id, layer, head);
      if (!tile) tiles.request(source.id, layer, head, `flow ${layer}`);
      return tile;
    });
    const missing = found.filter((tile) => !tile).length;
    if (missing === 0 && found.some((tile, i) => tile !== read[i])) {
      read = found;
      const count = tokens();
      steps = (found as Tile[]).map((tile) => stepOf((row, col) => tile.value(row, col), count));
      everyFor = "";
    }
    if (missing) steps = [];
    return missing;
  };

  const layout = (): void => {
    const { source } = ctx.resolved();
    const axis = ctx.axisOf(source.key);
    if (!isLaidOut(source, axis, width, ctx.options)) return;
    const name = JSON.stringify([source.id, width, axis.labels, ctx.options.indexBase]);
    if (width <= 0 || name === laidOut) return;
    laidOut = name;
    const style = getComputedStyle(left.element);
    const font = `${style.fontSize} ${style.fontFamily}`;
    const count = axis.labels.length;
    const names = Array.from({ length: levels() + 1 }, (_, i) => levelName(levels() - i));
    gap = Math.round(Math.max(16, Math.min(56, TALLEST / names.length)));
    const leftRoom = labelRoom(names, gap, font, 90);
    cell = Math.max(NARROWEST, Math.min(WIDEST, (width - leftRoom - 4) / count));
    if (cell > 12) cell = Math.floor(cell);
    const bottomRoom = labelRoom(axis.labels, cell, font, 120);
    left.layout({ labels: names, special: [], cell: gap, room: leftRoom });
    bottom.layout({ ...axis, cell, room: bottomRoom });
    const high = gap * names.length + BARS;
    const sizes = {
      left: leftRoom,
      width: Math.round(cell * count),
      height: high,
      below: bottom.flat() ? 18 : bottomRoom,
    };
    for (const [key, size] of Object.entries(sizes)) figure.style.setProperty(`--aw-flow-${key}`, `${size}px`);
    for (const canvas of [base, front]) {
      const dots = Math.min(density(), 16000 / sizes.width, 16000 / high);
      canvas.width = Math.round(sizes.width * dots);
      canvas.height = Math.round(high * dots);
      canvas.getContext("2d")?.setTransform(dots, 0, 0, dots, 0, 0);
    }
    everyFor = "";
  };

  const erase = (canvas: HTMLCanvasElement): CanvasRenderingContext2D | null => {
    const pen = canvas.getContext("2d");
    pen?.save();
    pen?.setTransform(1, 0, 0, 1, 0, 0);
    pen?.clearRect(0, 0, canvas.width, canvas.height);
    pen?.restore();
    return pen;
  };

  /** Edges in as few strokes as there are shades; what stays in its place recedes. */
  const strokes = (pen: CanvasRenderingContext2D, { edges }: Flow, strength: number): void => {
    const [colour, ink] = inks();
    const paths = Array.from({ length: 2 * SHADES }, () => new Path2D());
    for (const { level, query, key, mass } of edges) {
      const shade = Math.min(SHADES - 1, Math.floor(Math.sqrt(mass) * SHADES));
      const path = paths[query === key ? shade : SHADES + shade] as Path2D;
      path.moveTo(x(query), y(level + 1));
      path.lineTo(x(key), y(level));
    }
    paths.forEach((path, i) => {
      const stays = i < SHADES;
      const size = ((i % SHADES) + 0.7) / SHADES;
      pen.strokeStyle = stays ? ink : colour;
      pen.globalAlpha = strength * (0.2 + 0.8 * size) * (stays ? 0.35 : 1);
      pen.lineWidth = 0.6 + Math.min(5, cell / 3) * size * size;
      pen.stroke(path);
    });
    pen.globalAlpha = 1;
  };

  const dots = (
    pen: CanvasRenderingContext2D,
    colour: string,
    size: (level: number, token: number) => number,
  ): void => {
    pen.fillStyle = colour;
    const count = tokens();
    for (let level = 0; level <= levels(); level += 1) {
      for (let token = 0; token < count; token += 1) {
        const radius = size(level, token);
        if (radius <= 0) continue;
        pen.beginPath();
        pen.arc(x(token), y(level), radius, 0, 7);
        pen.fill();
      }
    }
  };

  /** Asking for the page's own colour lays it out: once for a theme. */
  const inks = (): [string, string] => {
    if (isInked(ctx.theme)) ink = getComputedStyle(root).color;
    return [HUES[ctx.theme], ink];
  };

  /** All tokens: drawn once for a share and a theme. */
  const paintBase = (): void => {
    const name = [atLeast(), ctx.theme, laidOut].join("|");
    if (name === everyFor || !steps.length) return;
    everyFor = name;
    every = everyEdge(steps, atLeast(), BUDGET);
    const pen = erase(base);
    if (!pen) return;
    const [, ink] = inks();
    strokes(pen, every, 0.9);
    pen.globalAlpha = 0.5;
    dots(pen, ink, () => Math.min(1.5, cell / 5));
    pen.globalAlpha = 1;
  };

  /** The token that is followed: under the pointer here, elsewhere, or pinned. */
  const followed = (): Spot | null => {
    if (spot) return spot;
    const level = chosenLevel > 0 && chosenLevel <= levels() ? chosenLevel : levels();
    const over = ctx.cell("hover");
    if (over && over.query >= 0) return { level, token: over.query };
    const token = pinnedQuery(ctx);
    return token === null ? null : { level, token };
  };

  const paintFront = (): void => {
    const pen = erase(front);
    const at = followed();
    flag(plot, "data-followed", at !== null);
    assign(front, { hidden: at === null });
    const { source, layer } = ctx.resolved();
    const row = at ? levels() - at.level : undefined;
    left.mark(row, levels() - 1 - source.layers.indexOf(layer));
    bottom.mark(at?.token ?? ctx.cell("hover")?.key, pinnedQuery(ctx) ?? undefined);
    assign(spotMark, { hidden: !at });
    if (at) dress(spotMark, { transform: `translate(${x(at.token) - 6}px, ${y(at.level) - 6}px)` });
    if (!pen || !steps.length) return;
    if (!at) {
      say(null, every);
      return;
    }
    const smallest = atLeast();
    const flow = flowOf(steps, at.level, at.token, smallest, BUDGET);
    const [colour, ink] = inks();
    strokes(pen, flow, 1);
    const most = Math.min(5, Math.max(2, cell / 3));
    dots(pen, ink, (level, token) => {
      const mass = flow.masses[level]?.[token] ?? 0;
      return mass >= smallest / 4 ? Math.max(1, most * Math.sqrt(mass)) : 0;
    });
    bars(pen, flow.masses[0] ?? new Float64Array(), colour);
    say(at, flow);
  };

  /** What every input token holds of the one that is followed. */
  const bars = (pen: CanvasRenderingContext2D, masses: Float64Array, colour: string): void => {
    const top = Math.max(...masses) || 1;
    const from = gap * (levels() + 1) - gap / 2 + 8;
    const room = BARS + gap / 2 - 12;
    pen.fillStyle = colour;
    masses.forEach((mass, token) => {
      const high = (mass / top) * room;
      if (high > 0.3) pen.fillRect(token * cell + cell * 0.15, from, cell * 0.7, high);
    });
  };

  const percent = (share: number): string => `${Number((100 * share).toPrecision(2))} %`;

  const say = (at: Spot | null, flow: Flow | null): void => {
    const loud = root.contains(document.activeElement);
    if (!flow) return;
    const drawn = flow.edges.length;
    const cut = flow.found > drawn ? `the ${drawn} strongest of ${flow.found} edges` : counted(drawn, "edge");
    put(
      counts,
      `${cut} of at least ${percent(atLeast())}${at ? "" : " of their token"}: ≈ ${percent(flow.share)} of the mass is shown` +
        ` (at most ${BUDGET} edges).${at ? " Bars: what is in it of each input token." : ""}`,
    );
    if (!at) {
      const others = flow.edges
        .filter(({ query, key }) => query !== key)
        .slice(-3)
        .reverse();
      const said = others.map(
        ({ level, query, key, mass }) =>
          `${named(query)} after ${levelName(level + 1)} ≈ ${percent(mass)} from ${named(key)}`,
      );
      const strong = said.length ? `Strongest, beside what stays in place: ${said.join("; ")}.` : "";
      readout.show(`Hover a token to follow it to the input, click to pin it. ${strong}`, false);
      assign(plot, { ariaLabel: `${strong} ${KEYS}` });
      return;
    }
    const from = largestOf(flow.masses[0] ?? [], 5).map(
      (token) => `${named(token)} ${percent(flow.masses[0]?.[token] ?? 0)}`,
    );
    const what =
      at.level === 0
        ? `${named(at.token)}, input`
        : `${named(at.token)} after ${levelName(at.level)} is made of ≈ ${from.join(", ")} of the input`;
    readout.show(`${what}.`, loud || at === spot);
    assign(plot, { ariaLabel: `${what}. ${KEYS}` });
  };

  const draw = (): void => {
    const source = ctx.source();
    const title = heading.show(
      `${counted(source.layers.length, "layer")} · ${plural(source.unit)}, input at the bottom`,
    );
    assign(root, { ariaLabel: `${title}: tokens by layers` });
    put(least, percent(atLeast()));
    const missing = collect();
    layout();
    flag(plot, "data-stale", missing > 0);
    if (missing) {
      const why = source.layers.map((layer) => tiles.failure(source.id, layer, "-")).find(Boolean);
      readout.show(why || tiles.status().message || `fetching ${missing} layers …`, Boolean(why));
      return;
    }
    if (width <= 0) return;
    paintBase();
    paintFront();
  };
  /** At most once a frame: pointers and sliders move faster. */
  const soon = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      if (!signal.aborted) draw();
    });
  };

  const find = (event: MouseEvent): Spot | null => {
    const box = plot.getBoundingClientRect();
    const token = Math.floor((event.clientX - box.left) / cell);
    const level = levels() - Math.floor((event.clientY - box.top) / gap);
    return token < 0 || token >= tokens() || level > levels() ? null : { level: Math.max(0, level), token };
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
    const [from, until] = [scroller.scrollLeft, scroller.scrollLeft + scroller.clientWidth];
    const place = x(to.token) + plot.offsetLeft;
    if (place < from + 40 || place > until - 40) scroller.scrollLeft = place - scroller.clientWidth / 2;
  };
  const choose = (): void => {
    const at = spot ?? followed();
    if (at) pin(at);
  };
  on(plot, signal, {
    pointermove: (event) => hover(find(event)),
    pointerleave: () => hover(null),
    blur: () => hover(null),
    click(event) {
      const at = find(event);
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
      selection.pin(null);
    },
  });
  on(slider, signal, { input: soon });
  watchWidth(
    root,
    (now) => {
      width = now;
      draw();
    },
    signal,
  );
  return (changed) => {
    if (only(changed, "hover")) soon();
    else draw();
  };
});

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
const KEYS = "Arrows move to another token and layer, Enter pins it, Escape unpins.";
