/**
 * Named patterns of heads in a text that a page computes: the twin of attnwidgets/statistics/patterns.py. Patterns that
 * run the model on texts of their own (induction, retrieval) are as recorded.
 */
import type { PatternEntry, PatternsMeta } from "../views/heads/grid/patterns.ts";
import type { Axis, Source } from "../wire/wire.ts";

/** The elements of a map: `Roles` of attnwidgets/statistics/row_shares.py. */
interface Roles {
  labels: readonly string[];
  special: readonly boolean[];
  punctuation: readonly boolean[];
  /** The word of every element; null where elements are not pieces of words. */
  words: readonly number[] | null;
  isCausal: boolean;
}

/** From this share on a head is named by a pattern, and from this relative entropy on it is "broad". */
const [CLEAR, BROAD] = [0.2, 0.7];
const SPACES = /[▁·␣↵⇥␍⍽□]/gu;

const where = (flags: readonly boolean[], first = 0): number[] =>
  flags.flatMap((flag, i) => (flag && i >= first ? [i] : []));

/** The keys that a query reads by a pattern. */
const TARGETS: Record<string, (roles: Roles, query: number) => number[]> = {
  previous: ({ special }, query) => (query > 0 && !special[query - 1] ? [query - 1] : []),
  next: ({ special }, query) => (query + 1 < special.length && !special[query + 1] ? [query + 1] : []),
  first: () => [0],
  self: (_, query) => [query],
  "same word": ({ words, special }, query) =>
    special[query] ? [] : (words ?? []).flatMap((word, key) => (word === words?.[query] && key !== query ? [key] : [])),
  duplicate: ({ labels, special }, query) =>
    special[query]
      ? []
      : labels.slice(0, query).flatMap((label, key) => (label === labels[query] && !special[key] ? [key] : [])),
  punctuation: ({ punctuation }) => where(punctuation),
  separator: ({ special }) => where(special, 1),
};

/** Why a text lacks a pattern, or "". */
function refusalOf(name: string, roles: Roles): string {
  const { labels, special, words, isCausal } = roles;
  const alone = labels.length > 1 ? "" : "there is only one element";
  const queries = labels.map((_, query) => query);
  const has = (pattern: string): boolean => queries.some((query) => TARGETS[pattern]?.(roles, query).length);
  if (name === "previous" || name === "broad") return alone;
  if (name === "next") return alone || (isCausal ? "no query sees a later key (causal)" : "");
  if (name === "same word" && !words) return "these elements are not pieces of words";
  if (name === "same word") return has(name) ? "" : "no word has several pieces";
  if (name === "duplicate") return has(name) ? "" : "no element occurs twice";
  if (name === "punctuation") return has(name) ? "" : "no element is a punctuation mark";
  if (name === "sink")
    return special.filter((flag) => !flag).length > 1 ? "" : "fewer than two elements are not special";
  if (name === "separator") return where(special, 1).length ? "" : "no element after the first is special";
  return "";
}

function rolesOf(axis: Axis, words: Axis | undefined, isCausal: boolean): Roles {
  const special = axis.special.map(Boolean);
  const isMark = (label: string): boolean =>
    /[\p{P}\p{S}]/u.test(label) && !/[\p{L}\p{N}]/u.test(label) && label.replaceAll(SPACES, "") !== "";
  const owner = new Map((words?.spans ?? []).flatMap((tokens, word) => tokens.map((token) => [token, word] as const)));
  const areTokens = axis.unit === "token" && words !== undefined;
  return {
    labels: axis.labels,
    special,
    punctuation: axis.labels.map((label, i) => !special[i] && isMark(label)),
    words: areTokens ? axis.labels.map((_, token) => (words.spans ? (owner.get(token) ?? -1) : token)) : null,
    isCausal,
  };
}

/** The mean share of a query on its cells, over the queries that have any. */
function towards(matrix: Float32Array, totals: Float64Array, cells: readonly (readonly [number, number[]])[]): number {
  const n = totals.length;
  let [sum, count] = [0, 0];
  for (const [query, keys] of cells) {
    const total = totals[query] as number;
    if (!keys.length || !(total > 0)) continue;
    count += 1;
    for (const key of keys) sum += Math.max(0, matrix[query * n + key] as number) / total;
  }
  return count ? sum / count : Number.NaN;
}

/** How rows are read as a whole. */
type OfRows = (matrix: Float32Array, totals: Float64Array, queries: readonly number[], roles: Roles) => number;

