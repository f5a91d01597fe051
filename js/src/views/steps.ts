/** Moving through layers, heads and units: what a key or a button does to the shared selection. */

import type { ViewContext } from "../context.ts";
import type { Header, HeadKey, Source } from "../wire.ts";

/** Select the layer `by` places further among the layers the source has; stops at both ends. */
export function moveLayer(ctx: ViewContext, by: number): void {
  const { source, layer } = ctx.resolved();
  const at = source.layers.indexOf(layer) + by;
  const next = source.layers[Math.max(0, Math.min(source.layers.length - 1, at))];
  if (next !== undefined && next !== layer) ctx.selection.set({ layer: next });
}

/** What the head control offers, in order: reductions first, then every head. */
export function headChoices(source: Source): HeadKey[] {
  return source.heads === null ? [] : ["mean", "max", ...source.heads];
}

/** The head `by` places further; from a reduction, the first or last head. */
export function nextHead(source: Source, head: HeadKey, by: number): HeadKey {
  const heads = source.heads ?? [];
  const at = typeof head === "number" ? heads.indexOf(head) + by : by > 0 ? 0 : heads.length - 1;
  return heads[Math.max(0, Math.min(heads.length - 1, at))] ?? head;
}

/** Name of a head or reduction in a sentence. */
export function headWords(ctx: ViewContext, head: HeadKey): string {
  if (head === "mean" || head === "max") return `${head} of heads`;
  return head === "-" ? "" : `head ${ctx.headName(head)}`;
}

/** "layer 3 of 6 · head 7"; where layers are left out, "layer 7 (2nd of 3 kept)". */
export function whereWords(ctx: ViewContext): string {
  const { source, layer, head } = ctx.resolved();
  const count = source.layers.length;
  const at = source.layers.indexOf(layer);
  const whole = source.layers.every((l, i) => l === i);
  const where = whole
    ? `layer ${ctx.layerName(layer)} of ${count}`
    : `layer ${ctx.layerName(layer)} (number ${at + 1} of ${count})`;
  const heads = headWords(ctx, head);
  return heads === "" ? where : `${where} · ${heads}`;
}

/** Units a method offers in a stream, in the store's order, restricted to `allowed` unless that is empty. */
export function unitsOf(header: Header, source: Source, allowed: readonly string[]): string[] {
  const units = header.sources
    .filter((s) => s.method === source.method && s.stream === source.stream)
    .map((s) => s.unit)
    .filter((unit) => allowed.length === 0 || allowed.includes(unit));
  return [...new Set(units)];
}

/** Methods the store has, with their titles, restricted to `allowed` unless that is empty. */
export function methodsOf(header: Header, allowed: readonly string[]): { method: string; title: string }[] {
  const found = new Map<string, string>();
  for (const { method, title } of header.sources) {
    if (!found.has(method) && (allowed.length === 0 || allowed.includes(method))) found.set(method, title);
  }
  return [...found].map(([method, title]) => ({ method, title }));
}

/** Streams of a method, in the store's order. */
export function streamsOf(header: Header, method: string): string[] {
  return [...new Set(header.sources.filter((s) => s.method === method).map((s) => s.stream))];
}

/** "word" -> "words", "patch" -> "patches". */
export function plural(unit: string): string {
  return /(s|x|ch|sh)$/.test(unit) ? `${unit}es` : `${unit}s`;
}
