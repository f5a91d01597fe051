/** The text of an axis as selectable spans: gaps, visible whitespace, special tokens, pairs and generated text. */

import { directionOf, h, safeText } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { carriesSpaces, continues } from "./rowValues.ts";
import { CHUNK, type Chunk } from "./underlay.ts";

/** The signs for whitespace in tokenizers' display strings, and the characters that they represent. */
const SIGNS: Record<string, string> = { "␣": " ", "▁": " ", "⏎": "\n", "↵": "\n", "⇥": "\t" };
const WHITE = /([ \t\n\r\u00a0␣▁⏎↵⇥]+)/u;
/** Longer elements may break inside. */
const WHOLE_UP_TO = 24;

export interface TokenList {
  list: HTMLElement;
  spans: HTMLElement[];
  chunks: Chunk[];
  rtl: boolean;
  /** Whether the strip needs gaps between elements, because labels do not carry their spaces. */
  spaced: boolean;
}

/** A label split into text and runs of whitespace to be made visible. */
export function parts(label: string): { text: string; white: boolean }[] {
  const split = label.split(WHITE);
  return split.map((text, i) => ({ text, white: i % 2 === 1 })).filter((part) => part.text !== "");
}

/** Whitespace with a sign that CSS draws faintly over it; the character itself stays, for copying. */
function whitespace(signs: string): HTMLElement {
  const real = [...signs].map((sign) => SIGNS[sign] ?? sign).join("");
  const glyph = h("span.white");
  glyph.dataset.sign = signs.length > 1 ? "" : /[\n\r]/.test(real) ? "↵" : real === "\t" ? "⇥" : "␣";
  glyph.textContent = real;
  return glyph;
}

/** Write a label into an element, with its whitespace visible. */
export function writeLabel(span: HTMLElement, label: string): void {
  if (label === "") span.append(h("span.white", { "data-sign": "∅" }));
  const pieces = parts(label);
  pieces.forEach(({ text, white }, i) => {
    // Spaces between words are ordinary; those at the edges belong to the token.
    const ordinary = !white || (text === " " && i > 0 && i < pieces.length - 1);
    if (ordinary) span.append(safeText(text));
    // Long runs become a single box of dots: a token of a thousand spaces must not create a thousand nodes.
    else if (text.length > 3) span.append(whitespace(text));
    else span.append(...[...text].map((sign) => whitespace(sign)));
  });
}

/**
 * Build the list of an axis. `name` is its accessible name; `marks` are outlined elements, `breaks` begin a paragraph.
 * Spans carry their index in `data-i`; the first is in the tab order.
 */
export function buildTokens(
  axis: Axis,
  name: string,
  marks: ReadonlySet<number>,
  breaks: ReadonlySet<number>,
): TokenList {
  const dir = directionOf(axis.labels.filter((_, i) => !axis.special[i]));
  const spaced = !carriesSpaces(axis.labels);
  const list = h("div.tokens", {
    role: "listbox",
    "aria-label": name,
    "aria-orientation": "horizontal",
    dir,
  });
  // Patches in another order than that of the picture, and a picture inside a text, are read as a text is.
  const grid = axis.cells ? null : axis.grid;
  if (grid) {
    list.dataset.grid = "";
    list.style.setProperty("--aw-columns", String(grid[1]));
  }
  const spans: HTMLElement[] = [];
  const chunks: Chunk[] = [];
  let holder: HTMLElement = list;
  axis.labels.forEach((label, i) => {
    // The elements of a grid are laid out individually: a chunk around them would lack a box that can become visible.
    if (grid ? i === 0 : i % CHUNK === 0) {
      holder = h("span.chunk", { role: "presentation" });
      list.append(holder);
      chunks.push({ holder, spans: [], start: i });
    }
    if (!grid) holder.append(...before(axis, i, spaced, breaks.has(i)));
    const span = h("span.tok", { role: "option", "aria-selected": "false", "data-i": String(i) });
    if (axis.special[i]) span.classList.add("aw-special");
    if (marks.has(i)) span.classList.add("aw-marked");
    if (label.length <= WHOLE_UP_TO) span.classList.add("aw-whole");
    if (grid) span.title = label;
    if (label.trim() === "" || /^[␣▁⏎↵⇥\s]+$/u.test(label)) span.setAttribute("aria-label", spoken(label));
    span.tabIndex = i === 0 ? 0 : -1;
    writeLabel(span, label);
    holder.append(span);
    spans.push(span);
    (chunks[chunks.length - 1] as Chunk).spans.push(span);
  });
  return { list, spans, chunks, rtl: dir === "rtl", spaced };
}

/** The gap between an element and its predecessor. */
function before(axis: Axis, i: number, spaced: boolean, breaks: boolean): (Node | string)[] {
  const out: (Node | string)[] = [];
  if (breaks) out.push(h("span.paragraph", { role: "presentation" }));
  else if (i > 0 && axis.segment[i] !== axis.segment[i - 1]) out.push(h("span.pair", { role: "presentation" }));
  else if (i > 0 && spaced && !continues(axis.labels[i] as string)) out.push(" ");
  else if (i > 0) out.push(h("wbr"));
  if (axis.boundary === i) {
    out.push(h("span.boundary", { role: "presentation" }, "generated"));
  }
  return out;
}

/** A name for a token without letters, for screen readers. */
export function spoken(label: string): string {
  if (label === "") return "empty token";
  const names = [...label].map((sign) => {
    const real = SIGNS[sign] ?? sign;
    return real === "\n" || real === "\r" ? "newline" : real === "\t" ? "tab" : "space";
  });
  return names.length > 3 ? `${names.length} whitespace characters` : names.join(" ");
}
