/** Colours of heads, as distinct as possible for any colour vision, on light and dark pages. */

import type { Theme } from "../../colour.ts";
import { inkOn, type Rgb } from "../../colour.ts";

/**
 * Each colour was chosen farthest from those before it in OKLab, by the nearest of normal, protan, deutan and tritan
 * vision, with a contrast of at least 3:1 to the page. With more heads the colours repeat; their positions in a row of
 * bars distinguish them.
 */
const COLOURS: Record<Theme, string> = {
  light: "0072b2d55e007010312f2a8ba980ea4ba27fae40777a51002f67506a3c70788fba5547ac9a6e52ea6d6c660962a07493",
  dark: "56b4e9f28e4bbcfe96b758a0ecd2f9927d56adc6a04e7cd9d291b5f8cd4c5aa686c3610b5cf1ba8993fa43d5d5ec7280",
};

/** The colour of the head with this index in its layer. */
export function headColour(index: number, theme: Theme): string {
  const at = (6 * index) % COLOURS[theme].length;
  return `#${COLOURS[theme].slice(at, at + 6)}`;
}

/** Black or white, whichever is more legible on the colour of a head (#rrggbb). */
export function headInk(colour: string): string {
  const rgb = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16)) as unknown as Rgb;
  return inkOn(rgb);
}
