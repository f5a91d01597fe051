/** The tile clients of a runtime: one for each store, however many views show it. */
import { atEnd } from "../dom.ts";
import type { StoreModel } from "./eager.ts";
import { createTiles, type TileStore } from "./tiles.ts";

/** The tile client of a store, shared by all views of a runtime. */
export type TilePool = (ref: string, model: StoreModel, signal: AbortSignal) => TileStore;

export function createPool(): TilePool {
  const stores = new Map<string, TileStore>();
  return (ref, model, signal) => {
    const store = stores.get(ref) ?? createTiles();
    stores.set(ref, store);
    store.attach(model, signal);
    atEnd(signal, () => {
      if (store.empty() && stores.get(ref) === store) stores.delete(ref);
    });
    return store;
  };
}
