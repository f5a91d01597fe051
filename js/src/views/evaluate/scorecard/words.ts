/** A value with its interval, and its position, in words. */

import { intervalWords, type Shown, scoreWords } from "./scores.ts";

/** The value of a row at a position; -1: its mean over all positions. */
export function wordsAt(
  { card, mean, low, high, count, whole, isCurve }: Shown,
  row: number,
  position: number,
): string {
  const { rows, places, axis, remarks, examples, level } = card;
  const here = Math.max(0, position);
  const isMean = isCurve && position < 0;
  const [value, least, most] = isMean
    ? whole.map((part) => part[row])
    : [mean, low, high].map((part) => part[row]?.[here] ?? null);
  const ends = intervalWords(least, most, "");
  const n = isMean ? examples : (count[row]?.[here] ?? examples);
  const remark = remarks[here] ? ` (${remarks[here]})` : "";
  const where = !isCurve ? "" : isMean ? `mean over ${axis}` : `${axis} ${places[position]}${remark}`;
  const words = `${rows[row]?.[0]} ${scoreWords(value)}${ends && ` (${ends}, ${Math.round(100 * level)} % interval)`}`;
  return [words, where, n < examples ? `n = ${n}` : ""].filter(Boolean).join(" · ");
}
