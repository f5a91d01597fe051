/**
 * The weights of a head from the two factors of its scores, which a page holds instead of the weights of a long text.
 * The twin of attnwidgets/views/page/score_factors.py, which describes how they are rounded.
 */

/** Scores that are computed side by side. */
const LANES = 4;

export interface FactorShape {
  rows: number;
  cols: number;
  /** Components of both factors. */
  rank: number;
  /** Whether queries read no later keys. */
  causal: boolean;
}

/** The weights [query, key] of inflated bytes. */
export function weightsOf(data: Uint8Array<ArrayBuffer>, { rows, cols, rank, causal }: FactorShape): Float32Array {
  const view = new DataView(data.buffer, data.byteOffset);
  const exponents = 4 * rank;
  const widths = exponents + rows + cols;
  const unary = widths + 2 * rank + 4;
  // Bits, the lowest of a byte first: zeros before a one count the part of a number above its low bits.
  let at = 8 * unary;
  let low = 8 * (unary + view.getUint32(unary - 4, true));
  const bit = (index: number): number => ((data[index >> 3] as number) >> (index & 7)) & 1;
  const next = (width: number): number => {
    let folded = 0;
    while (!bit(at++)) {
      folded += 1;
      if (at >> 3 >= data.length) throw new Error("damaged"); // it would never find a one
    }
    folded <<= width;
    for (let i = 0; i < width; i += 1) folded += bit(low++) << i;
    return (folded >> 1) ^ -(folded & 1);
  };
  /** A factor [row][component]; the steps of its rows are powers of two. */
  const factor = (number: 0 | 1, count: number, scales: Float64Array | null): Float64Array => {
    const steps = Float64Array.from(
      { length: count },
      (_, row) => 2 ** (view.getInt8(exponents + number * rows + row) / 4),
    );
    const out = new Float64Array((count + LANES) * rank);
    for (let component = 0; component < rank; component += 1) {
      const width = data[widths + number * rank + component] as number;
      const scale = (scales?.[component] as number | undefined) ?? 1;
      for (let row = 0; row < count; row += 1)
        out[row * rank + component] = next(width) * (steps[row] as number) * scale;
    }
    return out;
  };
  const weighting = Float64Array.from({ length: rank }, (_, component) => view.getFloat32(4 * component, true));
  const queries = factor(0, rows, weighting);
  const keys = factor(1, cols, null);
  const weights = new Float32Array(rows * cols);
  const scores = new Float64Array(cols + LANES);
  for (let query = 0; query < rows; query += 1) {
    const end = causal ? Math.min(cols, query + 1) : cols;
    const from = query * rank;
    // Four keys at a time: one sum would wait for itself at every step.
    for (let key = 0; key < end; key += LANES) {
      const [first, second, third, fourth] = [key * rank, (key + 1) * rank, (key + 2) * rank, (key + 3) * rank];
      let [a, b, c, d] = [0, 0, 0, 0];
      for (let i = 0; i < rank; i += 1) {
        const value = queries[from + i] as number;
        a += value * (keys[first + i] as number);
        b += value * (keys[second + i] as number);
        c += value * (keys[third + i] as number);
        d += value * (keys[fourth + i] as number);
      }
      scores[key] = a;
      scores[key + 1] = b;
      scores[key + 2] = c;
      scores[key + 3] = d;
    }
    let most = Number.NEGATIVE_INFINITY;
    for (let key = 0; key < end; key += 1) most = Math.max(most, scores[key] as number);
    let sum = 0;
    for (let key = 0; key < end; key += 1) {
      const weight = Math.exp((scores[key] as number) - most);
      scores[key] = weight;
      sum += weight;
    }
    for (let key = 0; key < end; key += 1) weights[query * cols + key] = (scores[key] as number) / sum;
  }
  return weights;
}
