/** Influence: the training texts that help a test and those that harm it, among all others; one may be left out. */
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
import { createAnswers } from "../../wire/answers.ts";
import { createAccount } from "../base/account.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { methodsOf } from "../base/navigation.ts";
import { createOpening, hasKernel, inWords } from "../base/openText.ts";
import { createSegments } from "../base/segmentedControl.ts";
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
import { type Against, drawScatter, type Place } from "./scatter.ts";
import { colouredStrip, readWords, showNotes, textStrip } from "./texts.ts";

/** Smallest width in px at which the scatter is next to the lists, and its height below them. */
const [WIDE, LOW] = [960, 120];

const measureWords = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))).replace("-", "−");

export const renderInfluenceView = view((ctx, root, signal) => {
  const options = (): InfluenceOptions => ctx.options as InfluenceOptions;
  const answers = createAnswers(ctx, signal, () => update());
  let taught: Taught | null = null;
  let what: Influential | null = null;
  let chosen = -1; // index among the points
  let hovered = -1;
  let requested: { test: number; train: number } | null = null; // the refit that was requested
  let coloured: Coloured | null = null;
  /** A page holds the words by this method, of the test that it opens with. */
  const held = options().colouredBy;
  let places: Place[] = [];
  let [width, height] = [0, 0];
  const set = (values: Partial<InfluenceOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const tests = createMenu("test", signal, (value) => {
    [chosen, hovered, requested] = [-1, -1, null];
    set({ test: Number(value) });
  });
  const methods = createMenu("words by", signal, (colouredBy) => set({ colouredBy }));
  const ramp = h("span.ramp");
  const legend = h("span.scale.legend");
  const against = createSegments<Against>("points against", { distance: "distance", loss: "loss" }, signal, () =>
    draw(),
  );
  const testText = h("span.taught-test", { dir: "auto" });
  const testLabel = h("span.taught-label");
  const testMeasure = h("span.taught-measure");
  const testOpen = h("button.button.open-text", { type: "button", "data-open": "-1" }, "Open");
  const sides = (["helpful", "harmful"] as const).map((name) => {
    const list = h("div.taught-list", { role: "list", "aria-label": `${name} training texts` });
    const note = h("span");
    return { name, list, note, element: h("div.taught-side", h("div.concept-head", h("b", name), note), list) };
  });
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h(
    "div.taught-plot",
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
  const scatter = h("div.taught-scatter", h("div.concept-head", h("b", "all"), key, against.element), plot);
  const refit = h(
    "button.button.taught-refit",
    { type: "button", title: "Fit the head again without the chosen training text" },
    "Leave it out and refit",
  );
  const outcome = h("span.taught-outcome", { role: "status" });
  const detail = h("div.taught-detail", refit, outcome);
  const notes = createAccount(signal);
  const copy = createCopyButton(ctx, signal, () => {
    const train = what?.points[chosen];
    return train === undefined ? null : { of: "influence", test: options().test, train };
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

  const choose = (at: number): void => {
    chosen = at === chosen ? -1 : at;
    requested = null;
    draw();
  };
  const nameOf = (at: number): string => {
    if (!what || !taught) return "";
    const value = what.influence[at];
    const side =
      value === null || value === undefined ? "no number" : value > 0 ? "harms" : value < 0 ? "helps" : "does nothing";
    const top = topOf(what.influence);
    const change = what.change?.[at];
    const estimate =
      change === null || change === undefined
        ? ""
        : `; without it the ${taught.measure} changes by about ${signedWords(change, Math.abs(change))}`;
    return `${safeText(what.labels[at] ?? "")}, ${inWords(what.texts[at] ?? "")} ${side}: ${signedWords(value, top)}${estimate}`;
  };

  const say = (): void => {
    const at = hovered >= 0 ? hovered : chosen;
    if (!taught || !what) return;
    const agreement =
      taught.agreement === null
        ? ""
        : ` · the fitted head agrees with the model on ${Math.round(100 * taught.agreement)} % of tests`;
    frame.readout.show(at >= 0 ? nameOf(at) : `${taught.train.toLocaleString("en")} training texts${agreement}`, true);
  };

  const isBuilt = createWatch();
  const buildTexts = (): void => {
    if (!what || !taught || !isBuilt(what, coloured, ctx.theme)) return;
    const { test } = what;
    setChildren(testText, coloured ? colouredStrip(test, coloured.test, ctx.theme) : textStrip(test));
    const top = topOf(what.influence) || 1;
    for (const { name, list, note } of sides) {
      setText(note, sideWords(taught, name));
      const rows = what[name].map((train) => {
        const at = what?.points.indexOf(train) ?? -1;
        const value = what?.influence[at] ?? null;
        const text = what?.texts[at] ?? "";
        const bar = h("span.taught-bar", { "aria-hidden": "true" });
        bar.append(h("span", { style: `width:${(100 * Math.abs(value ?? 0)) / top}%`, "data-side": name }));
        const parts = coloured?.train[train];
        const label = what?.labels[at] || `text ${train}`;
        return h(
          "div.taught-row",
          { role: "listitem", "data-at": String(at) },
          h("button.taught-choice", { type: "button", title: safeText(label) }, shortLabel(label, 14)),
          bar,
          h("span.concept-value", signedWords(value, top)),
          opening.button(train),
          parts ? colouredStrip(text, parts, ctx.theme) : textStrip(text),
        );
      });
      const none = h("div.concept-more", `No training text is ${name} here.`);
      const scrolled = list.scrollTop;
      setChildren(list, ...(rows.length ? rows : [none]));
      list.scrollTop = scrolled;
    }
  };
  const markRows = (): void => {
    for (const row of root.querySelectorAll<HTMLElement>(".aw-taught-row")) {
      const is = Number(row.dataset.at) === chosen;
      setFlag(row, "data-chosen", is);
      assign(row.firstElementChild as HTMLElement, { ariaPressed: String(is) });
    }
  };

  const drawDetail = (): void => {
    if (!taught || !what) return;
    const train = what.points[chosen];
    const hasHead = taught.measured !== null;
    assign(detail, { hidden: !hasHead });
    assign(refit, { disabled: train === undefined });
    if (train === undefined) {
      setText(outcome, "Choose a training text to see what leaving it out does.");
      return;
    }
    const args = { test: options().test, train };
    // Results that the page contains or that were requested are shown immediately.
    const done = requested ? answers.get<Refitted>("refit", args) : undefined;
    const why = requested ? answers.failure("refit", args) : undefined;
    const change = what.change?.[chosen];
    const estimate =
      change === null || change === undefined ? "" : `estimated ${signedWords(change, Math.abs(change))}`;
    if (done) {
      const { before, after, change: own } = done.meta;
      setChildren(
        outcome,
        `${taught.measure} `,
        h("b", measureWords(before)),
        " → ",
        h("b", measureWords(after)),
        ` (${signedWords(own, Math.abs(own ?? 0))}; ${estimate})`,
      );
    } else if (why) setText(outcome, `${why}${estimate ? ` (${estimate})` : ""}`);
    else if (requested) setText(outcome, `${answers.job("refit")?.text || "fitting"} …`);
    else setText(outcome, estimate ? `${estimate}: the ${taught.measure} of the test without it` : "");
    outcome.title = outcome.textContent ?? "";
  };

  const drawPoints = (): void => {
    if (!what || !taught || width <= 0) return;
    const label = taught.labels[options().test] ?? "";
    const which = what.distance ? against.value() : "loss";
    assign(against.element, { hidden: !what.distance });
    assign(key, { hidden: label === "" });
    places = drawScatter(picture, what, which, label, hovered >= 0 ? hovered : chosen, width, height);
    plot.ariaLabel = `${what.points.length} training texts by influence and ${which}. Up and down arrows go through them. ${chosen >= 0 ? nameOf(chosen) : ""}`;
  };

  const draw = (): void => {
    buildTexts();
    markRows();
    drawPoints();
    drawDetail();
    copy.show();
    say();
  };

  const update = (): void => {
    const { test } = options();
    const head = answers.get<Taught>("tests");
    const answer = head && answers.get<Influential>("influence", { test });
    const missing = head
      ? missingAnswer(answers, "influence", { test }, "influence")
      : missingAnswer(answers, "tests", {}, "tests");
    taught = head?.meta ?? null;
    what = answer?.meta ?? null;
    const { colouredBy } = options();
    const words = { test, method: colouredBy };
    coloured = (answer && colouredBy && answers.get<Coloured>("strips", words, true)?.meta) || null;
    const isLacking = answer && colouredBy && !coloured && hasKernel(ctx);
    // The texts are there, only their colours are not.
    const part = isLacking && { ...missingAnswer(answers, "strips", words, "colours of words"), part: true };
    frame.lacks(answer ? part || null : missing);
    const model = taught?.model ? ` · ${taught.model}` : "";
    const about = taught && `of ${taught.train.toLocaleString("en")} training texts, by ${taught.of}${model}`;
    frame.show(about ?? "", "influence");
    const isPlain = !!colouredBy && !coloured && !hasKernel(ctx);
    assign(legend, { hidden: !coloured && !isPlain });
    const speaks = taught?.classes ? "for the text’s label" : "for the prediction";
    if (isPlain) setText(legend, "plain words: colours need a running kernel");
    else setChildren(legend, "against", ramp, speaks);
    setStyles(ramp, { background: gradient(ctx.theme, true) });
    copy.show();
    if (!taught) return;
    const offered = methodsOf({ ...ctx.header(), methods: taught.methods }, hasKernel(ctx) || !held ? [] : [held]);
    methods.offer(offered.length ? [{ value: "", label: "none", note: "plain texts" }, ...offered] : [], colouredBy);
    tests.offer(
      taught.tests.map((text, i) => ({ value: String(i), label: shortLabel(text, 40), note: taught?.labels[i] ?? "" })),
      String(test),
    );
    const text = taught.tests[test] ?? "";
    const label = safeText(taught.labels[test] ?? "");
    assign(testLabel, { hidden: label === "", title: label });
    setText(testLabel, label);
    const measured = taught.measured?.[test];
    setText(
      testMeasure,
      measured === null || measured === undefined ? `by ${taught.of}` : `${taught.measure} ${measureWords(measured)}`,
    );
    testOpen.title = opening.button(-1).title;
    showNotes(notes, taught.notes);
    assign(root, { ariaLabel: `influence on ${inWords(text)}` });
    draw();
  };

  on(root, signal, {
    click(event) {
      const target = event.target as Element;
      const button = target.closest<HTMLElement>("[data-open]");
      if (button === testOpen) opening.open(-1 - options().test, taught?.tests[options().test] ?? "", button);
      else if (button && what) {
        const train = Number(button.dataset.open);
        opening.open(train, what.texts[what.points.indexOf(train)] ?? "", button);
      } else if (rowOf(target) >= 0) choose(rowOf(target));
    },
  });
  const rowOf = (target: EventTarget | null): number =>
    Number((target as Element | null)?.closest<HTMLElement>("[data-at]")?.dataset.at ?? -1);
  for (const { list } of sides) {
    on(list, signal, {
      pointerover: ({ target }) => point(rowOf(target)),
      pointerleave: () => point(-1),
    });
  }
  readWords(root, signal, (word) => {
    if (!word || !what || !taught) return say();
    const at = rowOf(word);
    const label = at >= 0 ? what.labels[at] : taught.labels[options().test];
    const value = Number(word.dataset.value);
    const side = `${value < 0 ? "against" : "for"} ${taught.classes ? safeText(label ?? "") : "the prediction"}`;
    frame.readout.show(`${inWords(word.textContent ?? "")}: ${signedWords(value, Math.abs(value))}, ${side}`, true);
  });
  on(refit, signal, {
    click() {
      const train = what?.points[chosen];
      if (train === undefined) return;
      requested = { test: options().test, train };
      answers.retry("refit");
      answers.get<Refitted>("refit", requested);
      drawDetail();
    },
  });
  const point = (at: number): void => {
    if (at === hovered) return;
    hovered = at;
    drawPoints();
    say();
  };
  const nearest = (event: MouseEvent): number => {
    const box = picture.getBoundingClientRect();
    return nearestPoint(places, event.clientX - box.left, event.clientY - box.top);
  };
  on(plot, signal, {
    pointermove: (event) => point(nearest(event)),
    pointerleave: () => point(-1),
    click(event) {
      const at = nearest(event);
      if (at >= 0) choose(at);
    },
  });
  /** From the most helpful to the most harmful. */
  const step = (by: number) => (): void => {
    if (!what) return;
    const { influence } = what;
    const order = [...influence.keys()].filter((i) => influence[i] !== null);
    order.sort((a, b) => (influence[a] ?? 0) - (influence[b] ?? 0));
    const now = order.indexOf(chosen);
    const next = order[now < 0 ? (by > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, now + by))];
    if (next !== undefined && next !== chosen) choose(next);
  };
  keyboard(
    plot,
    signal,
    {
      ArrowUp: step(1),
      ArrowDown: step(-1),
      ArrowRight: step(1),
      ArrowLeft: step(-1),
      Home: step(-Infinity),
      End: step(Infinity),
      Escape: () => chosen >= 0 && choose(chosen),
    },
    "↑ ↓: through the training texts, by influence · Escape: none",
  );
  onResize(plot, signal, (box) => {
    const now = Math.floor(box.width);
    const tall = root.clientWidth >= WIDE ? Math.max(LOW, Math.min(320, Math.floor(box.height))) : LOW;
    if (now <= 0 || (now === width && tall === height)) return;
    [width, height] = [now, tall];
    drawPoints();
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update();
  };
});
