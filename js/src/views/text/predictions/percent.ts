/** Probabilities formatted for readers. */

/** The sign stays on the line of its number. */
const PERCENT = "\u00a0%";

/** A probability with three digits, never rounded to 0 % or 100 %. */
export function percent(probability: number): string {
  if (!Number.isFinite(probability)) return "–";
  const share = 100 * probability;
  if (share > 0 && share < 0.1) return `< 0.1${PERCENT}`;
  if (share < 100 && share > 99.9) return `> 99.9${PERCENT}`;
  return share.toFixed(1) + PERCENT;
}
