/**
 * A question: its prompt, the selection in the view, and the answer, with its receipt. The reader acts in the view,
 * which is below or elsewhere, types, or copies the line of code; an answer counts once it is submitted.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, safeText, setFlag, setText } from "../../dom.ts";
import { download } from "../../snapshot.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { AnswerRecord, AskedQuestion, QuestionOptions } from "../../wire/questions.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { drawInside } from "../base/inside.ts";
import { view } from "../base/view.ts";
import { choicesOf, selected } from "./choices.ts";
import { createCopy } from "./copyButton.ts";
import { createLine, createOptions, createText, type Field } from "./fields.ts";
import { answerText, codeOf, HOW, typed } from "./kinds.ts";
import { createOrder } from "./orderField.ts";
import { canonical, fileOf, receiptOf } from "./record.ts";

const NO_PAGE = "this page cannot save: paste the receipt, your answer as one line, into your course";
const NO_KERNEL = "not saved, as no kernel answers: run the cell again, or hand in the receipt";
/** Characters of a receipt that are shown at its two ends. */
const ENDS: readonly [number, number] = [28, 7];
/** The records of the questions of this page, for its file of answers. */
const RECORDS = "__awAnswers";

/** State of a question that survives when it is redrawn from scratch. */
const UNFINISHED = "unfinished";

type Mode = "open" | "chosen" | "answered";

const questionOf = (ctx: ViewContext): QuestionOptions["question"] => (ctx.options as QuestionOptions).question;

/** The records of all questions of the page, by id. */
function recordsOfPage(): Map<string, AnswerRecord> {
  const page = globalThis as { [RECORDS]?: Map<string, AnswerRecord> };
  page[RECORDS] ??= new Map();
  return page[RECORDS];
}

/** The elements of the view, and the state that they show. */
interface QuestionState extends ReturnType<typeof createElements> {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly isPage: boolean;
  readonly kind: string;
  readonly answers: Answers;
  /** The answer to be submitted. */
  draft: unknown;
  /** The error in the typed answer. */
  fault: string;
  /** Whether a submitted answer is being changed. */
  isChanging: boolean;
  /** A submitted answer on its way. */
  sent: { value: unknown; count: number } | null;
  /** The last choice in the view. */
  seen: string;
  readonly code: ReturnType<typeof createCopy>;
  readonly receipt: ReturnType<typeof createCopy>;
  readonly fields: Fields;
  readonly frame: Frame;
}

type Unfinished = Pick<QuestionState, "draft" | "isChanging" | "seen">;

/** The elements of a question, in addition to the fields of its kind. */
function createElements() {
  const prompt = h("b.question-prompt", { dir: "auto" });
  const about = h("span.question-about.dim");
  const points = h("span.question-points");
  const status = h("span.question-status", { role: "status" });
  const chosen = h("b.question-chosen", { dir: "auto" });
  const note = h("span.question-note.dim");
  const submit = h("button.button.question-submit", { type: "button" }, "Submit");
  const change = h("button.button", { type: "button" }, "Change");
  const clear = h("button.button", { type: "button" }, "Clear");
  const take = h("button.button", { type: "button" });
  const outcome = h("div.question-told", { dir: "auto" });
  const byHand = h("input.copy-text", {
    readonly: "",
    spellcheck: "false",
    "aria-label": "copy this by hand",
    hidden: "",
  });
  const file = h(
    "button.button",
    { type: "button", title: "All answers of this page as a file to hand in" },
    "Download answers",
  );
  return { prompt, about, points, status, chosen, note, submit, change, clear, take, outcome, byHand, file };
}

