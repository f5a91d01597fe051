/**
 * The explained text, and others: a menu of the view's texts, a step back, and a field in which the reader types
 * another, which the kernel traces.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, iconButton, on, setChildren, setText, shortLabel } from "../../dom.ts";
import { percent } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import type { ExplorerOptions, TextItem, Texts } from "../../wire/viewState.ts";
import { createMenu } from "../base/menu.ts";
import { BACK, EDIT } from "../base/signs.ts";
import { drawing } from "../charts/svg.ts";

export interface TextLine {
  /** Buttons next to the text. */
  tools: HTMLElement;
  /** The field that replaces the text while it is edited. */
  field: HTMLElement;
  /** The progress of a new text, or why there is none. */
  state: HTMLElement;
  show(): void;
}

const TOPIC = "text";
/** Message of a page without a kernel, where no text can be typed. */
const NEEDS_KERNEL = "needs a running kernel";
/** Characters of a text in the menu. */
const LABEL = 72;

type TextRequest = { text: string } | { index: number };

/** State that survives a new text: the last request, the unfinished input, and the position of the focus. */
interface Lasting {
  request?: TextRequest | undefined;
  draft?: string | undefined;
  focus?: "menu" | "back" | "edit" | undefined;
}

/** `reading` is the element with the text, which is hidden while the text is edited. */
export function createTextLine(
  ctx: ViewContext,
  signal: AbortSignal,
  answers: Answers,
  reading: HTMLElement,
): TextLine {
  const lasting = (ctx.lasting.get(TOPIC) as Lasting | undefined) ?? {};
  ctx.lasting.set(TOPIC, lasting);
  const read = (): Texts | undefined => (ctx.options as ExplorerOptions).texts;
  const shownText = (): string => read()?.text ?? ctx.header().text;
  const isShown = (request: TextRequest): boolean =>
    "text" in request ? shownText() === request.text : read()?.shown === request.index;
  const menu = createMenu("text", signal, (value) => ask({ index: Number(value) }, "menu"));
  const count = menu.field.querySelector(".aw-menu-name") as HTMLElement;
  const back = iconButton(signal, "", "back to the previous text", () => {
    const previous = read()?.previous;
    if (typeof previous === "number") ask({ index: previous }, "back");
  });
  const pencil = iconButton(signal, "", "type another text", () => (field.hidden ? edit() : leave()));
  setChildren(back, drawing(BACK));
  setChildren(pencil, drawing(EDIT));
  const tools = h("span.text-tools", { role: "group", "aria-label": "texts" }, menu.field, back, pencil);
  const field = h("textarea.button.text-field", {
    rows: "1",
    hidden: "",
    spellcheck: "false",
    "aria-label": "text to trace",
    title: "Enter: trace this text · Shift+Enter: a new line · Escape: leave",
  });
  const [doing, bar, steps] = [h("span"), h("progress"), h("span", { "aria-hidden": "true" })];
  const stop = h("button.button", { type: "button" }, "Cancel");
  const state = h("div.row.text-state", { role: "status", hidden: "" }, doing, bar, steps, stop);
  /** Why texts cannot be typed, once the reader tries to. */
  let note = "";
  let requested: TextRequest | null = null;

  const edit = (draft = shownText()): void => {
    const why = read()?.refusal ?? "";
    note = why ? `This text cannot be edited: ${why}.` : "";
    if (!why) {
      // The field is as tall as the text was, so that nothing below it moves.
      field.style.height = `${Math.max(28, reading.offsetHeight)}px`;
      field.value = draft;
      field.hidden = false;
      reading.hidden = true;
      field.focus();
      field.setSelectionRange(draft.length, draft.length);
    }
    show();
  };
  const leave = (): void => {
    field.hidden = true;
    reading.hidden = false;
    note = "";
    lasting.draft = undefined;
    pencil.focus();
    show();
  };
  const isAsking = (): boolean => requested !== null && !answers.failure(TOPIC, requested);
  const ask = (request: TextRequest, focus: Lasting["focus"] = "edit"): void => {
    // Of several texts typed in a row, only the last is traced.
    if (isAsking()) answers.cancel(TOPIC);
    [requested, note] = [request, ""];
    Object.assign(lasting, { request, draft: undefined, focus });
    answers.retry(TOPIC, true);
    answers.get(TOPIC, { ...request });
    show();
  };
  const submit = (): void => {
    if (!field.value.trim() || (field.value === shownText() && !isAsking())) leave();
    else ask({ text: field.value });
  };
  on(field, signal, {
    input() {
      if (isAsking()) lasting.draft = field.value;
    },
    keydown(event) {
      // Letters are text in this field, not keys of the view.
      event.stopPropagation();
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) submit();
      else if (event.key === "Escape") leave();
      else return;
      event.preventDefault();
    },
  });
  on(reading, signal, { dblclick: () => pencil.hidden || edit() });
  on(stop, signal, { click: () => answers.cancel(TOPIC) });

  const itemOf = (several: boolean) => (item: TextItem, i: number) => ({
    value: String(i),
    label: item.text ? shortLabel(item.text.replace(/\s+/g, " "), LABEL) : `text ${i + 1}`,
    note: several ? shortLabel(item.model, LABEL) : "",
    badge: item.prediction
      ? `${shortLabel(item.prediction.label, 20)} ${percent(item.prediction.probability)}`
      : `${item.tokens} tokens`,
  });
  const show = (): void => {
    const texts = read();
    assign(tools, { hidden: !texts });
    if (!texts) return;
    const { items, shown, previous, refusal } = texts;
    menu.offer(items.map(itemOf(new Set(items.map(({ model }) => model)).size > 1)), String(shown));
    setText(count, `${shown + 1} of ${items.length}`);
    const before = previous === null ? undefined : items[previous];
    assign(back, { hidden: !before });
    const name = `back to “${shortLabel(before?.text ?? "", 40)}”`;
    if (before && back.title !== name) [back.title, back.ariaLabel] = [name, name];
    assign(pencil, {
      hidden: refusal === NEEDS_KERNEL,
      ariaDisabled: String(Boolean(refusal)),
      ariaPressed: String(!field.hidden),
    });
    const why = requested && (answers.failure(TOPIC, requested) ?? "");
    if (why) lasting.request = undefined;
    const job = answers.job(TOPIC);
    const waits = job?.done === null ? ": waits for the running cell" : "";
    setText(doing, job ? `${job.text || "a new text"}${waits}` : note || why || "");
    assign(bar, { hidden: !job?.total, max: job?.total ?? 1, value: job?.done ?? 0 });
    setText(steps, job?.total ? `${job.done} of ${job.total}` : "");
    assign(stop, { hidden: !job });
    assign(state, { hidden: !doing.textContent });
  };

  // Redrawn for another text: continue where the reader was.
  const { request, draft, focus } = lasting;
  Object.assign(lasting, { request: undefined, focus: undefined });
  queueMicrotask(() => {
    if (signal.aborted || !read()) return;
    if (request && !isShown(request)) {
      requested = request;
      answers.get(TOPIC, { ...request });
    }
    const isFree = document.activeElement === document.body || document.activeElement === null;
    if (draft !== undefined) edit(draft);
    else if (focus && isFree) {
      const entry = { menu: menu.field.querySelector("button"), back, edit: pencil }[focus];
      entry?.focus({ preventScroll: true });
    }
  });
  return { tools, field, state, show };
}
