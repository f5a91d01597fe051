/** Evidence for a class or token: gradient x input, AttnLRP and CP-LRP, as sources that views show. */

import { type Relevance, type Rule, UNCHANGED } from "../engine/types.ts";
import { text } from "../views/base/verbalise.ts";
import { baseKey } from "../wire/keys.ts";
import type { Axis, Header, Offer, Source } from "../wire/wire.ts";
import type { LiveModel } from "./model.ts";
import { predicted } from "./predictions.ts";
import { Unreadable } from "./reader.ts";

const TITLES: Record<Rule, string> = { gradient: "input x gradient", lrp: "AttnLRP", cp_lrp: "CP-LRP" };
const WORDS: Source["words"] = [
  ...(["target", "source", "draws on", "goes to"] as const),
  ...(["What does {} draw on?", "Where does {} go?"] as const),
];
/** The part of the target below which a missing amount is rounding; as in attnwidgets/explanations/results. */
const COMPLETE = 1e-3;
/** Words that are named: the strongest, and others with at least half of it. */
const [NAMED, ENOUGH] = [3, 0.5];

/** The methods that a page computes, by key. In Python, CP-LRP is an option of "lrp". */
const RULES: Record<string, Rule> = { input_x_gradient: "gradient", lrp: "lrp", cp_lrp: "cp_lrp" };
const CP_GIST = "as AttnLRP, with attention weights and gates as they are";

/** The menu entry of a method that the page computes, in less than a second. */
const here = <T extends object>(offer: T) => ({
  ...offer,
  ...{ cost: "one pass forward, and one back", speed: "instant" as const, refusal: "" },
});

/**
 * A header with menu entries for the methods that it lists already and that a page computes, and for CP-LRP next to
 * AttnLRP.
 */
export function offering(header: Header): Header {
  const { methods, sources, predictions } = header;
  const offers = methods.map((offer) => (offer.method in RULES ? here(offer) : offer));
  const computed = [...offers, ...sources].filter(({ method, targets }) => targets && method in RULES);
  const [first] = computed;
  if (!first) return header;
  const lrp = computed.find(({ method }) => method === "lrp");
  if (lrp && !computed.some(({ method }) => method === "cp_lrp")) offers.push(offerOf({ ...lrp, method: "cp_lrp" }));
  const method = predictions.method || (lrp ?? first).method;
  return { ...header, methods: offers, predictions: { ...predictions, method, explained: null } };
}

function offerOf({ method, question, gist }: Pick<Source, "method" | "question" | "gist">): Offer {
  const rule = RULES[method] as Rule;
  const words = { title: TITLES[rule], question, gist: rule === "cp_lrp" ? CP_GIST : gist };
  return here({ method, ...words, summary: "", mark: "", targets: true });
}

/** The methods of a recorded text that a page computes for another text. */
export function offersOf({ methods, sources }: Header): Offer[] {
  const recorded = sources.filter(({ method, kind }) => kind === "attributions" && method in RULES).map(offerOf);
  const offered = methods.filter(({ method }) => method in RULES).map(here);
  return [...new Map([...offered, ...recorded].map((offer) => [offer.method, offer])).values()];
}

/** The values of a target over the tokens of a text, with everything that views need to show them. */
export interface Explained {
  sources: Source[];
  /** The axis of the target, and its key in the header. */
  axis: [key: string, axis: Axis];
  values: Float32Array;
}

/** Explain the outcome in a key ("lrp@1-0": 1 rather than 0), or the prediction. */
export async function explain(
  live: LiveModel,
  ids: readonly number[],
  header: Header,
  key: string,
): Promise<Explained> {
  const base = baseKey(key);
  const like = [...header.methods, ...header.sources].find(({ method }) => method === base);
  const rule = RULES[base];
  if (!like || !rule) throw new Unreadable("needs a running kernel");
  const { predicts, engine } = live;
  const { row } = predicted(predicts, await live.pass(ids)) ?? {};
  if (row === undefined) throw new Unreadable("the model predicts neither tokens nor classes here");
  const [, target, foil] = /@(\d+)-?(\d*)/.exec(key) ?? [];
  const plus = Number(target ?? header.predictions.items[0]?.id);
  const minus = foil ? Number(foil) : null;
  const relevance = await engine.relevance(ids, UNCHANGED, { row, plus, minus }, rule);
  const names = [plus, ...(minus === null ? [] : [minus])].map((id) => predicts.label(id));
  const axis = axisOf(names.join(" − "));
  const at = `target of ${key}`;
  const units = Object.values(header.axes).filter(({ unit }) => unit !== "target");
  const shared = {
    ...{ method: key, title: titleOf(rule, names), question: like.question, gist: like.gist, stack: "self" },
    ...{ query: at, words: WORDS, layers: [0], states: null, computed: null, heads: null, mixers: null, coarse: false },
    ...{ parts: false, causal: false, signed: true, stochastic: false, sink: false, kind: "attributions" as const },
    ...{
      warning: "",
      targets: true,
      verdict: "",
      ...(rule === "gradient" ? NOT_CONSERVED : balanced(relevance, rule)),
    },
    findings: [finding(relevance, units, names, rule)],
  };
  const sources = units.map(
    ({ unit }): Source => ({
      ...shared,
      ...{ id: `${key}/${unit}/self`, unit, key: unit },
      note: unit === "token" ? "" : `sum over the pieces of a ${unit}`,
    }),
  );
  return { sources, axis: [at, axis], values: relevance.tokens };
}

