/** The subject of a claim about chosen activations. */
import type { NumberAddress } from "../../base/copyPython.ts";
import type { Activation } from "./patching.ts";

/** Whether activations are two, of different tokens and layers. The twin of `is_between` in views/circuits/circuit_view.py. */
function isBetween(activations: readonly Activation[]): boolean {
  const [first, second] = [...activations].sort((a, b) => a[1] - b[1]);
  if (activations.length !== 2 || !first || !second || first[2] === null || second[2] === null) return false;
  const areTokens = first[0] !== "head" && second[0] !== "head";
  return areTokens && first[1] < second[1] && first[2] < second[2];
}

export const CLAIM_TITLE =
  "Copy the Python that checks a claim about the chosen head, or the one that carries most from a token to a later one in a later layer";

/** The claim about the chosen head, or about two activations; null for other activations. */
export function claimOf(chosen: readonly Activation[]): NumberAddress | null {
  const [only] = chosen;
  if (chosen.length === 1 && only?.[0] === "head" && only[2] === null)
    return { of: "claim", layer: only[1], head: only[3] ?? 0 };
  return isBetween(chosen) ? { of: "claim", cells: chosen } : null;
}
