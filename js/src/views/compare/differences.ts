/** Comparisons of two strips, and of an element in several: shares, differences, ranks. */

/** A strip divided by the sum of its magnitudes; zeros stay zeros. Hidden values (NaN) do not count. */
export function shares(values: Float32Array): Float32Array {
  let total = 0;
  for (const value of values) total += Math.abs(value) || 0;
  return total > 0 ? values.map((value) => value / total) : values;
}

const DIFFERENCES = new WeakMap<Float32Array, WeakMap<Float32Array, Float32Array>>();

/** The difference of two strips, each as shares of its sum; computed once, for bars and words. */
export function difference(first: Float32Array, second: Float32Array): Float32Array {
  const cached = DIFFERENCES.get(first) ?? new WeakMap<Float32Array, Float32Array>();
  DIFFERENCES.set(first, cached);
  let made = cached.get(second);
  if (!made) {
    const [a, b] = [shares(first), shares(second)];
    made = a.map((value, i) => value - (b[i] ?? 0));
    cached.set(second, made);
  }
  return made;
}

/** The rank of every element, 1 for the largest value; equal values share the best rank, NaN has none (0). */
export function rankOf(values: Float32Array): number[] {
  const sorted = [...values].filter((value) => !Number.isNaN(value)).sort((a, b) => b - a);
  const ranks = new Map<number, number>();
  sorted.forEach((value, i) => {
    if (!ranks.has(value)) ranks.set(value, i + 1);
  });
  return Array.from(values, (value) => ranks.get(value) ?? 0);
}

/** "3rd" */
export function byRank(rank: number): string {
  const teen = rank % 100 > 10 && rank % 100 < 14;
  const end = (!teen && ["th", "st", "nd", "rd"][rank % 10]) || "th";
  return `${rank}${end}`;
}
