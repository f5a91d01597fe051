/**
 * A study, as a participant goes through it: consent, practice, items and checks, and the answers to hand in. Nothing
 * is stored before consent, and afterwards only in the memory of this page, under a random code.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, safeText, setChildren, setFlag, setText } from "../../dom.ts";
import { download } from "../../snapshot.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { AskedStudy, StudyOptions } from "../../wire/studies.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { view } from "../base/view.ts";
import { createCopy } from "../question/copyButton.ts";
import { type Chooser, createChoices, createMarks, marksLegend, shownOf } from "./drawing.ts";
import { fileOf, lineOf, type Payload, payloadOf, type Row, whole } from "./payload.ts";
import { randomCode } from "./schedule.ts";
import { checkWords, choicesOf, instruction, itemOf, rowOf, type Step, stepsOf } from "./steps.ts";

/** The state of a participant's run; a view that is redrawn continues it. */
interface Run {
  code: string;
  steps: Step[];
  rows: Row[];
  at: number;
}

const RUNS = new WeakMap<object, Run>();
const CODE = /^[a-z0-9]{4,16}$/;
const BAD_CODE = "A code consists of 4 to 16 lowercase letters and digits. Do not use your name.";

/** The elements of the view, and the state that they show. */
interface StudyState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly isPage: boolean;
  readonly answers: Answers;
  readonly heading: HTMLElement;
  readonly progress: HTMLSpanElement;
  readonly bar: HTMLProgressElement;
  readonly stage: HTMLDivElement;
  readonly withdraw: HTMLButtonElement;
  readonly frame: Frame;
  /** Listeners of a step end with it. */
  step: AbortController;
  /** The control of the answer; null where nothing is to be chosen. */
  chooser: Chooser | null;
  /** The button to the next step. */
  next: HTMLButtonElement | null;
  /** Whether the next click withdraws. */
  isConfirming: boolean;
  /** When the item was shown, and when the participant first chose something, in ms. */
  shownAt: number;
  firstAt: number | null;
  /** The answer before it is handed in. */
  draft: unknown;
  /** The item that is shown. */
  drawn: string;
}

export const renderStudyView = view((ctx, root, signal) => {
  const isPage = ctx.model.get("runtime") === "";
  const answers = createAnswers(ctx, signal, () => undefined);
  const heading = h("b.study-title.clip", { dir: "auto" });
  const progress = h("span.study-place.dim", { role: "status" });
  const bar = h("progress.study-bar", { "aria-label": "progress" });
  const stage = h("div.study-stage.column");
  const withdraw = h("button.button", { type: "button" }, "Withdraw");
  const frame = createFrame(ctx, root, {
    layout: ".column.flush.untitled",
    controls: [heading, progress],
    lead: [bar],
    body: [stage],
    skeleton: "own",
    says: true,
    actions: [withdraw],
  });

  const state: StudyState = {
    ctx,
    root,
    isPage,
    answers,
    heading,
    progress,
    bar,
    stage,
    withdraw,
    frame,
    step: new AbortController(),
    chooser: null,
    next: null,
    isConfirming: false,
    shownAt: 0,
    firstAt: null,
    draft: undefined,
    drawn: "",
  };
  root.classList.add("aw-study");
  root.role = "group";
  on(withdraw, signal, {
    click() {
      if (!state.isConfirming) {
        state.isConfirming = true;
        setText(withdraw, "Delete all answers?");
        return;
      }
      RUNS.delete(ctx.model);
      keep(state);
      draw(state, true);
    },
  });
  on(root, signal, {
    keydown(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      const isField = target instanceof HTMLInputElement && target.type === "text";
      if (isField || !stage.contains(target)) return;
      if (/^[1-9]$/.test(event.key) && state.chooser?.pick(Number(event.key) - 1)) event.preventDefault();
      // A button answers Enter by itself.
      if (event.key !== "Enter" || target instanceof HTMLButtonElement || !state.next || state.next.disabled) return;
      event.preventDefault();
      state.next.click();
    },
  });
  signal.addEventListener("abort", () => state.step.abort());
  return () => update(state);
});

function study(ctx: ViewContext): AskedStudy {
  return (ctx.options as StudyOptions).study;
}

