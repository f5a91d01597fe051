/** Data sent with the header: thumbnails and the first tiles, cut out of a block of bytes on first use. */
import type { AnyModel } from "@anywidget/types";
import { decodeThumbs, decodeTile } from "./codec.ts";
import { apartOf, someOf } from "./sheets.ts";
import type { ThumbSheet, Tile } from "./tile.ts";
import type { Header, HeadKey, Placed, StoreState } from "./wire.ts";

export type StoreModel = AnyModel<StoreState & Record<string, unknown>>;

/**
 * An address in a store: a tile, a row of a tile, or (without a layer) thumbnails with or without their special tokens.
 */
export interface Address {
  source: string;
  special?: boolean;
  layer?: number | undefined;
  head?: HeadKey | undefined;
  row?: number;
}

/** A unique key for each address. */
export const keyOf = ({ source, layer, head, row, special }: Address): string =>
  [source, layer, head, row, special ? "special" : ""].join("\n");

/** The contents of the eager bytes, by address. */
export interface Eager {
  tile(key: string): Tile | null;
  thumbs(key: string): ThumbSheet | null;
}

/** The same thumbnails without the elements apart from the map; null if a cell is a block of several. */
function withoutSpecial(sheet: ThumbSheet, header: Header): ThumbSheet | null {
  const source = header.sources.find(({ id }) => id === sheet.meta.source);
  const [query, key] = [source?.query, source?.key].map((id) => header.axes[id ?? ""]?.special ?? []);
  const isWhole = query?.length === sheet.meta.rows && key?.length === sheet.meta.cols;
  const content = (special: readonly number[]): number[] => {
    const apart = apartOf(special);
    return [...apart.keys()].filter((i) => !apart[i]);
  };
  return isWhole ? someOf(sheet, content(query), content(key)) : null;
}

/** The header of a store. A notebook that was closed unsaved has the view, but not the state of its store. */
export function headerOf(model: StoreModel): Header {
  const header = model.get("header") as Header | null;
  if (!header?.sources) throw new Error("its data was not saved in the notebook");
  return header;
}

/** Reads a header; created again when the header changes. */
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
      const cached = sheets.get(key);
      if (cached !== undefined) return cached;
      const placed = header?.thumbs.find((t) => keyOf({ source: t.source, special: t.special }) === key);
      const whole = header?.thumbs.find((t) => t.special && keyOf({ source: t.source }) === key);
      const from = placed ?? whole;
      const decoded = from ? decodeThumbs(from, cut(from)) : null;
      const sheet = decoded && !placed ? withoutSpecial(decoded, header) : decoded;
      sheets.set(key, sheet);
      return sheet;
    },
  };
}
