/** Tokens as they are shown and as they are written in a text: the twin of attnwidgets/tracing/text/display.py. */
import { bytesOf, decoded } from "./bytePairs.ts";
import type { PackedReader } from "./reader.ts";
import { graphemes } from "./units.ts";

/** How tokens that follow each other are shown: as attnwidgets/tracing/text/display.py shows them. */
export function labelsOf(reader: PackedReader, ids: readonly number[]): string[] {
  if (reader.kind === "characters") return ids.map((id) => reader.labels[id] ?? "");
  const tokens = ids.map((id) => reader.tokens[id] ?? `⟨#${id}⟩`);
  if (reader.kind === "wordpiece") return tokens.map((token) => visible(token) || "∅");
  const specials = new Set(reader.special);
  const labels: string[] = [];
  // Runs between special tokens are decoded, and a character is shown at the first of its tokens.
  for (let first = 0; first < ids.length; ) {
    let end = first;
    while (end < ids.length && !specials.has(ids[end] as number)) end += 1;
    labels.push(...labelsOfRun(tokens.slice(first, end)));
    if (end < ids.length) labels.push(visible(tokens[end] as string));
    first = end + 1;
  }
  return labels;
}

/** How a token is shown by itself. */
export const labelOf = (reader: PackedReader, id: number): string => labelsOf(reader, [id])[0] as string;

/** The text that tokens spell, without special tokens. */
export function writtenAs(reader: PackedReader, ids: readonly number[]): string {
  const specials = new Set(reader.special);
  const tokens = ids.filter((id) => !specials.has(id)).map((id) => reader.tokens[id] ?? "");
  if (reader.kind === "bpe") return new TextDecoder().decode(Uint8Array.from(tokens.flatMap((t) => bytesOf(t))));
  return reader.kind === "wordpiece" ? tokens.join(" ").replace(/ ##/gu, "") : tokens.join("");
}

function labelsOfRun(tokens: readonly string[]): string[] {
  const bytes = tokens.map((token) => bytesOf(token));
  const { text, starts } = decoded(bytes.flat());
  // Characters of `text` belong to the token with their first byte.
  const owners = bytes.flatMap((data, token) => data.map(() => token));
  const labels = tokens.map(() => "");
  for (const [start, end] of graphemes(text))
    labels[owners[starts[start] as number] as number] += text.slice(start, end);
  return labels.map((label, i) => visible(label) || (bytes[i]?.length ? "⋯" : "∅"));
}

const SIGNS: Record<string, string> = {
  ...{ " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u3000": "□", "\u200b": "⟨ZWSP⟩" },
};
const visible = (text: string): string => text.replace(/[ \n\t\r\u00a0\u3000\u200b]/gu, (sign) => SIGNS[sign] ?? sign);
