/** Requests for data from the store, without the id that a request gets when it is sent. */
import { keyOf } from "./eager.ts";
import type { Header, HeadKey } from "./wire.ts";

export type TileAsk = { kind: "tile"; source: string; layer: number; head: HeadKey };
/** Several heads of a layer in one message. */
export type LayerAsk = { kind: "layer"; source: string; layer: number; heads: HeadKey[] };
export type RowAsk = { kind: "row"; source: string; layer: number; head: HeadKey; row: number };
export type MethodAsk = { kind: "method"; source: string; layer: number };
export type ThumbsAsk = { kind: "thumbs"; source: string; from?: readonly [number, number] };
export type Ask = TileAsk | LayerAsk | RowAsk | MethodAsk | ThumbsAsk;

/** The largest number of values in a layer that is prefetched. */
const MOST_AHEAD = 2 ** 24;

/** One key for all requests for the same data. */
export const keyOfAsk = (ask: Ask): string =>
  keyOf(ask.kind === "method" || ask.kind === "thumbs" ? { source: ask.source } : ask);

/**
 * Requests for the neighbouring layers, which are likely to be needed next: only those that need no computing, and none
 * so large that it would evict the shown layer from the cache.
 */
export function neighbours<A extends TileAsk | LayerAsk>(header: Header | undefined, ask: A): A[] {
  const source = header?.sources.find((s) => s.id === ask.source);
  const { layers = [], computed = null } = source ?? {};
  const [rows = 0, cols = 0] = [source?.query, source?.key].map((axis) => header?.axes[axis ?? ""]?.labels.length);
  if ((ask.kind === "layer" ? ask.heads.length : 1) * rows * cols > MOST_AHEAD) return [];
  const at = layers.indexOf(ask.layer);
  const near = at < 0 ? [] : [layers[at + 1], layers[at - 1]];
  return near.flatMap((layer) =>
    layer === undefined || computed?.includes(layer) === false ? [] : [{ ...ask, layer }],
  );
}
