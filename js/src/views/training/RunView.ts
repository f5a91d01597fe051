/**
 * A model over its training: the map of a head at a step, and behaviour, pattern and cause over all steps.
 *
 * `update` reads the run and the map, `draw` fits both into the room, `say` describes the hovered element in words.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, onResize, setFlag, setText, shortLabel } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { decodeTile } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";
import type { TileMeta } from "../../wire/wire.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { createPlainSlider, type PlainSlider } from "../base/plainSlider.ts";
import { only, view } from "../base/view.ts";
import { decimal } from "../circuits/words.ts";
import { createCurves, type NamedCurve } from "./curves.ts";
import { causeOf, halfWay, PATTERNS, type Pattern, patternOf, type Run, type RunOptions, readRun } from "./run.ts";
import { createStepMap } from "./stepMap.ts";

/** px of the body from which the map and the curves are next to each other. */
const WIDE = 640;
/** px of the map where it is above the curves. */
const ABOVE = 340;
/** px of the scale below the map. */
const SCALE = 24;

interface RunState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly sliders: Record<"step" | "layer" | "head", PlainSlider>;
  readonly pattern: Menu;
  readonly map: ReturnType<typeof createStepMap>;
  readonly curves: ReturnType<typeof createCurves>;
  readonly notes: HTMLElement;
  readonly copy: CopyButton;
  readonly body: HTMLElement;
  readonly frame: Frame;
  run: Run | null;
  /** The input of `run`. */
  readFrom: unknown;
  tile: Tile | null;
  /** The step under the pointer in the curves; -1: none. */
  over: number;
  cell: [number, number] | null;
  box: { width: number; height: number };
}

export const renderRunView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const sliders = {
    step: createPlainSlider(signal, "step", (step) => choose(state, { step })),
    layer: createPlainSlider(signal, "layer", (layer) => choose(state, { layer })),
    head: createPlainSlider(signal, "head", (head) => choose(state, { head })),
  };
  const pattern = createMenu("pattern", signal, (name) => choose(state, { pattern: name as Pattern }));
  const map = createStepMap(ctx, signal, (cell) => {
    state.cell = cell;
    say(state);
  });
  const curves = createCurves(ctx);
  const notes = h("div.run-notes.fine");
  const copy = createCopyButton(ctx, signal, () => {
    const { step, layer, head, pattern } = options(state);
    return state.run && !state.run.gaps[step] ? { of: "pattern", step, layer, head, pattern } : null;
  });
  const body = h("div.run-body", h("div.run-pane", map.element), h("div.run-pane", curves.element, notes));
  const frame = createFrame(ctx, root, {
    controls: [sliders.step.element, sliders.layer.element, sliders.head.element, pattern.field],
    body: [body],
    skeleton: "chart",
    hint: "Click in the curves to move to a step.",
    says: true,
    actions: [copy.element],
  });
  const state: RunState = {
    ctx,
    root,
    answers,
    sliders,
    pattern,
    map,
    curves,
    notes,
    copy,
    body,
    frame,
    run: null,
    readFrom: null,
    tile: null,
    over: -1,
    cell: null,
    box: { width: 0, height: 0 },
  };
  listen(state, signal);
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

function listen(state: RunState, signal: AbortSignal): void {
  const { root, curves, map, body } = state;
  root.classList.add("aw-run");
  root.role = "group";
  on(curves.plot, signal, {
    pointermove: (event) => point(state, curves.placeAt(event)),
    pointerleave: () => point(state, -1),
    click(event) {
      const step = curves.placeAt(event);
      if (step >= 0) choose(state, { step });
    },
  });
  on(curves.element, signal, {
    click(event) {
      const step = (event.target as Element).closest<HTMLElement>("[data-step]")?.dataset.step;
      if (step !== undefined) choose(state, { step: Number(step) });
    },
  });
  const keys = {
    ArrowLeft: () => move(state, "step", -1),
    ArrowRight: () => move(state, "step", 1),
    Home: () => move(state, "step", -Infinity),
    End: () => move(state, "step", Infinity),
    ArrowUp: () => move(state, "head", -1),
    ArrowDown: () => move(state, "head", 1),
    "Shift+ArrowUp": () => move(state, "layer", -1),
    "Shift+ArrowDown": () => move(state, "layer", 1),
  };
  for (const plot of [curves.element, map.plot])
    keyboard(plot, signal, keys, "← →: step · ↑ ↓: head · Shift ↑ ↓: layer");
  onResize(body, signal, ({ width, height }) => {
    state.box = { width: Math.floor(width), height: Math.floor(height) };
    draw(state);
  });
}

const options = (state: RunState): RunOptions => state.ctx.options as RunOptions;

/** Move to another step, layer or head; a layer with fewer heads shows its last. */
function choose(state: RunState, chosen: Partial<RunOptions>): void {
  const { model } = state.ctx;
  const next = { ...options(state), ...chosen };
  const heads = state.run?.heads[next.layer] ?? 1;
  next.head = Math.min(next.head, heads - 1);
  model.set("options", next as never);
  model.save_changes();
}

function move(state: RunState, name: "step" | "layer" | "head", by: number): void {
  const { run } = state;
  if (!run) return;
  const count = { step: run.steps.length, layer: run.heads.length, head: run.heads[options(state).layer] ?? 1 }[name];
  choose(state, { [name]: Math.max(0, Math.min(count - 1, options(state)[name] + by)) });
}

function point(state: RunState, step: number): void {
  if (step === state.over) return;
  state.over = step;
  drawCurves(state);
  say(state);
}

