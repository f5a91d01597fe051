/** Data sent with the header: thumbnails and the first tiles, cut out of one block of bytes on first use. */
import type { AnyModel } from "@anywidget/types";
import { decodeThumbs, decodeTile } from "./codec.ts";
import type { ThumbSheet, Tile } from "./tile.ts";
import type { HeadKey, Placed, StoreState } from "./wire.ts";

export type StoreModel = AnyModel<StoreState & Record<string, unknown>>;

/** An address in a store: a tile, one of its rows, or (source alone) thumbnails. */
export interface Address {
  source: string;
  layer?: number | undefined;
  head?: HeadKey | undefined;
  row?: number;
}

/** A unique key for each address. */
export const keyOf = ({ source, layer, head, row }: Address): string => [source, layer, head, row].join("\n");

/** The contents of the eager bytes, by address. */
export interface Eager {
  tile(key: string): Tile | null;
  thumbs(key: string): ThumbSheet | null;
}

/** Reads one header; created again when the header changes. */
export function createEager(model: StoreModel): Eager {
  const header = model.get("header");
  const tiles = new Map(header?.tiles.map((t) => [keyOf(t), t]));
  const sheets = new Map<string, ThumbSheet | null>();
  const cut = ({ offset, length }: Placed): DataView => {
    const eager = model.get("eager");
    // Missing bytes decode to nothing.
    if (!eager || offset + length > eager.byteLength) return new DataView(new ArrayBuffer(0));
    return new DataView(eager.buffer, eager.byteOffset + offset, length);
  };
  return {
    tile(key) {
      const placed = tiles.get(key);
      return placed ? decodeTile(placed, cut(placed)) : null;
    },
    thumbs(key) {
      const placed = header?.thumbs.find((t) => keyOf({ source: t.source }) === key);
      const sheet = sheets.get(key) ?? (placed ? decodeThumbs(placed, cut(placed)) : null);
      sheets.set(key, sheet);
      return sheet;
    },
  };
}
