/**
 * On which messages an answer rests: a sentence or a word of the answer is chosen, and the messages are cards, coloured by
 * the nats that it loses with each hidden. A button lets the model write the answer without a message.
 */
import { heatMap } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, h, onResize, setChildren, setText } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type ColourScale, createScale } from "../base/colourScale.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { plural } from "../base/navigation.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { type AnswerText, createAnswerText, createStrip } from "./sources/answer.ts";
import { type Cards, createCards } from "./sources/cards.ts";
import { largest, named, type Picture, type ShownSources, type SourcesOptions } from "./sources/sources.ts";
import { createWritten, type WrittenAnswer } from "./sources/written.ts";
import { decimal, inQuotes } from "./words.ts";

/** Smallest width in px with the answer next to the messages. */
const WIDE = 860;

interface SourcesState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly by: Segments<"sentence" | "word">;
  readonly count: HTMLElement;
  readonly scale: ColourScale;
  readonly answer: AnswerText;
  readonly strip: AnswerText;
  readonly cards: Cards;
  readonly notes: HTMLElement;
  readonly written: WrittenAnswer;
  readonly copy: CopyButton;
  readonly frame: Frame;
  /** What is shown; null until it is here. */
  picture: Picture | null;
  /** The part under the pointer. */
  over: number | null;
}

