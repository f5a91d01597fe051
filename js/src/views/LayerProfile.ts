/**
 * What every layer says of a pair of tokens, or of a target and several sources together: a line for each
 * explanation. It follows the pin and the pointer; a click selects a layer.
 */

import { assign, atEnd, createWatch, fill, flag, h, keyboard, on, put, watchWidth } from "../dom.ts";
import { filtersOf, leavesOut, setFilters } from "../filters.ts";
import { printed, roundUp } from "../numbers.ts";
import { createAnswers } from "../wire/answers.ts";
import type { Axis } from "../wire/wire.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawLine,
  type LineEnd,
  labelLines,
  labelRoom,
  lookOf,
  placeAt,
} from "./charts/lineChart.ts";
import { svg } from "./charts/svg.ts";
import { createHeading, createReadout, only, view } from "./frame.ts";
import { pinnedQuery } from "./pinned.ts";
import { nameOf } from "./readout.ts";
import { createRowFilters, rowsOf } from "./rowFilters.ts";
import { createSegments } from "./segments.ts";
import { moveLayer, navigation, plural } from "./steps.ts";
import { peak } from "./text/reading.ts";
import { createStrip, type Strip } from "./text/strip.ts";
import { shades } from "./text/stripColour.ts";

/** What `LayerProfile._profile` says beside the values. */
interface Profile {
  names: string[];
  remarks: string[];
  layers: number[];
  query: number | null;
  follows: boolean;
  rows: boolean;
  /** Whether a line and layer, one after the other, holds shares of a row. */
  shares: boolean[];
  alike: boolean;
}

const SCALES = { one: "one scale for all", own: "each its own scale" };