const axisOf = (label: string): Axis => ({
  ...{ unit: "target", labels: [label], spans: null, special: [0], segment: [0] },
  ...{ boundary: null, grid: null, cells: null, times: null },
});

const titleOf = (rule: Rule, [target = "", foil]: string[]): string =>
  `${TITLES[rule]} for '${target}'${foil === undefined ? "" : ` rather than '${foil}'`}`;

const digits = (value: number, count: number): string => String(Number(value.toPrecision(count))).replace("-", "−");
const sum = (values: Float32Array): number => values.reduce((total, value) => total + value, 0);

const NOT_CONSERVED = { accounts: [], sums: [], balance: [] };

/** How much of the target tokens account for: the twin of attnwidgets/explanations/results/conservation_note.py. */
function balanced({ value, tokens }: Relevance, rule: Rule): Pick<Source, "accounts" | "sums" | "balance"> {
  const total = sum(tokens);
  const rest = value - total;
  const balance: [number, number][] = [[total, rest]];
  if (Math.abs(rest) <= COMPLETE * Math.max(Math.abs(value), Math.abs(total))) {
    const sums = [`sums to the target, ${digits(value, 4)} (missing ${digits(rest, 1)})`];
    return { accounts: [`Tokens account for all of ${digits(value, 2)}.`], sums, balance };
  }
  const keeps = `biases and position embeddings (if any)${rule === "lrp" ? " and the softmax" : ""} keep the rest`;
  const sign = rest < 0 ? "−" : "+";
  const terms = `${digits(total, 4)} (sum of the tokens) ${sign} ${digits(Math.abs(rest), 4)} (with no token)`;
  return {
    accounts: [`Tokens account for ${digits(total, 2)} of ${digits(value, 2)}; ${keeps}.`],
    sums: [`${terms} = ${digits(value, 4)} (target)`],
    balance,
  };
}

/** The values of tokens in a unit: the sum over an element's tokens. */
export const summed = (values: Float32Array, { spans }: Axis): Float32Array =>
  spans ? Float32Array.from(spans, (tokens) => tokens.reduce((total, token) => total + values[token]!, 0)) : values;

/**
 * The words with the most evidence for a target: the twin of `findings_of` in
 * attnwidgets/explanations/results/verbalise.py.
 */
function finding({ tokens, value }: Relevance, units: readonly Axis[], names: string[], rule: Rule): string {
  const isEnough = ({ special }: Axis): boolean => special.filter((flag) => !flag).length > 1;
  const [whole] = units.filter(({ unit }) => unit === "token");
  const axis = units.find((each) => each.unit === "word" && isEnough(each)) ?? whole;
  if (!axis) return "";
  const values = summed(tokens, axis);
  const order = [...values.keys()].filter((i) => !axis.special[i]).sort((a, b) => values[b]! - values[a]!);
  const top = values[order[0] ?? 0] ?? 0;
  const about = `for ${names.map((name) => text([name], [name])).join(" rather than ")}`;
  const most = order.slice(0, NAMED).filter((i) => values[i]! > 0 && values[i]! >= ENOUGH * top);
  if (!most.length) return `No ${axis.unit} speaks ${about}.`;
  const list = (items: string[]): string => items.join(", ").replace(/, (?=[^,]*$)/u, " and ");
  const words = [...new Set(most.map((i) => text([axis.labels[i] ?? ""], axis.labels)))];
  const number = (score: number): string =>
    (Math.abs(score) < 10 ? score.toFixed(2) : digits(score, 3)).replace("-", "−");
  const numbers = list(most.map((i) => number(values[i]!)));
  const verb =
    rule === "gradient" ? `matter${words.length > 1 ? "" : "s"} most` : `speak${words.length > 1 ? "" : "s"}`;
  const of = rule !== "gradient" && value > top ? ` of ${number(value)}` : "";
  return `${list(words)} ${verb} ${about} (${numbers}${of}).`;
}
