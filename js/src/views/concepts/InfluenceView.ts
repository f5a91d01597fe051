/**
 * Influence: the training texts that help a test text and those that harm it, among all others; a text may be left out.
 *
 * `update` reads the tests and their influential texts and writes both lists (`buildTexts`); `draw` draws everything
 * that depends on the chosen text: marked rows, the detail (`drawDetail`) and the points (`drawPoints`).
 */
import type { ViewContext } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  keyboard,
  on,
  onResize,
  safeText,
  setChildren,
  setFlag,
  setStyles,
  setText,
  shortLabel,
} from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type Account, createAccount } from "../base/account.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { createMenu, type Menu } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { methodsOf } from "../base/navigation.ts";
import { createOpening, hasKernel, inWords, type Opening } from "../base/openText.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { svg } from "../charts/svg.ts";
import { gradient } from "../text/stripColour.ts";
import {
  type Coloured,
  type InfluenceOptions,
  type Influential,
  nearestPoint,
  type Refitted,
  sideWords,
  signedWords,
  type Taught,
  topOf,
} from "./influence.ts";
import { type Against, type ChartPoint, drawScatter } from "./scatter.ts";
import { colouredStrip, readWords, showNotes, textStrip } from "./texts.ts";

/** Smallest width in px at which the scatter is next to the lists, and its height below them. */
const [WIDE, LOW] = [960, 120];

const measureWords = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))).replace("-", "−");

/** The elements of the view, and the state that they show. */
interface InfluenceState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  /** The tests and the classes that the head was fitted to. */
  taught: Taught | null;
  /** The training texts by their influence on the chosen test. */
  influential: Influential | null;
  /** The row of the chosen training text, and of that under the pointer; -1: none. */
  chosen: number;
  hovered: number;
  /** The refit that the reader chose. */
  requested: { test: number; train: number } | null;
  /** The values of the words, by the chosen method. */
  coloured: Coloured | null;
  /** A page holds the words by this method, of the test that it opens with. */
  readonly openingMethod: string;
  /** Where the points are. */
  points: ChartPoint[];
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
  readonly tests: Menu;
  readonly methods: Menu;
  readonly ramp: HTMLSpanElement;
  readonly legend: HTMLSpanElement;
  readonly against: Segments<Against>;
  readonly testText: HTMLSpanElement;
  readonly testLabel: HTMLSpanElement;
  readonly testMeasure: HTMLSpanElement;
  readonly testOpen: HTMLButtonElement;
  readonly sides: {
    name: "helpful" | "harmful";
    list: HTMLDivElement;
    note: HTMLSpanElement;
    element: HTMLDivElement;
  }[];
  readonly picture: SVGElement;
  readonly plot: HTMLDivElement;
  readonly key: HTMLDivElement;
  readonly refit: HTMLButtonElement;
  readonly outcome: HTMLSpanElement;
  readonly detail: HTMLDivElement;
  readonly notes: Account;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly opening: Opening;
  readonly isBuilt: (...values: unknown[]) => boolean;
}

