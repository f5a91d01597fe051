/** The spoken text, as words that can be chosen. */
import { assign, h, on, setChildren, setFlag, setText, shortLabel } from "../../../dom.ts";
import { uniqueName } from "../../base/popover.ts";
import type { SpokenWord } from "./heard.ts";

export interface Text {
  element: HTMLElement;
  /** The words, or why there are none. */
  offer(words: readonly SpokenWord[], why: string): void;
  mark(pinned: number, hovered: number): void;
}

/** `choose` and `point` are called with a word; -1: none. */
export function createText(signal: AbortSignal, choose: (word: number) => void, point: (word: number) => void): Text {
  const list = h("div.audio-text", { tabindex: "0", role: "listbox", "aria-label": "words" });
  const [hears, note] = [h("span.audio-hears"), h("span.dim", { hidden: "" })];
  const element = h("div.audio-lead", list, note, hears);
  const name = uniqueName();
  let options: HTMLElement[] = [];
  let drawn: readonly SpokenWord[] | null = null;
  const at = ({ target }: Event): number => options.findIndex((option) => option.contains(target as Node));
  on(list, signal, {
    click: (event) => at(event) >= 0 && choose(at(event)),
    pointerover: (event) => point(at(event)),
    pointerleave: () => point(-1),
  });
  return {
    element,
    offer(words, why) {
      if (setText(note, why)) note.title = why;
      assign(note, { hidden: !why });
      assign(list, { hidden: words.length === 0 });
      if (words === drawn) return;
      drawn = words;
      options = words.map(({ word }, i) =>
        h(
          "span.audio-word",
          { role: "option", id: `${name}-${i}`, "aria-selected": "false" },
          h("bdi", shortLabel(word, 60)),
        ),
      );
      setChildren(list, ...options);
    },
    mark(pinned, hovered) {
      for (const [i, option] of options.entries()) {
        setFlag(option, "data-over", i === hovered);
        if (option.ariaSelected !== String(i === pinned)) option.ariaSelected = String(i === pinned);
      }
      const active = options[pinned];
      if (active) {
        list.setAttribute("aria-activedescendant", active.id);
        if (list.scrollHeight > list.clientHeight) list.scrollTop = active.offsetTop - list.clientHeight / 2;
      } else list.removeAttribute("aria-activedescendant");
      const word = drawn?.[hovered >= 0 ? hovered : pinned];
      setChildren(hears, ...(word ? ["when the model hears ", h("b", shortLabel(word.word, 20))] : []));
    },
  };
}
