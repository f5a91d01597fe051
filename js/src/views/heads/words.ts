/** A HeadView in words: the strongest relations of a token, or a pair head by head. */
import type { ViewContext } from "../../context.ts";
import { printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { HeadKey, Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { absence, readWords, SINK_NAME, toSink } from "../base/rowFacts.ts";
import { type Pairs, type Relation, relations, type Side, type Values } from "./pairs.ts";
import type { Token } from "./token.ts";

interface Names {
  ctx: ViewContext;
  source: Source;
  /** The heads shown. */
  heads: readonly HeadKey[];
  pairs: Pairs;
  /** The map of a shown head. */
  tile: Tile | undefined;
}

interface TokenValues {
  values: Values;
  exact: boolean;
}

const MOST_HEADS = 5;

const verb = ({ source }: Names, side: Side): string => source.words[side === "query" ? 2 : 3];

const inHead = ({ ctx, heads }: Names, head: number): string =>
  heads.length > 1 || typeof heads[0] === "number" ? ` (head ${ctx.headName(heads[head] as HeadKey)})` : "";

/** The code of a byte is off by half a step: at the smallest code, the value may be 2.25 times as large. */
const SURE = 4e-5;

const value = (size: number, exact: boolean): string => {
  if (!exact && size > 0 && size < SURE) return "< 0.0001";
  return `${exact ? "=" : "≈"} ${printed(size, exact)}`;
};

/** "“cat” reads “sat” ≈ 0.41 (head 3), “[CLS]” ≈ 0.33 (head 7)"; a head common to all is named once. */
export function tokenWords(names: Names, { side, index }: Token, { values, exact }: TokenValues): string {
  const { ctx, source } = names;
  const [axis, other] = side === "query" ? [source.query, source.key] : [source.key, source.query];
  const name = nameOf(ctx, axis, index);
  if (!values.some(Boolean)) return name;
  const toSink = factsOf(names, side, index);
  const most = relations(values, 3, names.pairs[side === "query" ? "key" : "query"].apart);
  if (most.length === 0) return `${name} ${verb(names, side)} nothing shown${toSink}`;
  const isSameHead = most.every(({ head }) => head === most[0]?.head);
  const word = (relation: Relation, i: number): string => {
    const where = isSameHead && i > 0 ? "" : inHead(names, relation.head);
    return `${nameOf(ctx, other, relation.index)} ${value(relation.value, exact)}${where}`;
  };
  return `${name} ${verb(names, side)} ${most.map(word).join(", ")}${toSink}`;
}

/** The share of a query that goes to no token, the mean of the loaded heads; undefined without a sink. */
export function sinkShare({ ctx, source, heads }: Pick<Names, "ctx" | "source" | "heads">, query: number) {
  if (!source.sink) return undefined;
  const { layer } = ctx.resolved();
  const shares = heads.flatMap((head) => toSink(ctx.tiles.get(source.id, layer, head), query) ?? []);
  if (shares.length === 0) return undefined;
  return { mean: shares.reduce((sum, share) => sum + share, 0) / shares.length, count: shares.length };
}

/** The share of a query that goes to no token, and how many keys it reads; "" if these are all, without a sink. */
function factsOf(names: Names, side: Side, index: number): string {
  if (side === "key") return "";
  const share = sinkShare(names, index);
  const over = share && share.count > 1 ? ` (mean of ${share.count} heads)` : "";
  const sink = share ? `${SINK_NAME} ${value(share.mean, true)}${over}` : "";
  return [sink, readWords(names.tile, index)]
    .filter(Boolean)
    .map((each) => `; ${each}`)
    .join("");
}

/** "“cat” reads “sat”: head 3 ≈ 0.41, head 7 ≈ 0.2; mean of 12 heads ≈ 0.08" */
export function pairWords(names: Names, token: Token, { values, exact }: TokenValues): string {
  const { ctx, source, heads } = names;
  const [query, key] = token.side === "query" ? [token.index, token.other] : [token.other, token.index];
  const between = `${nameOf(ctx, source.query, query)} ${verb(names, "query")} ${nameOf(ctx, source.key, key)}`;
  const why = absence(source, names.tile, query, key);
  const reads = readWords(names.tile, query);
  if (why) return `${between}: ${why}${reads && `; ${reads}`}`;
  const all = values.flatMap((headValues, head) =>
    headValues ? [{ head, value: headValues[token.other] as number }] : [],
  );
  const measured = all.filter((entry) => !Number.isNaN(entry.value));
  if (all.length === 0) return between;
  if (measured.length === 0) return `${between}: left out`;
  if (measured.length === 1) {
    const [relation] = measured as [Relation];
    return `${between} ${value(relation.value, exact)}${inHead(names, relation.head)}`;
  }
  const sorted = [...measured].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const words = sorted
    .slice(0, MOST_HEADS)
    .map((entry) => `head ${ctx.headName(heads[entry.head] as HeadKey)} ${value(entry.value, exact)}`);
  const mean = measured.reduce((sum, entry) => sum + entry.value, 0) / measured.length;
  return `${between}: ${words.join(", ")}; mean of ${measured.length} heads ${value(mean, exact)}`;
}

const THOUSANDS = new Intl.NumberFormat("en");
const many = (count: number): string => THOUSANDS.format(count);

/**
 * The content of the drawing in words. `here`: the number of loaded heads; -1: a single token at a time is available.
 * `token`: the token whose lines are all drawn.
 */
export function drawnWords(
  { ctx, source, heads, pairs }: Names,
  token: Token | null,
  here: number,
  why: string,
): string {
  const [axis, index] = token ? [token.side === "query" ? source.query : source.key, token.index] : ["", -1];
  const all = token ? `all of ${nameOf(ctx, axis, index)}` : "";
  if (here < 0) return `${many(pairs.rows)} × ${many(pairs.cols)}: the lines of one token at a time`;
  if (here < heads.length && why) return `${here} of ${heads.length} heads are loaded (${why})`;
  return [`three strongest per ${source.unit}`, all].filter(Boolean).join("; ");
}

/** How strong lines are drawn. */
export function strengthWords({ source }: Pick<Names, "source">): string {
  const value = source.stochastic ? "share of the row" : source.signed ? "magnitude; colours show the sign" : "value";
  return `Strength of a line: √ of the ${value}.`;
}
