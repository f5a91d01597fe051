/** Values of an element's style, read once per theme: reading one makes the page compute its styles amid the drawing. */

import type { Theme } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";

interface Known {
  theme: Theme;
  values: Map<string, string>;
}

const KNOWN = new WeakMap<Element, Known>();

/** The value of a property, such as "color" or "--aw-apart"; "" while the element is not on the page. */
export function styleValue({ theme }: Pick<ViewContext, "theme">, el: Element, name: string): string {
  let known = KNOWN.get(el);
  if (known?.theme !== theme) {
    known = { theme, values: new Map() };
    KNOWN.set(el, known);
  }
  let value = known.values.get(name);
  if (!value) {
    value = getComputedStyle(el).getPropertyValue(name);
    known.values.set(name, value);
  }
  return value;
}
