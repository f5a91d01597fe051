/** What is said of two strips, and of one element in several: shares, differences, ranks. */

/** A strip divided by the sum of its magnitudes; one of zeros stays so. What is left out (NaN) counts for none. */
export function shares(values: Float32Array): Float32Array {
  let total = 0;
  for (const value of values) total += Math.abs(value) || 0;
  return total > 0 ? values.map((value) => value / total) : values;
}

/** What the first has more of than the second, in shares of each one's own sum. */
export function difference(first: Float32Array, second: Float32Array): Float32Array {
  const [a, b] = [shares(first), shares(second)];
  return a.map((value, i) => value - (b[i] ?? 0));
}

/** The place of every element from the largest value down, 1 the largest; equal values share the best, NaN has none (0). */
export function rankOf(values: Float32Array): number[] {
  const sorted = [...values].filter((value) => !Number.isNaN(value)).sort((a, b) => b - a);
  const places = new Map<number, number>();
  sorted.forEach((value, i) => {
    if (!places.has(value)) places.set(value, i + 1);
  });
  return Array.from(values, (value) => places.get(value) ?? 0);
}

/** "3rd of 12" */
export function byRank(rank: number, count: number): string {
  const teen = rank % 100 > 10 && rank % 100 < 14;
  const end = (!teen && ["th", "st", "nd", "rd"][rank % 10]) || "th";
  return `${rank}${end} of ${count}`;
}
