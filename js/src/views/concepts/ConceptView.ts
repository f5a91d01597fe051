/**
 * Concepts: scores over layers compared with random texts, and examples ordered by how strongly their state shows a
 * concept.
 *
 * `update` reads the scores; the chart, the table and the examples have a function each, and `point` updates everything
 * that depends on the pointer.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, onResize, safeText, setChildren, setText, shortLabel } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type Account, createAccount } from "../base/account.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening, type Opening } from "../base/openText.ts";
import { createPlainSlider, type PlainSlider } from "../base/plainSlider.ts";
import { only, view } from "../base/view.ts";
import { createFigure, type Figure } from "../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  drawSwatch,
  drawUpright,
  indexAt,
  lookOf,
} from "../charts/lineChart.ts";
import { svg } from "../charts/svg.ts";
import { decimal } from "../circuits/words.ts";
import { fillOf } from "../text/stripColour.ts";
import {
  type ConceptOptions,
  type Concepts,
  nearestIndex,
  pWords,
  type Row,
  type SortedTexts,
  scoreWords,
} from "./concepts.ts";
import { showNotes, textStrip } from "./texts.ts";

const [TALL, LOW, WIDE] = [250, 160, 900];

const withGaps = (row: Row): number[] => row.map((value) => value ?? Number.NaN);

/** The elements of the view, and the state that they show. */
interface ConceptState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  /** Scores of every concept at every layer; null until they arrive. */
  probe: Concepts | null;
  chart: Chart | null;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  /** The layer under the pointer; -1: none. */
  hovered: number;
  readonly slider: PlainSlider;
  readonly target: HTMLSpanElement;
  readonly notes: Account;
  readonly figure: Figure;
  readonly table: HTMLTableElement;
  readonly heading: HTMLDivElement;
  readonly list: HTMLDivElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly opening: Opening;
  /** Texts ordered by their score for the concept. */
  sorted: SortedTexts | null;
}

export const renderConceptView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state)); // index of the layer under the pointer
  const slider = createPlainSlider(signal, "layer", (position) => chooseLayer(state, position));
  const target = h("span.concept-target.clip");
  const notes = createAccount(signal);
  const figure = createFigure();
  const table = h("table.concept-table", { "aria-label": "concepts at the layer" });
  const heading = h("div.concept-head");
  const list = h("div.concept-list", { role: "list", "aria-label": "examples by the concept" });
  const copy = createCopyButton(ctx, signal, () =>
    state.probe ? { of: "score", concept: options(ctx).concept, layer: state.probe.layers[layerIndex(state)] } : null,
  );
  const curves = h("div.concept-curves", figure.element);
  const panes = h(
    "div.concept-panes",
    h("div.concept-pane.column", curves, h("div.concept-scroll", table)),
    h("div.concept-pane.column", heading, list),
  );
  const frame = createFrame(ctx, root, {
    controls: [slider.element, target],
    body: [panes, notes.element],
    skeleton: "chart",
    hint: "Click a layer, a concept, or a text.",
    says: true,
    actions: [copy.element],
  });
  const opening = createOpening(ctx, signal, () => frame);

  const state: ConceptState = {
    ctx,
    root,
    answers,
    probe: null,
    chart: null,
    width: 0,
    hovered: -1,
    slider,
    target,
    notes,
    figure,
    table,
    heading,
    list,
    copy,
    frame,
    opening,
    sorted: null,
  };
  listen(state, signal, curves);
  return (changed) => {
    // A layer selected in another view replaces the layer chosen in this view.
    if (changed.has("layer") && options(ctx).layer !== null) set(ctx, { layer: null });
    if (!only(changed, "hover", "pinned", "head")) update(state);
  };
});

function listen(state: ConceptState, signal: AbortSignal, curves: HTMLDivElement): void {
  const { ctx, figure, table, list, root, opening } = state;
  const { plot, picture } = figure;
  root.classList.add("aw-concepts");
  root.role = "group";
  on(plot, signal, {
    pointermove: (event) =>
      state.chart && state.probe && point(state, indexAt(event, picture, state.chart, state.probe.layers.length)),
    pointerleave: () => point(state, -1),
    click(event) {
      if (state.chart && state.probe)
        chooseLayer(state, indexAt(event, picture, state.chart, state.probe.layers.length));
    },
  });
  keyboard(
    plot,
    signal,
    {
      ArrowLeft: step(state, -1),
      ArrowRight: step(state, 1),
      Home: step(state, -Infinity),
      End: step(state, Infinity),
      ArrowUp: turn(state, -1),
      ArrowDown: turn(state, 1),
    },
    "← →: layer · ↑ ↓: concept",
  );
  on(table, signal, {
    click(event) {
      const at = (event.target as Element).closest<HTMLElement>("tr")?.querySelector<HTMLElement>("[data-concept]");
      if (at) chooseConcept(ctx, Number(at.dataset.concept));
    },
  });
  on(list, signal, {
    click(event) {
      const row = (event.target as Element).closest<HTMLElement>("[data-row]");
      const i = Number(row?.dataset.row ?? -1);
      const [at, text] = [state.sorted?.numbers[i], state.sorted?.texts[i]];
      if (row && at !== undefined && text !== undefined) opening.open(at, text, row.querySelector("button"));
    },
  });
  onResize(curves, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === state.width) return;
    state.width = now;
    drawChart(state);
  });
}

