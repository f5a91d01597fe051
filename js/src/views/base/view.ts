/** The basis of every view: its lifetime, the heading above its picture, and the readout below it. */
import type { Change, RenderView, ViewContext } from "../../context.ts";
import { assign, atEnd, h, on, reserve, setChildren, setText } from "../../dom.ts";
import type { Resolved } from "../../selection.ts";

type Update = (changed: ReadonlySet<Change>) => void;

/**
 * Make a view from a function that fills `root` and returns an update function. It is updated once at the start, with
 * no changes named; listeners bound to `signal` end with the view.
 */
export function view(build: (ctx: ViewContext, root: HTMLElement, signal: AbortSignal) => Update): RenderView {
  return (ctx, root) => {
    const stop = new AbortController();
    const close = (): void => {
      stop.abort();
      setChildren(root);
    };
    const update = build(ctx, root, stop.signal);
    ctx.onChange(stop.signal, update);
    atEnd(ctx.signal, () => stop.abort());
    update(new Set());
    return close;
  };
}

/** Whether something changed, and nothing but these names. */
export function only(changed: ReadonlySet<Change>, ...names: Change[]): boolean {
  return changed.size > 0 && [...changed].every((name) => names.includes(name));
}

export interface Heading {
  elements: HTMLElement[];
  /**
   * Show where the view looks; returns the title. If `where` is a function, it also gives the words for what a click
   * may show next, and the heading reserves room for them.
   */
  show(where: string | ((shown: Resolved) => string), title?: string): string;
}

/** Title, position, controls and notes; a warning about truncated input; whether the kernel answers. */
export function createHeading(ctx: ViewContext, ...controls: HTMLElement[]): Heading {
  const [title, place, note] = [h("b.title"), h("span.where"), h("span.note")];
  const warning = h("div.warning", { role: "note" });
  const status = h("div.warning.status", { role: "status" });
  const [doing, steps, bar] = [h("span", { role: "status" }), h("span", { "aria-hidden": "true" }), h("progress")];
  const stop = h("button.button", { type: "button" }, "Cancel");
  const work = h("div.row.work", doing, bar, steps, stop);
  on(stop, ctx.signal, { click: () => ctx.tiles.cancel() });
  return {
    elements: [h("div.row.head", title, place, ...controls, note), work, warning, status],
    show(where, fallback) {
      const shown = ctx.resolved();
      const { source, notes } = shown;
      const name = ctx.options.title || (fallback ?? source.title);
      setText(title, name);
      const words = (at: Resolved): string => {
        const text = typeof where === "string" ? where : where(at);
        return text && at.source.stack !== "self" ? `${at.source.stack} · ${text}` : text;
      };
      setText(place, words(shown));
      const other = ctx.counterpart();
      const next = [shown, ...(other ? [other] : [])];
      if (name === source.title) reserve(title, ...next.map((at) => at.source.title));
      reserve(place, ...next.map((at) => words({ ...at, layer: at.source.layers.at(-1) ?? at.layer })));
      setText(note, [source.note, ...notes].filter(Boolean).join(" · "));
      setText(warning, source.warning);
      setText(status, ctx.tiles.status().message);
      const job = ctx.tiles.job();
      assign(work, { hidden: !job });
      setText(doing, job ? `${job.text}${job.done === null ? ": waits for the running cell" : ""}` : "");
      assign(bar, { hidden: !job?.total, max: job?.total ?? 1, value: job?.done ?? 0 });
      setText(steps, job?.total ? `${job.done} of ${job.total}` : "");
      return name;
    },
  };
}

export { createReadout } from "./frame.ts";
