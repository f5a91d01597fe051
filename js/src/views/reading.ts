/** What a token strip shows, as numbers: which row is read, on which scale, and how a value is printed. */

/** Anything that gives cell values: a decoded tile. */
export interface Cells {
  rows: number;
  cols: number;
  value(row: number, col: number): number;
}

/** One row of cells, as many numbers as there are keys. */
export function rowOf(cells: Cells, row: number): Float32Array {
  const out = new Float32Array(cells.cols);
  for (let c = 0; c < cells.cols; c += 1) out[c] = cells.value(row, c);
  return out;
}

/** One column of cells: what every query takes from that key. */
export function columnOf(cells: Cells, col: number): Float32Array {
  const out = new Float32Array(cells.rows);
  for (let r = 0; r < cells.rows; r += 1) out[r] = cells.value(r, col);
  return out;
}

/** Weight every key receives, as the mean over all queries. Not-a-number cells do not count. */
export function meanReceived(cells: Cells): Float32Array {
  const sum = new Float64Array(cells.cols);
  const seen = new Uint32Array(cells.cols);
  for (let r = 0; r < cells.rows; r += 1) {
    for (let c = 0; c < cells.cols; c += 1) {
      const v = cells.value(r, c);
      if (Number.isNaN(v)) continue;
      sum[c] = (sum[c] as number) + v;
      seen[c] = (seen[c] as number) + 1;
    }
  }
  return Float32Array.from(sum, (s, c) => (seen[c] ? s / (seen[c] as number) : Number.NaN));
}

/** Largest absolute finite value; 0 where there is none. */
export function peak(values: ArrayLike<number>): number {
  let top = 0;
  for (let i = 0; i < values.length; i += 1) {
    const v = Math.abs(values[i] as number);
    if (v > top && Number.isFinite(v)) top = v;
  }
  return top;
}

/**
 * The value that gets the full colour. `intensity` 0 is the row's peak; every step of 1 halves the top of the
 * scale, so that what stands behind a sink can be seen. Larger values keep the full colour.
 */
export function topOfScale(values: ArrayLike<number>, intensity: number): number {
  return peak(values) / 2 ** intensity;
}

/** A value: four digits where it is exact, the two its encoding supports where it is not. */
export function printed(value: number, exact: boolean): string {
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const digits = exact ? 4 : 2;
  const size = Math.abs(value);
  const text =
    size < 1e-4 || size >= 1e5 ? size.toExponential(digits - 1) : Number(size.toPrecision(digits)).toString();
  return `${value < 0 ? "−" : ""}${text}`;
}

/** Short number for the end of a legend. */
export function tick(value: number): string {
  if (value === 0) return "0";
  return value >= 1e5 || value < 1e-3 ? value.toExponential(1) : Number(value.toPrecision(2)).toString();
}

/** Whether labels carry their own spaces ("␣the", " the"); otherwise the strip sets a gap between elements. */
export function carriesSpaces(labels: readonly string[]): boolean {
  return labels.some((label, i) => i > 0 && /^[\s␣▁·Ġ⏎↵]/u.test(label));
}

/** Whether a label continues the word before it (WordPiece marks that with ##). */
export function continues(label: string): boolean {
  return label.length > 2 && label.startsWith("##");
}

/** The element an arrow key leads to, or null where the key does not move along the text. */
export function step(key: string, index: number, count: number, rtl: boolean): number | null {
  const forward = rtl ? "ArrowLeft" : "ArrowRight";
  const back = rtl ? "ArrowRight" : "ArrowLeft";
  if (key === forward) return Math.min(count - 1, index + 1);
  if (key === back) return Math.max(0, index - 1);
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}
