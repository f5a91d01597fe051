/** Without a kernel (a saved notebook, a converted page), views fall back to the saved maps, with a note. */

import type { ViewContext } from "../../context.ts";
import type { Resolved } from "../../selection.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { addressWords } from "./navigation.ts";

/** The same context, except that it resolves to the nearest loaded matrix once the kernel is given up. */
export function withSavedFallback(ctx: ViewContext): ViewContext {
  const { tiles } = ctx;
  const resolved = (): Resolved => {
    const resolved = ctx.resolved();
    const { source, layer, head, notes } = resolved;
    if (tiles.status().state !== "no-kernel" || tiles.get(source.id, layer, head)) return resolved;
    const layersByDistance = [...source.layers].sort((a, b) => Math.abs(a - layer) - Math.abs(b - layer));
    for (const other of [head, "mean"] as HeadKey[]) {
      const savedLayer = layersByDistance.find((candidate) => tiles.get(source.id, candidate, other));
      if (savedLayer === undefined) continue;
      const words = `${addressWords(ctx, layer, head)} was not saved: showing ${addressWords(ctx, savedLayer, other)}`;
      return { source, layer: savedLayer, head: other, notes: [...notes, words] };
    }
    return resolved;
  };
  return Object.create(ctx, { resolved: { value: resolved } });
}
