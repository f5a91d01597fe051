/** What a live model predicts: probabilities, surprisal and continuations; as attnwidgets/tracing/ computes them. */
import { printed } from "../numbers.ts";
import type { Outcome, Prediction } from "../wire/wire.ts";
import { forward, type Model, type Pass, UNCHANGED } from "./forward.ts";
import { Unreadable } from "./reader.ts";

/** What of a model's outcomes is a prediction. */
export interface Predicts {
  /** "class", "next token", "mask", "classes" (one for every token), the title of numbers, or "": nothing. */
  what: string;
  /** Whether logits are numbers without probabilities. */
  numbers: boolean;
  /** Whether several classes may be true at once. */
  several: boolean;
  /** Names of the outcomes. */
  labels: string[];
  /** For "mask": its id, and how it is written. */
  mask: [id: number, token: string] | null;
  /** For "next token": how tokens are written in a text; "" for special ones. */
  written: string[];
  /** Tokens that end a text. */
  ends: number[];
}

const MOST = 100;

/** The logits of one row; of the last for a negative one. */
function rowAt({ logits }: Pass, count: number, row: number): Float32Array {
  const at = row < 0 ? logits.length / count + row : row;
  return logits.subarray(at * count, (at + 1) * count);
}

/** What is predicted, and its logits; null: nothing. */
export function predicted(predicts: Predicts, pass: Pass): { title: string; logits: Float32Array } | null {
  const { what, labels, mask } = predicts;
  if (!what || what === "classes") return null;
  if (what !== "mask") return { title: what, logits: rowAt(pass, labels.length, -1) };
  const at = pass.tokens.indexOf(mask?.[0] ?? -1);
  return at < 0 ? null : { title: `${mask?.[1]} at ${at}`, logits: rowAt(pass, labels.length, at) };
}

/** The most probable class of every token; empty for a model that has none. */
export function classes({ what, labels }: Predicts, pass: Pass): string[] {
  if (what !== "classes") return [];
  return pass.tokens.map((_, token) => labels[largest(rowAt(pass, labels.length, token), 1)[0] as number] as string);
}

const logSum = (values: ArrayLike<number>): number => {
  const top = Math.max(...Array.from(values));
  return top + Math.log(Array.from(values, (value) => Math.exp(value - top)).reduce((sum, value) => sum + value, 0));
};

/** The probability of every outcome. */
export function probabilities({ several }: Predicts, logits: Float32Array): Float64Array {
  const sum = logSum(logits);
  return Float64Array.from(logits, (logit) => (several ? 1 / (1 + Math.exp(-logit)) : Math.exp(logit - sum)));
}

/** Places of the largest values, the largest first; ties in their order. */
export function largest(values: ArrayLike<number>, most: number): number[] {
  const places = Array.from(values, (_, i) => i);
  return places.sort((a, b) => (values[b] as number) - (values[a] as number)).slice(0, most);
}

/** The predictions of a header: the most probable first. */
export function predictionsOf(predicts: Predicts, pass: Pass, most = MOST): { title: string; items: Prediction[] } {
  const found = predicted(predicts, pass);
  if (!found) return { title: "", items: [] };
  const { title, logits } = found;
  if (predicts.numbers) {
    const spelled = (label: string, id: number): string => `${label} ${printed(logits[id] as number, true)}`;
    const named = predicts.labels.map((label, id) => spelled(label, id).replace(`${title} `, ""));
    return { title, items: named.map((label, id) => ({ label, probability: null, id })) };
  }
  const shares = probabilities(predicts, logits);
  const items = largest(shares, most).map((id) => ({
    label: predicts.labels[id] ?? String(id),
    probability: shares[id] as number,
    id,
  }));
  return { title, items };
}

/** Largest logits, those of all others summed at every temperature, and the token that stands there. */
export interface Outcomes {
  title: string;
  logits: Float32Array;
  actual: (Outcome & { logit: number; before: number }) | null;
}

/** The outcomes at a position: null stands for that of the prediction. */
export function outcomesAt(predicts: Predicts, pass: Pass, position: number | null): Outcomes {
  const found = predicted(predicts, pass);
  if (position === null || predicts.what === "class") {
    if (!found || predicts.numbers) throw new Unreadable("the model predicts neither tokens nor classes here");
    return { ...found, actual: null };
  }
  const { tokens } = pass;
  if (predicts.what !== "next token" || position < 1 || position > tokens.length)
    throw new Unreadable("the model predicts no token there");
  const logits = rowAt(pass, predicts.labels.length, position - 1);
  const id = tokens[position];
  if (id === undefined) return { title: predicts.what, logits, actual: null };
  const logit = logits[id] as number;
  const before = logits.filter((value) => value > logit).length;
  return { title: `token ${position}`, logits, actual: { id, label: predicts.labels[id] ?? "", logit, before } };
}

/** log(sum of exp(logit / T)) of all but some outcomes, for every temperature. */
export function restOf(logits: Float32Array, left: readonly number[], temperatures: readonly number[]): Float64Array {
  const gone = new Set(left);
  const others = [...logits].filter((_, i) => !gone.has(i));
  return Float64Array.from(temperatures, (t) =>
    others.length ? logSum(others.map((logit) => logit / t)) : Number.NEGATIVE_INFINITY,
  );
}

/** The surprisal of every token in bits; not a number for the first. */
export function surprisals({ labels, what }: Predicts, pass: Pass): Float32Array {
  if (what !== "next token") throw new Unreadable("the tokens of this text are not predicted one after the other");
  return Float32Array.from(pass.tokens, (id, place) => {
    if (place === 0) return Number.NaN;
    const logits = rowAt(pass, labels.length, place - 1);
    return (logSum(logits) - (logits[id] as number)) / Math.LN2;
  });
}

/** How a text is continued: as `aw.continuations`. */
export interface Sampling {
  how: string;
  n: number;
  length: number;
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number;
}

export interface Continuation {
  text: string;
  ids: number[];
  tokens: string[];
  /** Natural logarithm of the probability of every token, by the model alone. */
  logs: number[];
  ended: boolean;
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

/** Continue a text token by token; earlier tokens are not computed again. */
export function continued(
  model: Model,
  predicts: Predicts,
  pass: Pass,
  longest: number,
  how: Sampling,
): Continuation[] {
  if (predicts.what !== "next token") throw new Unreadable("this model does not generate text");
  if (how.how === "beam") throw new Unreadable("beam search is not in this file; it needs a running kernel");
  const room = longest - pass.tokens.length;
  if (how.length > room)
    throw new Unreadable(`The model reads ${longest} tokens, and the text has ${pass.tokens.length}: shorten it.`);
  const next = random(how.seed);
  return Array.from({ length: how.n }, () => {
    const out: Continuation = { text: "", ids: [], tokens: [], logs: [], ended: false };
    let last = pass;
    while (out.ids.length < how.length && !out.ended) {
      if (out.ids.length) last = forward(model, out.ids.slice(-1), UNCHANGED, last);
      const logits = rowAt(last, predicts.labels.length, -1);
      const id = how.how === "greedy" ? (largest(logits, 1)[0] as number) : drawn(logits, how, next);
      out.ids.push(id);
      out.text += predicts.written[id] ?? "";
      out.tokens.push(predicts.labels[id] ?? String(id));
      out.logs.push((logits[id] as number) - logSum(logits));
      out.ended = predicts.ends.includes(id);
    }
    return out;
  });
}
