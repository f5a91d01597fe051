/** The record of an answer as a line to hand in: the twin of attnwidgets/course/values.py and records.py. */
import type { AnswerRecord } from "../../wire/questions.ts";

/** Significant digits of a number: more than the numbers of two machines share. */
const DIGITS = 6;

/** A value with numbers of six digits, and objects with sorted keys. */
function plain(value: unknown): unknown {
  if (typeof value === "number") return Number(value.toPrecision(DIGITS));
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([name, item]) => [name, plain(item)]));
}

/** JSON with the same bytes on every platform. */
export const canonical = (value: unknown): string => JSON.stringify(plain(value));

/** The last 24 bits of a text's CRC-32. */
function checksum(text: string): string {
  let crc = -1;
  for (let i = 0; i < text.length; i += 1) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc & 0xffffff).toString(16).padStart(6, "0");
}

/** The receipt of an answer; "" without an answer. */
export function receiptOf(record: AnswerRecord): string {
  if (record.value === null) return "";
  const bytes = [...new TextEncoder().encode(canonical(record))].map((byte) => String.fromCharCode(byte));
  const body = btoa(bytes.join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `aw${record.v}.${body}.${checksum(body)}`;
}

/** A file of answers, as saved next to a notebook. */
export function fileOf(records: readonly AnswerRecord[]): string {
  const answered = records.filter(({ value }) => value !== null).sort((a, b) => (a.id < b.id ? -1 : 1));
  const answers = Object.fromEntries(answered.map((record) => [record.id, plain(record)]));
  return `${JSON.stringify({ v: 1, answers }, null, 1)}\n`;
}
