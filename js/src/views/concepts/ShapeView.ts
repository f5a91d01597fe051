/**
 * A model on a template as a sum over slots: the loss of this approximation, shapes, shares, a pair as a map, and the
 * worst texts.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, safeText, setChildren, setText, shortLabel } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type Account, createAccount } from "../base/account.ts";
import { type CopyButton, createCopyButton, type NumberAddress } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening, inWords, type Opening } from "../base/openText.ts";
import { only, view } from "../base/view.ts";
import { decimal } from "../circuits/words.ts";
import { topOf } from "./influence.ts";
import { drawPair } from "./pairMap.ts";
import { levelName, lossWords, percent, type ShapeOptions, type Shapes, slotNames } from "./shapes.ts";
import { showNotes, textStrip } from "./texts.ts";

/** The elements of the view, and the state that they show. */
interface ShapeState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  /** The shapes of all classes at the layer; null until they arrive. */
  layerShapes: Shapes | null;
  /** "slot,level", "a,b" of the pair's map, the name of a share, or the index of a text. */
  chosen: { kind: "level" | "cell" | "share" | "text"; at: string } | null;
  readonly target: HTMLSpanElement;
  readonly lost: HTMLElement;
  readonly rest: HTMLSpanElement;
  readonly estimated: HTMLSpanElement;
  readonly shapes: HTMLDivElement;
  readonly shares: HTMLDivElement;
  readonly pairHead: HTMLDivElement;
  readonly pairMap: HTMLTableElement;
  readonly worst: HTMLDivElement;
  readonly notes: Account;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly opening: Opening;
}

export const renderShapeView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const target = h("span.concept-target.clip");
  const [lost, rest, estimated] = [
    h("b.shape-lost"),
    h("span.shape-rest"),
    h("span.shape-tag.boxed.fine", "estimated"),
  ];
  const shapes = h("div.shape-slots");
  const shares = h("div.shape-shares", { role: "list", "aria-label": "shares of the variance" });
  const pairHead = h("div.concept-head");
  const pairMap = h("table.shape-pair");
  const worst = h("div.shape-worst", { role: "list", "aria-label": "texts that the sum predicts worst" });
  const notes = createAccount(signal);
  const copy = createCopyButton(ctx, signal, () => numberAt(state));
  const frame = createFrame(ctx, root, {
    controls: [h("span.fine", "target"), target],
    lead: [h("div.shape-lead", lost, rest, estimated)],
    body: [
      h(
        "div.shape-panes",
        h("div.shape-pane.column", h("div.concept-head", h("b", "what each level adds")), shapes),
        h(
          "div.shape-pane.column",
          h("div.concept-head", h("b", "share of the variance")),
          shares,
          pairHead,
          h("div.shape-scroll", pairMap),
        ),
        h(
          "div.shape-pane.column",
          h("div.concept-head", h("b", "predicted worst"), h("span.concept-end", "model → sum")),
          worst,
        ),
      ),
      notes.element,
    ],
    skeleton: "rows",
    hint: "Click a level, a pair, or a text.",
    says: true,
    actions: [copy.element],
  });
  const opening = createOpening(ctx, signal, () => frame);

  const state: ShapeState = {
    ctx,
    root,
    answers,
    layerShapes: null,
    chosen: null,
    target,
    lost,
    rest,
    estimated,
    shapes,
    shares,
    pairHead,
    pairMap,
    worst,
    notes,
    copy,
    frame,
    opening,
  };
  listen(state, signal);
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

function listen(state: ShapeState, signal: AbortSignal): void {
  const { ctx, root, opening } = state;
  root.classList.add("aw-shapes");
  root.role = "group";

  on(root, signal, {
    click(event) {
      const element = (event.target as Element).closest<HTMLElement>(
        "[data-level], [data-cell], [data-share], [data-open], [data-text]",
      );
      if (!element || !state.layerShapes) return;
      const { level, cell, share, pair, open, text } = element.dataset;
      if (level !== undefined) choose(state, "level", level);
      else if (cell !== undefined) choose(state, "cell", cell);
      else if (share !== undefined) {
        if (Number(pair) >= 0 && Number(pair) !== options(ctx).pair) {
          state.chosen = { kind: "share", at: share };
          ctx.model.set("options", { ...ctx.model.get("options"), pair: Number(pair) } as never);
          ctx.model.save_changes();
        } else choose(state, "share", share);
      } else if (open !== undefined) {
        const example = state.layerShapes.worst.find(([at]) => String(at) === open);
        if (example) opening.open(example[0], example[1], element);
      } else if (text !== undefined) choose(state, "text", text);
    },
  });
  keyboard(
    root,
    signal,
    {
      ArrowDown: () => step(columns(state))(),
      ArrowUp: () => step(-columns(state))(),
      ArrowRight: step(1),
      ArrowLeft: step(-1),
      Escape: () => {
        state.chosen = null;
        draw(state);
      },
    },
    "arrows: through levels, shares and cells · Enter: choose · Escape: none",
  );
}

