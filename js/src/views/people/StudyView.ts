/**
 * A study, as one person goes through it: consent, practice, items and checks, and the answers to hand in. Nothing is
 * kept before consent, and afterwards only in the memory of this page, under a random code.
 */
import { assign, h, on, safeText, setChildren, setFlag, setText } from "../../dom.ts";
import { download } from "../../snapshot.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { AskedStudy, StudyOptions } from "../../wire/studies.ts";
import { createFrame } from "../base/frame.ts";
import { view } from "../base/view.ts";
import { createCopy } from "../question/copyButton.ts";
import { type Chooser, createChoices, createMarks, marksLegend, shownOf } from "./drawing.ts";
import { fileOf, lineOf, type Payload, payloadOf, type Row, whole } from "./payload.ts";
import { randomCode } from "./schedule.ts";
import { checkWords, choicesOf, itemOf, rowOf, type Step, stepsOf, told } from "./steps.ts";

/** Where a person is; a view that is drawn anew goes on. */
interface Run {
  code: string;
  steps: Step[];
  rows: Row[];
  at: number;
}

const RUNS = new WeakMap<object, Run>();
const CODE = /^[a-z0-9]{4,16}$/;
const BAD_CODE = "A code consists of 4 to 16 lowercase letters and digits. Do not use your name.";

