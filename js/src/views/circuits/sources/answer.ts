/** The answer, of which a sentence or a word is chosen, and a strip of all messages. Words of a picture are coloured. */
import { h, keyboard, on, setChildren, setFlag } from "../../../dom.ts";
import { named, type Picture, pieces, shade } from "./sources.ts";

export interface AnswerText {
  element: HTMLElement;
  draw(picture: Picture): void;
}

/** `choose` is called with a sentence and, where words are shown, its word. */
export function createAnswerText(
  signal: AbortSignal,
  choose: (sentence: number, word: number | null) => void,
  step: (by: number) => void,
  end: (isLast: boolean) => void,
): AnswerText {
  const element = h("div.source-answer", { role: "listbox", tabindex: "0", dir: "auto" });
  const id = `aw-${Math.random().toString(36).slice(2)}`;
  let written = "";
  keyboard(
    element,
    signal,
    {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      ArrowUp: () => step(-1),
      ArrowDown: () => step(1),
      Home: () => end(false),
      End: () => end(true),
    },
    "← →: another sentence or word of the answer",
  );
  on(element, signal, {
    click(event) {
      const { sentence, word } = (event.target as Element).closest<HTMLElement>("[data-sentence]")?.dataset ?? {};
      if (sentence !== undefined) choose(Number(sentence), word === undefined ? null : Number(word));
    },
  });
  const option = (text: string, sentence: number, word: number | null): HTMLElement =>
    h(
      "span.source-piece",
      {
        role: "option",
        id: `${id}-${sentence}-${word ?? ""}`,
        "data-sentence": String(sentence),
        ...(word === null ? {} : { "data-word": String(word) }),
      },
      text,
    );
  return {
    element,
    draw(picture) {
      const { shown, sentence, word } = picture;
      const by = word === null ? "sentence" : "word";
      if (written !== by) {
        written = by;
        element.ariaLabel = `the answer, by its ${by}s`;
        const parts = shown.answer.map(({ text, words }, at) =>
          word === null || !words.length
            ? [option(text, at, null)]
            : pieces(text, words).flatMap(([before, each], i) => [before, option(each, at, i)]),
        );
        setChildren(element, ...parts.flatMap((part) => [...part, " "]));
      }
      for (const piece of element.querySelectorAll<HTMLElement>("[data-sentence]")) {
        const isOf = Number(piece.dataset.sentence) === sentence;
        const isChosen = isOf && (piece.dataset.word === undefined || Number(piece.dataset.word) === word);
        piece.ariaSelected = String(isChosen);
        const most = shown.picture?.most[Number(piece.dataset.word)];
        if (most !== undefined) shade(piece, most, picture);
        if (isChosen) element.setAttribute("aria-activedescendant", piece.id);
      }
    },
  };
}

/** Cells with numbers up to this many. */
const NUMBERED = 16;

/** All messages in a line, coloured as the cards are. */
export function createStrip(signal: AbortSignal, choose: (part: number) => void): AnswerText {
  const element = h("div.source-strip", { "aria-hidden": "true" });
  let cells: HTMLElement[] = [];
  on(element, signal, {
    click(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-part]")?.dataset.part;
      if (at !== undefined) choose(Number(at));
    },
  });
  return {
    element,
    draw(picture) {
      const { shown, values, part } = picture;
      if (!cells.length) {
        const isNumbered = shown.parts.length <= NUMBERED;
        setFlag(element, "data-many", !isNumbered);
        cells = shown.parts.flatMap(({ kind, name }, at) =>
          kind === "answer"
            ? []
            : [h("span", { "data-part": String(at), title: named(shown, at) }, isNumbered ? name : "")],
        );
        setChildren(element, ...cells);
      }
      cells.forEach((cell, at) => {
        shade(cell, values[at] ?? 0, picture);
        setFlag(cell, "data-chosen", at === part);
      });
    },
  };
}
