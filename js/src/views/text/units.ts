/** The unit of the text: a button for each. */
import type { ViewContext } from "../../context.ts";
import { assign, createWatch } from "../../dom.ts";
import { plural, unitsOf } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";

export function createUnits(ctx: ViewContext, signal: AbortSignal): { element: HTMLElement; show(): void } {
  const units = createSegments<string>("unit", {}, signal, () => ctx.selection.set({ unit: units.value() }));
  const isOther = createWatch();
  const isOffered = createWatch();
  return {
    element: units.element,
    show() {
      const source = ctx.source();
      if (!isOther(ctx.header(), ctx.options, source)) return;
      const offered = ctx.options.unit ? [] : unitsOf(ctx.header(), source, ctx.options.units);
      assign(units.element, { hidden: offered.length < 2 });
      if (isOffered(offered.join())) units.offer(Object.fromEntries(offered.map((unit) => [unit, plural(unit)])));
      units.choose(source.unit);
    },
  };
}