function run(ctx: ViewContext): Run | undefined {
  return RUNS.get(ctx.model);
}

function payload(ctx: ViewContext, now: Run): Payload {
  return payloadOf(study(ctx), now.code, now.rows, now.at >= now.steps.length);
}

/** Report to the kernel; in a page without a kernel, the answers stay here until they are handed in. */
function keep(state: StudyState): void {
  const now = run(state.ctx);
  if (!state.isPage)
    state.answers.get("responses", { payload: now ? whole(payload(state.ctx, now)) : null, count: Date.now() }, true);
}

function fill(state: StudyState, isFocused: boolean, ...parts: HTMLElement[]): void {
  const { stage } = state;
  setChildren(stage, ...parts);
  stage.scrollTop = 0;
  // A screen reader reads the new step, and keys work at once; a page that opens is not scrolled to it.
  if (isFocused) stage.querySelector<HTMLElement>("[tabindex='-1'].aw-study-question")?.focus();
}

function title(words: string): HTMLElement {
  return h("b.study-question", { tabindex: "-1", dir: "auto" }, words);
}

function drawConsent(state: StudyState, isFocused: boolean): void {
  const { consent, code } = study(state.ctx);
  const given = h("input.button.study-code", {
    type: "text",
    value: code ?? randomCode(),
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "16",
    "aria-label": "your code",
  });
  const note = h(
    "span.study-note.dim",
    "A random code; replace it if you were given another. Note it down in case you want to request your answers.",
  );
  const agree = h("button.button.study-next", { type: "button" }, "I agree");
  const start = (): void => {
    const typed = given.value.trim();
    if (!CODE.test(typed)) {
      setText(note, BAD_CODE);
      setFlag(note, "data-fault", true);
      given.focus();
      return;
    }
    RUNS.set(state.ctx.model, { code: typed, steps: stepsOf(study(state.ctx), typed), rows: [], at: 0 });
    keep(state);
    draw(state, true);
  };
  on(agree, state.step.signal, { click: start });
  on(given, state.step.signal, { keydown: (event) => event.key === "Enter" && start() });
  fill(
    state,
    isFocused,
    title("Before you begin"),
    h("p.study-consent", { dir: "auto" }, safeParagraphs(consent)),
    h("label.study-label.inline", h("span", "Your code"), given),
    note,
    h("div.study-foot", agree),
  );
}

function choose(state: StudyState, value: unknown): void {
  const { next } = state;
  state.draft = value;
  state.firstAt ??= performance.now();
  if (next) assign(next, { disabled: false });
}

function drawStep(state: StudyState, now: Run, isFocused: boolean): void {
  const shownStudy = study(state.ctx);
  const at = now.steps[now.at] as Step;
  const item = itemOf(shownStudy, at);
  state.draft = undefined;
  state.next = h("button.button.study-next", { type: "button" }, "Next");
  assign(state.next, { disabled: true });
  on(state.next, state.step.signal, { click: () => send(state, now, at) });
  const parts: HTMLElement[] = [];
  if (shownStudy.kind === "remove_words") {
    const shown = item?.shown[(shownStudy.cells[at.cell] ?? [0])[0] as number]?.[0];
    const words = item ?? { words: shownStudy.checkWords, gaps: shownStudy.checkWords.map(() => true) };
    state.chooser = createMarks(words, item ? shown : undefined, state.step.signal, (value) => choose(state, value));
    parts.push(state.chooser.element, ...(item ? marksLegend(item, shown) : []));
    if (item?.prediction[0])
      parts.push(h("p.study-said.fine", "The model answers ", h("b", { dir: "auto" }, safeText(item.prediction[0]))));
    // Marking no word is an answer, too.
    state.draft = [];
    assign(state.next, { disabled: false });
  } else {
    state.chooser = createChoices(choicesOf(shownStudy), state.step.signal, (value) => choose(state, value));
    parts.push(...shownOf(shownStudy, at), state.chooser.element);
  }
  const question = at.role === "check" ? checkWords(shownStudy, at.at) : shownStudy.question;
  fill(
    state,
    isFocused,
    h(
      "div.study-top",
      ...(at.role === "practice" ? [h("span.study-tag.boxed.fine", "practice")] : []),
      title(safeText(question)),
    ),
    ...parts,
    h("div.study-foot", state.next),
  );
  [state.shownAt, state.firstAt] = [performance.now(), null];
}

