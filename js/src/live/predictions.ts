/**
 * The predictions of a live model: probabilities, surprisal and continuations; as attnwidgets/tracing/ computes them.
 */
import type { EngineClient } from "../engine/client.ts";
import type { Outputs, Pass, Sampling } from "../engine/types.ts";
import { printed } from "../numbers.ts";
import type { Outcome, Prediction } from "../wire/wire.ts";
import { Unreadable } from "./reader.ts";

/** How the outcomes of a model become a prediction; written by attnwidgets/views/page/live/packing.py. */
export interface PackedPredicts {
  /** "class", "next token", "mask", "classes" (one for every token), the title of numbers, or "": nothing. */
  kind: string;
  /** Whether logits are numbers without probabilities. */
  numbers: boolean;
  /** Whether several classes may be true at once. */
  several: boolean;
  outcomes: number;
  /** Names of the outcomes; null: they are the tokens. */
  labels: string[] | null;
  /** For "mask": its id, and how it is written. */
  mask: [id: number, token: string] | null;
  /** Tokens that end a text. */
  ends: number[];
}

/** The same with names of the outcomes, and the text that tokens spell. */
export interface Predicts extends PackedPredicts {
  label(id: number): string;
  written(ids: readonly number[]): string;
}

const MOST = 100;

/** The rows of logits that a header or a preview needs. */
export const rowsOf = ({ kind }: PackedPredicts): Outputs["logits"] =>
  ["mask", "classes"].includes(kind) ? "all" : "last";

/** The logits of a row; of the last row if it is negative. */
function rowAt({ logits }: Pass, count: number, row: number): Float32Array {
  const at = row < 0 ? logits.length / count + row : row;
  return logits.subarray(at * count, (at + 1) * count);
}

/** The title of the prediction, and its row of the logits; null if the model predicts nothing. */
export function predicted(
  { kind, outcomes, mask }: Predicts,
  pass: Pass,
): { title: string; row: number; logits: Float32Array } | null {
  if (!kind || kind === "classes") return null;
  if (kind !== "mask") return { title: kind, row: -1, logits: rowAt(pass, outcomes, -1) };
  const row = pass.tokens.indexOf(mask?.[0] ?? -1);
  return row < 0 ? null : { title: `${mask?.[1]} at ${row}`, row, logits: rowAt(pass, outcomes, row) };
}

/** The most probable class of every token; empty for a model that has none. */
export function classes({ kind, outcomes, label }: Predicts, pass: Pass): string[] {
  if (kind !== "classes") return [];
  return pass.tokens.map((_, token) => label(largest(rowAt(pass, outcomes, token), 1)[0] as number));
}

/** log(sum of exp(value / T)). */
function logSum(values: Float32Array, temperature = 1): number {
  let top = Number.NEGATIVE_INFINITY;
  for (const value of values) top = Math.max(top, value / temperature);
  if (top === Number.NEGATIVE_INFINITY) return top;
  let sum = 0;
  for (const value of values) sum += Math.exp(value / temperature - top);
  return top + Math.log(sum);
}

/** Indices of the largest values, the largest first; ties in their order. */
export function largest(values: Float32Array | Float64Array, most: number): number[] {
  // Sorting numbers is fast: the threshold leaves few indices to be sorted by their values.
  const least = values.length > most ? (values.slice().sort().at(-most) as number) : Number.NEGATIVE_INFINITY;
  const indices: number[] = [];
  for (let i = 0; i < values.length; i += 1) if (!(values[i]! < least)) indices.push(i);
  return indices.sort((a, b) => values[b]! - values[a]!).slice(0, most);
}

/** The probability of every outcome. */
export function probabilities({ several }: Predicts, logits: Float32Array): Float64Array {
  const sum = logSum(logits);
  return Float64Array.from(logits, (logit) => (several ? 1 / (1 + Math.exp(-logit)) : Math.exp(logit - sum)));
}

