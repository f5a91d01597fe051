/** Requests for data from the store, without the id that a request gets when it is sent. */
import { keyOf } from "./eager.ts";
import type { Header, HeadKey } from "./wire.ts";

export type TileRequest = { kind: "tile"; source: string; layer: number; head: HeadKey };
/** Several heads of a layer in a single message. */
export type LayerRequest = { kind: "layer"; source: string; layer: number; heads: HeadKey[] };
export type RowRequest = { kind: "row"; source: string; layer: number; head: HeadKey; row: number };
export type MethodRequest = { kind: "method"; source: string; layer: number };
export type ThumbsRequest = {
  kind: "thumbs";
  source: string;
  special: boolean;
  from?: readonly [number, number];
};
export type DataRequest = TileRequest | LayerRequest | RowRequest | MethodRequest | ThumbsRequest;

/** The largest number of values in a layer that is prefetched. */
const MOST_AHEAD = 2 ** 24;

/** A common key for all requests for the same data. */
export const keyOfRequest = (request: DataRequest): string =>
  keyOf(request.kind === "method" ? { source: request.source } : request);

/**
 * Requests for the neighbouring layers, which are likely to be needed next: only those that need no computing, and none
 * so large that it would evict the shown layer from the cache.
 */
export function neighbours<A extends TileRequest | LayerRequest>(header: Header | undefined, request: A): A[] {
  const source = header?.sources.find((s) => s.id === request.source);
  const { layers = [], computed = null } = source ?? {};
  const [rows = 0, cols = 0] = [source?.query, source?.key].map((axis) => header?.axes[axis ?? ""]?.labels.length);
  if ((request.kind === "layer" ? request.heads.length : 1) * rows * cols > MOST_AHEAD) return [];
  const at = layers.indexOf(request.layer);
  const neighbouring = at < 0 ? [] : [layers[at + 1], layers[at - 1]];
  return neighbouring.flatMap((layer) =>
    layer === undefined || computed?.includes(layer) === false ? [] : [{ ...request, layer }],
  );
}