function options(ctx: ViewContext): ShapeOptions {
  return ctx.options as ShapeOptions;
}

function numberAt(state: ShapeState): NumberAddress | null {
  const { layerShapes, chosen } = state;
  if (!layerShapes) return null;
  const [a = 0, b = 0] = chosen?.at.split(",").map(Number) ?? [];
  if (chosen?.kind === "level") return { of: "effect", slots: [a], levels: [b] };
  const pair = layerShapes.pairs[options(state.ctx).pair];
  if (chosen?.kind === "cell" && pair) return { of: "effect", slots: pair.slots, levels: [a, b] };
  if (chosen?.kind === "share") return { of: "share", name: chosen.at };
  return layerShapes.fidelities[0] === null ? null : { of: "fidelity" };
}

function choose(state: ShapeState, kind: "level" | "cell" | "share" | "text", at: string): void {
  state.chosen = state.chosen?.kind === kind && state.chosen.at === at ? null : { kind, at };
  draw(state);
}

function isChosen(state: ShapeState, kind: string, at: string): boolean {
  return state.chosen?.kind === kind && state.chosen.at === at;
}

function drawShapes(state: ShapeState): void {
  const { layerShapes } = state;
  if (!layerShapes) return;
  const top = Math.max(...layerShapes.slots.map(({ values }) => topOf(values)), 1e-12);
  const slots = layerShapes.slots.map((slot, s) => {
    const rows = slot.levels.map((level, l) => {
      const value = slot.values[l] ?? Number.NaN;
      const bar = h("span.shape-bar", { "aria-hidden": "true" });
      const size = Number.isNaN(value) ? 0 : (50 * Math.abs(value)) / top;
      const side = value < 0 ? "against" : "for";
      bar.append(h("span", { "data-side": side, style: `${value < 0 ? "right" : "left"}:50%;width:${size}%` }));
      return h(
        "button.shape-level.pick.ghost",
        {
          type: "button",
          "data-level": `${s},${l}`,
          "aria-pressed": String(isChosen(state, "level", `${s},${l}`)),
          title: level,
        },
        h("span.shape-name", { dir: "auto" }, shortLabel(levelName(level), 28)),
        bar,
        h("span.concept-value", decimal(value, 2, true)),
      );
    });
    return h(
      "div.shape-slot",
      { role: "group", "aria-label": slot.name },
      h("div.shape-title.clip.fine", { dir: "auto", title: slot.name }, shortLabel(slot.name, 40)),
      ...rows,
    );
  });
  setChildren(state.shapes, ...slots);
}

function drawShares(state: ShapeState): void {
  const { layerShapes, chosen, shares, pairMap } = state;
  if (!layerShapes) return;
  const { pair } = options(state.ctx);
  const rows = layerShapes.shares.map(([name, share, position]) => {
    const bar = h("span.meter-bar", { "aria-hidden": "true" });
    bar.append(h("span.amount", { style: `width:${100 * Math.max(0, Math.min(1, share ?? 0))}%` }));
    const button = h(
      "button.shape-share.pick.ghost",
      {
        type: "button",
        "data-share": name,
        "data-pair": String(position),
        "aria-pressed": String(position >= 0 ? position === pair : isChosen(state, "share", name)),
        title: slotNames(name),
      },
      h("span.shape-name", { dir: "auto" }, shortLabel(slotNames(name), 36)),
      bar,
      h("span.concept-value", percent(share)),
    );
    return h("div", { role: "listitem" }, button);
  });
  const more = layerShapes.others > 0 ? [h("div.concept-more.fine", `${layerShapes.others} smaller ones`)] : [];
  const scrolled = shares.scrollTop;
  setChildren(shares, ...rows, ...more);
  shares.scrollTop = scrolled;
  const shown = layerShapes.pairs[pair];
  const names = shown?.slots.map((at) => shortLabel(layerShapes?.slots[at]?.name ?? "", 20)) ?? [];
  assign(pairMap, { hidden: !shown });
  const words =
    layerShapes.pairs.length === 0
      ? "No pairs were fitted."
      : shown
        ? "beyond what each adds alone"
        : "This pair has too many levels for a map.";
  setChildren(state.pairHead, ...(shown ? [h("b", { dir: "auto" }, names.join(" × "))] : []), h("span", words));
  if (shown) drawPair(pairMap, layerShapes, shown, chosen?.kind === "cell" ? chosen.at : "", state.ctx.theme);
}

function drawWorst(state: ShapeState): void {
  const { layerShapes, worst } = state;
  if (!layerShapes) return;
  const rows = layerShapes.worst.map(([at, text, model, student]) =>
    h(
      "div.shape-row.pick",
      {
        role: "listitem",
        "data-text": String(at),
        ...(isChosen(state, "text", String(at)) ? { "data-chosen": "" } : {}),
      },
      textStrip(text),
      h("span.concept-value", `${decimal(model ?? Number.NaN, 2, true)} → ${decimal(student ?? Number.NaN, 2, true)}`),
      state.opening.button(at),
    ),
  );
  const scrolled = worst.scrollTop;
  setChildren(worst, ...rows);
  worst.scrollTop = scrolled;
}

