/** The unit of the text: one button for each. */
import type { ViewContext } from "../../context.ts";
import { assign, createWatch, h, on, setChildren } from "../../dom.ts";
import { plural, unitsOf } from "../base/navigation.ts";

export function createUnits(ctx: ViewContext, signal: AbortSignal): { element: HTMLElement; show(): void } {
  const element = h("fieldset.segments", { "aria-label": "unit" });
  // Radio buttons are grouped by name across the whole page.
  const group = `aw-unit-${Math.random()}`;
  const isOther = createWatch();
  let drawnUnits = "";
  on(element, signal, { change: ({ target }) => ctx.selection.set({ unit: (target as HTMLInputElement).value }) });
  return {
    element,
    show() {
      const source = ctx.source();
      if (!isOther(ctx.header(), ctx.options, source)) return;
      const offered = ctx.options.unit ? [] : unitsOf(ctx.header(), source, ctx.options.units);
      assign(element, { hidden: offered.length < 2 });
      if (drawnUnits !== offered.join()) {
        drawnUnits = offered.join();
        const button = (unit: string): HTMLElement =>
          h("label.segment", h("input", { type: "radio", name: group, value: unit }), plural(unit));
        setChildren(element, ...offered.map(button));
      }
      for (const button of element.querySelectorAll("input")) button.checked = button.value === source.unit;
    },
  };
}
