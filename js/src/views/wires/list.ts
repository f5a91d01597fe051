/** The wires that are pulled, as linked views share them: found, changed and said. */
import type { ViewContext } from "../../context.ts";
import { on, shortLabel } from "../../dom.ts";
import type { HeadKey, Source, Wire } from "../../wire.ts";
import { headAddress } from "../steps.ts";

export const KNOCKS = "k: knock the head out, or put it back";

export const wiresOf = (ctx: ViewContext): readonly Wire[] => ctx.selection.get("interventions") ?? [];

/** What a wire changes; there is one for each place. */
const placeOf = (wire: Wire): string =>
  [wire.kind, wire.stream, wire.layer, wire.head, wire.kind === "row" && wire.query].join();

export const isSamePlace = (one: Wire, other: Wire): boolean => placeOf(one) === placeOf(other);

/** Set a wire in the place of the one that is there, or as the last. */
export function pull(ctx: ViewContext, wire: Wire): void {
  const wires = wiresOf(ctx);
  const at = wires.findIndex((one) => isSamePlace(one, wire));
  ctx.selection.set({ interventions: at < 0 ? [...wires, wire] : wires.with(at, wire) });
}

/** Take one wire back. */
export function release(ctx: ViewContext, wire: Wire): void {
  ctx.selection.set({ interventions: wiresOf(ctx).filter((one) => !isSamePlace(one, wire)) });
}

/** The wire that ablates a head, if one does. */
export function ablated(ctx: ViewContext, stream: string, layer: number, head: HeadKey): Wire | undefined {
  return wiresOf(ctx).find(
    (wire) => wire.kind === "ablate" && wire.stream === stream && wire.layer === layer && wire.head === head,
  );
}

/** Knock a head out, or put it back. */
export function knock(ctx: ViewContext, stream: string, layer: number, head: number, how: "zero" | "mean"): void {
  const found = ablated(ctx, stream, layer, head);
  if (found) release(ctx, found);
  else pull(ctx, { kind: "ablate", stream, layer, head, how });
}

/** Where a wire would be pulled: the stream, layer and head looked at; null where no head is. */
export function headLookedAt(ctx: ViewContext): { source: Source; layer: number; head: HeadKey } | null {
  const at = ctx.resolved();
  if (at.source.kind === "map" && at.source.heads) return at;
  // Attributions have no heads: the selection still says where attention is looked at.
  const source = ctx.header().sources.find(({ kind, heads }) => kind === "map" && heads);
  if (!source?.heads) return null;
  const [layer, head] = [ctx.selection.get("layer"), ctx.selection.get("head")];
  return source.layers.includes(layer) && (typeof head !== "number" || source.heads.includes(head))
    ? { source, layer, head }
    : null;
}

/** A token of a stream by its name, where the view knows tokens, else by its number. */
function tokenWords(ctx: ViewContext, stream: string, side: "query" | "key", at: number): string {
  const { sources, axes } = ctx.header();
  const maps = sources.filter((one) => one.stream === stream && one.kind === "map");
  const source = maps.find(({ unit }) => unit === "token") ?? maps[0];
  const axis = source && axes[source[side]];
  const label = axis?.labels[axis.spans ? axis.spans.findIndex((span) => span.includes(at)) : at];
  return label === undefined ? `token ${at + ctx.options.indexBase}` : `\u2068“${shortLabel(label, 24)}”\u2069`;
}

/** "head 3.1 set to zero" */
export function wireWords(ctx: ViewContext, wire: Wire): string {
  const among = new Set(ctx.header().sources.map(({ stream }) => stream));
  const head = `head ${headAddress(ctx, wire.layer, wire.head)}${among.size > 1 ? ` (${wire.stream})` : ""}`;
  if (wire.kind === "ablate") return `${head} ${wire.how === "mean" ? "at its mean" : "knocked out"}`;
  const row = `row of ${tokenWords(ctx, wire.stream, "query", wire.query)} in ${head}`;
  if (wire.to === "uniform") return `${row} uniform`;
  if (wire.to === "one_hot") return `${row} only on ${tokenWords(ctx, wire.stream, "key", wire.key ?? 0)}`;
  return `${row} moved by ${Math.round(100 * (wire.amount ?? 1))} % of what is free`;
}

/** Have `k` do something in an element, unless what is focused takes letters or has done it. */
export function onK(el: HTMLElement, signal: AbortSignal, act: () => void): void {
  on(el, signal, {
    keydown(event) {
      const takesLetters = (event.target as Element).closest("input:not([type=range], [type=radio]), select, textarea");
      if (event.key !== "k" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.defaultPrevented || takesLetters) return;
      event.preventDefault();
      act();
    },
  });
}
