/**
 * The tokenizers of a live page: single characters, word pieces, and pairs of bytes. Their twins are the tokenizers that
 * attnwidgets/views/page/live/readers.py describes.
 */
import { type BytePairs, bytePairs, type Cut } from "./bytePairs.ts";
import { type WordPieces, wordPieces } from "./wordPieces.ts";

/** The data of every tokenizer. */
interface Vocabulary {
  /** Tokens by id. */
  tokens: string[];
  /** Ids of tokens that do not belong to a text. */
  special: number[];
  /** Ids of tokens that are cut out of a text before anything else. */
  added: number[];
  /** Ids before and after every text. */
  before: number[];
  after: number[];
  /** The most tokens of a text, with those. */
  longest: number;
}

/** Single characters, each a token. */
interface Characters {
  kind: "characters";
  /** How tokens are shown. */
  labels: string[];
  /** Replacements in a text before it is cut: a regular expression, and the text that replaces its matches. */
  replaced: [pattern: string, by: string][];
  /** Whether accents are dropped, and capitals read as small letters. */
  bare: boolean;
  lower: boolean;
  /** Whether white space is dropped. */
  dropsBlanks: boolean;
}

/** A tokenizer as a page holds it. */
export type PackedReader = Vocabulary & (Characters | WordPieces | BytePairs);

/** A text in tokens. Spans count in UTF-16; that of a special token is empty. */
export interface Read {
  ids: number[];
  spans: (readonly [number, number])[];
  special: boolean[];
}

/** Explains why a text cannot be read, in words for the reader. */
export class Unreadable extends Error {}

/** A tokenizer, ready to read. */
interface Ready {
  ids: ReadonlyMap<string, number>;
  /** Finds tokens that are cut out of a text; null without any. */
  marks: RegExp | null;
  cut: Cut;
}

const READY = new WeakMap<PackedReader, Ready>();

function readyOf(reader: PackedReader): Ready {
  const cached = READY.get(reader);
  if (cached) return cached;
  const ids = new Map(reader.tokens.map((token, id) => [token, id]));
  const marks = reader.added
    .map((id) => reader.tokens[id] ?? "")
    .filter(Boolean)
    .sort((a, b) => b.length - a.length) // the longest that fits
    .map((mark) => mark.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"));
  const made: Ready = {
    ids,
    marks: marks.length ? new RegExp(marks.join("|"), "gu") : null,
    cut: cutOf(reader, ids),
  };
  READY.set(reader, made);
  return made;
}

function cutOf(reader: PackedReader, ids: ReadonlyMap<string, number>): Cut {
  if (reader.kind === "wordpiece") return wordPieces(reader, ids);
  if (reader.kind === "bpe") return bytePairs(reader, ids);
  return (part, at) =>
    characters(reader, part, at).map(([character, start, end]) => {
      const id = ids.get(character);
      if (id === undefined) throw new Unreadable(unknown(reader, character));
      return [id, start, end];
    });
}

/**
 * Read a text; throws `Unreadable` for an empty text, a text that is too long, and a character that the model lacks.
 */
export function read(reader: PackedReader, text: string): Read {
  if (!text.trim()) throw new Unreadable("The text is empty.");
  const { ids, marks, cut } = readyOf(reader);
  const specials = new Set(reader.special);
  const out: Read = { ids: [], spans: [], special: [] };
  const add = (id: number, start: number, end: number, special = specials.has(id)): void => {
    out.ids.push(id);
    out.spans.push(special ? [0, 0] : [start, end]);
    out.special.push(special);
  };
  for (const id of reader.before) add(id, 0, 0, true);
  let at = 0;
  for (const { 0: mark, index } of marks ? text.matchAll(marks) : []) {
    for (const token of cut(text.slice(at, index), at)) add(...token);
    at = index + mark.length;
    add(ids.get(mark) as number, index, at);
  }
  for (const token of cut(text.slice(at), at)) add(...token);
  for (const id of reader.after) add(id, 0, 0, true);
  const most = reader.longest;
  if (out.ids.length > most) {
    const extra = reader.before.length + reader.after.length;
    const [has, may] = [out.ids.length - extra, most - extra];
    const unit = reader.kind === "characters" ? "characters" : "tokens";
    throw new Unreadable(`The text has ${has} ${unit}, and this model reads at most ${may}: shorten it.`);
  }
  return out;
}

const quoted = (text: string): string => `“${text.length > 40 ? `${text.slice(0, 39)}…` : text}”`;

/** A character with its span in the text. */
type Piece = readonly [character: string, start: number, end: number];

function replaced(pieces: readonly Piece[], pattern: string, by: string): Piece[] {
  const whole = pieces.map(([character]) => character).join("");
  // Where each piece begins in `whole`.
  const starts: number[] = [];
  let length = 0;
  for (const [character] of pieces) {
    starts.push(length);
    length += character.length;
  }
  const out: Piece[] = [];
  let next = 0;
  for (const match of whole.matchAll(new RegExp(pattern, "gu"))) {
    const first = starts.indexOf(match.index);
    const stop = starts.indexOf(match.index + match[0].length);
    const last = stop < 0 ? pieces.length : stop;
    const [start, end] = [pieces[first]?.[1] ?? 0, pieces[last - 1]?.[2] ?? 0];
    out.push(...pieces.slice(next, first), ...[...by].map((character): Piece => [character, start, end]));
    next = last;
  }
  return [...out, ...pieces.slice(next)];
}

/** The characters of a part of a text, as the model reads them. */
function characters(reader: Characters, text: string, from: number): Piece[] {
  let at = from;
  let pieces = [...text].map((character): Piece => {
    at += character.length;
    return [character, at - character.length, at];
  });
  for (const [pattern, by] of reader.replaced) pieces = replaced(pieces, pattern, by);
  const plain = (character: string): string => {
    const bare = reader.bare ? character.normalize("NFD").replace(/\p{M}/gu, "") : character;
    return reader.lower ? bare.toLowerCase() : bare;
  };
  return pieces
    .flatMap(([character, start, end]) => [...plain(character)].map((character): Piece => [character, start, end]))
    .filter(([character]) => !reader.dropsBlanks || !/\s/u.test(character));
}

function unknown({ tokens, special }: Vocabulary, character: string): string {
  const covered = tokens.filter((token, id) => token.trim() && !special.includes(id)).join("");
  return `The model does not know ${quoted(character)}: it reads ${covered.length > 60 ? "others" : quoted(covered)}.`;
}