function options(ctx: ViewContext): ConceptOptions {
  return ctx.options as ConceptOptions;
}

function set(ctx: ViewContext, values: Partial<ConceptOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

function layerIndex(state: ConceptState): number {
  const { probe } = state;
  const layer = options(state.ctx).layer ?? state.ctx.selection.get("layer");
  return probe ? nearestIndex(probe.layers, layer) : 0;
}

function chooseLayer(state: ConceptState, at: number): void {
  const layer = state.probe?.layers[at];
  if (layer === undefined) return;
  const { layers } = options(state.ctx);
  const isShared = layers.length === 0 || layers.includes(layer);
  if (options(state.ctx).layer !== (isShared ? null : layer)) set(state.ctx, { layer: isShared ? null : layer });
  if (isShared) state.ctx.selection.set({ layer });
}

function chooseConcept(ctx: ViewContext, at: number): void {
  if (at !== options(ctx).concept) set(ctx, { concept: at });
}

function drawChart(state: ConceptState): void {
  const { probe, width, hovered, figure } = state;
  if (!probe || width <= 0) return;
  const { layers, concepts, scores, significant, low, high } = probe;
  const { concept } = options(state.ctx);
  const at = layerIndex(state);
  const isWide = state.root.clientWidth >= WIDE;
  const axis = chartOf(width, 10, layers.length, 0, 1, isWide ? TALL : LOW);
  state.chart = axis;
  const order = [...concepts.keys()].sort((a, b) => Number(a === concept) - Number(b === concept));
  const parts = order.map((row) => {
    const look = lookOf(row, state.ctx.theme);
    const line = drawLine(axis, withGaps(scores[row] ?? []), look);
    for (const dot of line.querySelectorAll("circle")) dot.remove();
    line.setAttribute("class", row === concept ? "aw-concept-line aw-concept-own" : "aw-concept-line");
    (scores[row] ?? []).forEach((value, i) => {
      if (value === null) return;
      const isSure = significant[row]?.[i];
      line.append(
        svg("circle", {
          cx: axis.x(i),
          cy: axis.y(value),
          r: row === concept ? 4.5 : 3.5,
          stroke: look.stroke,
          "stroke-width": 2,
          class: isSure ? "aw-concept-sure" : "aw-concept-hollow",
          ...(isSure ? { fill: look.stroke } : {}),
        }),
      );
    });
    return line;
  });
  const names = layers.map(String);
  figure.fill(
    axis.width,
    axis.height,
    drawAxes(axis, names),
    drawBand(axis, withGaps(low), withGaps(high), "var(--aw-apart)"),
    ...(hovered >= 0 && hovered !== at ? [drawUpright(axis, hovered, "aw-layer-over")] : []),
    drawUpright(axis, at, "aw-layer-now"),
    ...parts,
  );
  figure.plot.ariaLabel = `share of the examples that each concept raises, over layers. ${scoreWords(probe, concept, at)}. Left and right arrows change the layer, up and down the concept.`;
}

function drawTable(state: ConceptState): void {
  const { probe, hovered } = state;
  if (!probe) return;
  const { concepts, scores, accuracy, p, significant, low, high } = probe;
  const { concept } = options(state.ctx);
  const at = hovered >= 0 ? hovered : layerIndex(state);
  const cells = (...values: string[]): HTMLElement[] => values.map((value) => h("td", value));
  const rows = concepts.map((name, row) => {
    const score = scores[row]?.[at] ?? Number.NaN;
    const button = h(
      "button.concept-name.ghost",
      {
        type: "button",
        "aria-pressed": String(row === concept),
        "data-concept": String(row),
        title: name,
        dir: "auto",
      },
      shortLabel(name, 40),
    );
    const isSure = significant[row]?.[at] ?? false;
    const mark = h("td.concept-sign", { title: isSure ? "significant" : "not significant" }, isSure ? "●" : "○");
    return h(
      "tr",
      row === concept ? { "data-chosen": "" } : {},
      h("th.concept-key", { scope: "row" }, h("span.concept-swatch", drawSwatch(lookOf(row, state.ctx.theme))), button),
      mark,
      ...cells(decimal(score), decimal(accuracy[row]?.[at] ?? Number.NaN), pWords(p[row]?.[at])),
    );
  });
  const band = h("span.concept-band", { "aria-hidden": "true" });
  const ends = [low[at], high[at]].map((end) => decimal(end ?? Number.NaN)).join(" to ");
  setChildren(
    state.table,
    h(
      "thead",
      h(
        "tr",
        h("th", `at layer ${probe.layers[at]}`),
        h("td"),
        ...["score", "accuracy", "p (Holm)"].map((name) => h("th", name)),
      ),
    ),
    h(
      "tbody",
      ...rows,
      h("tr.concept-random", h("th", { scope: "row" }, band, "random texts"), h("td"), h("td", { colspan: "3" }, ends)),
    ),
  );
}

function drawList(state: ConceptState): void {
  const { answers, probe, list } = state;
  if (!probe) return;
  const { concept } = options(state.ctx);
  const at = layerIndex(state);
  const args = { concept, layer: probe.layers[at] };
  const answer = answers.get<SortedTexts>("texts", args);
  const why = answers.failure("texts", args);
  const name = shortLabel(probe.concepts[concept] ?? "", 40);
  setChildren(
    state.heading,
    h("b", "examples by "),
    h("b", { dir: "auto" }, name),
    h("span", `at layer ${probe.layers[at]}, by cosine${why ? `: ${why}` : ""}`),
    h("span.concept-end", "pushes the target"),
  );
  list.toggleAttribute("data-old", !answer);
  if (!answer || answer.meta === state.sorted) {
    if (answer) tint(state);
    return;
  }
  state.sorted = answer.meta;
  const { texts, numbers, left } = state.sorted;
  const half = Math.ceil(texts.length / 2);
  const rows = texts.map((text, i) =>
    h(
      "div.concept-row.pick",
      { role: "listitem", "data-row": String(i) },
      h("span.concept-value", decimal(state.sorted?.cosines[i] ?? Number.NaN, 2, true)),
      textStrip(text),
      h("span.concept-push.fine"),
      state.opening.button(numbers[i] ?? 0),
    ),
  );
  if (left > 0) rows.splice(half, 0, h("div.concept-more.fine", `${left.toLocaleString("en")} texts in between`));
  setChildren(list, ...rows);
  list.scrollTop = 0;
  tint(state);
}

/** Colour the strips, and write in which direction the concept pushes the target for each text. */
function tint(state: ConceptState): void {
  const { sorted } = state;
  if (!sorted) return;
  const { cosines, sensitivities } = sorted;
  const top = Math.max(...withGaps(cosines).filter(Number.isFinite).map(Math.abs), 1e-9);
  for (const row of state.list.querySelectorAll<HTMLElement>("[data-row]")) {
    const i = Number(row.dataset.row);
    const fill = fillOf((cosines[i] ?? Number.NaN) / top, state.ctx.theme, true);
    const strip = row.querySelector(".aw-concept-text") as HTMLElement;
    strip.style.background = fill.css;
    strip.toggleAttribute("data-flip", fill.flips);
    const push = sensitivities[i];
    const sign = row.querySelector(".aw-concept-push") as HTMLElement;
    const words = push === null || push === undefined ? "–" : push > 0 ? "up" : push < 0 ? "down" : "not";
    setText(sign, words === "up" ? "▲ up" : words === "down" ? "▼ down" : words);
    sign.dataset.way = words;
    sign.title = `derivative of the target along the direction: ${push ?? "unknown"}`;
  }
}

function say(state: ConceptState): void {
  const { probe, hovered } = state;
  if (probe)
    state.frame.readout.show(
      scoreWords(probe, options(state.ctx).concept, hovered >= 0 ? hovered : layerIndex(state)),
      true,
    );
}

function update(state: ConceptState): void {
  const { answers, target, frame } = state;
  const answer = answers.get<Concepts>("concepts");
  frame.lacks(answer ? null : missingAnswer(answers, "concepts", {}, "scores of concepts"));
  state.probe = answer ? { ...answer.meta, concepts: answer.meta.concepts.map(safeText) } : null;
  const about = state.probe
    ? `share of ${state.probe.examples} example${state.probe.examples === 1 ? "" : "s"} that each concept raises · ${state.probe.about}`
    : "";
  frame.show(about, "concepts");
  state.copy.show();
  if (!state.probe) return;
  const name = safeText(state.probe.target);
  setText(target, name);
  target.title = name;
  showNotes(state.notes, state.probe.notes);
  assign(state.root, { ariaLabel: `concepts for ${name}` });
  state.slider.show(state.probe.layers, layerIndex(state));
  drawChart(state);
  drawTable(state);
  drawList(state);
  say(state);
}

function point(state: ConceptState, at: number): void {
  if (at === state.hovered) return;
  state.hovered = at;
  drawChart(state);
  drawTable(state);
  say(state);
}

function step(state: ConceptState, by: number): () => void {
  return (): void =>
    chooseLayer(state, Math.max(0, Math.min((state.probe?.layers.length ?? 1) - 1, layerIndex(state) + by)));
}

function turn(state: ConceptState, by: number): () => void {
  return (): void =>
    chooseConcept(
      state.ctx,
      Math.max(0, Math.min((state.probe?.concepts.length ?? 1) - 1, options(state.ctx).concept + by)),
    );
}