/** The mean entropy of rows, each divided by that of equal shares of all keys that it sees. */
const breadth: OfRows = (matrix, totals, queries, { isCausal }) => {
  const n = totals.length;
  let [sum, count] = [0, 0];
  for (const query of queries) {
    const total = totals[query] as number;
    if (!(total > 0)) continue;
    count += 1;
    let entropy = 0;
    for (let key = 0; key < n; key += 1) {
      const share = (matrix[query * n + key] as number) / total;
      if (share > 0) entropy -= share * Math.log(share);
    }
    sum += entropy / Math.log(Math.max(isCausal ? query + 1 : n, 2));
  }
  return count ? sum / count : Number.NaN;
};

/** The largest mean share that an element after the first, and not special, gets from the other queries that see it. */
const sink: OfRows = (matrix, totals, queries, { special, isCausal }) => {
  const n = totals.length;
  let most = Number.NaN;
  for (let key = 1; key < n; key += 1) {
    const seenBy = queries.filter((query) => query !== key && (!isCausal || key <= query));
    // A late element of a causal text is seen by few: at least two, and a quarter of the queries, must see it.
    if (special[key] || seenBy.length < 2 || 4 * seenBy.length < queries.length) continue;
    const rows = seenBy.filter((query) => (totals[query] as number) > 0);
    const sum = rows.reduce((all, query) => all + (matrix[query * n + key] as number) / (totals[query] as number), 0);
    if (rows.length) most = Math.max(Number.isNaN(most) ? 0 : most, sum / rows.length);
  }
  return most;
};

const OF_ROWS: Record<string, OfRows> = { sink, broad: breadth };

/** The name of a head's strongest pattern, as in `HeadPatterns`. */
function nameOf(names: readonly string[], values: readonly number[], aboutSpecial: ReadonlySet<string>): string {
  const strongest = (isOne: (name: string) => boolean): string => {
    let [best, at] = [CLEAR, ""];
    names.forEach((name, i) => {
      const value = values[i] as number;
      if (isOne(name) && (value > best || (value === best && !at))) [best, at] = [value, name];
    });
    return at;
  };
  const ofText = strongest((name) => name !== "broad" && !aboutSpecial.has(name));
  if (ofText) return ofText;
  const ofSpecial = strongest((name) => aboutSpecial.has(name));
  if (ofSpecial) return ofSpecial;
  return (values[names.indexOf("broad")] ?? 0) >= BROAD ? "broad" : "mixed";
}

/**
 * The answer to "patterns": entries, the name of every head, and values [pattern, layer, head]. `matrices` are those of a
 * layer [query, key], a head each.
 */
export async function patternsOf(
  offered: readonly PatternEntry[],
  { layers }: Source,
  axes: { shown: Axis; words: Axis | undefined },
  isCausal: boolean,
  matrices: (layer: number) => Promise<Float32Array[]>,
): Promise<[meta: PatternsMeta, values: Float32Array]> {
  const roles = rolesOf(axes.shown, axes.words, isCausal);
  const n = roles.labels.length;
  const computed = offered.filter(({ name }) => name in TARGETS || name in OF_ROWS);
  const entries = computed.map((entry) => ({ ...entry, refusal: refusalOf(entry.name, roles) }));
  const names = entries.filter(({ refusal }) => !refusal).map(({ name }) => name);
  // Rows of special elements do not count, nor those that see a single key.
  const queries = roles.labels.flatMap((_, query) =>
    roles.special[query] || (isCausal && query === 0 && n > 1) ? [] : [query],
  );
  const cells = names.map((name) =>
    queries.map(
      (query) => [query, (TARGETS[name]?.(roles, query) ?? []).filter((key) => key <= query || !isCausal)] as const,
    ),
  );
  const aboutSpecial = new Set(["separator", ...(roles.special[0] ? ["first"] : [])]);
  const strongest: string[][] = [];
  const byHead: number[][][] = [];
  for (const layer of layers) {
    const ofLayer = (await matrices(layer)).map((matrix) => {
      const totals = Float64Array.from({ length: n }, (_, query) =>
        matrix.subarray(query * n, (query + 1) * n).reduce((sum, value) => sum + value, 0),
      );
      return names.map((name, i) =>
        OF_ROWS[name]
          ? OF_ROWS[name](matrix, totals, queries, roles)
          : towards(matrix, totals, cells[i] as (typeof cells)[number]),
      );
    });
    byHead.push(ofLayer);
    strongest.push(ofLayer.map((values) => nameOf(names, values, aboutSpecial)));
  }
  const heads = byHead[0]?.length ?? 0;
  const values = names.flatMap((_, i) => byHead.flatMap((layer) => layer.map((head) => head[i] as number)));
  return [{ patterns: entries, own: strongest, heads }, Float32Array.from(values)];
}
