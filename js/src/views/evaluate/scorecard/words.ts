/** The values at a position, or their means, in words. */

import { intervalWords, type Shown, scoreWords } from "./scores.ts";

/** The position, and the value of every shown row; -1: the means over all positions. */
export function wordsAt(
  { card, mean, low, high, count, whole, shown, isCurve }: Shown,
  hovered: number,
): [where: string, rows: string[]] {
  const { rows, places, axis, remarks, examples } = card;
  const here = Math.max(0, hovered);
  const from = isCurve && hovered < 0 ? whole : [mean, low, high].map((part) => part.map((row) => row[here] ?? null));
  const words = shown.map((row) => {
    const [value, least, most] = from.map((part) => part[row]);
    const ends = intervalWords(least, most, "");
    const n = isCurve && hovered >= 0 ? (count[row]?.[here] ?? 0) : 0;
    const some = n && n < examples ? `, n = ${n}` : "";
    return `${rows[row]?.[0]} ${scoreWords(value)}${ends && ` (${ends})`}${some}`;
  });
  const remark = remarks[here] ? ` (${remarks[here]})` : "";
  const where = !isCurve ? "" : hovered < 0 ? `mean over ${axis}: ` : `${axis} ${places[hovered]}${remark}: `;
  return [where, words];
}
