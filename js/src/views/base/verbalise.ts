/**
 * A map or attributions described in a sentence or two, computed from the numbers, for screen readers. The twin of
 * `attnwidgets/explanations/results/verbalise.py`.
 */
import type { ViewContext } from "../../context.ts";
import { safeText } from "../../dom.ts";
import type { Source } from "../../wire/wire.ts";
import { rowOf } from "../text/rowValues.ts";
import { filtered, filtersOf, standApart } from "./filters.ts";
import { headlessWords, kindWords, meaningOf } from "./mixers.ts";
import { readsSentence, SINK_NAME } from "./rowFacts.ts";

/** The number of spans, relations and targets that are named. */
const MOST = 3;
/** The share of the total that the named spans should reach. */
const ENOUGH = 0.5;
const LONGEST = 48;
/** Larger matrices are not summarised. */
const MOST_CELLS = 2 ** 20;

interface Span {
  first: number;
  stop: number;
  share: number;
}

function percent(share: number): string {
  return share > 0 && share < 0.005 ? "less than 1%" : `${Math.round(100 * share)}%`;
}

function inQuotes(text: string): string {
  const points = [...text.slice(0, 4 * LONGEST)];
  const cut = points.length > LONGEST || text.length > 4 * LONGEST;
  return `“${safeText(cut ? `${points.slice(0, LONGEST - 1).join("")}…` : text)}”`;
}

/** Labels joined for reading, in quotes: word pieces are merged. */
export function text(labels: readonly string[], every: readonly string[]): string {
  const marked = every.some((label) => label.startsWith("␣"));
  let written = "";
  for (const label of labels) {
    if (label.startsWith("##")) written += label.slice(2);
    else if (label.startsWith("␣")) written += ` ${label.slice(1)}`;
    else written += marked || !written ? label : ` ${label}`;
  }
  return inQuotes(written.trim() || labels.join(" "));
}

const runs = (chosen: readonly boolean[]): [number, number][] => {
  const ranges: [number, number][] = [];
  chosen.forEach((is, i) => {
    if (!is) return;
    const last = ranges.at(-1);
    if (last?.[1] === i) last[1] = i + 1;
    else ranges.push([i, i + 1]);
  });
  return ranges;
};

const sum = (values: Iterable<number>): number => {
  let total = 0;
  for (const value of values) total += value;
  return total;
};

/** The fewest top elements that reach the share of the sum, as at most `most` spans, largest first. */
export function spansOf(values: readonly number[], most = MOST): Span[] {
  const positive = values.map((value) => Math.max(value, 0) || 0);
  const total = sum(positive);
  if (!(total > 0)) return [];
  const chosen = positive.map(() => false);
  let had = 0;
  for (const i of [...positive.keys()].sort((a, b) => (positive[b] as number) - (positive[a] as number))) {
    if (!((positive[i] as number) > 0) || had >= ENOUGH * total) break;
    chosen[i] = true;
    if (runs(chosen).length > most) {
      chosen[i] = false;
      break;
    }
    had += positive[i] as number;
  }
  const spans = runs(chosen).map(([first, stop]) => ({ first, stop, share: sum(positive.slice(first, stop)) / total }));
  return spans.sort((a, b) => b.share - a.share);
}

/** Describe a row of attributions; NaN: hidden. `about`: " for “positive”". */
export function describeRow(
  name: string,
  row: Iterable<number>,
  labels: readonly string[],
  about: string,
  unit: string,
): string {
  const values = [...row].map((value) => value || 0);
  if (values.every((value) => value === 0)) return `${name}: no ${unit} has any part in it${about}.`;
  if (values.length > 1 && values.every((value) => value === values[0])) {
    return `${name}: every ${unit} has the same part${about}, so that none stands out.`;
  }
  const isSigned = values.some((value) => value < 0);
  const read = ({ first, stop }: Span): string => text(labels.slice(first, stop), labels);
  const sentences: string[] = [];
  const [best, ...others] = spansOf(values);
  if (best) {
    const together = sum([best, ...others].map(({ share }) => share));
    const of = isSigned ? `of what speaks${about}` : "of the whole";
    const verb = isSigned ? "speaks most" : "matters most";
    const then = others.map((span) => `${read(span)} (${percent(span.share)})`).join(" and ");
    const more = then && `, then ${then}; together ${percent(together)}`;
    sentences.push(`${name}: ${read(best)} ${verb}${about} (${percent(best.share)} ${of})${more}.`);
    if (together < ENOUGH) {
      const named = sum([best, ...others].map(({ first, stop }) => stop - first));
      const rest = values.filter((value) => value > 0).length - named;
      sentences.push(`The rest lies on ${rest} other ${unit}${rest === 1 ? "" : "s"}.`);
    }
  }
  const [against] = spansOf(
    values.map((value) => -value),
    1,
  );
  if (against) {
    const share = sum(values.map((value) => Math.max(-value, 0))) / sum(values.map(Math.abs));
    const mostly = `most of it ${read(against)} (${percent(against.share)} of that)`;
    if (best) sentences.push(`Against it speaks ${percent(share)} of all weight, ${mostly}.`);
    else sentences.push(`${name}: all${about} speaks against it, ${mostly}.`);
  }
  return sentences.join(" ");
}

