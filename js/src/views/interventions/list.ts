/** The active interventions that linked views share: finding, changing and describing them. */
import type { ViewContext } from "../../context.ts";
import { shortLabel } from "../../dom.ts";
import type { HeadKey, Source, Spec } from "../../wire/wire.ts";
import { headAddress } from "../base/navigation.ts";

export const KNOCKS = "k: knock the head out, or restore it";

export const specsOf = (ctx: ViewContext): readonly Spec[] => ctx.selection.get("interventions") ?? [];

/** The target of an intervention; each target has at most one intervention. */
const targetOf = (spec: Spec): string =>
  [spec.kind, spec.stack, spec.layer, spec.head, spec.kind === "row" && spec.query].join();

export const hasSameTarget = (a: Spec, b: Spec): boolean => targetOf(a) === targetOf(b);

/** Add an intervention, replacing that with the same target. */
export function pull(ctx: ViewContext, spec: Spec): void {
  const specs = specsOf(ctx);
  const at = specs.findIndex((active) => hasSameTarget(active, spec));
  ctx.selection.set({ interventions: at < 0 ? [...specs, spec] : specs.with(at, spec) });
}

/** Remove an intervention. */
export function release(ctx: ViewContext, spec: Spec): void {
  ctx.selection.set({ interventions: specsOf(ctx).filter((active) => !hasSameTarget(active, spec)) });
}

/** The intervention that ablates a head, if any. */
export function ablated(ctx: ViewContext, stack: string, layer: number, head: HeadKey): Spec | undefined {
  return specsOf(ctx).find(
    (spec) => spec.kind === "ablate" && spec.stack === stack && spec.layer === layer && spec.head === head,
  );
}

/** Knock a head out, or restore it. */
export function knock(ctx: ViewContext, stack: string, layer: number, head: number, how: "zero" | "mean"): void {
  const existing = ablated(ctx, stack, layer, head);
  if (existing) release(ctx, existing);
  else pull(ctx, { kind: "ablate", stack, layer, head, how });
}

/** The stack, layer and head that an intervention would change; null if no head is shown. */
export function shownHeadOf(ctx: ViewContext): { source: Source; layer: number; head: HeadKey } | null {
  const at = ctx.resolved();
  if (at.source.kind === "map" && at.source.heads) return at;
  // Attributions have no heads: the selection still names the stack of attention.
  const source = ctx.header().sources.find(({ kind, heads }) => kind === "map" && heads);
  if (!source?.heads) return null;
  const [layer, head] = [ctx.selection.get("layer"), ctx.selection.get("head")];
  return source.layers.includes(layer) && (typeof head !== "number" || source.heads.includes(head))
    ? { source, layer, head }
    : null;
}

/** A token of a stack by its label if the view has it, otherwise by its number. */
function tokenWords(ctx: ViewContext, stack: string, side: "query" | "key", at: number): string {
  const { sources, axes } = ctx.header();
  const maps = sources.filter((source) => source.stack === stack && source.kind === "map");
  const source = maps.find(({ unit }) => unit === "token") ?? maps[0];
  const axis = source && axes[source[side]];
  const label = axis?.labels[axis.spans ? axis.spans.findIndex((span) => span.includes(at)) : at];
  return label === undefined ? `token ${at + ctx.options.indexBase}` : `\u2068“${shortLabel(label, 24)}”\u2069`;
}

/** "head 3.1 set to zero" */
export function specWords(ctx: ViewContext, spec: Spec): string {
  const stacks = new Set(ctx.header().sources.map(({ stack }) => stack));
  const head = `head ${headAddress(ctx, spec.layer, spec.head)}${stacks.size > 1 ? ` (${spec.stack})` : ""}`;
  if (spec.kind === "ablate") return `${head} ${spec.how === "mean" ? "at its mean" : "knocked out"}`;
  const row = `row of ${tokenWords(ctx, spec.stack, "query", spec.query)} in ${head}`;
  if (spec.to === "uniform") return `${row} uniform`;
  if (spec.to === "one_hot") return `${row} only on ${tokenWords(ctx, spec.stack, "key", spec.key ?? 0)}`;
  return `${row} moved by ${Math.round(100 * (spec.amount ?? 1))} % of its free part`;
}
