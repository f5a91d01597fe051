/** A HeadView in words: the strongest relations of a token, or a pair head by head. */
import type { ViewContext } from "../../context.ts";
import { printed } from "../../numbers.ts";
import type { HeadKey, Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { plural } from "../base/navigation.ts";
import type { Token } from "./numbers.ts";
import { type Edge, type Edges, type Pairs, type Relation, relations, type Side, type Values } from "./pairs.ts";

interface Names {
  ctx: ViewContext;
  source: Source;
  /** The heads shown. */
  heads: readonly HeadKey[];
  pairs: Pairs;
}

interface TokenValues {
  values: Values;
  exact: boolean;
}

const MOST_HEADS = 5;

const verb = ({ source }: Names, side: Side): string => {
  if (source.kind === "attributions") return side === "query" ? "draws on" : "goes to";
  return side === "query" ? "reads" : "is read by";
};

const inHead = ({ ctx, heads }: Names, head: number): string =>
  heads.length > 1 || typeof heads[0] === "number" ? ` (head ${ctx.headName(heads[head] as HeadKey)})` : "";

const value = (size: number, exact: boolean): string => `${exact ? "=" : "≈"} ${printed(size, exact)}`;

/** "“cat” reads “sat” ≈ 0.41 (head 3), “[CLS]” ≈ 0.33 (head 7)" */
export function tokenWords(names: Names, { side, index }: Token, { values, exact }: TokenValues): string {
  const { ctx, source } = names;
  const [axis, other] = side === "query" ? [source.query, source.key] : [source.key, source.query];
  const name = nameOf(ctx, axis, index);
  if (!values.some(Boolean)) return name;
  const most = relations(values, 3);
  if (most.length === 0) return `${name} ${verb(names, side)} nothing shown`;
  const word = (relation: Relation): string =>
    `${nameOf(ctx, other, relation.index)} ${value(relation.value, exact)}${inHead(names, relation.head)}`;
  return `${name} ${verb(names, side)} ${most.map(word).join(", ")}`;
}

/** "“cat” reads “sat”: head 3 ≈ 0.41, head 7 ≈ 0.2; mean of 12 heads ≈ 0.08" */
export function pairWords(names: Names, token: Token, { values, exact }: TokenValues): string {
  const { ctx, source, heads, pairs } = names;
  const [query, key] = token.side === "query" ? [token.index, token.other] : [token.other, token.index];
  const between = `${nameOf(ctx, source.query, query)} ${verb(names, "query")} ${nameOf(ctx, source.key, key)}`;
  if (pairs.causal && key > query) return `${between}: masked, comes later`;
  const all = values.flatMap((headValues, head) =>
    headValues ? [{ head, value: headValues[token.other] as number }] : [],
  );
  const known = all.filter((one) => !Number.isNaN(one.value));
  if (all.length === 0) return between;
  if (known.length === 0) return `${between}: left out`;
  if (known.length === 1) {
    const [relation] = known as [Relation];
    return `${between} ${value(relation.value, exact)}${inHead(names, relation.head)}`;
  }
  const sorted = [...known].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const words = sorted
    .slice(0, MOST_HEADS)
    .map((one) => `head ${ctx.headName(heads[one.head] as HeadKey)} ${value(one.value, exact)}`);
  const mean = known.reduce((sum, one) => sum + one.value, 0) / known.length;
  return `${between}: ${words.join(", ")}; mean of ${known.length} heads ${value(mean, exact)}`;
}

/** The strongest pairs, each once: "“cat” reads “sat” ≈ 0.41 (head 3)" */
export function edgeWords(names: Names, edges: readonly Edge[]): string {
  const { ctx, source } = names;
  const seen = new Map<string, string>();
  // Only a few need sorting.
  const least = Math.max(0, ...edges.map((edge) => Math.abs(edge.value))) / 2;
  const strong = edges.filter(({ value: size }) => Math.abs(size) >= least);
  for (const { query, key, head, value: size } of strong.sort((a, b) => Math.abs(b.value) - Math.abs(a.value))) {
    const pair = `${nameOf(ctx, source.query, query)} ${verb(names, "query")} ${nameOf(ctx, source.key, key)}`;
    if (!seen.has(pair)) seen.set(pair, `${pair} ${value(size, false)}${inHead(names, head)}`);
    if (seen.size === 3) break;
  }
  return [...seen.values()].join(", ");
}

const THOUSANDS = new Intl.NumberFormat("en");
const many = (count: number): string => THOUSANDS.format(count);

/**
 * How much of everything is drawn, and how. `here`: the number of loaded heads; -1: only one token at a time is
 * available.
 */
export function captionWords(
  { source, heads, pairs }: Names,
  edges: Edges | null,
  inView: number,
  here: number,
  why: string,
): string {
  const words: string[] = [];
  if (here < 0) words.push(`${many(pairs.rows)} × ${many(pairs.cols)}: the lines of one token at a time`);
  else if (here < heads.length) words.push(`${here} of ${heads.length} heads are loaded (${why})`);
  if (edges) {
    const part = inView < pairs.rows ? ` of the ${inView} ${plural(source.unit)} in view` : "";
    const percent = 100 * edges.share;
    const share = percent < 99.95 ? `${percent.toFixed(percent > 99 ? 1 : 0)} %` : "all";
    words.push(`${many(edges.shown.length)} of ${many(edges.of)} edges${part}, ${share} of the mass`);
    words.push("a bar: the mean of what a key receives");
  }
  const value = source.stochastic
    ? "the share of the row"
    : source.signed
      ? "the size; colours tell the sign"
      : "the value";
  words.push(`strength and height: √ of ${value}`);
  return words.join(" · ");
}
