/** Byte-level byte-pair encoding, as of GPT-2 and SmolLM2: words as bytes, whose pairs are merged by rank. */

/** A token with its span in the text. */
export type Token = readonly [id: number, start: number, end: number];

/** Cuts a part of a text into tokens; `at` is the offset of the part in the text. */
export type Cut = (part: string, at: number) => Token[];

export interface BytePairs {
  kind: "bpe";
  /** Pairs in the order in which they are merged: "a b". */
  merges: string[];
  /** Whether every digit is a word. */
  digits: boolean;
}

/** Every byte as a character, and back: printable characters of Latin-1 are themselves. */
const CHARACTERS: string[] = [];
for (let byte = 0, others = 0; byte < 256; byte += 1) {
  const prints = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  CHARACTERS.push(String.fromCharCode(prints ? byte : 256 + others));
  others += Number(!prints);
}
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

// The tokenizers library counts U+0085 as white space and U+FEFF not; \s of JavaScript does the opposite.
const BLANK = "\\t-\\r\\x20\\x85\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = new RegExp(
  `'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^${BLANK}\\p{L}\\p{N}]+|[${BLANK}]+(?![^${BLANK}])|[${BLANK}]+`,
  "gu",
);

/** The bytes that a token spells; tokens that spell no bytes are encoded as text. */
export function bytesOf(token: string): number[] {
  const bytes = Array.from(token, (character) => BYTES.get(character));
  return bytes.every((byte) => byte !== undefined) ? (bytes as number[]) : [...new TextEncoder().encode(token)];
}

/** The text of bytes, and the first byte of each of its UTF-16 units; stray bytes are shown as ⟨XX⟩. */
export function decoded(bytes: readonly number[]): { text: string; starts: number[] } {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const starts: number[] = [];
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    let [character, size] = [`⟨${bytes[at]?.toString(16).toUpperCase().padStart(2, "0")}⟩`, 1];
    const first = bytes[at] as number;
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    try {
      character = decoder.decode(Uint8Array.from(bytes.slice(at, at + length)));
      size = length;
    } catch {
      // A stray byte.
    }
    text += character;
    for (let unit = 0; unit < character.length; unit += 1) starts.push(at);
    at += size;
  }
  return { text, starts };
}

/** A tokenizer of merged pairs. */
export function bytePairs({ merges, digits }: BytePairs, ids: ReadonlyMap<string, number>): Cut {
  const ranks = new Map(merges.map((pair, rank) => [pair, rank]));
  const cache = new Map<string, string[]>();
  const merged = (word: string): string[] => {
    let parts = cache.get(word) ?? [...word];
    while (!cache.has(word)) {
      let [best, at] = [Number.POSITIVE_INFINITY, -1];
      for (let i = 0; i + 1 < parts.length; i += 1) {
        const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Number.POSITIVE_INFINITY;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) cache.set(word, parts);
      else parts = joinedAt(parts, parts[at] as string, parts[at + 1] as string);
    }
    return parts;
  };
  const encoder = new TextEncoder();
  const tokens = (word: string, from: number): Token[] => {
    // Of every byte, the span of its character.
    const spans: [number, number][] = [];
    let [spelled, at] = ["", from];
    for (const character of word) {
      for (const byte of encoder.encode(character)) {
        const spelling = CHARACTERS[byte] as string;
        if (!ids.has(spelling)) continue; // left out by the tokenizers library as well
        spelled += spelling;
        spans.push([at, at + character.length]);
      }
      at += character.length;
    }
    let byte = 0;
    return merged(spelled).map((part): Token => {
      const [first, last] = [spans[byte], spans[byte + part.length - 1]];
      byte += part.length;
      return [ids.get(part) as number, first?.[0] as number, last?.[1] as number];
    });
  };
  return (part, at) => {
    const out: Token[] = [];
    let from = at;
    for (const run of digits ? part.split(/(\p{N})/u) : [part])
      for (const [word] of run.matchAll(WORD)) {
        out.push(...tokens(word, from));
        from += word.length;
      }
    return out;
  };
}

/** Parts with every occurrence of a pair joined. */
function joinedAt(parts: readonly string[], left: string, right: string): string[] {
  const out: string[] = [];
  for (let i = 0; i < parts.length; i += 1) {
    const pair = parts[i] === left && parts[i + 1] === right;
    out.push(pair ? left + right : (parts[i] as string));
    i += Number(pair);
  }
  return out;
}
