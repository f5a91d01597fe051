/** Maps of a pass, by method, layer and head, and in other units. */
import type { Pass } from "../engine/types.ts";
import type { Axis } from "../wire/wire.ts";

/** The methods that a page computes, by name: matrices of a layer [query, key], one for each head or a single one. */
export const METHODS: Record<string, (pass: Pass, layer: number) => Float32Array[]> = {
  attention: (pass, layer) => headsOf(pass, layer),
  rollout: (pass, layer) => [rollout(pass, layer)],
};

function headsOf({ attention, tokens }: Pass, layer: number): Float32Array[] {
  const size = tokens.length ** 2;
  const all = attention[layer] ?? new Float32Array();
  return Array.from({ length: all.length / size }, (_, head) => all.subarray(head * size, (head + 1) * size));
}

/** The mean or the largest value of matrices. */
export function reduced(matrices: readonly Float32Array[], how: "mean" | "max"): Float32Array {
  const [first = new Float32Array()] = matrices;
  return first.map((_, i) => {
    const values = matrices.map((matrix) => matrix[i] as number);
    return how === "max" ? Math.max(...values) : values.reduce((sum, value) => sum + value, 0) / values.length;
  });
}

/** Products that were computed of a pass, by layer. */
const products = new WeakMap<Pass, Float64Array[]>();

/** Attention multiplied through the layers, half of it the residual connection (Abnar and Zuidema 2020). */
function rollout(pass: Pass, layer: number): Float32Array {
  const n = pass.tokens.length;
  const all = products.get(pass) ?? [];
  products.set(pass, all);
  for (let at = all.length; at <= layer; at += 1) {
    const mean = Float64Array.from(reduced(headsOf(pass, at), "mean"));
    for (let query = 0; query < n; query += 1) {
      mean[query * n + query] = (mean[query * n + query] as number) + 1;
      const row = mean.subarray(query * n, (query + 1) * n);
      const sum = row.reduce((total, value) => total + value, 0);
      for (let key = 0; key < n; key += 1) row[key] = (row[key] as number) / sum;
    }
    const before = all[at - 1];
    all.push(before ? times(mean, before, n) : mean);
  }
  return Float32Array.from(all[layer] ?? []);
}

function times(a: Float64Array, b: Float64Array, n: number): Float64Array {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    for (let k = 0; k < n; k += 1) {
      const share = a[i * n + k] as number;
      if (share)
        for (let j = 0; j < n; j += 1) out[i * n + j] = (out[i * n + j] as number) + share * (b[k * n + j] as number);
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
