/** Matrices of tokens [query, key], row-major: reduced over heads, multiplied through layers, in coarser units, as codes. */
import type { Axis } from "./wire.ts";

/** The exponent of codes: a code is the square root of a value. */
const GAMMA = 0.5;

/** The mean or the largest value of matrices. */
export function reduced(matrices: Iterable<Float32Array>, how: "mean" | "max"): Float32Array {
  let out: Float32Array | undefined;
  let count = 0;
  for (const matrix of matrices) {
    count += 1;
    if (!out) out = matrix.slice();
    else if (how === "max")
      for (let i = 0; i < out.length; i += 1) out[i] = Math.max(out[i] as number, matrix[i] as number);
    else for (let i = 0; i < out.length; i += 1) out[i] = (out[i] as number) + (matrix[i] as number);
  }
  return (out ?? new Float32Array()).map((value) => (how === "mean" ? value / count : value));
}

/**
 * Attention multiplied through another layer, half of it the residual connection (Abnar and Zuidema 2020): `mean` is
 * the layer's mean over heads, `before` the product up to the layer below it, undefined for the first.
 */
export function rolledOut(mean: Float32Array, before: Float64Array | undefined): Float64Array {
  const step = Float64Array.from(mean);
  const n = Math.sqrt(step.length);
  for (let query = 0; query < n; query += 1) {
    step[query * n + query] = (step[query * n + query] as number) + 1;
    const row = step.subarray(query * n, (query + 1) * n);
    const sum = row.reduce((total, value) => total + value, 0);
    for (let key = 0; key < n; key += 1) row[key] = (row[key] as number) / sum;
  }
  return before ? times(step, before, n) : step;
}

function times(a: Float64Array, b: Float64Array, n: number): Float64Array {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    const row = out.subarray(i * n, (i + 1) * n);
    const share = (k: number): number => (k < n ? (a[i * n + k] as number) : 0);
    // Four rows at a time: adding to memory takes longer than multiplying.
    for (let k = 0; k < n; k += 4) {
      const [first, second, third, fourth] = [share(k), share(k + 1), share(k + 2), share(k + 3)];
      if (!(first || second || third || fourth)) continue;
      const [p, q, r, s] = [0, 1, 2, 3].map((step) => Math.min(k + step, n - 1) * n) as [
        number,
        number,
        number,
        number,
      ];
      for (let j = 0; j < n; j += 1)
        row[j] =
          (row[j] as number) +
          first * (b[p + j] as number) +
          second * (b[q + j] as number) +
          third * (b[r + j] as number) +
          fourth * (b[s + j] as number);
    }
  }
  return out;
}

/** A matrix of tokens in a unit: the sum over an element's keys, the mean over its queries. */
export function inUnit(matrix: Float32Array, { spans, labels }: Axis): Float32Array {
  if (!spans) return matrix;
  const n = Math.sqrt(matrix.length);
  const out = new Float32Array(labels.length ** 2);
  spans.forEach((queries, row) => {
    spans.forEach((keys, col) => {
      let sum = 0;
      for (const query of queries) for (const key of keys) sum += matrix[query * n + key] as number;
      out[row * labels.length + col] = sum / queries.length;
    });
  });
  return out;
}

/** Codes after a square root; `scale` has the largest code. Those of signed values are int8. */
export function codesOf(values: Float32Array, scale: number, signed: boolean): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(values, (value) => {
    const size = Math.min(1, Math.max(0, (signed ? Math.abs(value) : value) / (scale || 1))) ** GAMMA;
    return signed ? Math.sign(value) * Math.round(127 * size) : Math.round(255 * size);
  });
}
