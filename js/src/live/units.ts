/** Words, sentences and paragraphs over the tokens of a text: the twin of attnwidgets/tracing/text/words.py. */
import type { Axis } from "../wire/wire.ts";
import type { Read } from "./reader.ts";

type Span = readonly [start: number, end: number];

const VISIBLE: Record<string, string> = { "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u3000": "□" };
const HAN = /[\u3400-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const JOINER = "\u200d";
/** Marks, skin tones, an invisible joiner, and the letters of a region's flag. */
const EXTENDS = /[\p{M}\p{Emoji_Modifier}\u200c\u{e0020}-\u{e007f}]/u;
const KANA = /[\u3040-\u30fa\u30fc-\u30ff]/u;
const SHORT = "Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\\.g|i\\.e|cf|Fig|Eq|No|al";
const ABBREVIATION = new RegExp(`(?:\\b(?:${SHORT})|(?<!\\p{L})[A-Z])\\.$`, "u");
const STOP = /(?:[.!?…]+["'”’»)\]]*(?=\s|$))|[。！？]+[」』”’）]*|\n+/gu;
const PARAGRAPH = /\S(?:.*?\S)??(?=\s*$|\s*\n[^\S\n]*\n)/gsu;

/** User-perceived characters: a letter with its marks, an emoji sequence, a flag. */
export function graphemes(text: string): Span[] {
  const spans: [number, number][] = [];
  let [at, flags, before] = [0, 0, ""];
  for (const char of text) {
    let joins = [before, char].includes(JOINER) || EXTENDS.test(char);
    flags = /[\u{1f1e6}-\u{1f1ff}]/u.test(char) ? flags + 1 : 0;
    joins ||= flags > 0 && flags % 2 === 0;
    const last = spans.at(-1);
    if (joins && last) last[1] = at + char.length;
    else spans.push([at, at + char.length]);
    at += char.length;
    before = char;
  }
  return spans;
}

function kindOf(cluster: string): "space" | "han" | "kana" | "letter" | "other" {
  if (/^\s/u.test(cluster)) return "space";
  const char = String.fromCodePoint(cluster.codePointAt(0) ?? 0);
  if (HAN.test(char)) return "han";
  if (KANA.test(char)) return "kana";
  return /[\p{L}\p{N}\p{M}_]/u.test(char) ? "letter" : "other";
}

/** Runs of letters, digits and marks, and every other character; whitespace belongs to none. */
function words(text: string): Span[] {
  const clusters = graphemes(text);
  const kinds = clusters.map(([start, end]) => kindOf(text.slice(start, end)));
  const spans: [number, number][] = [];
  let previous = "space";
  clusters.forEach(([start, end], i) => {
    let kind = kinds[i] as string;
    if (previous === "letter" && kind === "other" && kinds[i + 1] === "letter") {
      const joiner = text.slice(start, end);
      const [before, after] = [text[start - 1] ?? "", text[end] ?? ""];
      const isNumeric = /\p{Nd}/u.test(before) && /\p{Nd}/u.test(after);
      const areInitials = joiner === "." && /\p{Lu}/u.test(before) && /\p{Lu}/u.test(after);
      if ("'’-‐·".includes(joiner) || (".,:".includes(joiner) && isNumeric) || areInitials) kind = "letter";
    }
    const last = spans.at(-1);
    if (kind === previous && (kind === "letter" || kind === "kana") && last) last[1] = end;
    else if (kind !== "space") spans.push([start, end]);
    previous = kind;
  });
  return spans;
}

function sentences(text: string): Span[] {
  const ends: number[] = [];
  for (const stop of text.matchAll(STOP)) {
    const end = stop.index + stop[0].length;
    if (stop[0][0] !== "." || !ABBREVIATION.test(text.slice(0, end).trimEnd())) ends.push(end);
  }
  const spans: Span[] = [];
  let start = 0;
  for (const end of [...ends, text.length]) {
    const part = text.slice(start, end);
    const lead = part.length - part.trimStart().length;
    if (part.trim()) spans.push([start + lead, start + part.trimEnd().length]);
    start = Math.max(start, end);
  }
  return spans;
}

const paragraphs = (text: string): Span[] =>
  [...text.matchAll(PARAGRAPH)].map(({ 0: paragraph, index }): Span => [index, index + paragraph.length]);

const SPANS: Record<string, (text: string) => Span[]> = { word: words, sentence: sentences, paragraph: paragraphs };

/** A token's span without leading blanks; a single space belongs to the character after it. */
function trimmed(text: string, [start, end]: Span): Span {
  const part = text.slice(start, end);
  if (part.trim()) return [end - part.trimStart().length, end];
  return part === " " && text.slice(end, end + 1).trim() ? [end, end + 1] : [start, start];
}

const shown = (text: string): string => text.replace(/[\n\t\r\u00a0\u3000]/gu, (sign) => VISIBLE[sign] ?? sign);

function axisOf(unit: string, labels: string[], members: number[][], special: readonly boolean[]): Axis {
  const areTokens = members.length === special.length && members.every(([token], i) => token === i);
  return {
    unit,
    labels,
    spans: areTokens ? null : members,
    special: members.map((tokens) => Number(tokens.every((token) => special[token]))),
    segment: members.map(() => 0),
    boundary: null,
    grid: null,
    cells: null,
    times: null,
  };
}

/**
 * The axis of a text in a unit; null: paragraphs of a text with a single paragraph. A token belongs to the element that
 * it overlaps, elements that share a token merge, and a token outside all elements is an element of its own.
 */
export function axisIn(unit: string, text: string, read: Read, labels: readonly string[]): Axis | null {
  const every = read.ids.map((_, token) => [token]);
  if (unit === "token") return axisOf(unit, [...labels], every, read.special);
  const elements = SPANS[unit]?.(text);
  if (!elements) return null;
  const touched = read.spans.map((span, token) => {
    const [start, end] = trimmed(text, span);
    if (read.special[token] || end <= start) return [];
    return elements.flatMap(([from, to], i) => (from < end && to > start ? [i] : []));
  });
  // Merged elements go by the index of the first.
  const first = elements.map((_, i) => i);
  const joined = new Set(touched.flatMap((run) => run.slice(1)));
  for (let i = 0; i < first.length; i += 1) if (joined.has(i)) first[i] = first[i - 1] as number;
  const groups = new Map<string, number[]>();
  touched.forEach((run, token) => {
    const key = run.length ? `e${first[run[0] as number]}` : `t${token}`;
    groups.set(key, [...(groups.get(key) ?? []), token]);
  });
  const names = [...groups].map(([key, members]) => {
    if (key[0] === "t") return labels[members[0] as number] ?? "";
    const at = Number(key.slice(1));
    return shown(text.slice(elements[at]?.[0], elements[first.lastIndexOf(at)]?.[1]));
  });
  const axis = axisOf(unit, names, [...groups.values()], read.special);
  return unit === "paragraph" && axis.special.filter((special) => !special).length < 2 ? null : axis;
}