function update(state: RunState): void {
  const { answers, frame, sliders, root } = state;
  const answer = answers.get<Parameters<typeof readRun>[0]["meta"]>("run");
  frame.lacks(answer ? null : missingAnswer(answers, "run", {}, "curves"));
  if (answer && answer !== state.readFrom) {
    state.run = readRun(answer);
    state.readFrom = answer;
  }
  const { run } = state;
  if (!run) {
    frame.show("", "training"); // its height is that of the skeleton while the curves are computed
    return;
  }
  const { step, layer, head, pattern } = options(state);
  sliders.step.show(run.steps, step);
  sliders.layer.show([...run.heads.keys()], layer);
  sliders.head.show([...Array(run.heads[layer] ?? 1).keys()], head);
  const choices = Object.entries(PATTERNS).map(([value, label]) => ({ value, label }));
  state.pattern.offer(choices, pattern);
  readMap(state, run);
  const title = frame.show(`head ${layer}.${head}, step ${run.steps[step]?.toLocaleString("en")}`, "training");
  assign(root, { ariaLabel: `${title}. ${sentence(state, run, step)}` });
  setText(state.notes, notesOf(state, run));
  state.copy.show();
  draw(state);
}

/** The map of the shown step, which is requested if it is not loaded; none if the step is unavailable. */
function readMap(state: RunState, run: Run): void {
  const { step, layer, head } = options(state);
  state.tile = null;
  if (run.gaps[step] || lackOf(state, run)) return;
  const answer = state.answers.get<TileMeta>("map", { step, layer, head });
  const [bytes] = answer?.buffers ?? [];
  if (answer && bytes) state.tile = decodeTile(answer.meta, bytes);
}

const isPage = (state: RunState): boolean => state.ctx.model.get("runtime") === "";

/** Why the map of the step is missing; "" if it is loaded, or on its way. */
function lackOf(state: RunState, run: Run): string {
  const { step, layer, head } = options(state);
  if (run.gaps[step]) return `The weights of this step are not finite, first ${run.gaps[step]}.`;
  const steps = run.held.map((at) => run.steps[at]?.toLocaleString("en")).join(", ");
  if (isPage(state) && !run.held.includes(step)) return `This page holds the maps of steps ${steps}.`;
  return state.answers.failure("map", { step, layer, head }) ?? "";
}

function notesOf(state: RunState, run: Run): string {
  const words = `maps of ${run.held.length} of ${run.steps.length} steps`;
  const isPart = isPage(state) && run.held.length < run.steps.length;
  const ring = curvesOf(state, run).some(({ values }) => halfWay(values) >= 0)
    ? "Rings: first at half way between the first and the last value."
    : "";
  const page = isPart ? `This page holds all curves, and ${words}.` : "";
  const ended = run.ended && `T${run.ended.slice(1)}.`;
  return [run.why, ended, ring, page].filter(Boolean).join(" ");
}

function curvesOf(state: RunState, run: Run): NamedCurve[] {
  const { layer, head, pattern } = options(state);
  const name = `${layer}.${head}`;
  const curves = [{ name: `${name}: ${PATTERNS[pattern]}`, values: patternOf(run, layer, head, pattern) }];
  if (!run.behaviour) return curves;
  const behaviour = { name: "behaviour", values: run.behaviour.map((value) => value ?? Number.NaN) };
  return [behaviour, ...curves, { name: `lost without ${name}`, values: causeOf(run, layer, head) }];
}

function draw(state: RunState): void {
  const { run, body, box, map, tile } = state;
  if (!run || box.width <= 0) return;
  const isWide = box.width >= WIDE;
  setFlag(body, "data-wide", isWide);
  const high = isWide ? Math.max(120, box.height - SCALE) : ABOVE;
  map.show(run.labels, run.special, tile, lackOf(state, run), { width: widthOf(state), height: high });
  drawCurves(state);
  say(state);
}

/** px of the map, and of the curves. */
const widthOf = ({ box }: RunState): number => Math.floor(box.width >= WIDE ? box.width / 2 : box.width) - 16;

function drawCurves(state: RunState): void {
  const { run, box, curves, over } = state;
  if (!run || box.width <= 0) return;
  curves.draw(run, curvesOf(state, run), options(state).step, over, widthOf(state));
  curves.drawClaims(run, options(state).step);
}

/** The numbers of a step, and when each curve is half way. */
function sentence(state: RunState, run: Run, step: number): string {
  if (run.gaps[step]) return `step ${run.steps[step]}: the weights are not finite`;
  const numbers = curvesOf(state, run).map(({ name, values }) => {
    const half = halfWay(values);
    const when = half >= 0 ? ` (half way at ${run.steps[half]}, not yet at ${run.steps[half - 1]})` : "";
    return `${name} ${decimal(values[step] ?? Number.NaN)}${when}`;
  });
  return `step ${run.steps[step]?.toLocaleString("en")}: ${numbers.join(" · ")}`;
}

function say(state: RunState): void {
  const { run, cell, tile, frame, over } = state;
  if (!run) return;
  const [query = -1, key = -1] = cell ?? [];
  const label = (at: number): string => `“${shortLabel(run.labels[at] ?? "")}” ${at}`;
  const isInMap = tile && query >= 0 && (tile.meta.codec !== "u8tri" || key <= query);
  const words = isInMap
    ? `${label(query)} reads ${label(key)}: ≈ ${tile.text(query, key)}`
    : sentence(state, run, over >= 0 ? over : options(state).step);
  frame.readout.show(words, true);
}
