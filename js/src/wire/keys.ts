/**
 * Keys of methods: the method, and the target (and foil) that it explains: `lrp@1-0`. The twin of
 * `attnwidgets/views/wire/axes.py`.
 */
import type { Header, Outcome } from "./wire.ts";

export type TargetPair = [target: Outcome | null, foil: Outcome | null];

/** A key without its target and foil. */
export const baseKey = (key: string): string => key.replace(/@[\d-]+/, "");

/** The key of a method that explains `target`, rather than `foil`; without a target, the prediction. */
export function keyWithTargets(key: string, target: Outcome | null, foil: Outcome | null): string {
  const base = baseKey(key).replace(/:layers$/, "");
  return target ? `${base}@${target.id}${foil ? `-${foil.id}` : ""}` : base;
}

/** The target and foil in a key; null if it has none. */
export function targetsOfKey(header: Header, key: string): TargetPair | null {
  const [, ...ids] = /@(\d+)-?(\d*)/.exec(key) ?? [];
  const [target = null, foil = null] = ids.map((id) =>
    id ? (header.predictions.items.find((item) => item.id === Number(id)) ?? { id: Number(id), label: id }) : null,
  );
  return target && [target, foil];
}

/** The first method that can explain a chosen target: the method with this key, or any if no key is given. */
export function methodWithTargets({ sources, methods }: Header, key = ""): { title: string } | undefined {
  const [base] = key.split(/[@:]/);
  return [...sources, ...methods].find(({ targets, method }) => targets && (!base || method === base));
}
