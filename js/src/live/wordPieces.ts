/** Word pieces of BERT: words and signs, each in the longest pieces of the vocabulary, from left to right. */
import type { Cut, Token } from "./bytePairs.ts";

export interface WordPieces {
  kind: "wordpiece";
  /** Whether accents are dropped, and capitals read as small letters. */
  bare: boolean;
  lower: boolean;
  /** Whether every Chinese character is a word. */
  splitsHan: boolean;
  /** Whether control characters are dropped. */
  clean: boolean;
  /** The prefix of pieces inside a word. */
  prefix: string;
  /** The token of a word without pieces, and the most characters of a word with pieces. */
  unknown: number;
  most: number;
}

/** A character of a word with its span in the text. */
type Letter = readonly [character: string, start: number, end: number];

const BLANK = /[\t-\r\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/u;
const CONTROL = /[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Cn}\p{Co}]/u;
const SIGN = /[!-/:-@[-`{-~]|\p{P}/u;
const HAN =
  /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}\u{2b820}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;

/** Words and signs of a part of a text, as the model reads them. */
function words({ bare, lower, splitsHan, clean }: WordPieces, part: string, from: number): Letter[][] {
  const out: Letter[][] = [[]];
  const breakWord = (): void => {
    if (out.at(-1)?.length) out.push([]);
  };
  let at = from;
  for (const character of part) {
    const [start, end] = [at, at + character.length];
    at = end;
    if (clean && CONTROL.test(character)) continue;
    const alone = splitsHan && HAN.test(character);
    if (alone) breakWord();
    const plain = bare ? character.normalize("NFD").replace(/\p{Mn}/gu, "") : character;
    for (const letter of plain)
      for (const read of lower ? letter.toLowerCase() : letter) {
        const [blank, sign] = [BLANK.test(read), SIGN.test(read)];
        if (blank || sign) breakWord();
        if (!blank) out.at(-1)?.push([read, start, end]);
        if (sign) breakWord();
      }
    if (alone) breakWord();
  }
  return out.filter(({ length }) => length);
}

/** A tokenizer that cuts texts into pieces of a vocabulary. */
export function wordPieces(reader: WordPieces, ids: ReadonlyMap<string, number>): Cut {
  const pieces = (word: readonly Letter[]): Token[] => {
    const span = (first: number, end: number): [number, number] => [
      word[first]?.[1] as number,
      word[end - 1]?.[2] as number,
    ];
    const unknown: Token[] = [[reader.unknown, ...span(0, word.length)]];
    if (word.length > reader.most) return unknown;
    const out: Token[] = [];
    for (let first = 0; first < word.length; ) {
      const begin = first ? reader.prefix : "";
      let end = word.length;
      let id: number | undefined;
      for (; end > first; end -= 1) {
        const spelled = word.slice(first, end).map(([letter]) => letter);
        id = ids.get(begin + spelled.join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return unknown;
      out.push([id, ...span(first, end)]);
      first = end;
    }
    return out;
  };
  return (part, at) => words(reader, part, at).flatMap(pieces);
}