export const renderInfluenceView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  /** A page holds the words by this method, of the test that it opens with. */
  const openingMethod = options(ctx).colouredBy;
  const tests = createMenu("test", signal, (value) => {
    [state.chosen, state.hovered, state.requested] = [-1, -1, null];
    set(ctx, { test: Number(value) });
  });
  const methods = createMenu("words by", signal, (colouredBy) => set(ctx, { colouredBy }));
  const ramp = h("span.ramp");
  const legend = h("span.scale.legend");
  const against = createSegments<Against>("points against", { distance: "distance", loss: "loss" }, signal, () =>
    draw(state),
  );
  const testText = h("span.taught-test", { dir: "auto" });
  const testLabel = h("span.taught-label.clip.boxed");
  const testMeasure = h("span.taught-measure.fine");
  const testOpen = h("button.button.open-text", { type: "button", "data-open": "-1" }, "Open");
  const sides = (["helpful", "harmful"] as const).map(createSide);
  const { picture, plot, key } = createScatter();
  const scatter = h("div.taught-scatter.column", h("div.concept-head", h("b", "all"), key, against.element), plot);
  const refit = h(
    "button.button.taught-refit",
    { type: "button", title: "Fit the head again without the chosen training text" },
    "Leave it out and refit",
  );
  const outcome = h("span.taught-outcome.clip", { role: "status" });
  const detail = h("div.taught-detail", refit, outcome);
  const notes = createAccount(signal);
  const copy = createCopyButton(ctx, signal, () => {
    const train = state.influential?.points[state.chosen];
    return train === undefined ? null : { of: "influence", test: options(ctx).test, train };
  });
  const frame = createFrame(ctx, root, {
    controls: [tests.field, methods.field, testMeasure],
    legend,
    lead: [h("div.taught-lead", testLabel, testText, testOpen)],
    body: [h("div.taught-panes", ...sides.map(({ element }) => element), scatter), detail, notes.element],
    skeleton: "rows",
    hint: "Click a training text or a point.",
    says: true,
    actions: [copy.element],
  });
  const opening = createOpening(ctx, signal, () => frame);
  root.classList.add("aw-taught");
  root.role = "group";

  const isBuilt = createWatch();

  const state: InfluenceState = {
    ctx,
    root,
    answers,
    taught: null,
    influential: null,
    chosen: -1,
    hovered: -1,
    requested: null,
    coloured: null,
    openingMethod,
    points: [],
    width: 0,
    height: 0,
    tests,
    methods,
    ramp,
    legend,
    against,
    testText,
    testLabel,
    testMeasure,
    testOpen,
    sides,
    picture,
    plot,
    key,
    refit,
    outcome,
    detail,
    notes,
    copy,
    frame,
    opening,
    isBuilt,
  };
  listen(state, signal);
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

/** The training texts that help, or harm. */
function createSide(name: "helpful" | "harmful"): InfluenceState["sides"][number] {
  const list = h("div.taught-list", { role: "list", "aria-label": `${name} training texts` });
  const note = h("span");
  return { name, list, note, element: h("div.taught-side.column", h("div.concept-head", h("b", name), note), list) };
}

/** The plot of all training texts, and the legend of its dots. */
function createScatter(): Pick<InfluenceState, "picture" | "plot" | "key"> {
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h(
    "div.taught-plot.drawn",
    { tabindex: "0", role: "application", "aria-roledescription": "scatter plot" },
    picture,
  );
  const key = h(
    "div.taught-key",
    { "aria-hidden": "true" },
    h("span.taught-dot"),
    "the test’s label",
    h("span.taught-dot.taught-ring"),
    "another label",
  );
  return { picture, plot, key };
}

