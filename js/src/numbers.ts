/** Numbers formatted for readers: only significant digits, and a real minus sign. */

function signed(value: number, text: string): string {
  return value < 0 ? `−${text}` : text;
}

/** A value with four digits if it is exact, otherwise with the two that its encoding supports. */
export function printed(value: number, exact: boolean): string {
  if (Number.isNaN(value)) return "not a number";
  const digits = exact ? 4 : 2;
  const size = Math.abs(value);
  if (size === Infinity) return signed(value, "∞");
  const plain = value === 0 || (size >= 1e-4 && size < 1e5);
  return signed(value, plain ? String(Number(size.toPrecision(digits))) : size.toExponential(digits - 1));
}

/**
 * A number rounded to the digits that are certain, given an error of `error`; at least one significant digit. If zero
 * is within the error, only a bound is certain: "< 0.0001", or "> −0.0001" for a negative number.
 */
export function withinError(value: number, error: number): string {
  const size = Math.abs(value);
  if (size <= error && error > 0) {
    const power = Math.ceil(Math.log10(size + error) - 1e-9);
    const bound = power < -6 ? `1e${power}` : power < 0 ? (10 ** power).toFixed(-power) : String(10 ** power);
    return value < 0 ? `> −${bound}` : `< ${bound}`;
  }
  if (value === 0) return "0";
  if (size < 1e-4 || size >= 1e6) return signed(value, size.toExponential(size < 1e-4 ? 0 : 1));
  const decimals = error > 0 ? Math.floor(-Math.log10(error)) : 6;
  const leading = Math.ceil(-Math.log10(size));
  return signed(value, size.toFixed(Math.max(0, Math.min(8, Math.max(decimals, leading)))));
}

/** The same for a column of numbers, `error` being the largest in it: all have equally many decimals. */
export function inColumn(value: number, error: number): string {
  if (Number.isNaN(value)) return "";
  const decimals = Math.max(0, Math.min(8, Math.floor(-Math.log10(error))));
  const text = error > 0 ? Math.abs(value).toFixed(decimals) : "";
  return Number(text) ? signed(value, text) : withinError(value, Math.max(error, text ? 10 ** -decimals / 2 : 0));
}

/** The text of `withinError` with its sign: "≈ 0.12"; a bound has its own sign. */
export const approximately = (text: string): string => (/^[<>]/.test(text) ? text : `≈ ${text}`);

/** A tick label of a scale: two significant digits. */
export function tickText(value: number): string {
  const size = Number(Math.abs(value).toPrecision(2));
  const plain = size === 0 || (size < 1e4 && size >= 1e-3);
  return signed(value, plain ? String(size) : size.toExponential().replace("+", ""));
}

/** The smallest round number (1, 1.5, 2, 3, 5 or 7 times a power of ten) not below `value`. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 5, 7].find((m) => m * power >= value * (1 - 1e-9)) ?? 10;
  return Number((step * power).toPrecision(2));
}

/** The sign stays on the line of its number. */
const PERCENT = "\u00a0%";

/** A probability with three digits, never rounded to 0 % or 100 %; "" for null. */
export function percent(probability: number | null): string {
  if (probability === null) return "";
  if (!Number.isFinite(probability)) return "–";
  const share = 100 * probability;
  if (share > 0 && share < 0.1) return `< 0.1${PERCENT}`;
  if (share < 100 && share > 99.9) return `> 99.9${PERCENT}`;
  return share.toFixed(1) + PERCENT;
}
