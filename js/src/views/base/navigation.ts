/** Moving through layers, heads and units with keys and buttons, and naming them. */

import type { ViewContext } from "../../context.ts";
import type { KeyHandlers } from "../../dom.ts";
import { baseKey } from "../../wire/keys.ts";
import type { Header, HeadKey, Source } from "../../wire/wire.ts";
import type { Item } from "./menu.ts";
import { headlessWords, headsOf, kindWords } from "./mixers.ts";

/** Layers with gaps are listed individually up to this number. */
const MOST_LISTED = 6;

/** The questions that methods answer, in the order of menus: the twin of attnwidgets/explanations/registry/documentation.py. */
const QUESTIONS = ["Attention", "What goes into a token", "For this prediction", "By perturbing"];
/** Added to the rank of a question that no available method answers. */
const LAST = QUESTIONS.length + 1;

/** Move the selection by `by` layers among those of the source; stops at both ends. */
export function moveLayer(ctx: ViewContext, by: number): void {
  const { source, layer } = ctx.layered();
  const at = source.layers.indexOf(layer) + by;
  const next = source.layers[Math.max(0, Math.min(source.layers.length - 1, at))];
  if (next !== undefined && next !== layer) ctx.selection.set({ layer: next });
}

/** Move the selection by `by` heads. */
export function moveHead(ctx: ViewContext, by: number): void {
  const { source, layer, head } = ctx.resolved();
  if (source.heads) ctx.selection.set({ head: nextHead(source, layer, head, by) });
}

/** The keys that work in every picture. */
export function navigation(ctx: ViewContext): KeyHandlers {
  return {
    ArrowUp: () => moveLayer(ctx, -1),
    ArrowDown: () => moveLayer(ctx, 1),
    ArrowLeft: () => moveHead(ctx, -1),
    ArrowRight: () => moveHead(ctx, 1),
    Home: () => moveLayer(ctx, -Infinity),
    End: () => moveLayer(ctx, Infinity),
    Escape: () => ctx.selection.clear(),
  };
}

/** The choices of the head menu: reductions first, then every head; a layer without heads has a single choice. */
export function headChoices(source: Source, layer: number): HeadKey[] {
  if (source.heads === null) return [];
  return headlessWords(source, layer, "mean") ? [0] : ["mean", "max", ...headsOf(source, layer)];
}

/** The head `by` positions further; from a reduction, the first or last head. */
export function nextHead(source: Source, layer: number, head: HeadKey, by: number): HeadKey {
  const heads = headsOf(source, layer);
  const at = typeof head === "number" ? heads.indexOf(head) + by : by > 0 ? 0 : heads.length - 1;
  return heads[Math.max(0, Math.min(heads.length - 1, at))] ?? head;
}

/** The name of a head of a layer, of the mixer of a layer without heads, or of a reduction. */
export function headWords(ctx: ViewContext, layer: number, head: HeadKey): string {
  const instead = headlessWords(ctx.source(), layer, head);
  if (instead) return instead;
  if (head === "mean" || head === "max") return `${head} of heads`;
  return head === "-" ? "" : `head ${ctx.headName(head)}`;
}

/** A head as papers name it: "3.7" counted from 0, "4-8" counted from 1. */
export function headAddress(ctx: ViewContext, layer: number, head: number): string {
  return `${ctx.layerName(layer)}${ctx.options.indexBase === 1 ? "-" : "."}${ctx.headName(head)}`;
}

/** "head 3.7", "layer 3" of a layer without heads, or the name of a reduction. */
export function headAt(ctx: ViewContext, layer: number, head: HeadKey): string {
  if (headlessWords(ctx.source(), layer, head)) return `layer ${ctx.layerName(layer)}`;
  return typeof head === "number" ? `head ${headAddress(ctx, layer, head)}` : headWords(ctx, layer, head);
}

