/**
 * The top k tokens of an explanation taken away, or kept alone: what is left of the prediction for every k, and what the
 * model still sees. One question for all steps; the slider acts here.
 */

import { atEnd, fill, flag, h, keyboard, on, put, shortLabel, watchWidth } from "../dom.ts";
import { printed, roundUp } from "../numbers.ts";
import { createAnswers } from "../wire/answers.ts";
import type { Axis } from "../wire/wire.ts";
import { askedOf, chooseMethod } from "./asked.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  type LineEnd,
  type Look,
  labelLines,
  labelRoom,
  lookOf,
  placeAt,
} from "./charts/lineChart.ts";
import { svg } from "./charts/svg.ts";
import { createState } from "./features/looked.ts";
import { createHeading, createReadout, only, view } from "./frame.ts";
import { renderLayerSlider } from "./LayerSlider.ts";
import { createMenu } from "./menu.ts";
import { percent } from "./predicted/percent.ts";
import { nameOf } from "./readout.ts";
import { createSegments } from "./segments.ts";
import { methodsOf, placeWords, plural } from "./steps.ts";
import { peak } from "./text/reading.ts";
import { createStrip, type Strip } from "./text/strip.ts";
import { shade } from "./text/stripColour.ts";
import { createUnits } from "./text/units.ts";

/** The twin of `Removals._steps` in attnwidgets/views/removal_view.py. */
interface Removal {
  operator: string;
  operators: [name: string, refusal: string][];
  target: string;
  title: string;
  score: "probability" | "number";
  steps: number[];
  order: number[];
  outcomes: [index: number, label: string][];
  standIn: string;
}

interface Baselines {
  steps: number[];
  draws: number;
}

const MODES = { gone: "remove the top k", kept: "keep only the top k" };
const NEEDS_KERNEL = "needs a running kernel";
const PLAY_EVERY_MS = 450;
const NAMED = 4;

/** What an operator does to a token that is struck out. */
const DONE: Record<string, string> = {
  delete: "left out; what follows moves up",
  mask: "replaced by the mask token",
  pad: "replaced by the padding token",
  zero: "its embedding is zeros",
  mean: "its embedding is the mean over the vocabulary",
  attention_mask: "nothing attends to it",
};

const wordsOf = (name: string): string => name.replace("_", " ");

const doublesOf = (view: DataView | undefined): number[] =>
  view ? Array.from({ length: view.byteLength / 8 }, (_, i) => view.getFloat64(8 * i, true)) : [];

