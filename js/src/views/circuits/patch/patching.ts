/** A patching as Python sends it, and activations in it. The twin of `patching_answer` in attnwidgets/views/circuits/circuit_view.py. */
import type { ViewContext } from "../../../context.ts";
import { floatsOf } from "../../../wire/buffers.ts";
import type { Answer } from "../../../wire/embeddedAnswers.ts";
import type { ViewOptions } from "../../../wire/viewState.ts";
import { inQuotes } from "../words.ts";

export type Site = "state" | "attention" | "mlp" | "head";
export type Direction = "denoise" | "noise";

/** An activation: a token of a layer (null: all of them), or a head. */
export type Activation = readonly [site: Site, layer: number, token: number | null, head: number | null];

export type Outcome = readonly [label: string, probability: number];

interface Meta {
  direction: Direction;
  estimate: boolean;
  sites: Site[];
  layers: number;
  /** The target, less its foil, in both runs. */
  clean: number;
  corrupt: number;
  /** m(source) - m(base); null: the runs do not differ. */
  gap: number | null;
  cleanTokens: string[];
  corruptTokens: string[];
  differs: number[];
  /** Tokens before it are the same in both runs. */
  first: number;
  target: string;
  foil: string | null;
  checked: readonly (readonly [...Activation, estimate: number, exact: number])[];
  agreement: number | null;
  warning: string;
  predicted: readonly [clean: Outcome[], corrupt: Outcome[] | null];
}

export interface Patching extends Meta {
  /** m(patched) - m(base) of a site [layer, token], of heads [layer, head], row by row. */
  raw: Readonly<Partial<Record<Site, readonly number[]>>>;
}

export interface PatchOptions extends ViewOptions {
  direction: Direction;
  estimate: boolean;
  cells: Activation[];
  /** The available directions, and whether they are estimates. */
  held: [Direction, boolean][];
  /** Whether the view has the runs, to patch further activations. */
  runs: boolean;
  /** Whether claims can be made. */
  claims?: boolean;
}

/** A run with activations patched. */
export interface PatchedRun {
  share: number | null;
  before: number;
  after: number;
  source: number;
  was: Outcome[];
  now: Outcome[];
}

export const SITES: Readonly<Record<Site, string>> = {
  state: "state",
  attention: "attention",
  mlp: "MLP",
  head: "heads",
};

const READ = new WeakMap<object, Patching>();

export function readPatching({ meta, buffers }: Answer<Meta>): Patching {
  let read = READ.get(meta);
  if (!read) {
    const raw = Object.fromEntries(meta.sites.map((site, i) => [site, floatsOf(buffers[i] as DataView)]));
    read = { ...meta, raw };
    READ.set(meta, read);
  }
  return read;
}

/** How many tokens or heads a site has. */
export const widthOf = ({ raw, layers }: Patching, site: Site): number => (raw[site]?.length ?? 0) / layers;

/** The number of an activation in its layer. */
export const indexOf = ([site, , token, head]: Activation): number => (site === "head" ? head : token) ?? -1;

export const activationAt = (site: Site, layer: number, index: number): Activation =>
  site === "head" ? [site, layer, null, index] : [site, layer, index, null];

export const isSame = (a: Activation, b: Activation): boolean => a.every((part, i) => part === b[i]);

/** The change of the target when an activation is patched; NaN where it was not measured. */
export function rawOf(patching: Patching, activation: Activation): number {
  const [site, layer, token] = activation;
  const index = indexOf(activation);
  if (index < 0 || (site === "head" && token !== null)) return Number.NaN;
  return patching.raw[site]?.[layer * widthOf(patching, site) + index] ?? Number.NaN;
}

/** Its share of the difference of both runs; the change itself, if they do not differ. */
export const shareOf = (patching: Patching, activation: Activation): number =>
  rawOf(patching, activation) / (patching.gap ?? 1);

/** The end of the colour scale: 1, or the largest addition without shares. */
export function endOf(patching: Patching): number {
  if (patching.gap !== null) return 1;
  let top = 0;
  for (const values of Object.values(patching.raw))
    for (const value of values ?? []) if (Math.abs(value) > top) top = Math.abs(value);
  return top || 1;
}

export const baseOf = (p: Patching): number => (p.direction === "denoise" ? p.corrupt : p.clean);
export const sourceOf = (p: Patching): number => (p.direction === "denoise" ? p.clean : p.corrupt);

/** Columns in which both texts have a token, and differ; aligned texts have gaps. */
export const differingColumns = (p: Patching): number[] =>
  p.differs.filter((i) => p.cleanTokens[i] && p.corruptTokens[i]);

/** The first differing word of both texts, in the changed run and in the run that activations are from. */
export function differing(p: Patching): readonly [base: string, source: string] {
  const at = differingColumns(p)[0] ?? p.differs[0] ?? 0;
  const pair = [p.corruptTokens[at] ?? "corrupt", p.cleanTokens[at] ?? "clean"] as const;
  return p.direction === "denoise" ? pair : [pair[1], pair[0]];
}

/** "23.4", or "23-4" counted from 1. */
export const headName = (ctx: Pick<ViewContext, "layerName" | "headName" | "options">, layer: number, head: number) =>
  `${ctx.layerName(layer)}${ctx.options.indexBase === 1 ? "-" : "."}${ctx.headName(head)}`;

/** "head 23.4", "state 10 at “France”" */
export function activationName(
  ctx: Pick<ViewContext, "layerName" | "headName" | "options">,
  p: Patching,
  activation: Activation,
): string {
  const [site, layer, token, head] = activation;
  const at = token === null ? "" : ` at ${inQuotes(p.cleanTokens[token] ?? "")}`;
  if (site === "head") return `head ${headName(ctx, layer, head ?? 0)}${at}`;
  return `${SITES[site]} ${ctx.layerName(layer)}${at || " at all tokens"}`;
}

/** The activations that carry most, heads if there are any; by size, the largest first. */
export function ranked(patching: Patching, most: number): Activation[] {
  const site = patching.sites.includes("head") ? "head" : (patching.sites[0] ?? "state");
  const width = widthOf(patching, site);
  const all = [...(patching.raw[site] ?? []).entries()].filter(([, value]) => value && !Number.isNaN(value));
  all.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  return all.slice(0, most).map(([i]) => activationAt(site, Math.floor(i / width), i % width));
}
