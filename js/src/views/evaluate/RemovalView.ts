/**
 * The top k tokens of an explanation are removed, or kept alone: the prediction for every k, and the text that the
 * model still sees. A single request covers all steps; the slider acts in the browser.
 */

import type { ViewContext } from "../../context.ts";
import { assign, h, onResize, quoted, setText, shortLabel } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { failed, type Missing } from "../base/missing.ts";
import { plural } from "../base/navigation.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import {
  type Control,
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createChart, type RemovalChart } from "./removal/chart.ts";
import { choicesOf, EFFECTS, strategyName } from "./removal/maskingStrategies.ts";
import { createOrder, type Order } from "./removal/order.ts";
import { createPredictionChange, type PredictionChange } from "./removal/predictionChange.ts";
import { createRemainingText, type RemainingText } from "./removal/remainingText.ts";
import { requestOf, rowWords } from "./removal/request.ts";
import { createStepSlider, type StepSlider } from "./removal/stepSlider.ts";
import { exactWords, type Mode, type Removal, removalAt, valueWithAll, withoutWords } from "./removal/steps.ts";

const MODES: Record<Mode, string> = { gone: "remove top", kept: "keep top" };
const PANELS = { curve: "curve", order: "order" };
/** Tokens named in the readout. */
const NAMED = 3;
/** Smallest widths in px of layouts with two and three columns. */
const COLUMNS = [560, 960];
/** Height in px of the chart of a view without a fixed height. */
const INSIDE = 260;

/** The elements of the view, and the state that they show. */
interface RemovalState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly layers: Control;
  readonly method: Control;
  readonly units: Control;
  readonly modes: Segments<Mode>;
  readonly operator: Menu;
  readonly answers: Answers;
  readonly player: StepSlider;
  readonly chart: RemovalChart;
  readonly change: PredictionChange;
  readonly copy: CopyButton;
  readonly seen: RemainingText;
  readonly order: Order;
  readonly by: HTMLSpanElement;
  readonly frame: Frame;
  /** The curve; the previous curve until the next arrives. */
  removal: Removal | null;
  /** Whether the slider has been set to its opening step. */
  isOpened: boolean;
  /** px of the chart. */
  size: { width: number; height: number };
  /** Width in px of the view; 0 while it is not visible. */
  room: number;
}

export const renderRemovalView = view((ctx, root, signal) => {
  /** A nested view uses the controls of its outer view. */
  const alone = root === ctx.el;
  const layers = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const method = createMethodControl(ctx, signal);
  const units = createUnitControl(ctx, signal);
  const modes = createSegments("remove or keep", MODES, signal, () => paint(state));
  const operator = createMenu("by", signal, (name) => {
    ctx.model.set("options", { ...ctx.model.get("options"), operator: name } as never);
    ctx.model.save_changes();
  });
  operator.field.dataset.needsKernel = "";
  const answers = createAnswers(ctx, signal, () => update(state));
  const player = createStepSlider(signal, () => paint(state));
  const chart = createChart(
    ctx,
    signal,
    (step) => {
      player.stop();
      if (step !== player.at()) player.go(step);
    },
    () => plural(ctx.source().unit),
  );
  const change = createPredictionChange();
  const copy = createCopyButton(ctx, signal, () => {
    const [step, mode] = [player.at(), modes.value()];
    if (!state.removal || !Number.isFinite(state.removal.values[mode][step])) return null;
    return { of: "left", ...requestOf(ctx), k: state.removal.steps[step], kept: mode === "kept" };
  });
  const seen = createRemainingText(ctx, signal, (token) => choose(state, token));
  const order = createOrder(ctx, signal, (token) => choose(state, token));
  const by = h("span.removal-by");
  const panels = createSegments("shown", PANELS, signal, () => assign(grid.dataset, { panel: panels.value() }));
  const plot = h("div.removal-plot", chart.element);
  const side = h("div.removal-side-panel", player.element, change.element);
  const toolbar = h("div.row.removal-own");
  const frame = createFrame(ctx, root, {
    controls: [...method.elements, ...layers.elements, modes.element, operator.field, ...units.elements],
    lead: [seen.element],
    legend: h("span.removal-legend.inline", by, panels.element),
    body: [
      ...(alone ? [] : [toolbar]),
      side,
      h("div.removal-curve.column", plot),
      order.element,
      ...(alone ? [] : [seen.element]),
    ],
    skeleton: "chart",
    hint: "Move the slider to remove more tokens.",
    says: true,
    actions: [copy.element],
  });

  const state: RemovalState = {
    ctx,
    root,
    layers,
    method,
    units,
    modes,
    operator,
    answers,
    player,
    chart,
    change,
    copy,
    seen,
    order,
    by,
    frame,
    removal: null,
    isOpened: false,
    size: { width: 0, height: 0 },
    room: 0,
  };
  const grid = alone ? (root.querySelector(":scope > .aw-body") as HTMLElement) : root;
  arrange(state, grid, { side, toolbar, panels });
  listen(state, grid, plot, signal);
  return (changed) => {
    if (only(changed, "hover")) seen.point();
    else update(state);
  };
});

interface Panels {
  side: HTMLElement;
  /** The controls that another view's toolbar lacks. */
  toolbar: HTMLElement;
  panels: Segments<"curve" | "order">;
}

/** Arrange the panels in the grid of the style sheet. */
function arrange(state: RemovalState, grid: HTMLElement, { side, toolbar, panels }: Panels): void {
  const { ctx, root, modes, operator } = state;
  // The caption heads the curve, which is read after the step next to it.
  side.after(grid.querySelector(":scope > .aw-caption") as HTMLElement);

  root.classList.add("aw-removal");
  root.role = "group";
  grid.classList.add("aw-removal-grid");
  grid.dataset.panel = panels.value();
  if (root !== ctx.el) toolbar.append(modes.element, operator.field);
}

