/** Tokens as they are shown and as they are written in a text. */
import type { PackedReader } from "./reader.ts";

export const labelsOf = (reader: PackedReader, ids: readonly number[]): string[] =>
  ids.map((id) => reader.labels[id] ?? "");
export const labelOf = (reader: PackedReader, id: number): string => labelsOf(reader, [id])[0] as string;
export const writtenAs = ({ special, tokens }: PackedReader, ids: readonly number[]): string =>
  ids.map((id) => (special.includes(id) ? "" : (tokens[id] ?? ""))).join("");
