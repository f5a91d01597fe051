/**
 * The tokenizer of a live page: single characters, each a token. Its twin is the tokenizer that
 * attnwidgets/views/page/live/packing.py describes.
 */

/** A tokenizer as a page holds it. */
export interface PackedReader {
  /** Tokens by id, and how they are shown. */
  tokens: string[];
  labels: string[];
  /** Ids of special tokens. */
  special: number[];
  /** What is replaced in a text first: a regular expression, and what stands in its place. */
  replaced: [pattern: string, by: string][];
  /** Whether accents are dropped, and capitals read as small letters. */
  bare: boolean;
  lower: boolean;
  /** Whether white space is dropped. */
  dropsBlanks: boolean;
  /** Ids before and after every text. */
  before: number[];
  after: number[];
  /** The most tokens of a text, with those. */
  longest: number;
}

/** A text in tokens. Spans count in UTF-16; that of a special token is empty. */
export interface Read {
  ids: number[];
  spans: (readonly [number, number])[];
  special: boolean[];
}

/** A character, and what it stands for in the text. */
type Piece = readonly [character: string, start: number, end: number];

/** Says why a text cannot be read, in words for the reader. */
export class Unreadable extends Error {}

const quoted = (text: string): string => `“${text.length > 40 ? `${text.slice(0, 39)}…` : text}”`;

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
    out.push(...pieces.slice(next, first), ...[...by].map((one): Piece => [one, start, end]));
    next = last;
  }
  return [...out, ...pieces.slice(next)];
}

/** The characters of a part of a text, as the model reads them. */
function pieces(reader: PackedReader, text: string, from: number): Piece[] {
  let at = from;
  let found = [...text].map((character): Piece => {
    at += character.length;
    return [character, at - character.length, at];
  });
  for (const [pattern, by] of reader.replaced) found = replaced(found, pattern, by);
  const plain = (character: string): string => {
    const bare = reader.bare ? character.normalize("NFD").replace(/\p{M}/gu, "") : character;
    return reader.lower ? bare.toLowerCase() : bare;
  };
  return found
    .flatMap(([character, start, end]) => [...plain(character)].map((one): Piece => [one, start, end]))
    .filter(([character]) => !reader.dropsBlanks || !/\s/u.test(character));
}

/** Read a text; throws `Unreadable` for an empty one, one that is too long, and a character that the model lacks. */
export function read(reader: PackedReader, text: string): Read {
  if (!text.trim()) throw new Unreadable("The text is empty.");
  const { tokens, before, after } = reader;
  const named = new Map(tokens.map((token, id) => [token, id]));
  const specials = new Map(reader.special.map((id) => [tokens[id] ?? "", id]));
  const out: Read = { ids: [], spans: [], special: [] };
  const add = (id: number, start = 0, end = 0): void => {
    out.ids.push(id);
    out.spans.push([start, end]);
    out.special.push(specials.has(tokens[id] ?? ""));
  };
  for (const id of before) add(id);
  // Special tokens may be written out in a text.
  const marks = [...specials.keys()].map((mark) => mark.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"));
  let at = 0;
  for (const part of marks.length ? text.split(new RegExp(`(${marks.join("|")})`, "u")) : [text]) {
    const special = specials.get(part);
    if (special !== undefined) add(special);
    else
      for (const [character, start, end] of pieces(reader, part, at)) {
        const id = named.get(character);
        if (id === undefined) throw new Unreadable(unknown(reader, character));
        add(id, start, end);
      }
    at += part.length;
  }
  for (const id of after) add(id);
  const most = reader.longest;
  if (out.ids.length > most) {
    const extra = before.length + after.length;
    const [has, may] = [out.ids.length - extra, most - extra];
    throw new Unreadable(`The text has ${has} characters, and this model reads at most ${may}: shorten it.`);
  }
  return out;
}

function unknown({ tokens, special }: PackedReader, character: string): string {
  const known = tokens.filter((token, id) => token.trim() && !special.includes(id)).join("");
  return `The model does not know ${quoted(character)}: it reads ${known.length > 60 ? "others" : quoted(known)}.`;
}
