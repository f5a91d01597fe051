/** Continue a text token by token, with a cache of the keys and values of earlier tokens. */
import { anglesOf, embed, ended, type KeyValueCache, runBlock, runHead } from "./forward.ts";
import type { Machine } from "./machine.ts";
import type { Continuation, Sampling } from "./types.ts";

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

/** The logarithm of the sum of exponentials. */
function logSum(values: ArrayLike<number>): number {
  let [top, sum] = [Number.NEGATIVE_INFINITY, 0];
  for (let i = 0; i < values.length; i += 1) top = Math.max(top, values[i]!);
  for (let i = 0; i < values.length; i += 1) sum += Math.exp(values[i]! - top);
  return top + Math.log(sum);
}

/** The outcomes with the largest logits; ties in their order. */
function largest(logits: Float32Array, count: number): number[] {
  if (count === 1) return [logits.reduce((best, logit, i) => (logit > logits[best]! ? i : best), 0)];
  const order = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]! || a - b);
  return order.slice(0, count);
}

function drawn(logits: Float32Array, { temperature, top_k, top_p }: Sampling, next: () => number): number {
  const order = largest(logits, top_k || logits.length);
  const scaled = order.map((id) => logits[id]! / temperature);
  const sum = logSum(scaled);
  // The fewest tokens that reach `top_p`.
  const shares: number[] = [];
  let mass = 0;
  for (const logit of scaled) {
    if (shares.length && mass >= top_p) break;
    shares.push(Math.exp(logit - sum));
    mass += shares.at(-1)!;
  }
  let left = next() * mass;
  const index = shares.findIndex((share) => {
    left -= share;
    return left < 0;
  });
  return order[index < 0 ? shares.length - 1 : index]!;
}

const NO_EDITS = { outputs: [], rows: [] };

/** The logits of the last of `ids`, which follow `first` tokens in the caches. */
function logitsAfter(
  machine: Machine,
  ids: readonly number[],
  first: number,
  caches: readonly KeyValueCache[],
): Float32Array {
  const { width } = machine.shape;
  const n = ids.length;
  const { x } = embed(machine, ids, first);
  const angles = anglesOf(machine, n, first);
  const mark = machine.mark();
  machine.layers.forEach((_, layer) => {
    const { out } = runBlock(machine, layer, x, n, angles, NO_EDITS, first, caches[layer]);
    machine.view(x, n * width).set(machine.view(out, n * width));
    machine.release(mark);
  });
  const { states } = ended(machine, x + (n - 1) * width * 4, 1);
  const { logits, outcomes } = runHead(machine, states, 1);
  return machine.copy(logits, outcomes);
}

/** Continue a text; the consumer stops it by `next(false)`. */
export function* continuation(
  machine: Machine,
  ids: readonly number[],
  sampling: Sampling,
): Generator<{ id: number; log: number }, Continuation, boolean | void> {
  const { causal, reads, sources, size } = machine.shape;
  if (!causal || reads !== "all") throw new Error("This model does not generate text.");
  const turn = machine.begin();
  const room = (ids.length + sampling.length) * sources * size;
  const caches = machine.layers.map(
    (): KeyValueCache => ({ keys: machine.floats(room), values: machine.floats(room) }),
  );
  const mark = machine.mark();
  const next = random(sampling.seed);
  const out: Continuation = { ids: [], logs: [], ended: false };
  let logits = logitsAfter(machine, ids, 0, caches);
  while (out.ids.length < sampling.length) {
    const id = sampling.how === "greedy" ? largest(logits, 1)[0]! : drawn(logits, sampling, next);
    const log = logits[id]! - logSum(logits);
    out.ids.push(id);
    out.logs.push(log);
    out.ended = sampling.ends.includes(id);
    const goes = yield { id, log };
    if (out.ended || goes === false || out.ids.length === sampling.length) break;
    if (machine.turn !== turn) throw new Error("Another pass ran while the text was continued.");
    machine.release(mark);
    logits = logitsAfter(machine, [id], ids.length + out.ids.length - 1, caches);
  }
  return out;
}
