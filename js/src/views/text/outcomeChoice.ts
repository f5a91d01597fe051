/** Choosing a prediction: a click explains it, Shift-click contrasts the explained prediction with it. */
import type { ViewContext } from "../../context.ts";
import { baseKey, keyWithTargets, methodWithTargets, type TargetPair } from "../../wire/keys.ts";
import type { Header, Outcome } from "../../wire/wire.ts";
import { showMethod, shownTargets } from "../base/methodChoice.ts";

/** The method that explains a chosen prediction: the shown method if it can, else the best that the trace can serve. */
export function methodFor(header: Header, shown: string): string {
  return methodWithTargets(header, shown) ? shown : header.predictions.method;
}

/** Whether an outcome can be explained: without a kernel only those that the page explains. */
export const canExplain = ({ predictions: { method, explained } }: Header, id: number): boolean =>
  Boolean(method) && (explained?.includes(id) ?? true);

/** Target and foil after a click on an outcome. */
export function chosenOutcomes(
  items: readonly Outcome[],
  item: Outcome,
  [target, foil]: TargetPair,
  asFoil: boolean,
): TargetPair {
  const same = (other: { id: number } | null): boolean => other?.id === item.id;
  const outcome = { id: item.id, label: item.label };
  if (!asFoil) return same(target) ? [null, null] : [outcome, same(foil) ? null : foil];
  const contrast = same(foil) ? null : outcome;
  // With a foil alone, the top prediction is the target.
  const first = !target || same(target) ? (items.find((other) => !same(other)) ?? null) : target;
  return [contrast ? first : target, contrast];
}

/** Make an outcome the target or the foil, and show a method that explains it; `fallback` is shown if none remains. */
export function explainOutcome(ctx: ViewContext, item: Outcome, asFoil: boolean, fallback: string): void {
  const header = ctx.header();
  const { items } = header.predictions;
  const shown = ctx.source().method;
  const [target, foil] = shownTargets(ctx);
  // A method without a target explains the prediction; a method that explains no outcome has neither.
  const now: TargetPair = methodWithTargets(header, shown) ? [target ?? items[0] ?? null, foil] : [null, null];
  const pair = chosenOutcomes(items, item, now, asFoil);
  const method = methodFor(header, shown);
  if (!method) return;
  const key = keyWithTargets(method, ...pair);
  const isHere = header.sources.some((source) => source.method === key);
  if (!pair[0]) showMethod(ctx, fallback, pair);
  else if (pair[0].id === items[0]?.id && !pair[1] && !isHere) showMethod(ctx, baseKey(method), [null, null]);
  else showMethod(ctx, key, pair);
}
