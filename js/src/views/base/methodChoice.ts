/** Choosing a method, and the target and foil that it explains. */
import type { ViewContext } from "../../context.ts";
import { keyWithTargets, type TargetPair, targetsOfKey } from "../../wire/keys.ts";

/** Target and foil of the shown method; if it has none, those chosen for the next method. */
export function shownTargets(ctx: ViewContext): TargetPair {
  const { get } = ctx.selection;
  return targetsOfKey(ctx.header(), ctx.source().method) ?? [get("target"), get("foil")];
}

/** Show a method; the kernel computes it first if its values are not loaded. */
export function showMethod(ctx: ViewContext, method: string, [target, foil]: TargetPair): void {
  ctx.tiles.make(
    method,
    ctx.resolved().layer,
    () => ctx.signal.aborted || ctx.selection.set({ method, target, foil, inside: false }),
  );
}

/** Show a method of the menu. A method that is yet to be computed explains the chosen target, if it can. */
export function chooseMethod(ctx: ViewContext, method: string): void {
  const { sources, methods } = ctx.header();
  const { get } = ctx.selection;
  const chosen: TargetPair = [get("target"), get("foil")];
  if (methods.some((offer) => offer.method === method && offer.targets)) {
    showMethod(ctx, keyWithTargets(method, ...chosen), chosen);
  } else {
    const computed = sources.some((source) => source.method === method && source.targets);
    showMethod(ctx, method, targetsOfKey(ctx.header(), method) ?? (computed ? [null, null] : chosen));
  }
}