export const renderQuestion = view((ctx, root, signal) => {
  const isPage = ctx.model.get("runtime") === "";
  const { kind } = questionOf(ctx).record;
  const answers = createAnswers(ctx, signal, () => receive(state));

  const elements = createElements();
  const { prompt, about, points, status, chosen, note, take, clear, change, submit, outcome, byHand, file } = elements;
  const code = createCopy(
    "question-code",
    () => codeLine(state),
    signal,
    (text) => copyByHand(state, text),
  );
  const receipt = createCopy(
    "question-receipt",
    () => receiptOf(questionOf(ctx).record),
    signal,
    (text) => copyByHand(state, text),
  );
  const fields = createFields(ctx, signal, {
    choose: (value) => choose(state, value),
    readLine: (line) => readLine(state, line),
    enter: () => submitted(state),
  });
  const line = h(
    "div.question-line-of",
    status,
    chosen,
    note,
    h("span.question-room"),
    take,
    ...fields.inline,
    clear,
    change,
    submit,
  );
  const frame = createFrame(ctx, root, {
    layout: ".untitled",
    controls: [prompt, h("span.question-side", about, points)],
    body: [...fields.blocks, line, outcome, byHand],
    skeleton: "own",
    says: true,
    actions: [code.element, receipt.element, ...(isPage ? [file] : [])],
  });

  const state: QuestionState = {
    ctx,
    root,
    isPage,
    kind,
    answers,
    draft: null,
    fault: "",
    isChanging: false,
    sent: null,
    seen: canonical(selected(ctx, questionOf(ctx).record)),
    // Redrawn for another text, the question continues with its last state, also from while it was being redrawn.
    ...(ctx.lasting.get(UNFINISHED) as Unfinished | undefined),
    code,
    receipt,
    fields,
    frame,
    ...elements,
  };
  listen(state, signal);
  return () => onChange(state);
});

/** Handle the buttons and the selection, which change the answer. */
function listen(state: QuestionState, signal: AbortSignal): void {
  const { ctx, kind, submit, change, clear, take, file, fields, root } = state;
  root.classList.add("aw-question");
  root.role = "group";

  on(submit, signal, { click: () => submitted(state) });
  on(take, signal, {
    click: () => choose(state, kind === "order" ? fields.current() : selected(ctx, questionOf(ctx).record)),
  });
  on(change, signal, {
    click() {
      state.isChanging = true;
      state.draft = questionOf(ctx).record.value;
      update(state);
      submit.focus();
    },
  });
  on(clear, signal, { click: () => send(state, null) });
  on(file, signal, {
    click: () => {
      const data = new Blob([fileOf([...recordsOfPage().values()])], { type: "application/json" });
      const page = decodeURIComponent(location.pathname.split("/").at(-1) ?? "").replace(/\.html?$/, "");
      download(`${page || "page"}.answers.json`, data);
    },
  });
  for (const inside of (ctx.options as QuestionOptions).inner) {
    const container = h("div.question-view");
    setFlag(container, "data-hides-patterns", kind === "head" || kind === "layer");
    root.append(container);
    void drawInside(ctx, inside, container, signal);
  }
}

function copyByHand(state: QuestionState, text: string): void {
  const { byHand } = state;
  assign(byHand, { value: text, hidden: false });
  byHand.select();
}

function choose(state: QuestionState, value: unknown): void {
  [state.draft, state.fault] = [value ?? null, ""];
  update(state);
}

function readLine(state: QuestionState, line: string): void {
  const { ctx } = state;
  const read = typed(questionOf(ctx), line, choicesOf(ctx, questionOf(ctx).record.unit));
  state.fault = typeof read === "string" ? read : "";
  state.draft = typeof read === "object" && read ? read.value : null;
  update(state);
}

function send(state: QuestionState, value: unknown): void {
  if (state.sent) return;
  if (state.isPage) {
    settle(state, value, "", NO_PAGE);
    return;
  }
  state.sent = { value, count: Date.now() };
  receive(state);
}

function submitted(state: QuestionState): void {
  if (state.draft !== null && !state.fault && !state.submit.disabled) send(state, state.draft);
}