/** Describe a matrix: the keys that receive most, and the three strongest other relations. */
export function describeMatrix(
  begin: string,
  rows: readonly Float32Array[],
  queries: readonly string[],
  keys: readonly string[],
  shares: boolean,
  [, , verb, back]: Source["words"],
  sink?: readonly number[],
): string {
  const received = new Float64Array(keys.length);
  const by = rows.map((row) => {
    const total = row.reduce((all, value) => all + (Math.abs(value) || 0), 0);
    const divisor = shares ? 1 : total || 1;
    for (let k = 0; k < row.length; k += 1)
      received[k] = (received[k] as number) + (Math.abs(row[k] as number) || 0) / divisor;
    return total > 0 ? divisor : 0;
  });
  const reading = by.filter(Boolean).length;
  if (reading === 0) return `${begin}: nothing is shown.`;
  const top = received.indexOf(Math.max(...received));
  const share = percent((received[top] as number) / reading);
  const name = (labels: readonly string[], i: number): string => text(labels.slice(i, i + 1), labels);
  const sentences = [`${begin}: ${name(keys, top)} ${back.replace(/ \w+$/, "")} most, ${share} of a row on average.`];
  const best: [number, number, number][] = [];
  rows.forEach((row, q) => {
    if (!by[q]) return;
    for (let k = 0; k < row.length; k += 1) {
      const value = Math.abs(row[k] as number) / (by[q] as number);
      if (!(value > (best[MOST - 1]?.[0] ?? 0)) || k === top || (k === q && queries.length === keys.length)) continue;
      best.push([value, q, k]);
      best.sort((a, b) => b[0] - a[0]);
      best.length = Math.min(best.length, MOST);
    }
  });
  const relations = best.map(([value, q, k], i) => {
    const relation = `${name(queries, q)} ${verb} ${name(keys, k)}`;
    return i ? `${relation} (${percent(value)})` : `${relation} most, ${percent(value)} of its row`;
  });
  if (relations.length > 0) {
    const rest = relations.length > 1 ? `; then ${relations.slice(1).join(" and ")}` : "";
    sentences.push(`Apart from that, ${relations[0]}${rest}.`);
  }
  const counted = sink?.filter((_, row) => (rows[row]?.length ?? 0) > 0);
  if (counted?.length)
    sentences.push(`${percent(sum(counted) / counted.length)} of a row goes to ${SINK_NAME} on average.`);
  return sentences.join(" ");
}

/** Describe the picture of a view, with its layer, head and filters; "" while its numbers are not loaded. */
export function describeView(ctx: ViewContext): string {
  const { source, layer, head } = ctx.resolved();
  const unfiltered = ctx.tiles.get(source.id, layer, head);
  if (!unfiltered) return "";
  const tile = filtered(ctx, unfiltered, filtersOf(ctx), source);
  const [queries, keys] = [ctx.axisOf(source.query).labels, ctx.axisOf(source.key).labels];
  const short = source.title.split(/ for ['"]/)[0] as string;
  const name = short.slice(0, 1).toUpperCase() + short.slice(1);
  if (source.kind === "attributions") {
    const targetSentences = queries.slice(0, MOST).map((label, row) => {
      const [target = "", foil] = label.trim().split(" − ");
      const about = target && ` for ${text([target], [target])}${foil ? ` rather than ${text([foil], [foil])}` : ""}`;
      return describeRow(name, rowOf(tile, row), keys, about, source.unit);
    });
    const more = queries.length - targetSentences.length;
    if (more > 0) targetSentences.push(`And ${more} more target${more > 1 ? "s" : ""}.`);
    return targetSentences.join(" ");
  }
  const ofHead = typeof head === "number" ? `, head ${ctx.headName(head)}` : `, ${head} over heads`;
  const instead = headlessWords(source, layer, head);
  const at = head === "-" ? "" : instead ? `, ${instead}` : ofHead;
  const kind = kindWords(source, layer, head);
  const begin = `${name} in layer ${ctx.layerName(layer)}${at}${kind && ` (${kind})`}`;
  if (tile.rows * tile.cols > MOST_CELLS) return `${begin}: ${tile.rows} by ${tile.cols} ${source.unit}s.`;
  const apart = standApart(ctx.axisOf(source.query).special, filtersOf(ctx));
  const rows = queries.map((_, row) => (apart[row] ? new Float32Array() : rowOf(tile, row)));
  const { meta } = unfiltered;
  const words =
    describeMatrix(begin, rows, queries, keys, source.stochastic, source.words, meta.sink) + readsSentence(unfiltered);
  const meaning = meaningOf(source, layer, head);
  return meaning ? `${words} Each value is the ${meaning}.` : words;
}
