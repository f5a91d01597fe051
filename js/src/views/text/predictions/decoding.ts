/** From logits to what a model would draw from: temperature, then top k, then top p, as transformers does it. */

/** The largest logits, largest first, and what all others weigh: logsumexp(logit / T), for every T of `temperatures`. */
export interface Logits {
  largest: ArrayLike<number>;
  rest: ArrayLike<number>;
  temperatures: readonly number[];
  /** How many outcomes there are in all. */
  count: number;
}

export interface Drawing {
  /** 0: the most probable is taken. Else one of `temperatures`. */
  temperature: number;
  /** 0: all. */
  topK: number;
  topP: number;
}

export interface Drawn {
  /** Of each of the largest; 0 where it is not drawn from. */
  probabilities: Float64Array;
  /** Of all others together. */
  rest: number;
  /** How many are drawn from; null: more than the largest, and not known how many. */
  kept: number | null;
  /** What share of the distribution, after temperature, is drawn from. */
  mass: number;
  /** Whether probabilities are exact; else they are so to within less than the smallest of them. */
  exact: boolean;
}

/** Probabilities of the largest and of all others, at a temperature. */
function softened({ largest, rest, temperatures }: Logits, temperature: number): [Float64Array, number] {
  const scaled = Float64Array.from(largest, (logit) => logit / temperature);
  const others = rest[temperatures.findIndex((t) => Math.abs(t - temperature) < 1e-6)] ?? -Infinity;
  const top = Math.max(scaled[0] ?? -Infinity, others);
  const sum = scaled.reduce((total, one) => total + Math.exp(one - top), Math.exp(others - top));
  return [scaled.map((one) => Math.exp(one - top) / sum), Math.exp(others - top) / sum];
}

export function drawn(logits: Logits, { temperature, topK, topP }: Drawing): Drawn {
  const n = logits.largest.length;
  if (temperature === 0) {
    const probabilities = new Float64Array(n);
    probabilities[0] = 1;
    return { probabilities, rest: 0, kept: 1, mass: 1, exact: true };
  }
  const [all, others] = softened(logits, temperature);
  const cut = topK > 0 && topK < logits.count ? topK : logits.count;
  const known = Math.min(n, cut);
  let mass = 0;
  for (let i = 0; i < known; i += 1) mass += all[i] as number;
  // Of a top k beyond what is known, the rest has at most as much.
  const unknown = cut > n ? others : 0;
  const exact = cut <= n || cut === logits.count;
  const whole = mass + unknown;
  if (topP >= 1) return finish(all, known, unknown, whole, cut, exact);
  let sum = 0;
  for (let i = 0; i < known; i += 1) {
    sum += all[i] as number;
    // The one that reaches the sum is drawn from as well.
    if (sum >= topP * whole) return finish(all, i + 1, 0, sum, i + 1, exact);
  }
  return finish(all, known, topP * whole - mass, topP * whole, null, false);
}

function finish(
  all: Float64Array,
  known: number,
  unknown: number,
  mass: number,
  kept: number | null,
  exact: boolean,
): Drawn {
  const probabilities = all.map((one, i) => (i < known ? one / mass : 0));
  return { probabilities, rest: Math.max(0, unknown / mass), kept, mass, exact };
}
