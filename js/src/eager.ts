/** What came with the header: thumbnails and the first tiles, cut out of one block of bytes when they are looked at. */
import type { AnyModel } from "@anywidget/types";
import { decodeTile } from "./codec.ts";
import type { ThumbSheet, Tile } from "./context.ts";
import type { HeadKey, Placed, StoreState, TileMeta } from "./wire.ts";

export type StoreModel = AnyModel<StoreState & Record<string, unknown>>;

/** Where a matrix is found in a store. */
export interface Address {
  source: string;
  layer: number;
  head: HeadKey;
}

export const keyOf = (a: Address): string => `${a.source}\n${a.layer}\n${a.head}`;

function bytesOf(model: StoreModel, { offset, length }: Placed): DataView | null {
  const eager = model.get("eager");
  if (!eager || offset + length > eager.byteLength) return null;
  return new DataView(eager.buffer, eager.byteOffset + offset, length);
}

/** Reads one header; made anew when the header changes. */
export class EagerTiles {
  #index: Map<string, TileMeta & Placed> | null = null;
  readonly #sheets = new Map<string, ThumbSheet>();

  tile(key: string, model: StoreModel | undefined): Tile | null {
    if (!model) return null;
    this.#index ??= new Map((model.get("header")?.tiles ?? []).map((t) => [keyOf(t), t]));
    const placed = this.#index.get(key);
    const bytes = placed && bytesOf(model, placed);
    return bytes ? decodeTile(placed, bytes) : null;
  }

  thumbs(source: string, model: StoreModel | undefined): ThumbSheet | undefined {
    const known = this.#sheets.get(source);
    if (known) return known;
    const meta = model?.get("header")?.thumbs.find((t) => t.source === source);
    const view = model && meta && bytesOf(model, meta);
    if (!view) return undefined;
    const raw = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    const codes = meta.signed ? new Int8Array(raw.buffer, raw.byteOffset, raw.byteLength) : raw;
    const sheet = { meta, codes };
    this.#sheets.set(source, sheet);
    return sheet;
  }
}
