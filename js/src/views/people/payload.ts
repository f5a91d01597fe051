/** A participant's responses as a file and as a line of text: the twin of attnwidgets/people/reading.py. */
import type { AskedStudy } from "../../wire/studies.ts";
import { canonical } from "../question/record.ts";
import { digest } from "./schedule.ts";

export type Role = "practice" | "item" | "check";

/** Role, item, condition, the other of a pair, position, side, answer, ms until the first choice, ms until it was sent. */
export type Row = [Role, string, string, string, number, number, unknown, number | null, number];

export interface Payload {
  v: number;
  study: string;
  kind: string;
  code: string;
  finished: boolean;
  rows: Row[];
  package: string;
}

export const payloadOf = (study: AskedStudy, code: string, rows: Row[], finished: boolean): Payload => ({
  v: 1,
  study: study.hash,
  kind: study.kind,
  code,
  finished,
  rows,
  package: study.package,
});

/** The responses with their digest, as they are handed in. */
export const whole = (payload: Payload): Payload & { digest: string } => ({
  ...payload,
  digest: digest(canonical(payload)),
});

/** A file that people can read, a row a line. */
export function fileOf(payload: Payload): string {
  const { rows, ...rest } = whole(payload);
  const head = JSON.stringify(rest, null, 1).replace(/\n\}$/, "");
  return `${head},\n "rows": [\n  ${rows.map((row) => JSON.stringify(row)).join(",\n  ")}\n ]\n}\n`;
}

/** The same as a line, to paste into any form. */
export function lineOf(payload: Payload): string {
  const text = canonical(payload);
  const bytes = [...new TextEncoder().encode(text)].map((byte) => String.fromCharCode(byte));
  const body = btoa(bytes.join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `awp${payload.v}.${body}.${digest(text)}`;
}
