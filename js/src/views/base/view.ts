/** The basis of every view: its lifetime, and when it draws. */
import type { Change, RenderView, ViewContext } from "../../context.ts";
import { atEnd, setChildren } from "../../dom.ts";

type Update = (changed: ReadonlySet<Change>) => void;

/**
 * Create a view from a function that fills `root` and returns an update function. It is updated once at the start, with
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