/** Hover, choose and open rows, words and points. */
function listen(state: InfluenceState, signal: AbortSignal): void {
  const { answers, ctx, testOpen, sides, plot, refit, frame, root, opening } = state;

  on(root, signal, {
    click(event) {
      const target = event.target as Element;
      const button = target.closest<HTMLElement>("[data-open]");
      if (button === testOpen)
        opening.open(-1 - options(ctx).test, state.taught?.tests[options(ctx).test] ?? "", button);
      else if (button && state.influential) {
        const train = Number(button.dataset.open);
        opening.open(train, state.influential.texts[state.influential.points.indexOf(train)] ?? "", button);
      } else if (rowOf(target) >= 0) choose(state, rowOf(target));
    },
  });
  for (const { list } of sides) {
    on(list, signal, {
      pointerover: ({ target }) => point(state, rowOf(target)),
      pointerleave: () => point(state, -1),
    });
  }
  readWords(root, signal, (word) => {
    if (!word || !state.influential || !state.taught) return say(state);
    const at = rowOf(word);
    const label = at >= 0 ? state.influential.labels[at] : state.taught.labels[options(ctx).test];
    const value = Number(word.dataset.value);
    const side = `${value < 0 ? "against" : "for"} ${state.taught.classes ? safeText(label ?? "") : "the prediction"}`;
    frame.readout.show(`${inWords(word.textContent ?? "")}: ${signedWords(value, Math.abs(value))}, ${side}`, true);
  });
  on(refit, signal, {
    click() {
      const train = state.influential?.points[state.chosen];
      if (train === undefined) return;
      state.requested = { test: options(ctx).test, train };
      answers.retry("refit");
      answers.get<Refitted>("refit", state.requested);
      drawDetail(state);
    },
  });
  on(plot, signal, {
    pointermove: (event) => point(state, nearest(state, event)),
    pointerleave: () => point(state, -1),
    click(event) {
      const at = nearest(state, event);
      if (at >= 0) choose(state, at);
    },
  });
  keyboard(
    plot,
    signal,
    {
      ArrowUp: step(state, 1),
      ArrowDown: step(state, -1),
      ArrowRight: step(state, 1),
      ArrowLeft: step(state, -1),
      Home: step(state, -Infinity),
      End: step(state, Infinity),
      Escape: () => state.chosen >= 0 && choose(state, state.chosen),
    },
    "↑ ↓: through the training texts, by influence · Escape: none",
  );
  onResize(plot, signal, (box) => {
    const now = Math.floor(box.width);
    const tall = root.clientWidth >= WIDE ? Math.max(LOW, Math.min(320, Math.floor(box.height))) : LOW;
    if (now <= 0 || (now === state.width && tall === state.height)) return;
    [state.width, state.height] = [now, tall];
    drawPoints(state);
  });
}

function options(ctx: ViewContext): InfluenceOptions {
  return ctx.options as InfluenceOptions;
}