/** "layer 3"; of states "into layer 3", and "out of layer 5" after the last layer. */
export function layerWords(ctx: ViewContext, { states }: Source, layer: number): string {
  if (states?.output === layer) return `out of layer ${ctx.layerName(layer - 1)}`;
  return `${states ? "into " : ""}layer ${ctx.layerName(layer)}`;
}

/** "layer 3, head 7 (3.7)", and how it mixes tokens in a model of several mixers. */
export function addressWords(ctx: ViewContext, layer: number, head: HeadKey): string {
  const source = ctx.source();
  const name = headWords(ctx, layer, head);
  const isHead = typeof head === "number" && !headlessWords(source, layer, head);
  const words = [`layer ${ctx.layerName(layer)}`, name].filter(Boolean).join(", ");
  const at = isHead ? `${words} (${headAddress(ctx, layer, head)})` : words;
  return [at, kindWords(source, layer, head)].filter(Boolean).join(" · ");
}

/**
 * "layer 3 · head 3.7", and its mixer in a model of several mixers; if layers are missing, with those available: "layer
 * 7 (1, 7, 9)".
 */
export function whereWords(ctx: ViewContext, { source, layer, head } = ctx.resolved()): string {
  if (source.kind === "attributions" && source.layers.length < 2) return source.kind;
  const names = source.layers.map((l) => ctx.layerName(l));
  const gapless = source.layers.every((l, i) => l === (source.layers[0] as number) + i);
  const all = names.length > MOST_LISTED ? `${names[0]}–${names.at(-1)}` : names.join(", ");
  const where = `${layerWords(ctx, source, layer)}${gapless ? "" : ` (${all})`}`;
  const name = headlessWords(source, layer, head) || headAt(ctx, layer, head);
  return [where, name, kindWords(source, layer, head)].filter(Boolean).join(" · ");
}

/** Units a method offers in a stack, in the store's order, restricted to `allowed` unless that is empty. */
export function unitsOf(header: Header, source: Source, allowed: readonly string[]): string[] {
  const units = header.sources
    .filter((s) => s.method === source.method && s.stack === source.stack)
    .map((s) => s.unit)
    .filter((unit) => allowed.length === 0 || allowed.includes(unit));
  return [...new Set(units)];
}

/**
 * The store's methods and those it can compute, grouped by the question that they answer: in each group available
 * methods first, unavailable methods last, with the reason. Restricted to `allowed` unless that is empty. `lost`: no
 * kernel can compute any.
 */
export function methodsOf(header: Header, allowed: readonly string[], lost = false): Item[] {
  const items = new Map<string, Item>();
  for (const { method, title, question, gist } of header.sources) {
    if (items.has(method)) continue;
    items.set(method, { value: method, label: title, group: question, note: gist, badge: "instant" });
  }
  for (const { method, title, question, gist, speed, cost, refusal, mark } of header.methods) {
    const why = refusal || (lost ? "needs a running kernel" : "");
    const note = why || [mark, gist].filter(Boolean).join(" · ");
    const takes = why ? {} : { badge: speed, cost };
    items.set(method, { value: method, label: title, group: question, note, ...takes, off: !!why });
  }
  const shown = [...items.values()].filter(({ value }) => allowed.length === 0 || allowed.includes(baseKey(value)));
  const available = new Set(shown.filter(({ off }) => !off).map(({ group }) => group));
  const rank = ({ group = "" }: Item): number => QUESTIONS.indexOf(group) + (available.has(group) ? 0 : LAST);
  return shown.sort((a, b) => rank(a) - rank(b) || Number(a.off ?? false) - Number(b.off ?? false));
}

/** Stacks of a method, in the store's order. */
export function stacksOf(header: Header, method: string): string[] {
  return [...new Set(header.sources.filter((s) => s.method === method).map((s) => s.stack))];
}

/** "word" -> "words", "patch" -> "patches". */
export function plural(unit: string): string {
  return /(s|x|ch|sh)$/.test(unit) ? `${unit}es` : `${unit}s`;
}