function say(state: ShapeState): void {
  const { layerShapes, chosen } = state;
  if (!layerShapes) return;
  const [a = 0, b = 0] = chosen?.at.split(",").map(Number) ?? [];
  let words = "";
  if (chosen?.kind === "level") {
    const slot = layerShapes.slots[a];
    words = `${safeText(slot?.name ?? "")} = ${inWords(levelName(slot?.levels[b] ?? ""))} adds ${decimal(slot?.values[b] ?? Number.NaN, 4, true)} to ${layerShapes.target}`;
  } else if (chosen?.kind === "cell") {
    const pair = layerShapes.pairs[options(state.ctx).pair];
    const [first, second] = pair?.slots.map((at) => layerShapes?.slots[at]) ?? [];
    words = `${inWords(levelName(first?.levels[a] ?? ""), 30)} with ${inWords(levelName(second?.levels[b] ?? ""), 30)} adds ${decimal(pair?.values[a]?.[b] ?? Number.NaN, 4, true)} beyond what each adds alone`;
  } else if (chosen?.kind === "share") {
    const share = layerShapes.shares.find(([name]) => name === chosen?.at)?.[1] ?? null;
    words = `${safeText(slotNames(chosen.at))} explains ${percent(share)} of the variance`;
  } else if (chosen?.kind === "text") {
    const example = layerShapes.worst.find(([at]) => String(at) === chosen?.at);
    if (example)
      words = `${inWords(example[1])}: the model says ${decimal(example[2] ?? Number.NaN, 3, true)}, the sum ${decimal(example[3] ?? Number.NaN, 3, true)}`;
  }
  state.frame.readout.show(words, true);
}

/** The marks of a list are a single stop of the tab key, as far as arrows move between them. */
function rove(list: Element): void {
  const marks = [...list.querySelectorAll<HTMLElement>("button")];
  const stop = marks.find(({ ariaPressed }) => ariaPressed === "true") ?? marks[0];
  for (const mark of marks) mark.tabIndex = mark === stop ? 0 : -1;
}

function draw(state: ShapeState): void {
  const { root } = state;
  // A clicked element is created again, and keeps the focus.
  const focused = document.activeElement as HTMLElement | null;
  const key = ["level", "cell", "share"].find((name) => focused?.dataset[name] !== undefined && root.contains(focused));
  const value = key ? focused?.dataset[key] : undefined;
  drawShapes(state);
  drawShares(state);
  for (const list of [state.shapes, state.shares, state.pairMap]) rove(list);
  drawWorst(state);
  if (key) {
    const all = [...root.querySelectorAll<HTMLElement>(`[data-${key}]`)];
    all.find((button) => button.dataset[key] === value)?.focus({ preventScroll: true });
  }
  state.copy.show();
  say(state);
}

function update(state: ShapeState): void {
  const { answers, target, frame } = state;
  const answer = answers.get<Shapes>("shapes");
  frame.lacks(answer ? null : missingAnswer(answers, "shapes", {}, "shapes"));
  state.layerShapes = answer ? { ...answer.meta, target: safeText(answer.meta.target) } : null;
  const of = state.layerShapes?.estimated ? "estimated from" : "all";
  const mean = state.layerShapes?.mean ?? Number.NaN;
  const model = state.layerShapes?.model ? ` · ${state.layerShapes.model}` : "";
  const about = state.layerShapes
    ? `${of} ${state.layerShapes.texts.toLocaleString("en")} texts, mean ${decimal(mean, 2, true)}${model}`
    : "";
  frame.show(about, "a simpler model");
  if (!state.layerShapes) return;
  setText(target, state.layerShapes.target);
  target.title = state.layerShapes.target;
  const [first, second] = lossWords(state.layerShapes);
  setText(state.lost, first);
  setText(state.rest, second);
  assign(state.estimated, { hidden: !state.layerShapes.estimated });
  showNotes(state.notes, state.layerShapes.notes);
  assign(state.root, { ariaLabel: `a simpler model of ${state.layerShapes.target}. ${state.layerShapes.summary}` });
  draw(state);
}

/** Go to the next level, cell or share, if there is a next. */
function step(by: number): () => void {
  return (): void => {
    const focused = document.activeElement as HTMLElement | null;
    const list = focused?.closest(".aw-shape-slots, .aw-shape-shares, .aw-shape-pair");
    if (!focused || !list) return;
    const all = [...list.querySelectorAll<HTMLElement>("button")];
    all[Math.max(0, Math.min(all.length - 1, all.indexOf(focused) + by))]?.focus();
  };
}

function columns(state: ShapeState): number {
  return state.pairMap.contains(document.activeElement)
    ? (state.pairMap.querySelector("tbody tr")?.childElementCount ?? 2) - 1
    : 1;
}