/** Take an answer over in the browser alone. */
function settle(state: QuestionState, value: unknown, saved: string, problem: string): void {
  const { ctx } = state;
  const now = questionOf(ctx);
  // In a live page the reader may answer about another text than the recorded text of the question.
  const subject = now.subject === undefined ? now.record.subject : now.subject;
  const question = { ...now, record: { ...now.record, value, subject }, saved, problem, feedback: "", right: null };
  const options: QuestionOptions = { ...(ctx.model.get("options") as QuestionOptions), question };
  ctx.model.set("options", options);
  done(state);
}

function done(state: QuestionState): void {
  [state.draft, state.fault, state.isChanging, state.sent] = [null, "", false, null];
  for (const field of state.fields.all) if ("clear" in field) (field as { clear(): void }).clear();
  update(state);
}

/** The kernel's answer to a submission, if there is one. */
function receive(state: QuestionState): void {
  const { answers } = state;
  if (!state.sent) return;
  const { value } = state.sent;
  const reply = answers.get("answer", { ...state.sent });
  const why = answers.failure("answer", { ...state.sent });
  if (reply) done(state);
  else if (why && state.ctx.tiles.status().state === "ok" && !why.startsWith("No answer")) {
    [state.sent, state.fault] = [null, why];
    update(state);
  } else if (why) settle(state, value, "", NO_KERNEL);
  else update(state);
}

function modeOf(state: QuestionState): Mode {
  if (questionOf(state.ctx).record.value !== null && !state.isChanging) return "answered";
  return state.draft !== null && !state.fault ? "chosen" : "open";
}

function codeLine(state: QuestionState): string {
  const { kind } = state;
  const { record } = questionOf(state.ctx);
  const value = modeOf(state) === "answered" ? record.value : state.draft;
  const name = /^[\p{L}_][\p{L}\p{N}_]*$/u.test(record.id) ? record.id : "question";
  return `${name}.answer = ${value === null ? (HOW[kind]?.code ?? "…") : codeOf(kind, value)}`;
}

function update(state: QuestionState): void {
  const { ctx, root, isPage, kind, draft, fault, isChanging, sent, chosen, note, take, receipt, fields, frame } = state;
  ctx.lasting.set(UNFINISHED, { draft, isChanging, seen: state.seen } satisfies Unfinished);
  const now = questionOf(ctx);
  const { record } = now;
  const mode = modeOf(state);
  const choices = choicesOf(ctx, record.unit);
  root.dataset.mode = mode;
  setText(state.prompt, safeText(now.prompt));
  root.ariaLabel = `question: ${now.prompt.slice(0, 200)}`;
  setText(state.about, safeText(now.about));
  setText(state.points, now.points ? `${now.points} point${now.points === 1 ? "" : "s"}` : "");
  const value = mode === "answered" ? record.value : mode === "chosen" ? draft : null;
  const words = value === null ? "" : answerText({ ...record, value }, choices);
  setText(state.status, value === null ? "" : "Your answer:");
  setText(chosen, words);
  assign(chosen, { title: words });
  setText(note, sent ? "saving …" : noteOf(state, now, mode));
  setFlag(note, "data-fault", fault !== "");
  const verdict = now.right === null ? "" : now.right ? "right" : "not right yet";
  const problem = mode === "answered" || value === null ? now.problem : "";
  const isShown = problem && problem !== NO_PAGE && problem !== NO_KERNEL;
  const feedback = mode === "answered" ? [verdict, safeText(now.feedback)].filter(Boolean).join(": ") : "";
  setText(state.outcome, [feedback, isShown ? safeText(problem) : ""].filter(Boolean).join(" · "));
  const isOpen = mode !== "answered" && !sent;
  for (const field of fields.all) {
    if (mode === "answered" || (isChanging && draft === record.value)) field.show(record.value);
    field.open(isOpen);
  }
  fields.follow();
  const offered = isOpen && !draft && !fault && now.choices === null && kind !== "order" ? selected(ctx, record) : null;
  assign(take, { hidden: offered === null });
  if (offered !== null) setText(take, `Use ${answerText({ ...record, value: offered }, choices)}`);
  else if (isOpen && kind === "order" && now.choices && draft === null) {
    assign(take, { hidden: false });
    setText(take, "Use this order");
  }
  assign(state.submit, { hidden: mode === "answered", disabled: mode !== "chosen" || sent !== null });
  assign(state.change, { hidden: mode !== "answered" });
  assign(state.clear, { hidden: !isChanging || sent !== null });
  const whole = receiptOf(record);
  const [start, end] = ENDS;
  const short = whole.length > start + end ? `${whole.slice(0, start)}…${whole.slice(-end)}` : whole;
  frame.show("");
  frame.readout.show(mode === "answered" ? short : "Not submitted yet", false);
  receipt.show("Copy receipt", whole);
  assign(receipt.element, { hidden: mode !== "answered" });
  setFlag(receipt.element, "data-first", isPage);
  state.code.show(codeLine(state), "Copy this line of code");
  if (isPage) recordsOfPage().set(record.id, record);
  assign(state.file, { hidden: mode !== "answered" });
}

