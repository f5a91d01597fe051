/** The numbers behind a token strip: its row, and the range of its scale. */

/** Anything with cell values, such as a decoded tile. */
export interface Cells {
  rows: number;
  cols: number;
  value(row: number, col: number): number;
}

/** A row of cells: a number per key. */
export function rowOf(cells: Cells, row: number): Float32Array {
  const out = new Float32Array(cells.cols);
  for (let c = 0; c < cells.cols; c += 1) out[c] = cells.value(row, c);
  return out;
}

/** The weight that every key receives: the mean over all queries, NaN cells excluded. */
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

/** Indices of the `most` largest magnitudes in descending order; ties in their order. */
export function largestOf(values: ArrayLike<number>, most: number): number[] {
  const indices: number[] = [];
  const size = (at: number | undefined): number => Math.abs(values[at as number] as number) || 0;
  for (let i = 0; i < values.length; i += 1) {
    if (indices.length === most && !(size(i) > size(indices[most - 1]))) continue;
    let at = Math.min(indices.length, most - 1);
    for (; at > 0 && size(i) > size(indices[at - 1]); at -= 1) indices[at] = indices[at - 1] as number;
    indices[at] = i;
  }
  return indices;
}

/** The largest absolute finite value; 0 if there is none. */
export function peak(values: Iterable<number>): number {
  let top = 0;
  for (const value of values) if (Number.isFinite(value)) top = Math.max(top, Math.abs(value));
  return top;
}

/**
 * The value that gets the full colour. `intensity` 0 is the row's peak; every step of 1 halves the top of the scale, so
 * that small values behind an attention sink become visible. Larger values keep the full colour.
 */
export function topOfScale(values: Iterable<number>, intensity: number): number {
  return peak(values) / 2 ** intensity;
}

/** Whether labels include spaces ("␣the", " the"); otherwise the strip sets a gap between elements. */
export function carriesSpaces(labels: readonly string[]): boolean {
  return labels.some((label, i) => i > 0 && /^[\s␣▁·Ġ⏎↵]/u.test(label));
}

/** Whether a label continues the word before it (WordPiece marks that with ##). */
export function continues(label: string): boolean {
  return label.length > 2 && label.startsWith("##");
}

/** The element that an arrow key leads to, or null if the key does not move along the text. */
export function step(key: string, index: number, count: number, rtl: boolean): number | null {
  const forward = rtl ? "ArrowLeft" : "ArrowRight";
  const back = rtl ? "ArrowRight" : "ArrowLeft";
  if (key === forward) return Math.min(count - 1, index + 1);
  if (key === back) return Math.max(0, index - 1);
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}
