/** Whole views inside a view, with their own frame and selection. */
import type { AnyModel } from "@anywidget/types";
import type { ViewContext } from "../../context.ts";
import { setText } from "../../dom.ts";
import type { Renderers } from "../../runtime.ts";
import type { ViewState } from "../../wire/viewState.ts";

/** A nested view: its name, its model, and the parts with its code. */
export interface Inside {
  name: string;
  model: string;
  parts?: string[];
}

/** Draw a view into an element, until `signal` aborts. */
export async function drawInside(
  ctx: ViewContext,
  { name, model, parts = [] }: Inside,
  el: HTMLElement,
  signal: AbortSignal,
): Promise<void> {
  try {
    const inner = await ctx.host.getModel<ViewState & Record<string, unknown>>(model);
    const { exports } = await ctx.host.getWidget<Renderers>(ctx.model.get("runtime"));
    if (signal.aborted) return;
    await exports.render(
      { model: inner as unknown as AnyModel<ViewState>, el, signal, host: ctx.host },
      name,
      ...parts,
    );
  } catch (error) {
    setText(el, `The view could not be drawn: ${error}`);
  }
}