function send(state: StudyState, now: Run, at: Step): void {
  if (state.draft === undefined) return;
  const since = (time: number | null): number | null => (time === null ? null : time - state.shownAt);
  now.rows.push(rowOf(study(state.ctx), at, state.draft, since(state.firstAt), performance.now() - state.shownAt));
  const words = instruction(study(state.ctx), at);
  if (words) {
    drawInstruction(state, now, words);
    return;
  }
  goOn(state, now);
}

/** After a practice item, its right answer. */
function drawInstruction(state: StudyState, now: Run, words: string): void {
  renew(state);
  const on_ = h("button.button.study-next", { type: "button" }, "Continue");
  on(on_, state.step.signal, { click: () => goOn(state, now) });
  state.next = on_;
  state.chooser = null;
  fill(state, true, title(safeText(words)), h("div.study-foot", on_));
}

function goOn(state: StudyState, now: Run): void {
  now.at += 1;
  keep(state);
  draw(state, true);
}

function drawEnd(state: StudyState, now: Run, isFocused: boolean): void {
  const { step } = state;
  const line = lineOf(payload(state.ctx, now));
  const field = h("input.copy-text.study-line", {
    readonly: "",
    spellcheck: "false",
    value: line,
    "aria-label": "your answers as one line",
  });
  const file = h("button.button.study-next", { type: "button" }, "Download answers");
  const copy = createCopy(
    "study-copy",
    () => line,
    step.signal,
    () => field.select(),
  );
  copy.show("Copy as one line");
  on(file, step.signal, {
    click: () =>
      download(`study-${now.code}.json`, new Blob([fileOf(payload(state.ctx, now))], { type: "application/json" })),
  });
  fill(
    state,
    isFocused,
    title("Done. Thank you."),
    h(
      "p.study-consent",
      state.isPage
        ? "This page cannot send anything: hand in the file, or paste the line into the form that you were given."
        : "While the kernel runs, this notebook has your answers. Hand in the file or paste the line if your instructions say so.",
    ),
    h("p.study-consent", "Your code is ", h("b", now.code), "."),
    h("div.study-foot", file, copy.element),
    field,
  );
}

function renew(state: StudyState): void {
  state.step.abort();
  state.step = new AbortController();
  [state.chooser, state.next] = [null, null];
}

function draw(state: StudyState, isFocused = false): void {
  const { withdraw } = state;
  renew(state);
  state.isConfirming = false;
  setText(withdraw, "Withdraw");
  const now = run(state.ctx);
  const total = now?.steps.length ?? 1;
  assign(state.bar, { max: total, value: now?.at ?? 0 });
  setText(state.progress, now && now.at < total ? `${now.at + 1} of ${total}` : "");
  assign(withdraw, { hidden: !now });
  state.root.dataset.mode = !now ? "consent" : now.at < total ? "step" : "end";
  if (!now) drawConsent(state, isFocused);
  else if (now.at < total) drawStep(state, now, isFocused);
  else drawEnd(state, now, isFocused);
  state.frame.readout.show(hint(state.ctx, now, total), false);
}

function hint(ctx: ViewContext, now: Run | undefined, total: number): string {
  if (!now) return "Nothing is stored before you agree.";
  if (now.at >= total) return "Withdraw deletes your answers.";
  if (study(ctx).kind === "remove_words") return "← → move · Space marks";
  return `Keys 1 to ${Math.min(9, choicesOf(study(ctx)).length)} choose · Enter continues`;
}

function update(state: StudyState): void {
  const { heading: words, hash } = study(state.ctx);
  state.frame.show("");
  setText(state.heading, safeText(words));
  state.root.ariaLabel = `study: ${words.slice(0, 200)}`;
  // Another study in the same view; a change of theme or size leaves the step as it is.
  if (state.drawn === hash) return;
  state.drawn = hash;
  draw(state);
}

/** A text of paragraphs: control characters are made visible, but for line breaks. */
const safeParagraphs = (text: string): string => text.split("\n").map(safeText).join("\n");