function set(ctx: ViewContext, values: Partial<InfluenceOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

function choose(state: InfluenceState, at: number): void {
  state.chosen = at === state.chosen ? -1 : at;
  state.requested = null;
  draw(state);
}

function nameOf(state: InfluenceState, at: number): string {
  const { taught, influential } = state;
  if (!influential || !taught) return "";
  const value = influential.influence[at];
  const side =
    value === null || value === undefined ? "no number" : value > 0 ? "harms" : value < 0 ? "helps" : "does nothing";
  const top = topOf(influential.influence);
  const change = influential.change?.[at];
  const estimate =
    change === null || change === undefined
      ? ""
      : `; without it the ${taught.measure} changes by about ${signedWords(change, Math.abs(change))}`;
  return `${safeText(influential.labels[at] ?? "")}, ${inWords(influential.texts[at] ?? "")} ${side}: ${signedWords(value, top)}${estimate}`;
}

function say(state: InfluenceState): void {
  const { taught, hovered } = state;
  const at = hovered >= 0 ? hovered : state.chosen;
  if (!taught || !state.influential) return;
  const agreement =
    taught.agreement === null
      ? ""
      : ` · the fitted head agrees with the model on ${Math.round(100 * taught.agreement)} % of tests`;
  state.frame.readout.show(
    at >= 0 ? nameOf(state, at) : `${taught.train.toLocaleString("en")} training texts${agreement}`,
    true,
  );
}

function buildTexts(state: InfluenceState): void {
  const { ctx, taught, influential, coloured } = state;
  if (!influential || !taught || !state.isBuilt(influential, coloured, ctx.theme)) return;
  const { test } = influential;
  setChildren(state.testText, coloured ? colouredStrip(test, coloured.test, ctx.theme) : textStrip(test));
  const top = topOf(influential.influence) || 1;
  for (const { name, list, note } of state.sides) {
    setText(note, sideWords(taught, name));
    const rows = influential[name].map((train) => {
      const at = influential?.points.indexOf(train) ?? -1;
      const value = influential?.influence[at] ?? null;
      const text = influential?.texts[at] ?? "";
      const bar = h("span.meter-bar", { "aria-hidden": "true" });
      const kind = name === "helpful" ? "for" : "against";
      bar.append(h(`span.${kind}`, { style: `width:${(100 * Math.abs(value ?? 0)) / top}%` }));
      const parts = coloured?.train[train];
      const label = influential?.labels[at] || `text ${train}`;
      return h(
        "div.taught-row.pick",
        { role: "listitem", "data-at": String(at) },
        h("button.taught-choice.clip.boxed", { type: "button", title: safeText(label) }, shortLabel(label, 14)),
        bar,
        h("span.concept-value", signedWords(value, top)),
        state.opening.button(train),
        parts ? colouredStrip(text, parts, ctx.theme) : textStrip(text),
      );
    });
    const none = h("div.concept-more.fine", `No training text is ${name} here.`);
    const scrolled = list.scrollTop;
    setChildren(list, ...(rows.length ? rows : [none]));
    list.scrollTop = scrolled;
  }
}

function markRows(state: InfluenceState): void {
  for (const row of state.root.querySelectorAll<HTMLElement>(".aw-taught-row")) {
    const is = Number(row.dataset.at) === state.chosen;
    setFlag(row, "data-chosen", is);
    assign(row.firstElementChild as HTMLElement, { ariaPressed: String(is) });
  }
}

function drawDetail(state: InfluenceState): void {
  const { answers, taught, influential, chosen, requested, outcome } = state;
  if (!taught || !influential) return;
  const train = influential.points[chosen];
  const hasHead = taught.measured !== null;
  assign(state.detail, { hidden: !hasHead });
  assign(state.refit, { disabled: train === undefined });
  if (train === undefined) {
    setText(outcome, "Choose a training text to see what leaving it out does.");
    return;
  }
  const args = { test: options(state.ctx).test, train };
  // Results that the page contains or that were requested are shown immediately.
  const done = requested ? answers.get<Refitted>("refit", args) : undefined;
  const why = requested ? answers.failure("refit", args) : undefined;
  const change = influential.change?.[chosen];
  const estimate = change === null || change === undefined ? "" : `estimated ${signedWords(change, Math.abs(change))}`;
  if (done) {
    const { before, after, change: ownChange } = done.meta;
    setChildren(
      outcome,
      `${taught.measure} `,
      h("b", measureWords(before)),
      " → ",
      h("b", measureWords(after)),
      ` (${signedWords(ownChange, Math.abs(ownChange ?? 0))}; ${estimate})`,
    );
  } else if (why) setText(outcome, `${why}${estimate ? ` (${estimate})` : ""}`);
  else if (requested) setText(outcome, `${answers.job("refit")?.text || "fitting"} …`);
  else setText(outcome, estimate ? `${estimate}: the ${taught.measure} of the test without it` : "");
  outcome.title = outcome.textContent ?? "";
}

function drawPoints(state: InfluenceState): void {
  const { taught, influential, chosen, hovered, width, against } = state;
  if (!influential || !taught || width <= 0) return;
  const label = taught.labels[options(state.ctx).test] ?? "";
  const which = influential.distance ? against.value() : "loss";
  assign(against.element, { hidden: !influential.distance });
  assign(state.key, { hidden: label === "" });
  state.points = drawScatter(
    state.picture,
    influential,
    which,
    label,
    hovered >= 0 ? hovered : chosen,
    width,
    state.height,
  );
  state.plot.ariaLabel = `${influential.points.length} training texts by influence and ${which}. Up and down arrows go through them. ${chosen >= 0 ? nameOf(state, chosen) : ""}`;
}

function draw(state: InfluenceState): void {
  buildTexts(state);
  markRows(state);
  drawPoints(state);
  drawDetail(state);
  state.copy.show();
  say(state);
}

function update(state: InfluenceState): void {
  const { ctx, answers, openingMethod, ramp, legend, testLabel, frame } = state;
  const { test } = options(ctx);
  const head = answers.get<Taught>("tests");
  const answer = head && answers.get<Influential>("influence", { test });
  const missing = head
    ? missingAnswer(answers, "influence", { test }, "influence")
    : missingAnswer(answers, "tests", {}, "tests");
  state.taught = head?.meta ?? null;
  state.influential = answer?.meta ?? null;
  const { colouredBy } = options(ctx);
  const words = { test, method: colouredBy };
  state.coloured = (answer && colouredBy && answers.get<Coloured>("strips", words, true)?.meta) || null;
  const isLacking = answer && colouredBy && !state.coloured && hasKernel(ctx);
  // The texts have arrived, only their colours have not.
  const part = isLacking && { ...missingAnswer(answers, "strips", words, "colours of words"), part: true };
  frame.lacks(answer ? part || null : missing);
  const model = state.taught?.model ? ` · ${state.taught.model}` : "";
  const about =
    state.taught && `of ${state.taught.train.toLocaleString("en")} training texts, by ${state.taught.of}${model}`;
  frame.show(about ?? "", "influence");
  const isPlain = !!colouredBy && !state.coloured && !hasKernel(ctx);
  assign(legend, { hidden: !state.coloured && !isPlain });
  const speaks = state.taught?.classes ? "for the text’s label" : "for the prediction";
  if (isPlain) setText(legend, "plain words: colours need a running kernel");
  else setChildren(legend, "against", ramp, speaks);
  setStyles(ramp, { background: gradient(ctx.theme, true) });
  state.copy.show();
  if (!state.taught) return;
  const offered = methodsOf(
    { ...ctx.header(), methods: state.taught.methods },
    hasKernel(ctx) || !openingMethod ? [] : [openingMethod],
  );
  state.methods.offer(
    offered.length ? [{ value: "", label: "none", note: "plain texts" }, ...offered] : [],
    colouredBy,
  );
  state.tests.offer(
    state.taught.tests.map((text, i) => ({
      value: String(i),
      label: shortLabel(text, 40),
      note: state.taught?.labels[i] ?? "",
    })),
    String(test),
  );
  const text = state.taught.tests[test] ?? "";
  const label = safeText(state.taught.labels[test] ?? "");
  assign(testLabel, { hidden: label === "", title: label });
  setText(testLabel, label);
  const measured = state.taught.measured?.[test];
  setText(
    state.testMeasure,
    measured === null || measured === undefined
      ? `by ${state.taught.of}`
      : `${state.taught.measure} ${measureWords(measured)}`,
  );
  state.testOpen.title = state.opening.button(-1).title;
  showNotes(state.notes, state.taught.notes);
  assign(state.root, { ariaLabel: `influence on ${inWords(text)}` });
  draw(state);
}

function rowOf(target: EventTarget | null): number {
  return Number((target as Element | null)?.closest<HTMLElement>("[data-at]")?.dataset.at ?? -1);
}

function point(state: InfluenceState, at: number): void {
  if (at === state.hovered) return;
  state.hovered = at;
  drawPoints(state);
  say(state);
}

function nearest(state: InfluenceState, event: MouseEvent): number {
  const box = state.picture.getBoundingClientRect();
  return nearestPoint(state.points, event.clientX - box.left, event.clientY - box.top);
}

/** From the most helpful to the most harmful. */
function step(state: InfluenceState, by: number): () => void {
  return (): void => {
    if (!state.influential) return;
    const { influence } = state.influential;
    const order = [...influence.keys()].filter((i) => influence[i] !== null);
    order.sort((a, b) => (influence[a] ?? 0) - (influence[b] ?? 0));
    const now = order.indexOf(state.chosen);
    const next = order[now < 0 ? (by > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, now + by))];
    if (next !== undefined && next !== state.chosen) choose(state, next);
  };
}
