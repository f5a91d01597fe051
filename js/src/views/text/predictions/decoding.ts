/** From logits to the sampling distribution: temperature, then top k, then top p, as in transformers. */

/**
 * The largest logits in descending order, and the weight of all others: logsumexp(logit / T) for every T of
 * `temperatures`.
 */
export interface Logits {
  largest: ArrayLike<number>;
  rest: ArrayLike<number>;
  temperatures: readonly number[];
  /** The total number of outcomes. */
  count: number;
}

export interface SamplingOptions {
  /** 0: greedy. Otherwise an element of `temperatures`. */
  temperature: number;
  /** 0: all. */
  topK: number;
  topP: number;
}

export interface Distribution {
  /** Probabilities of the largest; 0 if excluded from sampling. */
  probabilities: Float64Array;
  /** Of all others together. */
  rest: number;
  /** The number of outcomes that can be sampled; null: more than are listed, unknown. */
  remaining: number | null;
  /** The share of the distribution, after temperature, that can be sampled. */
  mass: number;
  /** Whether probabilities are exact; otherwise the error is below the smallest. */
  exact: boolean;
}

/** Probabilities of the largest and of all others, at a temperature. */
function softened({ largest, rest, temperatures }: Logits, temperature: number): [Float64Array, number] {
  const scaled = Float64Array.from(largest, (logit) => logit / temperature);
  const others = rest[temperatures.findIndex((t) => Math.abs(t - temperature) < 1e-6)] ?? -Infinity;
  const top = Math.max(scaled[0] ?? -Infinity, others);
  const sum = scaled.reduce((total, value) => total + Math.exp(value - top), Math.exp(others - top));
  return [scaled.map((logit) => Math.exp(logit - top) / sum), Math.exp(others - top) / sum];
}

export function samplingDistribution(logits: Logits, { temperature, topK, topP }: SamplingOptions): Distribution {
  const n = logits.largest.length;
  if (temperature === 0) {
    const probabilities = new Float64Array(n);
    probabilities[0] = 1;
    return { probabilities, rest: 0, remaining: 1, mass: 1, exact: true };
  }
  const [all, others] = softened(logits, temperature);
  const cut = topK > 0 && topK < logits.count ? topK : logits.count;
  const listed = Math.min(n, cut);
  let mass = 0;
  for (let i = 0; i < listed; i += 1) mass += all[i] as number;
  // If top k exceeds the listed logits, the others have at most this weight.
  const unknown = cut > n ? others : 0;
  const exact = cut <= n || cut === logits.count;
  const total = mass + unknown;
  if (topP >= 1) return finish(all, listed, unknown, total, cut, exact);
  let sum = 0;
  for (let i = 0; i < listed; i += 1) {
    sum += all[i] as number;
    // The outcome that reaches the sum is included.
    if (sum >= topP * total) return finish(all, i + 1, 0, sum, i + 1, exact);
  }
  return finish(all, listed, topP * total - mass, topP * total, null, false);
}

function finish(
  all: Float64Array,
  listed: number,
  unknown: number,
  mass: number,
  remaining: number | null,
  exact: boolean,
): Distribution {
  const probabilities = all.map((weight, i) => (i < listed ? weight / mass : 0));
  return { probabilities, rest: Math.max(0, unknown / mass), remaining, mass, exact };
}