export const renderStudyView = view((ctx, root, signal) => {
  const study = (): AskedStudy => (ctx.options as StudyOptions).study;
  const isPage = ctx.model.get("runtime") === "";
  const answers = createAnswers(ctx, signal, () => undefined);
  const heading = h("b.study-title", { dir: "auto" });
  const place = h("span.study-place.dim", { role: "status" });
  const bar = h("progress.study-bar", { "aria-label": "progress" });
  const stage = h("div.study-stage");
  const withdraw = h("button.button", { type: "button" }, "Withdraw");
  const frame = createFrame(ctx, root, {
    controls: [heading, place],
    lead: [bar],
    body: [stage],
    skeleton: "own",
    says: true,
    actions: [withdraw],
  });
  root.classList.add("aw-study");
  root.role = "group";
  /** Listeners of one step end with it. */
  let step = new AbortController();
  let chooser: Chooser | null = null;
  let next: HTMLButtonElement | null = null;
  let isConfirming = false; // whether the reader must confirm that all answers are deleted
  let shownAt = 0;
  let firstAt: number | null = null;
  let draft: unknown;

  const run = (): Run | undefined => RUNS.get(ctx.model);
  const payload = (now: Run): Payload => payloadOf(study(), now.code, now.rows, now.at >= now.steps.length);
  /** Tell the kernel; on a page nobody listens, and the answers stay here until they are handed in. */
  const keep = (): void => {
    const now = run();
    if (!isPage) answers.get("responses", { payload: now ? whole(payload(now)) : null, count: Date.now() }, true);
  };
  const fill = (isFocused: boolean, ...parts: HTMLElement[]): void => {
    setChildren(stage, ...parts);
    stage.scrollTop = 0;
    // A screen reader reads what is new, and keys work at once; a page that opens is not scrolled to it.
    if (isFocused) stage.querySelector<HTMLElement>("[tabindex='-1'].aw-study-question")?.focus();
  };
  const title = (words: string): HTMLElement => h("b.study-question", { tabindex: "-1", dir: "auto" }, words);

  const drawConsent = (isFocused: boolean): void => {
    const { consent, code } = study();
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
      RUNS.set(ctx.model, { code: typed, steps: stepsOf(study(), typed), rows: [], at: 0 });
      keep();
      draw(true);
    };
    on(agree, step.signal, { click: start });
    on(given, step.signal, { keydown: (event) => event.key === "Enter" && start() });
    fill(
      isFocused,
      title("Before you begin"),
      h("p.study-consent", { dir: "auto" }, safeParagraphs(consent)),
      h("label.study-label", h("span", "Your code"), given),
      note,
      h("div.study-foot", agree),
    );
  };

  const choose = (value: unknown): void => {
    draft = value;
    firstAt ??= performance.now();
    if (next) assign(next, { disabled: false });
  };
  const drawStep = (now: Run, isFocused: boolean): void => {
    const shownStudy = study();
    const at = now.steps[now.at] as Step;
    const item = itemOf(shownStudy, at);
    draft = undefined;
    next = h("button.button.study-next", { type: "button" }, "Next");
    assign(next, { disabled: true });
    on(next, step.signal, { click: () => send(now, at) });
    const parts: HTMLElement[] = [];
    if (shownStudy.kind === "remove_words") {
      const shown = item?.shown[(shownStudy.cells[at.cell] ?? [0])[0] as number]?.[0];
      const words = item ?? { words: shownStudy.checkWords, gaps: shownStudy.checkWords.map(() => true) };
      chooser = createMarks(words, item ? shown : undefined, step.signal, choose);
      parts.push(chooser.element, ...(item ? marksLegend(item, shown) : []));
      if (item?.prediction[0])
        parts.push(h("p.study-said", "The model answers ", h("b", { dir: "auto" }, safeText(item.prediction[0]))));
      // Nothing to mark is an answer, too.
      draft = [];
      assign(next, { disabled: false });
    } else {
      chooser = createChoices(choicesOf(shownStudy), step.signal, choose);
      parts.push(...shownOf(shownStudy, at), chooser.element);
    }
    const question = at.role === "check" ? checkWords(shownStudy, at.at) : shownStudy.question;
    fill(
      isFocused,
      h(
        "div.study-top",
        ...(at.role === "practice" ? [h("span.study-tag", "practice")] : []),
        title(safeText(question)),
      ),
      ...parts,
      h("div.study-foot", next),
    );
    [shownAt, firstAt] = [performance.now(), null];
  };
  const send = (now: Run, at: Step): void => {
    if (draft === undefined) return;
    const since = (time: number | null): number | null => (time === null ? null : time - shownAt);
    now.rows.push(rowOf(study(), at, draft, since(firstAt), performance.now() - shownAt));
    const words = told(study(), at);
    if (words) {
      drawTold(now, words);
      return;
    }
    goOn(now);
  };
  /** After a practice item, its right answer. */
  const drawTold = (now: Run, words: string): void => {
    renew();
    const on_ = h("button.button.study-next", { type: "button" }, "Continue");
    on(on_, step.signal, { click: () => goOn(now) });
    next = on_;
    chooser = null;
    fill(true, title(safeText(words)), h("div.study-foot", on_));
  };
  const goOn = (now: Run): void => {
    now.at += 1;
    keep();
    draw(true);
  };

  const drawEnd = (now: Run, isFocused: boolean): void => {
    const line = lineOf(payload(now));
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
      click: () => download(`study-${now.code}.json`, new Blob([fileOf(payload(now))], { type: "application/json" })),
    });
    fill(
      isFocused,
      title("Done. Thank you."),
      h(
        "p.study-consent",
        isPage
          ? "This page cannot send anything: hand in the file, or paste the line into the form that you were given."
          : "While the kernel runs, this notebook has your answers. Hand in the file or paste the line if your instructions say so.",
      ),
      h("p.study-consent", "Your code is ", h("b", now.code), "."),
      h("div.study-foot", file, copy.element),
      field,
    );
  };

  const renew = (): void => {
    step.abort();
    step = new AbortController();
    [chooser, next] = [null, null];
  };
  const draw = (isFocused = false): void => {
    renew();
    isConfirming = false;
    setText(withdraw, "Withdraw");
    const now = run();
    const total = now?.steps.length ?? 1;
    assign(bar, { max: total, value: now?.at ?? 0 });
    setText(place, now && now.at < total ? `${now.at + 1} of ${total}` : "");
    assign(withdraw, { hidden: !now });
    root.dataset.mode = !now ? "consent" : now.at < total ? "step" : "end";
    if (!now) drawConsent(isFocused);
    else if (now.at < total) drawStep(now, isFocused);
    else drawEnd(now, isFocused);
    frame.readout.show(hint(now, total), false);
  };
  const hint = (now: Run | undefined, total: number): string => {
    if (!now) return "Nothing is stored before you agree.";
    if (now.at >= total) return "Withdraw deletes your answers.";
    if (study().kind === "remove_words") return "← → move · Space marks";
    return `Keys 1 to ${Math.min(9, choicesOf(study()).length)} choose · Enter continues`;
  };
  on(withdraw, signal, {
    click() {
      if (!isConfirming) {
        isConfirming = true;
        setText(withdraw, "Delete all answers?");
        return;
      }
      RUNS.delete(ctx.model);
      keep();
      draw(true);
    },
  });
  on(root, signal, {
    keydown(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      const isField = target instanceof HTMLInputElement && target.type === "text";
      if (isField || !stage.contains(target)) return;
      if (/^[1-9]$/.test(event.key) && chooser?.pick(Number(event.key) - 1)) event.preventDefault();
      // A button answers Enter by itself.
      if (event.key !== "Enter" || target instanceof HTMLButtonElement || !next || next.disabled) return;
      event.preventDefault();
      next.click();
    },
  });
  signal.addEventListener("abort", () => step.abort());
  let drawn = "";
  return () => {
    const { heading: words, hash } = study();
    frame.show("");
    setText(heading, safeText(words));
    root.ariaLabel = `study: ${words.slice(0, 200)}`;
    // Another study in the same view; a change of theme or size leaves the step as it is.
    if (drawn === hash) return;
    drawn = hash;
    draw();
  };
});

/** A text of paragraphs: control characters are made visible, but for line breaks. */
const safeParagraphs = (text: string): string => text.split("\n").map(safeText).join("\n");