/** The predictions of a header: the most probable first. */
export function predictionsOf(predicts: Predicts, pass: Pass, most = MOST): { title: string; items: Prediction[] } {
  const prediction = predicted(predicts, pass);
  if (!prediction) return { title: "", items: [] };
  const { title, logits } = prediction;
  if (predicts.numbers) {
    const spelled = (label: string, id: number): string => `${label} ${printed(logits[id] as number, true)}`;
    const named = [...logits.keys()].map((id) => spelled(predicts.label(id), id).replace(`${title} `, ""));
    return { title, items: named.map((label, id) => ({ label, probability: null, id })) };
  }
  const shares = probabilities(predicts, logits);
  const items = largest(shares, most).map((id) => ({
    label: predicts.label(id),
    probability: shares[id] as number,
    id,
  }));
  return { title, items };
}

/** Largest logits, the sum of all others at every temperature, and the actual token at the position. */
export interface Outcomes {
  title: string;
  logits: Float32Array;
  actual: (Outcome & { logit: number; before: number }) | null;
}

/** The outcomes at a position; null: those of the prediction. */
export function outcomesAt(predicts: Predicts, pass: Pass, position: number | null): Outcomes {
  const prediction = predicted(predicts, pass);
  if (position === null || predicts.kind === "class") {
    if (!prediction || predicts.numbers) throw new Unreadable("the model predicts neither tokens nor classes here");
    return { ...prediction, actual: null };
  }
  const { tokens } = pass;
  if (predicts.kind !== "next token" || position < 1 || position > tokens.length)
    throw new Unreadable("the model predicts no token there");
  const logits = rowAt(pass, predicts.outcomes, position - 1);
  const id = tokens[position];
  if (id === undefined) return { title: predicts.kind, logits, actual: null };
  const logit = logits[id] as number;
  const before = logits.filter((value) => value > logit).length;
  return { title: `token ${position}`, logits, actual: { id, label: predicts.label(id), logit, before } };
}

/** log(sum of exp(logit / T)) of all but some outcomes, for every temperature. */
export function restOf(logits: Float32Array, left: readonly number[], temperatures: readonly number[]): Float64Array {
  const gone = new Set(left);
  const others = logits.filter((_, i) => !gone.has(i));
  return Float64Array.from(temperatures, (t) => logSum(others, t));
}

/** The surprisal of every token in bits; not a number for the first. */
export function surprisals({ outcomes, kind }: Predicts, pass: Pass): Float32Array {
  if (kind !== "next token") throw new Unreadable("the tokens of this text are not predicted one after the other");
  return Float32Array.from(pass.tokens, (id, position) => {
    if (position === 0) return Number.NaN;
    const logits = rowAt(pass, outcomes, position - 1);
    return (logSum(logits) - (logits[id] as number)) / Math.LN2;
  });
}

/** How texts are continued: as `aw.continuations`. */
export type Continued = Omit<Sampling, "ends" | "how"> & { how: string; n: number };

export interface Continuation {
  text: string;
  ids: number[];
  tokens: string[];
  /** Natural logarithm of the probability of every token, by the model alone. */
  logs: number[];
  ended: boolean;
}

/** Continue a text token by token, several times; it ends early where `onToken` returns false. */
export async function continued(
  { engine, predicts, longest }: { engine: EngineClient; predicts: Predicts; longest: number },
  ids: readonly number[],
  { n, how, ...sampling }: Continued,
  onToken: (id: number) => boolean | Promise<boolean> = () => true,
): Promise<Continuation[]> {
  if (predicts.kind !== "next token") throw new Unreadable("this model does not generate text");
  if (how === "beam") throw new Unreadable("beam search is not in this file; it needs a running kernel");
  if (sampling.length > longest - ids.length)
    throw new Unreadable(`The model reads ${longest} tokens, and the text has ${ids.length}: shorten it.`);
  const texts: Continuation[] = [];
  for (let i = 0; i < n; i += 1) {
    const { ends } = predicts;
    const seed = sampling.seed + i;
    const drawn = await engine.continued(ids, { ...sampling, how: how as Sampling["how"], seed, ends }, onToken);
    texts.push({ ...drawn, text: predicts.written(drawn.ids), tokens: drawn.ids.map(predicts.label) });
  }
  return texts;
}
