/**
 * Cached values of an element's style, read once per theme: reading a style forces the page to compute its styles amid
 * the drawing.
 */

import type { Theme } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";

interface Cached {
  theme: Theme;
  values: Map<string, string>;
}

const CACHE = new WeakMap<Element, Cached>();

/** The value of a property, such as "color" or "--aw-apart"; "" while the element is not on the page. */
export function styleValue({ theme }: Pick<ViewContext, "theme">, el: Element, name: string): string {
  let cached = CACHE.get(el);
  if (cached?.theme !== theme) {
    cached = { theme, values: new Map() };
    CACHE.set(el, cached);
  }
  let value = cached.values.get(name);
  if (!value) {
    value = getComputedStyle(el).getPropertyValue(name);
    cached.values.set(name, value);
  }
  return value;
}