export const renderRemovalView = view((ctx, root, signal) => {
  const { selection } = ctx;
  /** Not inside another view, which says and chooses the rest. */
  const alone = root === ctx.el;
  const fold = root.closest("details");
  const method = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const operator = createMenu("removed by", signal, (name) => {
    ctx.model.set("options", { ...ctx.model.get("options"), operator: name } as never);
    ctx.model.save_changes();
  });
  const modes = createSegments("what is done", MODES, signal, () => paint());
  const units = createUnits(ctx, signal);
  const heading = createHeading(
    ctx,
    ...(alone ? [method.field] : []),
    operator.field,
    modes.element,
    ...(alone ? [units.element] : []),
  );
  const layers = h("div.removal-layers");
  const answers = createAnswers(ctx, signal, () => update());
  const state = createState(() => answers);
  const caption = h("div.line");
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h("div.profile-plot");
  const legend = h("ul.profile-legend");
  const play = h("button.button", { type: "button" }, "▷ play");
  const slider = h("input.range", { type: "range", min: "0", step: "1", value: "0" });
  const count = h("output");
  const turn = h("div.removal-turn");
  const readout = createReadout();
  const texts = h("div.texts");
  const body = h(
    "div.removal-body",
    caption,
    h("div.profile-figure", plot, legend),
    h("div.row.removal-control", play, slider, count),
    turn,
    ...readout.elements,
    texts,
  );
  let told: Removal | null = null;
  let drawnAs = "";
  let values: number[][] = [[], []];
  let decided: number[][] = [[], []];
  let certainty: number[][] = [[], []];
  let weights: number[] = [];
  let lines: {
    steps: number[];
    draws: number;
    mean: number[][];
    low: number[][];
    high: number[][];
    best: number[][];
  } | null = null;
  let chart: Chart | null = null;
  const bar = svg("line", { class: "aw-layer-now" });
  const point = svg("circle", { class: "aw-point", r: 6 });
  let curves: [heights: number[], places: number[]][] = [];
  let drawnChart = "";
  let drawnStrip = "";
  let tokens: HTMLElement[] = [];
  let colours = new Map<number, string>();
  let strip: Strip | null = null;
  let built = "";
  let bound = new AbortController();
  let width = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  root.classList.add("aw-removal");
  root.role = "group";
  plot.append(picture);
  fill(root, ...heading.elements, ...(alone ? [layers] : []), state.element, body);
  if (alone) renderLayerSlider(ctx.child({ title: "" }), layers);

  const at = (): number => slider.valueAsNumber;
  const side = (): number => (modes.value() === "kept" ? 1 : 0);
  const keyAxis = (): Axis => ctx.axisOf(ctx.source().key);
  const row = (): number => {
    const { kind, query } = ctx.source();
    if (kind === "attributions" && ctx.axisOf(query).labels.length < 2) return -1;
    return ctx.cell("pinned")?.query ?? -1;
  };
  const args = (): Record<string, unknown> => {
    const { source, layer, head } = ctx.resolved();
    const target = ctx.options.method ? null : (askedOf(ctx)[0]?.id ?? null);
    const chosen = (ctx.options as { operator?: string }).operator ?? null;
    return { source: source.id, layer, head, row: row(), target, operator: chosen };
  };
  const value = (number: number | undefined): string =>
    number === undefined || Number.isNaN(number)
      ? "–"
      : told?.score === "probability"
        ? percent(number)
        : printed(number, true);

  /** The value of a line at k, or between the steps that it has. */
  const valueAt = (heights: readonly number[], places: readonly number[], k: number): string => {
    const after = places.findIndex((place) => place >= k);
    const [from = k, to = k] = [places[after - 1], places[after]];
    if (to === k) return value(heights[after]);
    const [low = Number.NaN, high = Number.NaN] = [heights[after - 1], heights[after]];
    const between = value(low + ((k - from) / (to - from)) * (high - low));
    return between === "–" ? between : `≈ ${between}`;
  };

  /** Which of the explanation's rows is read, in words. */
  const reading = (): string => {
    const { source, layer, head } = ctx.resolved();
    if (source.kind === "attributions") {
      const many = ctx.axisOf(source.query).labels.length > 1;
      const inside = source.layers.length > 1 ? [placeWords(ctx, layer, head)] : [];
      return [...inside, ...(many ? [`row of ${nameOf(ctx, source.query, Math.max(0, row()))}`] : [])].join(", ");
    }
    const which =
      row() < 0 ? "mean over its rows (pin a token for its own row)" : `row of ${nameOf(ctx, source.query, row())}`;
    return `${placeWords(ctx, layer, head)}, ${which}`;
  };

  const read = (): void => {
    const wanted = args();
    const answer = answers.get<Removal>("removal", wanted);
    const why = answers.failure("removal", wanted);
    flag(body, "data-stale", !answer);
    const { source, target, operator: chosen } = wanted;
    const others = { source, target, operator: chosen };
    const beside = answer ? answers.get<Baselines>("removal_baselines", others) : undefined;
    state.told(answer ? "removal_baselines" : "removal", why ?? answers.failure("removal_baselines", others));
    body.hidden = !answer && !told;
    if (!answer) return;
    const look = JSON.stringify(wanted);
    told = answer.meta;
    const half = (numbers: number[]): number[][] => {
      const middle = numbers.length / 2;
      return [numbers.slice(0, middle), numbers.slice(middle)];
    };
    const [first, second, third, fourth] = answer.buffers;
    [values, decided, certainty] = [first, second, third].map((part) => half(doublesOf(part))) as [
      number[][],
      number[][],
      number[][],
    ];
    weights = doublesOf(fourth);
    const [mean, low, high, best] = (beside?.buffers ?? []).map((part) => half(doublesOf(part)));
    lines = beside && mean && low && high && best ? { ...beside.meta, mean, low, high, best } : null;
    const last = told.steps.length - 1;
    const same = slider.max === String(last);
    slider.max = String(last);
    if (drawnAs === "" || !same) slider.value = String(Math.min(last, drawnAs === "" ? 0 : at()));
    drawnAs = look;
  };

  const build = (): void => {
    const axis = keyAxis();
    const { kind } = ctx.source();
    const name = JSON.stringify([axis, kind]);
    if (name === built) return;
    built = name;
    bound.abort();
    bound = new AbortController();
    const hover = (index: number): void => {
      const { unit } = ctx.source();
      selection.hover(index < 0 ? null : { unit, query: -1, key: index });
    };
    strip = createStrip(ctx, axis, " ", new Set(), { hover, pin: choose }, bound.signal);
    fill(texts, strip.box);
  };

  /** Of a map a token pins its row; of attributions the slider goes to where the token is the last to go. */
  const choose = (index: number): void => {
    const { kind, unit } = ctx.source();
    if (kind === "map") {
      selection.pin({ unit, query: index, key: -1 });
      return;
    }
    const rank = told?.order.indexOf(index) ?? -1;
    if (!told || rank < 0) return;
    const place = told.steps.findIndex((k) => k > rank);
    go(place === at() ? place - 1 : place);
  };

  const go = (place: number): void => {
    slider.value = String(place);
    paint();
  };

  const update = (): void => {
    if (width <= 0 || fold?.open === false) return; // nobody looks: nothing is asked
    const header = ctx.header();
    const lost = ctx.tiles.status().state === "no-kernel";
    const { source } = ctx.resolved();
    if (alone) {
      method.offer(ctx.options.method ? [] : methodsOf(header, ctx.options.methods, lost), source.method);
      layers.hidden = source.kind === "attributions" && source.layers.length < 2;
      units.show();
      if (!layers.hidden) units.element.hidden = true;
    }
    read();
    // A page holds one operator.
    const page = ctx.model.get("runtime") === "";
    operator.offer(
      (told?.operators ?? []).map(([name, refusal]) => {
        const why = refusal || (page && name !== told?.operator ? NEEDS_KERNEL : "");
        return { value: name, label: wordsOf(name), note: why || DONE[name] || "", off: Boolean(why) };
      }),
      told?.operator ?? "",
    );
    const title = heading.show(told ? reading() : "", `remove the top k of ${source.title}`);
    root.ariaLabel = title;
    if (!told) return;
    build();
    paint();
  };

  /** Words, lines and text for the place of the slider. Sends nothing. */
  const paint = (): void => {
    if (!told || width <= 0) return;
    const { order, steps, operator: done, score, target, title } = told;
    const [now, kept] = [at(), side() === 1];
    const unit = ctx.source().unit;
    const k = steps[now] ?? 0;
    const all = order.length;
    const verb = kept ? "kept" : "removed";
    const without = kept ? order.slice(k) : order.slice(0, k);
    put(count, `${k} of ${all}`);
    slider.ariaLabel = `${plural(unit)} ${verb}`;
    const what = score === "probability" ? `probability of ${shown(target)}` : shown(target);
    put(
      caption,
      `${what} (${title}) ${kept ? "with only the top k" : "without the top k"} ${plural(unit)} · ${wordsOf(done)}: ${DONE[done]}`,
    );
    drawChart(now);
    drawTurn(now);
    const line = values[side()] ?? [];
    const named = order
      .slice(0, k)
      .slice(0, NAMED)
      .map((index) => nameOf(ctx, ctx.source().key, index));
    const list = named.length ? ` (${named.join(", ")}${k > NAMED ? ", …" : ""})` : "";
    const gone = `${k} of ${all} ${all === 1 ? unit : plural(unit)} ${verb}${list}`;
    const number = line[now] ?? Number.NaN;
    const then = Number.isNaN(number)
      ? "nothing is left to read"
      : `${target} ${value(number)}, ${value(whole())} with all`;
    readout.show(`${gone}: ${then}${said(now, " · predicted now: ")}`, true);
    slider.ariaValueText = `${gone}, ${then}`;
    paintStrip(new Set(without));
  };

  const shown = (label: string): string => `“${shortLabel(label, 40)}”`;
  const whole = (): number => values[0]?.[0] ?? Number.NaN;
  /** What is predicted at a place, where that is known. */
  const said = (place: number, before: string, which = side()): string => {
    const index = decided[which]?.[place] ?? Number.NaN;
    const label = told?.outcomes.find(([number]) => number === index)?.[1];
    return label === undefined ? "" : `${before}${shortLabel(label, 40)} ${percent(certainty[which]?.[place] ?? 0)}`;
  };

  const drawTurn = (now: number): void => {
    const part = (name: string, number: number, says: string, old: boolean): HTMLElement[] => {
      const bar = h(old ? "span.bar.was" : "span.bar", h("span"));
      const filled = bar.firstElementChild as HTMLElement;
      filled.style.width = `${(100 * Math.max(0, Math.min(1, number || 0))).toFixed(1)}%`;
      if (told?.score !== "probability") bar.style.visibility = "hidden";
      return [h("span", name), bar, h("b", value(number)), h("span.says", says)];
    };
    fill(
      turn,
      ...part("all tokens", whole(), said(0, "predicts ", 0), true),
      ...part("now", values[side()]?.[now] ?? Number.NaN, said(now, "predicts "), false),
    );
  };

  /** Lines and names; only what the slider moves is drawn again while they stay. */
  const drawChart = (now: number): void => {
    const { steps } = told as Removal;
    const look = JSON.stringify([drawnAs, Boolean(lines), side(), width, ctx.theme]);
    if (look !== drawnChart) {
      drawnChart = look;
      drawLines();
    }
    const axis = chart as Chart;
    const k = steps[now] ?? 0;
    const [x, number] = [axis.x(k), values[side()]?.[now] ?? Number.NaN];
    for (const end of ["x1", "x2"]) bar.setAttribute(end, String(x));
    point.style.display = Number.isNaN(number) ? "none" : "";
    point.setAttribute("cx", String(x));
    point.setAttribute("cy", String(Number.isNaN(number) ? 0 : axis.y(number)));
    for (const [i, item] of [...legend.children].entries()) {
      const [heights = [], places = []] = curves[i] ?? [];
      put(item.querySelector("b") as Element, valueAt(heights, places, k));
    }
  };

  const drawLines = (): void => {
    const { order, steps, score } = told as Removal;
    const which = side();
    const line = values[which] ?? [];
    const others = lines ? [lines.low, lines.high, lines.best].flatMap((part) => part[which] ?? []) : [];
    const every = [...line, ...others].filter(Number.isFinite);
    const top = roundUp(Math.max(0, ...every)) || 1;
    const most = score === "probability" ? Math.min(1, top) : top;
    const least = Math.min(0, ...every);
    const low = least < 0 ? -roundUp(-least) : 0;
    const quiet: Look = { stroke: "currentColor", dash: "6 3" };
    const looks: Look[] = [lookOf(0, ctx.theme), quiet, { ...lookOf(1, ctx.theme), dash: "2 3" }];
    const names = ["this explanation", `${lines?.draws ?? 0} random orders`, "single removals (oracle)"];
    const notes = ["", "their mean, and from the lowest to the highest", "first what, removed alone, lowers it most"];
    const texts = names.map((name) => `${name} ≈ 99.9 %`);
    const room = labelRoom(width, texts, legend);
    const axis = chartOf(width, room, order.length + 1, low, most, Math.max(150, Math.min(190, width / 2)));
    chart = axis;
    picture.setAttribute("viewBox", `0 0 ${axis.width} ${axis.height}`);
    picture.setAttribute("width", String(axis.width));
    picture.setAttribute("height", String(axis.height));
    curves = [[line, steps]];
    if (lines) curves.push([lines.mean[which] ?? [], lines.steps], [lines.best[which] ?? [], lines.steps]);
    const numbers = Array.from({ length: order.length + 1 }, (_, i) => String(i));
    const parts: SVGElement[] = [drawAxes(axis, numbers)];
    if (lines) parts.push(drawBand(axis, lines.low[which] ?? [], lines.high[which] ?? [], "currentColor", lines.steps));
    const paths = curves.map(([heights, places], i) => drawLine(axis, heights, looks[i] as Look, places));
    const ends = curves.map(([heights, places], i): LineEnd => {
      const last = heights.findLastIndex(Number.isFinite);
      return {
        name: names[i] as string,
        value: "",
        look: looks[i] as Look,
        x: axis.x(places[Math.max(0, last)] ?? 0),
        y: axis.y(last < 0 ? low : (heights[last] as number)),
        title: notes[i] ?? "",
      };
    });
    const leaders = labelLines(axis, legend, ends);
    bar.setAttribute("y1", String(axis.top));
    bar.setAttribute("y2", String(axis.bottom));
    point.setAttribute("fill", looks[0]?.stroke ?? "");
    picture.replaceChildren(...parts, bar, ...leaders, ...paths.reverse(), point);
  };

  /** Strike out what is gone; what stays carries the explanation's colours. Touches only tokens that change. */
  const paintStrip = (gone: ReadonlySet<number>): void => {
    if (!strip || !told) return;
    const { order, standIn, operator: done } = told;
    const isMap = ctx.source().kind === "map";
    const hint = isMap ? "a token pins its row" : "a token goes to its place";
    const name = strip.box.querySelector(".aw-strip-name");
    const struck = gone.size ? ` · struck out: ${standIn ? `${standIn} instead` : DONE[done]}` : "";
    if (name) put(name, `what the model still sees (${hint})${struck}`);
    const look = JSON.stringify([drawnAs, built, ctx.theme]);
    const all = look !== drawnStrip;
    if (all) {
      drawnStrip = look;
      const own = order.map((index) => weights[index] ?? 0);
      const [top, signed] = [peak(own), own.some((weight) => weight < 0)];
      colours = new Map(order.map((index, i) => [index, top ? shade((own[i] ?? 0) / top, ctx.theme, signed) : ""]));
      tokens = [...strip.box.querySelectorAll<HTMLElement>(".aw-tok")];
    }
    for (const [index, token] of tokens.entries()) {
      const isGone = gone.has(index);
      if (!all && isGone === "gone" in token.dataset) continue;
      flag(token, "data-gone", isGone);
      if (isGone && standIn) token.dataset.in = standIn;
      else delete token.dataset.in;
      token.style.backgroundColor = isGone ? "" : (colours.get(index) ?? "");
    }
    strip.mark("aw-query", isMap ? row() : -1);
    strip.mark("aw-key", ctx.cell("hover")?.key ?? -1);
  };

  const stop = (): void => {
    clearTimeout(timer);
    timer = undefined;
    put(play, "▷ play");
  };
  const tick = (): void => {
    if (!told || at() >= told.steps.length - 1) {
      stop();
      return;
    }
    go(at() + 1);
    timer = setTimeout(tick, PLAY_EVERY_MS);
  };
  on(play, signal, {
    click() {
      if (timer) {
        stop();
        return;
      }
      if (told && at() >= told.steps.length - 1) go(0);
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
        go(at() + 1);
        return;
      }
      put(play, "❚❚ pause");
      timer = setTimeout(tick, PLAY_EVERY_MS);
    },
  });
  on(slider, signal, {
    input() {
      stop();
      paint();
    },
  });
  const follow = (event: PointerEvent): void => {
    if (!chart || !told) return;
    const k = placeAt(event, picture, chart, told.order.length + 1);
    if (k < 0) return;
    stop();
    const nearest = told.steps.reduce(
      (best, step, i) => (Math.abs(step - k) < Math.abs((told?.steps[best] ?? 0) - k) ? i : best),
      0,
    );
    if (nearest !== at()) go(nearest);
  };
  on(plot, signal, {
    pointerdown: follow,
    pointermove: (event) => {
      if (event.buttons & 1) follow(event);
    },
  });
  if (fold) on(fold, signal, { toggle: () => update() });
  keyboard(slider, signal, {}, "← →: one token more or less · Home, End: none, all");
  watchWidth(
    root,
    (now) => {
      width = now;
      update();
    },
    signal,
  );
  atEnd(signal, () => {
    clearTimeout(timer);
    bound.abort();
  });
  return (changed) => {
    if (only(changed, "hover")) strip?.mark("aw-key", ctx.cell("hover")?.key ?? -1);
    else update();
  };
});