export const renderSourcesView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const by = createSegments("answer by", { sentence: "sentences", word: "words" }, signal, () =>
    save(ctx, { word: by.value() === "word" ? 0 : null }),
  );
  const go = (by: number): void => step(state, by);
  const choose = (part: number | null): void => save(ctx, { part });
  const cards = createCards(signal, {
    choose,
    hover(part) {
      if (part === state.over) return;
      state.over = part;
      say(state, false);
    },
    step: go,
    write: () => written.request(),
  });
  const answer = createAnswerText(
    signal,
    (sentence, word) => save(ctx, { sentence, word }),
    go,
    (isLast) => step(state, isLast ? Infinity : -Infinity),
  );
  const strip = createStrip(signal, (part) => {
    choose(part);
    cards.reveal(part);
  });
  const written = createWritten(ctx, signal, answers, () => update(state));
  const [notes, count, scale] = [h("div.source-notes"), h("span.source-quiet"), createScale()];
  const copy = createCopyButton(ctx, signal, () => placeOf(state));
  const [head, details] = [h("div.source-top", answer.element, strip.element), h("div", notes, written.element)];
  const body = h("div.source-body");
  const frame = createFrame(ctx, root, {
    controls: [by.element, count],
    legend: scale.element,
    body: [body],
    skeleton: "rows",
    hint: "Click a sentence of the answer, then a message.",
    says: true,
    actions: [copy.element],
  });
  const state: SourcesState = {
    ctx,
    root,
    answers,
    by,
    count,
    scale,
    answer,
    strip,
    cards,
    notes,
    written,
    copy,
    frame,
    picture: null,
    over: null,
  };
  root.classList.add("aw-sources");
  root.role = "group";
  onResize(body, signal, ({ width }) => {
    const isWide = width >= WIDE;
    if (width <= 0 || body.dataset.wide === String(isWide)) return;
    body.dataset.wide = String(isWide);
    // Tab order is reading order; on a narrow page the answer stays in sight above what scrolls.
    const panes = isWide
      ? [h("div.source-pane", cards.element), h("div.source-pane.source-side", head, details)]
      : [head, h("div.source-pane", details, cards.element)];
    setChildren(body, ...panes);
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

function save(ctx: ViewContext, values: Partial<SourcesOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

/** Go to another sentence or word of the answer. */
function step({ ctx, picture }: SourcesState, by: number): void {
  if (!picture) return;
  const { shown, sentence, word } = picture;
  const all = shown.answer.flatMap(({ words }, at): [number, number | null][] =>
    word === null || !words.length ? [[at, null]] : words.map((_, i) => [at, i]),
  );
  const now = all.findIndex(([at, i]) => at === sentence && (i === word || i === null));
  const next = all[Math.max(0, Math.min(all.length - 1, now + by))];
  if (next) save(ctx, { sentence: next[0], word: next[1] ?? (word === null ? null : 0) });
}

function placeOf({ picture }: SourcesState): { of: string } | null {
  if (!picture) return null;
  const { sentence, word, part, meant } = picture;
  const at = part ?? meant;
  return at === null ? null : ({ of: "source", sentence, part: at, word } as { of: string });
}

/** What the numbers say, in sentences. */
function note(state: SourcesState, picture: Picture): void {
  const { shown, values, part, word, meant, sentence } = picture;
  const what = word === null ? "sentence" : "word";
  const top = largest(picture);
  const nats = (at: number): string => `${decimal(values[at] ?? 0, 2, true)} nats`;
  const likelier = (at: number): string => {
    const value = values[at] ?? 0;
    const times = Math.exp(Math.abs(value));
    // Two digits, and beyond a billion no number that anyone could picture.
    const digits = { maximumSignificantDigits: 2 };
    const factor = times < 1e9 ? times.toLocaleString("en", digits) : "over a billion";
    return `without it the ${what} is ${factor} times ${value < 0 ? "likelier" : "less likely"} (${nats(at)})`;
  };
  const lines: HTMLElement[] = [];
  if (top === null) lines.push(h("p", `No ${shown.unit} comes before the answer, other than those set apart.`));
  else if (meant === null)
    lines.push(
      h(
        "p",
        h("b", `No ${shown.unit} matters much`),
        `: the largest is ${named(shown, top)} with ${nats(top)}, below ${shown.weak}.`,
      ),
    );
  else lines.push(h("p", "Rests most on ", h("b", named(shown, meant)), `: ${likelier(meant)}.`));
  if (part !== null && part !== meant) lines.push(h("p", h("b", named(shown, part)), `: ${likelier(part)}.`));
  const question = shown.parts.findIndex(({ kind }) => kind === "question");
  if (question >= 0)
    lines.push(h("p.source-quiet", `Every answer needs the question, which stands apart: ${nats(question)}.`));
  const own = shown.parts.findIndex(({ kind }) => kind === "answer");
  if (own >= 0 && sentence > 0) lines.push(h("p.source-quiet", `Its own earlier words: ${nats(own)}.`));
  lines.push(h("p.source-quiet", shown.cover));
  setChildren(state.notes, ...lines);
}

function say({ ctx, root, frame, picture, over }: SourcesState, aloud: boolean): void {
  if (!picture) return;
  const { shown, sentence, word, part, meant, values } = picture;
  const at = over ?? part ?? meant;
  const chosen = shown.answer[sentence];
  const text = word === null ? chosen?.text : chosen?.words[word];
  const number = word === null ? `sentence ${sentence + ctx.options.indexBase} ` : "";
  const of = `${number}${inQuotes(text ?? "")}`;
  const words =
    at === null
      ? `no ${shown.unit} reaches ${shown.weak} nats · ${of}`
      : `${decimal(values[at] ?? 0, 4, true)} nats without ${named(shown, at)} · ${of}`;
  frame.readout.show(words, aloud && root.contains(root.ownerDocument.activeElement));
}

/** The numbers of the chosen sentence or word; of a word they may be on their way. */
function valuesOf(
  { answers }: SourcesState,
  shown: ShownSources,
  sentence: number,
  word: number | null,
): number[] | null {
  if (word === null) return shown.answer[sentence]?.values ?? null;
  return answers.get<number[][]>("words", { sentence })?.meta[word] ?? null;
}

function update(state: SourcesState): void {
  const { ctx, answers, frame, by, scale } = state;
  const answer = answers.get<ShownSources>("sources");
  const options = ctx.options as SourcesOptions;
  const unit = answer?.meta.unit ?? "message";
  const what = options.word === null ? "sentence" : "word";
  const title = frame.show(`nats lost with a ${unit} hidden`, `Which ${unit} does this ${what} rest on?`);
  if (!answer) {
    frame.lacks(missingAnswer(answers, "sources", {}, "sources"));
    return;
  }
  const shown = answer.meta;
  const sentence = Math.min(options.sentence, shown.answer.length - 1);
  const hasWords = Boolean(shown.answer[sentence]?.words.length);
  const word = hasWords ? options.word : null;
  const values = valuesOf(state, shown, sentence, word);
  frame.lacks(values ? null : missingAnswer(answers, "words", { sentence }, "words"));
  assign(by.element, { hidden: !shown.answer.some(({ words }) => words.length) });
  by.choose(word === null ? "sentence" : "word");
  if (!values) return;
  const top = largest({ shown, values });
  const meant = top !== null && (values[top] ?? 0) >= shown.weak ? top : null;
  const picture: Picture = { shown, sentence, word, part: options.part, meant, values, theme: ctx.theme };
  state.picture = picture;
  const parts = shown.parts.filter(({ kind }) => kind !== "answer").length;
  setText(state.count, `${parts} ${parts === 1 ? unit : plural(unit)}`);
  state.root.ariaLabel = `${title} ${shown.answer.map(({ rests }) => rests).join(" ")}`;
  scale.show({
    map: heatMap(true, ctx.theme),
    range: [-shown.top, shown.top],
    words: `nats lost with a ${unit} hidden; one scale for the whole answer`,
  });
  state.answer.draw(picture);
  state.strip.draw(picture);
  state.cards.draw(picture);
  note(state, picture);
  state.written.draw(picture);
  state.copy.show();
  say(state, true);
}
