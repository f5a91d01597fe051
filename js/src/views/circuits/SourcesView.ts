/**
 * Which messages, or parts of a picture, an answer rests on: a sentence or a word of the answer is chosen, and the
 * messages are cards, coloured by the nats that it loses with each hidden. A picture has a copy for each word, in nats,
 * logits or shares. A button makes the model write the answer without a message, or a part.
 */
import { heatMap } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, h, onResize, setChildren, setFlag, setText } from "../../dom.ts";
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
import { type CopyActions, createPictures } from "./sources/pictures.ts";
import { amount, largest, named, type Picture, type ShownSources, type SourcesOptions } from "./sources/sources.ts";
import { createWritten, type WrittenAnswer } from "./sources/written.ts";
import { inQuotes } from "./words.ts";

/** Smallest width in px with the answer next to the messages. */
const WIDE = 860;

interface SourcesState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly by: Segments<"sentence" | "word">;
  /** Chooses among views of the picture. */
  readonly of: Segments<string>;
  readonly count: HTMLElement;
  readonly scale: ColourScale;
  readonly answer: AnswerText;
  readonly strip: AnswerText;
  readonly cards: Cards;
  /** The text before the answer, and the legend of word colours. */
  readonly prompt: HTMLElement;
  readonly tint: HTMLElement;
  readonly notes: HTMLElement;
  readonly written: WrittenAnswer;
  readonly copy: CopyButton;
  readonly frame: Frame;
  /** The drawn numbers; null until they arrive. */
  picture: Picture | null;
  /** The part under the pointer; of a copy of the picture, also its word. */
  over: { part: number; word?: number | null | undefined } | null;
}