export const renderLayerProfile = view((ctx, root, signal) => {
  const { selection } = ctx;
  const filters = createRowFilters(ctx);
  const heading = createHeading(ctx, filters.element);
  const scales = createSegments("scale", SCALES, signal, () =>
    setFilters(ctx, { extent: scales.value() === "one" ? "all" : "map" }),
  );
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h("div.profile-plot", { tabindex: "0", role: "application", "aria-roledescription": "line chart" });
  const marks = svg("g");
  const legend = h("ul.profile-legend");
  const readout = createReadout();
  const texts = h("div.texts");
  const answers = createAnswers(ctx, signal, () => draw());
  let told: Profile | null = null;
  let stale = false;
  let rows: Float32Array[] = []; // a row over sources for every line and layer
  let shown: Float32Array[] = []; // NaN where the filters leave something out
  let chart: Chart | null = null;
  let lines: number[][] = [];
  let hovered = -1; // layer under the pointer, by its place
  let width = 0;
  let built = "";
  const [isBuilt, isDrawn, isColoured, isCued] = [createWatch(), createWatch(), createWatch(), createWatch()];
  let bound = new AbortController();
  let targets: Strip | null = null;
  let sources: Strip | null = null;
  let adding = false;
  const cues = new Set(ctx.options.marks.filter((mark): mark is number => typeof mark === "number"));

  root.classList.add("aw-profile");
  root.role = "group";
  (plot as HTMLElement).append(picture);
  fill(
    root,
    ...heading.elements,
    h("div.row", scales.element),
    h("div.profile-figure", plot, legend),
    ...readout.elements,
    texts,
  );

  const keyAxis = (): Axis => ctx.axisOf(ctx.source().key);
  const args = (): Record<string, unknown> => ({
    query: told?.follows === false ? null : pinnedQuery(ctx),
    unit: ctx.source().unit,
  });
  const query = (): number => told?.query ?? -1;
  const numberAt = (line: number, layer: number, key: number): number =>
    shown[line * (told?.layers.length ?? 0) + layer]?.[key] ?? Number.NaN;
  /** The sum of some sources; of what is left out nothing is added, and of nothing there is no sum. */
  const sumAt = (line: number, layer: number, some: readonly number[]): number => {
    const values = some.map((key) => numberAt(line, layer, key)).filter((value) => !Number.isNaN(value));
    return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : Number.NaN;
  };

  /** The sources looked at: the one under the pointer, the pinned one, the cues, or the strongest one. */
  const keys = (): number[] => {
    const [over, pinned] = [ctx.cell("hover")?.key ?? -1, ctx.cell("pinned")?.key ?? -1];
    if (over >= 0) return [over];
    if (pinned >= 0) return [pinned];
    const count = keyAxis().labels.length;
    const some = [...cues].filter((cue) => cue < count);
    return some.length ? some : [strongest()];
  };

  const isOther = createWatch();
  let found = 0;
  /** The source that the first line is highest for in any layer: no special token, not the query itself. */
  const strongest = (): number => {
    const { special } = keyAxis();
    if (!isOther(shown, special, query())) return found;
    let [best, at] = [-1, 0];
    for (let key = 0; key < special.length; key += 1) {
      if (special[key] || (told?.rows && key === query())) continue;
      for (let layer = 0; layer < (told?.layers.length ?? 0); layer += 1) {
        const size = Math.abs(numberAt(0, layer, key));
        if (size > best) [best, at] = [size, key];
      }
    }
    found = at;
    return at;
  };

  const hover = (index: number): void => {
    const { unit } = ctx.source();
    selection.hover(index < 0 ? null : { unit, query: told?.rows ? query() : -1, key: index });
  };
  const pinSource = (key: number): void => {
    const { unit } = ctx.source();
    const row = told?.follows ? query() : -1;
    if (adding) {
      const now = ctx.cell("pinned")?.key ?? -1;
      if (now >= 0) cues.add(now);
      if (!cues.delete(key)) cues.add(key);
      selection.hover(null);
      if (now >= 0) selection.pin(row < 0 ? null : { unit, query: row, key: -1 });
      draw();
      return;
    }
    cues.clear();
    const again = ctx.cell("pinned")?.key === key;
    selection.pin(again && row < 0 ? null : { unit, query: row, key: again ? -1 : key });
  };
  const pinTarget = (index: number): void => {
    selection.pin({ unit: ctx.source().unit, query: index, key: ctx.cell("pinned")?.key ?? -1 });
  };

  const build = (): void => {
    const axis = keyAxis();
    if (!isBuilt(axis, told?.follows)) return;
    const name = JSON.stringify([axis, told?.follows]);
    if (name === built) return;
    built = name;
    bound.abort();
    bound = new AbortController();
    const make = (caption: string, pin: (index: number) => void, over: (index: number) => void): Strip =>
      createStrip(ctx, axis, caption, new Set(), { hover: over, pin }, bound.signal);
    targets = told?.follows ? make("target: whose row (choose)", pinTarget, () => undefined) : null;
    sources = make("sources (choose; Shift adds)", pinSource, hover);
    // What Shift was when a source was chosen, by the pointer or the keyboard.
    const heed = (event: MouseEvent | KeyboardEvent): void => {
      adding = event.shiftKey;
    };
    on(sources.box, bound.signal, { pointerdown: heed, keydown: heed });
    keyboard(sources.box, bound.signal, {
      "Shift+Enter": () => pinSource(focused()),
      "Shift+ ": () => pinSource(focused()),
    });
    targets?.box.classList.add("aw-profile-targets");
    fill(texts, ...(targets ? [targets.box] : []), sources.box);
  };
  const focused = (): number => Number((document.activeElement as HTMLElement | null)?.dataset.i ?? -1);

  const read = (): void => {
    const wanted = args();
    const answer = answers.get<Profile>("profile", wanted);
    stale = !answer;
    if (!answer) return;
    const first = told !== answer.meta;
    told = answer.meta;
    rows = rowsOf(answer, keyAxis().labels.length);
    if (!first) return;
    const signed = rows.some((row) => row.some((value) => value < 0));
    filters.offer({ signed, stochastic: told.shares.some(Boolean) });
  };

  /** Leave out what the filters say. */
  const trim = (): void => {
    const chosen = filtersOf(ctx);
    shown = filters.of(rows, chosen, keyAxis().special, told?.shares ?? []);
    scales.choose(chosen.extent === "all" || (told?.alike && chosen.extent !== "map") ? "one" : "own");
  };

  const layerNow = (): number => {
    const { layers } = told as Profile;
    const wanted = ctx.resolved().layer;
    return layers.indexOf(wanted);
  };

  const draw = (): void => {
    read();
    const title = heading.show(told ? where() : "");
    flag(plot, "data-stale", stale);
    if (stale) {
      const job = answers.job("profile");
      const why = answers.failure("profile", args());
      const doing = job ? `${job.text || "computing"} ${job.total ? `${job.done} of ${job.total}` : "…"}` : "reading …";
      readout.show(why ?? doing, Boolean(why));
    }
    if (!told) return;
    build();
    if (!stale) paint();
    assign(root, { ariaLabel: `${title}, ${where()}` });
  };

  /** What follows the layer and the sources looked at. Runs on every pointer move: lines are drawn when they change. */
  const paint = (): void => {
    if (!told || width <= 0) return;
    trim();
    const some = keys();
    if (isDrawn(told, shown, some.join(), width, scales.value(), ctx.theme, ctx.options)) drawLines(told, some);
    const at = hovered >= 0 ? hovered : layerNow();
    if (chart) marks.replaceChildren(...layerMarks(chart));
    lines.forEach((_, line) => {
      const number = legend.children[line]?.querySelector("b");
      if (number) put(number, valueAt(line, at));
    });
    say(some, at);
    paintStrips(some, at);
  };

  const drawLines = (told: Profile, some: readonly number[]): void => {
    lines = told.names.map((_, line) => told.layers.map((_l, layer) => sumAt(line, layer, some)));
    const own = scales.value() === "own";
    const drawn = own ? lines.map((values) => values.map((value) => value / (peak(values) || 1))) : lines;
    const every = drawn.flat().filter(Number.isFinite);
    const most = own ? 1 : roundUp(Math.max(0, ...every)) || 1;
    const least = Math.min(0, ...every);
    const low = least < 0 ? -roundUp(-least) : 0;
    const names = told.layers.map((layer) => ctx.layerName(layer));
    const texts = told.names.map((name) => `${name} −0.0000`);
    chart = chartOf(width, labelRoom(width, texts, legend), names.length, low, most);
    const { height } = chart;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("width", String(width));
    picture.setAttribute("height", String(height));
    const looks = drawn.map((_, line) => lookOf(line, ctx.theme));
    const paths = drawn.map((values, line) =>
      drawLine(chart as Chart, values, looks[line] as ReturnType<typeof lookOf>),
    );
    const leaders = labelLines(
      chart,
      legend,
      told.names.map((name, line) => lineEnd(name, line, drawn[line] ?? [], low)),
    );
    picture.replaceChildren(drawAxes(chart, names), marks, ...leaders, ...paths);
  };

  const lastX = (values: readonly number[]): number => {
    let last = 0;
    values.forEach((value, i) => {
      if (Number.isFinite(value)) last = i;
    });
    return chart?.x(last) ?? 0;
  };

  const valueAt = (line: number, at: number): string => {
    const value = lines[line]?.[at] ?? Number.NaN;
    return Number.isFinite(value) ? printed(value, true) : "–";
  };
  const lineEnd = (name: string, line: number, drawn: readonly number[], low: number): LineEnd => ({
    name,
    value: "",
    look: lookOf(line, ctx.theme),
    x: lastX(drawn),
    y: chart?.y(drawn.filter(Number.isFinite).at(-1) ?? low) ?? 0,
    title: told?.remarks[line] ?? "",
  });

  /** The selected layer, and the one under the pointer. */
  const layerMarks = (of: Chart): SVGElement[] => {
    const mark = (place: number, name: string): SVGElement =>
      svg("line", { class: name, x1: of.x(place), x2: of.x(place), y1: of.top, y2: of.bottom });
    const now = layerNow();
    return [
      ...(now >= 0 ? [mark(now, "aw-layer-now")] : []),
      ...(hovered >= 0 && hovered !== now ? [mark(hovered, "aw-layer-over")] : []),
    ];
  };

  const named = (key: number): string => nameOf(ctx, ctx.source().key, key);
  const about = (some: readonly number[]): string => {
    const from = some.map(named).join(" + ");
    return told?.rows ? `${named(query())} → ${from}` : `source ${from}`;
  };
  const where = (): string => {
    if (!told) return "";
    const own = scales.value() === "own" ? "each line divided by its largest magnitude" : "";
    return [`${plural(ctx.source().unit)}, over layers`, own].filter(Boolean).join(" · ");
  };

  /** The values at a layer, and where every line is highest: what a reader who sees no lines is told. */
  const say = (some: readonly number[], at: number): void => {
    if (!told) return;
    const { names, layers } = told;
    const isChosen = ["hover", "pinned"].some((which) => (ctx.cell(which as "hover" | "pinned")?.key ?? -1) >= 0);
    const unchosen = cues.size ? "" : " (the strongest source; choose one below)";
    const kind = some.length > 1 ? " (sum)" : isChosen ? "" : unchosen;
    const here = at >= 0 ? `layer ${ctx.layerName(layers[at] as number)}: ` : "";
    const value = (line: number): string => {
      const found = lines[line]?.[at] ?? Number.NaN;
      if (!Number.isNaN(found)) return printed(found, true);
      const row = rows[line * layers.length + at];
      return leavesOut(filtersOf(ctx)) && row && !Number.isNaN(row[some[0] ?? 0]) ? "left out" : "no such layer";
    };
    const values = names.map((name, line) => `${name} ${value(line)}`);
    const highest = names.map((name, line) => {
      const row = lines[line] ?? [];
      if (row.every(Number.isNaN)) return `${name} nowhere`;
      const best = row.reduce((top, value, i) => (Math.abs(value) > (Math.abs(row[top] ?? 0) || 0) ? i : top), 0);
      return `${name} in layer ${ctx.layerName(layers[best] as number)}`;
    });
    readout.show(`${about(some)}${kind}, ${here}${values.join(", ")} · largest: ${highest.join(", ")}`, true);
    assign(plot, {
      ariaLabel: `${about(some)} over layers. Largest: ${highest.join(", ")}. Left and right arrows change the layer.`,
    });
  };

  const paintStrips = (some: readonly number[], at: number): void => {
    const { palette, scale } = filtersOf(ctx);
    const row = shown[Math.max(0, at)] ?? new Float32Array();
    if (isColoured(sources, row, ctx.theme, palette, scale)) {
      const [top, signed] = [peak(row), row.some((value) => value < 0)];
      const colours = shades(ctx.theme, signed, palette, scale || "linear");
      sources?.underlay.paint((key) => colours((row[key] ?? 0) / (top || 1)));
    }
    sources?.mark("aw-key", some.length === 1 ? (some[0] ?? -1) : -1);
    const caption = sources?.box.querySelector(".aw-strip-name");
    const layer = ctx.layerName(told?.layers[Math.max(0, at)] ?? 0);
    if (caption) put(caption, `sources (choose; Shift adds), coloured by ${told?.names[0]} in layer ${layer}`);
    targets?.mark("aw-query", query());
    if (!isCued(sources, some.length > 1, [...cues].join())) return;
    const tokens = sources?.box.querySelectorAll(".aw-tok") ?? [];
    for (const cue of tokens)
      flag(cue, "data-cue", some.length > 1 && cues.has(Number((cue as HTMLElement).dataset.i)));
  };

  const placeOf = (event: MouseEvent): number =>
    chart && told ? placeAt(event, picture, chart, told.layers.length) : -1;
  const point = (place: number): void => {
    if (place === hovered) return;
    hovered = place;
    paint();
  };
  on(plot, signal, {
    pointermove: (event) => point(placeOf(event)),
    pointerleave: () => point(-1),
    click(event) {
      const layer = told?.layers[placeOf(event)];
      if (layer !== undefined) selection.set({ layer });
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowLeft: () => moveLayer(ctx, -1),
    ArrowRight: () => moveLayer(ctx, 1),
  });
  watchWidth(
    root,
    (now) => {
      width = now;
      paint();
    },
    signal,
  );
  atEnd(signal, () => bound.abort());
  return (changed) => {
    if (only(changed, "hover")) paint();
    else draw();
  };
});