/** Draw again when the view or the curve changes its size, or comes into view. */
function listen(state: RemovalState, grid: HTMLElement, plot: HTMLElement, signal: AbortSignal): void {
  const { ctx, root } = state;
  onResize(root, signal, ({ width }) => {
    const columns = 1 + COLUMNS.filter((least) => width >= least).length;
    grid.dataset.columns = String(columns);
    const isBack = state.room <= 0 && width > 0;
    state.room = width;
    if (isBack) update(state);
  });
  onResize(plot, signal, (box) => {
    const [width, height] = [Math.floor(box.width), root === ctx.el ? Math.floor(box.height) : INSIDE];
    // The curve may be hidden while the view is visible.
    if (width <= 0 || (width === state.size.width && Math.max(140, height) === state.size.height)) return;
    state.size = { width, height: Math.max(140, height) };
    update(state);
  });
}

function read(state: RemovalState): void {
  const { answers, player } = state;
  const [answer, topic, failure] = removalAt(answers, requestOf(state.ctx));
  const job = answers.job(topic);
  const missing: Missing = failure
    ? failed("prediction without tokens", failure, () => answers.again(topic))
    : { kind: "awaited", words: "waiting for the model", job, cancel: () => answers.cancel(topic) };
  // The curves of random removal may arrive later than the curve.
  const isPart = answer !== null;
  state.frame.lacks(isPart && !failure && (answer.baselines || !job) ? null : { ...missing, part: isPart });
  state.removal = answer ?? state.removal;
  if (!answer) return;
  player.until(answer.steps.length - 1);
  if (!state.isOpened) player.go(Math.min(1, answer.steps.length - 1));
  state.isOpened = true;
}

/** In a map, a token pins its row; in attributions, the slider moves to the step that removes the token. */
function choose(state: RemovalState, token: number): void {
  const { ctx } = state;
  const { kind, unit } = ctx.source();
  if (kind === "map") {
    ctx.selection.pin({ unit, query: token, key: -1 });
    return;
  }
  goTo(state, token);
}

function goTo(state: RemovalState, token: number): void {
  const { player, removal } = state;
  const rank = removal?.order.indexOf(token) ?? -1;
  if (!removal || rank < 0) return;
  const step = removal.steps.findIndex((k) => k > rank);
  player.stop();
  player.go(step === player.at() ? step - 1 : step);
}

function update(state: RemovalState): void {
  const { ctx, layers, by } = state;
  if (state.room <= 0 || state.size.width <= 0) return; // not visible: nothing is requested
  const { source } = ctx.resolved();
  state.method.show();
  layers.show();
  state.units.show();
  // Attributions are those at the input, whatever layer is selected.
  if (source.kind === "attributions" && source.layers.length < 2) {
    for (const element of layers.elements) assign(element, { hidden: true });
  }
  read(state);
  const isPage = ctx.model.get("runtime") === "";
  state.operator.offer(state.removal ? choicesOf(state.removal, isPage) : [], state.removal?.operator ?? "");
  const heading = state.removal ? `What is left of “${shortLabel(state.removal.target, 40)}”` : "What is left";
  const title = state.frame.show(state.removal ? rowWords(ctx) : "", heading);
  state.root.ariaLabel = `${title}, by ${source.title}`;
  if (!state.removal) return;
  const { operator: done, standIn } = state.removal;
  setText(by, `by ${strategyName(done)}`);
  by.title = standIn ? `replaced by ${standIn}` : (EFFECTS[done] ?? "");
  state.seen.build();
  paint(state);
}

/** Update words, chart and text for the slider position. Sends nothing. */
function paint(state: RemovalState): void {
  const { ctx, player, removal, size } = state;
  if (!removal || state.room <= 0 || size.width <= 0) return;
  state.copy.show();
  const { order: ranked, steps, operator: done, target } = removal;
  const [step, mode] = [player.at(), state.modes.value()];
  const isAlone = mode === "kept";
  const { unit, key } = ctx.source();
  const k = steps[step] ?? 0;
  const { labels } = ctx.axisOf(key);
  const name = (token: number): string => quoted(labels, token, ctx.options.indexBase);
  const first = ranked[0] === undefined ? "" : name(ranked[0]);
  const top = ranked.slice(0, Math.min(k, NAMED)).map(name);
  const list = `${top.join(", ")}${k > NAMED ? ` and ${k - NAMED} more` : ""}`;
  const verb = isAlone ? "kept alone" : "removed";
  const words = k ? `${list} ${verb}` : isAlone ? "nothing kept" : "nothing removed";
  const [before, now] = [valueWithAll(removal), removal.values[mode][step] ?? NaN].map((value) =>
    exactWords({ score: (removal as Removal).score }, value),
  );
  const values = k || isAlone ? `${before} → ${now}` : before;
  const sentence = `${words}: ${shortLabel(target, 40)} ${values}`;
  state.frame.readout.show(`${sentence} · ${strategyName(done)} · k = ${k}`, true);
  const count = `${k} of ${ranked.length}`;
  player.name(
    `${plural(unit)[0]?.toUpperCase()}${plural(unit).slice(1)} ${isAlone ? "kept" : "removed"}`,
    count,
    `${count}: ${sentence}`,
  );
  state.change.show(removal, mode, step, unit, first);
  state.chart.show(removal, mode, step, withoutWords(mode, k, unit, first), size);
  state.order.show(removal, mode, step);
  const newest = k ? (ranked[k - 1] ?? -1) : -1;
  state.seen.show(removal, new Set(isAlone ? ranked.slice(k) : ranked.slice(0, k)), newest);
}