export const renderSourcesView = view((ctx, root, signal) => {
  const { isPicture, views } = ctx.options as SourcesOptions;
  const answers = createAnswers(ctx, signal, () => update(state));
  const levels = isPicture ? { word: "words", sentence: "whole answer" } : { sentence: "sentences", word: "words" };
  const by = createSegments<"sentence" | "word">("answer by", levels, signal, () =>
    save(ctx, { word: by.value() === "word" ? (state.picture?.shown.picture?.strong[0] ?? 0) : null }),
  );
  const of = createSegments("view of the picture", Object.fromEntries(views.entries()), signal, () =>
    save(ctx, { view: Number(of.value()), part: null }),
  );
  assign(of.element, { hidden: views.length < 2 });
  const actions = actionsOf(ctx, () => state);
  const cards = isPicture ? createPictures(ctx, signal, actions) : createCards(signal, actions);
  const answer = createAnswerText(
    signal,
    (sentence, word) => save(ctx, { sentence, word }),
    actions.step,
    (isLast) => step(state, isLast ? Infinity : -Infinity),
  );
  const strip = createStrip(signal, (part) => {
    actions.choose(part);
    cards.reveal(part);
  });
  const written = createWritten(ctx, signal, answers, () => update(state));
  const [notes, count, scale] = [h("div.source-notes"), h("span.source-quiet"), createScale()];
  const copy = createCopyButton(ctx, signal, () => numberAddress(state));
  const [prompt, tint] = [h("p.source-quiet", { dir: "auto" }), h("p.source-quiet")];
  const head = h("div.source-top", ...(isPicture ? [prompt, answer.element, tint] : [answer.element, strip.element]));
  const body = h("div.source-body");
  const frame = createFrame(ctx, root, {
    controls: [by.element, of.element, count],
    legend: scale.element,
    body: [body],
    skeleton: "rows",
    hint: isPicture ? "Click a word of the answer, then a part." : "Click a sentence of the answer, then a message.",
    says: true,
    actions: [copy.element],
  });
  const parts = { by, of, count, scale, answer, strip, cards, prompt, tint, notes, written, copy, frame };
  const state: SourcesState = { ctx, root, answers, ...parts, picture: null, over: null };
  root.classList.add("aw-sources");
  setFlag(body, "data-picture", isPicture);
  root.role = "group";
  const details = h("div", notes, written.element);
  onResize(body, signal, ({ width }) => {
    const isWide = width >= WIDE;
    if (width <= 0 || body.dataset.wide === String(isWide)) return;
    body.dataset.wide = String(isWide);
    setChildren(body, ...(isPicture ? panesOfPicture : panesOfText)(isWide, head, cards.element, details));
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

/** Tab order is reading order; on a narrow page the answer stays visible above the scrolling parts. */
function panesOfText(isWide: boolean, head: Element, cards: Element, details: Element): HTMLElement[] {
  return isWide
    ? [h("div.source-pane", cards), h("div.source-pane.source-side", head, details)]
    : [head as HTMLElement, h("div.source-pane", details, cards)];
}

/** Pictures come first: they are the answer. */
function panesOfPicture(isWide: boolean, head: Element, pictures: Element, details: Element): HTMLElement[] {
  const panes = isWide
    ? [h("div.source-pane", pictures), h("div.source-pane.source-facts", details)]
    : [h("div.source-pane", pictures, details)];
  return [head as HTMLElement, h("div.source-row", ...panes)];
}

/** The actions of cards and pictures on the view. */
function actionsOf(ctx: ViewContext, state: () => SourcesState): CopyActions {
  return {
    choose: (part) => save(ctx, { part }),
    pick: (word, part) => save(ctx, { word, part }),
    hover(part, word) {
      const now = state();
      if (part === now.over?.part && word === now.over?.word) return;
      now.over = part === null ? null : { part, word };
      say(now, false);
    },
    step: (by) => step(state(), by),
    write: () => state().written.request(),
  };
}

function save(ctx: ViewContext, values: Partial<SourcesOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

/** Move to another sentence or word of the answer. */
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

function numberAddress({ picture }: SourcesState): { of: string } | null {
  if (!picture) return null;
  const { sentence, word, part, meant } = picture;
  const at = part ?? meant;
  return at === null ? null : ({ of: "source", sentence, part: at, word } as { of: string });
}

/** Describe the numbers in sentences. */
function note(state: SourcesState, picture: Picture): void {
  const { shown, values, part, word, meant, sentence } = picture;
  const quantity = chosenWords(state.ctx.options as SourcesOptions);
  const top = largest(picture);
  const number = (at: number): string => amount(shown, values[at]);
  const likelier = (at: number): string => {
    const value = values[at] ?? 0;
    if (shown.measure !== "nats") return number(at);
    const times = Math.exp(Math.abs(value));
    // Two digits, and beyond a billion no number that anyone could picture.
    const digits = { maximumSignificantDigits: 2 };
    const factor = times < 1e9 ? times.toLocaleString("en", digits) : "over a billion";
    return `without it ${quantity} is ${factor} times ${value < 0 ? "likelier" : "less likely"} (${number(at)})`;
  };
  const lines: HTMLElement[] = [];
  if (top === null) lines.push(h("p", `No ${shown.unit} comes before the answer, other than those set apart.`));
  else if (meant === null)
    lines.push(
      h(
        "p",
        h("b", `No ${shown.unit} matters much`),
        `: the largest is ${named(shown, top)} with ${number(top)}, below ${shown.limit}.`,
      ),
    );
  else lines.push(h("p", "Rests most on ", h("b", named(shown, meant)), `: ${likelier(meant)}.`));
  if (part !== null && part !== meant) lines.push(h("p", h("b", named(shown, part)), `: ${likelier(part)}.`));
  const question = shown.parts.findIndex(({ kind }) => kind === "question");
  if (question >= 0)
    lines.push(h("p.source-quiet", `Every answer needs the question, which stands apart: ${number(question)}.`));
  if (shown.picture) {
    const { balance, balanceOfAll, how } = shown.picture;
    const all = [
      word === null ? balanceOfAll : (balance[word] ?? ""),
      `${how.charAt(0).toUpperCase()}${how.slice(1)}.`,
    ];
    lines.push(...all.map((text) => h("p.source-quiet", text)));
  }
  const answerPart = shown.parts.findIndex(({ kind }) => kind === "answer");
  if (answerPart >= 0 && sentence > 0) lines.push(h("p.source-quiet", `Its own earlier words: ${number(answerPart)}.`));
  if (shown.cover) lines.push(h("p.source-quiet", shown.cover));
  setChildren(state.notes, ...lines);
}

/** The chosen part of the answer, in words. */
const chosenWords = ({ word, isPicture }: SourcesOptions): string =>
  word !== null ? "this word" : isPicture ? "the answer" : "this sentence";

function say({ ctx, root, frame, picture, over }: SourcesState, aloud: boolean): void {
  if (!picture) return;
  const { shown, sentence, part, meant } = picture;
  const word = over?.word === undefined ? picture.word : over.word;
  const values = word === null || word === picture.word ? picture.values : (picture.rows[word] ?? []);
  const at = over?.part ?? part ?? meant;
  const chosen = shown.answer[sentence];
  const text = word === null ? chosen?.text : chosen?.words[word];
  const number = word === null && !shown.picture ? `sentence ${sentence + ctx.options.indexBase} ` : "";
  const of = `${number}${inQuotes(text ?? "")}`;
  const words =
    at === null
      ? `no ${shown.unit} reaches ${shown.limit} · ${of}`
      : `${amount(shown, values[at], 2)} ${shown.relation} ${named(shown, at)} · ${of}`;
  frame.readout.show(words, aloud && root.contains(root.ownerDocument.activeElement));
}

/** The numbers of all words of a sentence; null while they are on their way. */
const rowsOf = ({ answers }: SourcesState, sentence: number): number[][] | null =>
  answers.get<number[][]>("words", { sentence })?.meta ?? null;

function update(state: SourcesState): void {
  const { ctx, answers, frame } = state;
  const answer = answers.get<ShownSources>("sources");
  const options = ctx.options as SourcesOptions;
  const title = frame.show(options.measures, `${options.asks} ${chosenWords(options)} rest on?`);
  if (!answer) {
    frame.lacks(missingAnswer(answers, "sources", {}, "sources"));
    return;
  }
  const shown = answer.meta;
  const sentence = Math.min(options.sentence, shown.answer.length - 1);
  const hasWords = Boolean(shown.answer[sentence]?.words.length);
  const word = hasWords ? options.word : null;
  const rows = word === null ? [] : rowsOf(state, sentence);
  const values = word === null ? shown.answer[sentence]?.values : rows?.[word];
  frame.lacks(values ? null : missingAnswer(answers, "words", { sentence }, "words"));
  if (!values || !rows) return;
  const best = largest({ shown, values });
  const meant = best !== null && shown.least > 0 && (values[best] ?? 0) >= shown.least ? best : null;
  const top = (word === null && shown.picture?.top) || shown.top;
  const { part, view } = options;
  draw(state, title, { shown, sentence, word, part, meant, values, rows, top, view, theme: ctx.theme });
}

function tintOf({ shown, word, rows }: Picture): string {
  if (word === null)
    return `All words together: ${shown.measure === "share" ? "the mean of their shares" : `their ${shown.measure} are summed`}.`;
  const strong = shown.picture?.strong.length;
  const others = `${strong ? "Words without a picture have" : "All words have"} none that reaches ${shown.limit}.`;
  return `A word's tint is the number of its largest part. ${strong === rows.length ? "" : others}`;
}

function draw(state: SourcesState, title: string, picture: Picture): void {
  const { ctx, by, of, scale } = state;
  const { shown, word, top, view } = picture;
  state.picture = picture;
  assign(by.element, { hidden: !shown.answer.some(({ words }) => words.length) });
  by.choose(word === null ? "sentence" : "word");
  of.choose(String(view));
  const parts = shown.parts.filter(({ kind }) => kind !== "answer").length;
  setText(state.count, `${parts} ${parts === 1 ? shown.unit : plural(shown.unit)}`);
  state.root.ariaLabel = `${title} ${shown.answer.map(({ rests }) => rests).join(" ")}`;
  const isShare = shown.measure === "share";
  const extent = shown.picture && word !== null ? "for all words" : "for the whole answer";
  scale.show({
    map: heatMap(true, ctx.theme),
    range: [isShare ? 0 : -top, top],
    ...(isShare ? { isAbove: true, end: amount(shown, top) } : {}),
    words: `${(ctx.options as SourcesOptions).measures}; one scale ${extent}`,
  });
  setText(state.prompt, shown.picture?.prompt ?? "");
  setText(state.tint, tintOf(picture));
  state.answer.draw(picture);
  state.strip.draw(picture);
  state.cards.draw(picture);
  note(state, picture);
  state.written.draw(picture);
  state.copy.show();
  say(state, true);
}
