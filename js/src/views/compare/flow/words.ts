/** A flow described in words. */

import { largestOf } from "../../text/rowValues.ts";
import type { Spot } from "./figure.ts";
import type { Flow } from "./mass.ts";

export const KEYS = "Arrows move to another token and layer, Enter pins it, Escape unpins.";

/** Shares below this count as equal. */
const LEAST = 1e-4;

type Named = (index: number) => string;

export const percent = (share: number): string =>
  share > 0 && share < LEAST ? "< 0.01 %" : `${Number((100 * share).toPrecision(2))} %`;

export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** How many edges are drawn, of how many, and which share they carry. */
export function countWords({ edges, count: total, share }: Flow, least: number): string {
  const drawn = edges.length;
  const cut = total > drawn ? `the ${drawn} strongest of ${total} edges` : counted(drawn, "edge");
  return `${cut} of at least ${percent(least)}: ≈ ${percent(share)} of the mass is shown`;
}

/** The tokens outside a window, and the share of the followed token that comes from them. */
export function outsideWords(
  [start, stop]: readonly [number, number],
  masses: ArrayLike<number>,
  count: number,
): [earlier: string, later: string] {
  const words = (from: number, until: number, where: string): string => {
    if (until <= from) return "";
    const mass = Array.from(masses)
      .slice(from, until)
      .reduce((sum, share) => sum + share, 0);
    return `${until - from} ${where}${masses.length ? `, ≈ ${percent(mass)} of it` : ""}`;
  };
  return [words(0, start, "earlier"), words(stop, count, "later")];
}

/** `masses`: the shares of the input tokens in the token; the token with number `first` comes first. */
export function originWords(
  { level, token }: Spot,
  masses: ArrayLike<number>,
  first: number,
  nameOf: Named,
  levelOf: Named,
): string {
  if (level === 0) return `${nameOf(token)}, input.`;
  const others = largestOf(masses, 5).filter((key) => key !== first);
  const from = [first, ...others]
    .filter((key) => key === first || (masses[key] ?? 0) >= LEAST)
    .slice(0, 5)
    .map((key) => `${nameOf(key)} ${percent(masses[key] ?? 0)}`);
  return `${nameOf(token)} after ${levelOf(level)} is made of ≈ ${from.join(", ")} of the input.`;
}
