/** The data of a store in the browser: the eager bytes, and replies, of which the least recently used are dropped. */

import { NO_BYTES } from "./binary.ts";
import { decodeThumbs, decodeTile } from "./codec.ts";
import { createEager, type Eager, keyOf, type StoreModel } from "./eager.ts";
import { ByteLru } from "./lru.ts";
import type { ThumbSheet, Tile } from "./tile.ts";
import type { AnyTileMeta, Part, Placed, Reply } from "./wire.ts";

/** Bytes of decoded tiles to keep; thumbnails and exact rows may each take a fraction of that. */
export const CACHE_BYTES = 64 * 2 ** 20;

const NO_MORE = "no more thumbnails";

export type DataReply = Extract<Reply, { kind: "tile" | "layer" | "row" | "thumbs" }>;

/** Everything is stored by `keyOf` its address. */
export interface Cache {
  /** Follow a new header. */
  read(model: StoreModel | undefined): void;
  tile(key: string): Tile | undefined;
  thumbs(key: string): ThumbSheet | undefined;
  row(key: string): Float32Array | undefined;
  /** Store the data of a reply; returns an error message if it is malformed. */
  keep(msg: DataReply, buffer: DataView): string | null;
}

const countOf = (sheet: ThumbSheet | undefined): number => sheet?.meta.scale.flat().length ?? 0;

/** A sheet extended by more heads of a layer; unchanged if they do not follow the loaded heads. */
function joined(sheet: ThumbSheet | undefined, more: ThumbSheet & { meta: Partial<Part> }): ThumbSheet | undefined {
  const { rows, cols, part } = more.meta;
  if (!part) return more;
  const [layer, head] = part;
  const scale = sheet?.meta.scale ?? more.meta.scale.map(() => []);
  const fits = !sheet || (sheet.meta.rows === rows && sheet.meta.cols === cols);
  if (!fits || scale[layer]?.length !== head) return sheet;
  const at = scale.slice(0, layer + 1).flat().length * rows * cols;
  const before = sheet?.codes ?? more.codes.subarray(0, 0);
  const codes = new (more.codes.constructor as Uint8ArrayConstructor)(before.length + more.codes.length);
  codes.set(before.subarray(0, at));
  codes.set(more.codes, at);
  codes.set(before.subarray(at), at + more.codes.length);
  return { meta: { ...more.meta, scale: scale.map((heads, i) => [...heads, ...(more.meta.scale[i] ?? [])]) }, codes };
}

export function createCache(): Cache {
  const tiles = new ByteLru<Tile>(CACHE_BYTES);
  const sheets = new ByteLru<ThumbSheet>(CACHE_BYTES / 4);
  const rows = new ByteLru<Float32Array>(CACHE_BYTES / 16);
  let eager: Eager | undefined;
  const thumbsOf = (key: string): ThumbSheet | undefined => {
    const [embedded, requested] = [eager?.thumbs(key) ?? undefined, sheets.get(key)];
    return countOf(requested) > countOf(embedded) ? requested : embedded;
  };
  return {
    read(model) {
      eager = model && createEager(model);
      // A layer may have been added to a source that is computed layer by layer.
      for (const { id, computed } of model?.get("header")?.sources ?? [])
        for (const special of computed ? [false, true] : []) sheets.delete(keyOf({ source: id, special }));
    },
    tile(key) {
      const cached = tiles.get(key);
      if (cached) return cached;
      const tile = eager?.tile(key);
      if (!tile) return undefined;
      tiles.set(key, tile, tile.codes.byteLength);
      return tile;
    },
    thumbs: thumbsOf,
    row: (key) => rows.get(key),
    keep(msg, buffer) {
      const key = keyOf(msg);
      if (msg.kind === "row") {
        if (buffer.byteLength === 0 || buffer.byteLength % 4 !== 0) return NO_BYTES;
        const length = buffer.byteLength / 4;
        const values = Float32Array.from({ length }, (_, i) => buffer.getFloat32(4 * i, true));
        rows.set(key, values, buffer.byteLength);
      } else if (msg.kind === "thumbs") {
        const here = thumbsOf(key);
        const more = decodeThumbs(msg, buffer);
        if (!more) return NO_BYTES;
        const sheet = joined(here, more);
        // Without this, missing thumbnails would be requested forever.
        if (!sheet || (here && countOf(sheet) <= countOf(here))) return NO_MORE;
        sheets.set(key, sheet, sheet.codes.length);
      } else {
        const single = { ...msg, offset: 0, length: buffer.byteLength };
        for (const meta of msg.kind === "tile" ? [single as AnyTileMeta & Placed] : msg.tiles) {
          const { offset, length } = meta;
          if (offset + length > buffer.byteLength) return NO_BYTES;
          const tile = decodeTile(meta, new DataView(buffer.buffer, buffer.byteOffset + offset, length));
          if (!tile) return NO_BYTES;
          tiles.set(keyOf(meta), tile, tile.codes.byteLength);
        }
      }
      return null;
    },
  };
}