function noteOf(state: QuestionState, now: AskedQuestion, mode: Mode): string {
  const { fault } = state;
  if (fault) return fault;
  if (mode === "chosen") return "(not submitted)";
  if (mode === "open") return `${HOW[state.kind]?.act ?? ""} You can change your answer at any time.`;
  if (state.isPage) return NO_PAGE;
  if (now.problem === NO_KERNEL) return NO_KERNEL;
  return `${now.saved ? `✓ ${now.saved}` : "not saved as a file"} · the receipt is your answer as one line, for forms`;
}

function onChange(state: QuestionState): void {
  const { ctx } = state;
  // A selection in the view becomes the draft; exploring further after an answer changes nothing.
  const value = selected(ctx, questionOf(ctx).record);
  const now = canonical(value);
  if (now !== state.seen && value !== null && modeOf(state) !== "answered" && !state.sent) {
    [state.draft, state.fault] = [value, ""];
    for (const field of state.fields.all) if ("clear" in field) (field as { clear(): void }).clear();
  }
  state.seen = now;
  update(state);
}

interface Fields {
  /** Those in the line of the answer, and those above it. */
  inline: HTMLElement[];
  blocks: HTMLElement[];
  all: Field[];
  /** Call when the view may have chosen something else. */
  follow(): void;
  /** The values of the fields, as an answer. */
  current(): unknown;
}

interface Acts {
  choose(value: unknown): void;
  readLine(line: string): void;
  enter(): void;
}

/** The fields of a question of this kind. */
function createFields(ctx: ViewContext, signal: AbortSignal, { choose, readLine, enter }: Acts): Fields {
  const { choices, multiple, record } = questionOf(ctx);
  const none = { follow: () => undefined, current: () => null };
  if (record.kind === "choice") {
    const options = createOptions(choices ?? [], multiple, signal, choose);
    return { ...none, inline: [], blocks: [options.element], all: [options] };
  }
  if (record.kind === "text") {
    const text = createText(signal, (written) => choose(written.trim() ? written : null), enter);
    return { ...none, inline: [], blocks: [text.element], all: [text] };
  }
  if (record.kind === "order") {
    const offered = (): string => {
      const head = selected(ctx, { ...record, kind: "head" });
      return Array.isArray(head) && !Array.isArray(head[0]) ? head.join(".") : "";
    };
    const order = createOrder(choices, signal, choose, offered);
    return { inline: [], blocks: [order.element], all: [order], follow: order.follow, current: order.current };
  }
  const line = createLine(record.kind, record.unit, signal, readLine, enter);
  return { ...none, inline: [line.element], blocks: [], all: [line] };
}
