/** What a view may ask of the store, without the number that a request gets when it is sent. */
import { keyOf } from "./eager.ts";
import type { Header, HeadKey } from "./wire.ts";

export type TileAsk = { kind: "tile"; source: string; layer: number; head: HeadKey };
export type RowAsk = { kind: "row"; source: string; layer: number; head: HeadKey; row: number };
export type MethodAsk = { kind: "method"; source: string; layer: number };
export type Ask = TileAsk | RowAsk | MethodAsk | { kind: "thumbs"; source: string };

/** One name for all that ask for the same. */
export const keyOfAsk = (ask: Ask): string => keyOf(ask.kind === "method" ? { source: ask.source } : ask);

/** The layers before and after one, likely to be wanted next; only those that nothing need be computed for. */
export function neighbours(header: Header | undefined, ask: TileAsk): TileAsk[] {
  const { layers = [], computed = null } = header?.sources.find((s) => s.id === ask.source) ?? {};
  const at = layers.indexOf(ask.layer);
  const near = at < 0 ? [] : [layers[at + 1], layers[at - 1]];
  return near.flatMap((layer) =>
    layer === undefined || computed?.includes(layer) === false ? [] : [{ ...ask, layer }],
  );
}
