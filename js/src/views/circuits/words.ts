/** Tokens and numbers of circuits in words. */
import { shortLabel } from "../../dom.ts";

/** A token without the space at its beginning; a token of only spaces keeps its sign. */
export function word(label: string, most = 24): string {
  const bare = label.replace(/^[ ␣▁]+(?=[^ ␣▁])/u, "");
  return shortLabel(bare, most);
}

/** A token in quotes, isolated from the text direction around it. */
export const inQuotes = (label: string): string => `\u2068“${word(label, 40)}”\u2069`;

/** A number with a real minus sign and, with `plus`, a sign in any case. */
export function decimal(value: number, digits = 2, plus = false): string {
  if (Number.isNaN(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (value < 0 && Number(text) !== 0) return `−${text}`;
  return plus && Number(text) !== 0 ? `+${text}` : text;
}

/** A probability of four digits; a smaller number has only a bound. */
export const chance = (p: number): string => (p > 0 && p < 0.0001 ? "< 0.0001" : p.toFixed(4));
