/** What a live model predicts: probabilities, surprisal and continuations; as attnwidgets/tracing/ computes them. */
import type { EngineClient, Pass, Sampling, Wanted } from "../engine/client.ts";
import { largest, logSum } from "../engine/sampling.ts";
import { printed } from "../numbers.ts";
import type { Outcome, Prediction } from "../wire/wire.ts";
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

/** Of which rows the logits are needed for what a header or a preview says. */
export const rowsOf = ({ what }: Predicts): Wanted["logits"] => (["mask", "classes"].includes(what) ? "all" : "last");

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

/** The probability of every outcome. */
export function probabilities({ several }: Predicts, logits: Float32Array): Float64Array {
  const sum = logSum(logits);
  return Float64Array.from(logits, (logit) => (several ? 1 / (1 + Math.exp(-logit)) : Math.exp(logit - sum)));
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

/** How texts are continued: as `aw.continuations`. */
export type Continued = Omit<Sampling, "ends"> & { n: number };

export interface Continuation {
  text: string;
  ids: number[];
  tokens: string[];
  /** Natural logarithm of the probability of every token, by the model alone. */
  logs: number[];
  ended: boolean;
}

/** Continue a text token by token, several times. */
export async function continued(
  { engine, predicts, longest }: { engine: EngineClient; predicts: Predicts; longest: number },
  ids: readonly number[],
  { n, ...how }: Continued,
): Promise<Continuation[]> {
  if (predicts.what !== "next token") throw new Unreadable("this model does not generate text");
  if (how.how === "beam") throw new Unreadable("beam search is not in this file; it needs a running kernel");
  if (how.length > longest - ids.length)
    throw new Unreadable(`The model reads ${longest} tokens, and the text has ${ids.length}: shorten it.`);
  const out: Continuation[] = [];
  for (let i = 0; i < n; i += 1) {
    const found = await engine.continued(ids, { ...how, seed: how.seed + i, ends: predicts.ends }, () => true);
    out.push({
      text: found.ids.map((id) => predicts.written[id] ?? "").join(""),
      tokens: found.ids.map((id) => predicts.labels[id] ?? String(id)),
      ended: predicts.ends.includes(found.ids.at(-1) ?? -1),
      ...found,
    });
  }
  return out;
}
