/** Drawing tokens from logits. */
/** How tokens are drawn, one after the other. */
export interface Sampling {
  how: string;
  length: number;
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number;
  /** Tokens that end a text. */
  ends: readonly number[];
}

export const logSum = (values: ArrayLike<number>): number => {
  const top = Math.max(...Array.from(values));
  return top + Math.log(Array.from(values, (value) => Math.exp(value - top)).reduce((sum, value) => sum + value, 0));
};

/** Places of the largest values, the largest first; ties in their order. */
export function largest(values: ArrayLike<number>, most: number): number[] {
  const places = Array.from(values, (_, i) => i);
  return places.sort((a, b) => (values[b] as number) - (values[a] as number)).slice(0, most);
}

/** Random numbers from 0 to 1 that a seed repeats (mulberry32). */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function drawn(logits: Float32Array, { temperature, top_k, top_p }: Sampling, next: () => number): number {
  const order = largest(logits, top_k || logits.length);
  const scaled = order.map((id) => (logits[id] as number) / temperature);
  const sum = logSum(scaled);
  const shares = scaled.map((logit) => Math.exp(logit - sum));
  // The fewest tokens that reach `top_p`.
  let [kept, mass] = [0, 0];
  while (kept < shares.length && (kept === 0 || mass < top_p)) {
    mass += shares[kept] as number;
    kept += 1;
  }
  let left = next() * mass;
  for (let place = 0; place < kept; place += 1) {
    left -= shares[place] as number;
    if (left < 0) return order[place] as number;
  }
  return order[kept - 1] as number;
}

/** A function that draws a token from logits; it repeats with the seed. */
export function sampler(how: Sampling): (logits: Float32Array) => number {
  const next = random(how.seed);
  return (logits) => (how.how === "greedy" ? (largest(logits, 1)[0] as number) : drawn(logits, how, next));
}
