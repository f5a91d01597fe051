/** Maps of a pass, by method, layer and head. */
import type { Pass } from "../engine/types.ts";
import { reduced, rolledOut } from "../wire/matrices.ts";

/** The methods that a page computes, by name: matrices of a layer [query, key], one for each head or a single one. */
export const METHODS: Record<string, (pass: Pass, layer: number) => Float32Array[]> = {
  attention: (pass, layer) => headsOf(pass, layer),
  rollout: (pass, layer) => [rollout(pass, layer)],
};

function headsOf({ attention, tokens }: Pass, layer: number): Float32Array[] {
  const size = tokens.length ** 2;
  const all = attention[layer] ?? new Float32Array();
  return Array.from({ length: all.length / size }, (_, head) => all.subarray(head * size, (head + 1) * size));
}

/** Products that were computed of a pass, by layer. */
const products = new WeakMap<Pass, Float64Array[]>();

function rollout(pass: Pass, layer: number): Float32Array {
  const all = products.get(pass) ?? [];
  products.set(pass, all);
  for (let at = all.length; at <= layer; at += 1) all.push(rolledOut(reduced(headsOf(pass, at), "mean"), all[at - 1]));
  return Float32Array.from(all[layer] ?? []);
}
