/** A flow described in words. */

import { largestOf } from "../../text/rowValues.ts";
import type { Spot } from "./figure.ts";
import type { Edge, Flow } from "./mass.ts";

export const KEYS = "Arrows move to another token and layer, Enter pins it, Escape unpins.";

type Named = (index: number) => string;

export const percent = (share: number): string => `${Number((100 * share).toPrecision(2))} %`;

export const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

/** How many edges are drawn, of how many, and which share they carry. */
export function countWords(
  { edges, count: found, share }: Flow,
  least: number,
  budget: number,
  isOne: boolean,
): string {
  const drawn = edges.length;
  const cut = found > drawn ? `the ${drawn} strongest of ${found} edges` : counted(drawn, "edge");
  const [whose, bars] = isOne ? ["", " Bars: the share of each input token in it."] : [" of their token", ""];
  return `${cut} of at least ${percent(least)}${whose}: ≈ ${percent(share)} of the mass is shown (at most ${budget} edges).${bars}`;
}

export function strongestWords(edges: readonly Edge[], nameOf: Named, levelOf: Named): string {
  const phrases = edges
    .filter(({ query, key }) => query !== key)
    .slice(-3)
    .reverse()
    .map(
      ({ level, query, key, mass }) =>
        `${nameOf(query)} after ${levelOf(level + 1)} ≈ ${percent(mass)} from ${nameOf(key)}`,
    );
  return phrases.length ? `Strongest between different tokens: ${phrases.join("; ")}.` : "";
}

/** `masses`: the shares of the input tokens in the token. */
export function originWords({ level, token }: Spot, masses: ArrayLike<number>, nameOf: Named, levelOf: Named): string {
  if (level === 0) return `${nameOf(token)}, input.`;
  const from = largestOf(masses, 5).map((key) => `${nameOf(key)} ${percent(masses[key] ?? 0)}`);
  return `${nameOf(token)} after ${levelOf(level)} is made of ≈ ${from.join(", ")} of the input.`;
}
