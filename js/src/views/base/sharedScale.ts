/** A scale for the pictures of a view, such as a text and its layers: a value has the same colour in all of them. */
import type { ViewContext } from "../../context.ts";
import { atEnd } from "../../dom.ts";
import { roundUp } from "../../numbers.ts";

interface Part {
  about: string;
  top: number;
  redraw(): void;
}

const PARTS = new WeakMap<Element, Set<Part>>();

export interface SharedScale {
  /** Give the largest magnitude of this picture; returns the end of the scale. */
  end(top: number): number;
}

/** Join the scale of a view; `redraw` is called when another picture changes its end. */
export function joinScale(ctx: ViewContext, signal: AbortSignal, redraw: () => void): SharedScale {
  const parts = PARTS.get(ctx.el) ?? new Set();
  PARTS.set(ctx.el, parts);
  const member: Part = { about: "", top: 0, redraw };
  parts.add(member);
  atEnd(signal, () => parts.delete(member));
  return {
    end(top) {
      const { method, stack, unit } = ctx.source();
      // A method and its values by layer share a scale.
      const about = [method.replace(":layers", ""), stack, unit].join();
      const isOther = member.top !== top || member.about !== about;
      const end = (): number =>
        Math.max(0, ...[...parts].filter((part) => part.about === about).map((part) => part.top));
      const before = end();
      Object.assign(member, { about, top });
      const now = end();
      if (isOther && now !== before)
        for (const part of parts) if (part !== member && part.about === about) part.redraw();
      return roundUp(now);
    },
  };
}
