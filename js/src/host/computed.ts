/**
 * Matrices that a page computes from others that it holds, which are smaller: weights from the factors of their scores,
 * reductions from heads, words from tokens, rollout from means. The twin of attnwidgets/views/page/computed.py.
 */
import { decodeTile } from "../wire/codec.ts";
import { codesOf, inUnit, reduced, rolledOut } from "../wire/matrices.ts";
import type { AnyTileMeta, Header, HeadKey, Placed } from "../wire/wire.ts";
import { weightsOf } from "./scoreFactors.ts";

/** How a matrix is computed. */
interface Recipe {
  /**
   * "factors": from its bytes. "heads": reduced over the heads of its layer. "unit": from the matrix of `base` in tokens.
   * "layers": from the means of `base` in all layers up to its own.
   */
  from?: "factors" | "heads" | "unit" | "layers";
  /** Number of these heads. */
  count?: number;
  /** Id of a source. */
  base?: string;
  rank?: number;
  causal?: boolean;
}

export type Entry = AnyTileMeta & Placed & Recipe;

/** The code bytes of an entry, computed if it has a recipe. */
export type CodesOf = (entry: Entry) => Promise<Uint8Array<ArrayBuffer>>;

/** Bytes of matrices that are kept, since several are often computed from the same. */
const KEPT = 32 * 2 ** 20;

export function computedCodes(
  entries: readonly Entry[],
  read: (placed: Placed) => Promise<Uint8Array<ArrayBuffer>>,
  header: () => Header,
): CodesOf {
  const kept = new Map<Entry, Promise<Float32Array>>();
  const products = new Map<string, Promise<Float64Array>[]>();
  const entryOf = (source: string | undefined, layer: number, head: HeadKey): Entry => {
    const entry = entries.find((tile) => tile.source === source && tile.layer === layer && tile.head === head);
    if (!entry) throw new Error(`the page lacks ${source} ${layer} ${head}`);
    return entry;
  };

  /** The product of the layers up to that at an index. */
  const product = (base: string, layers: readonly number[], index: number): Promise<Float64Array> => {
    const all = products.get(base) ?? [];
    products.set(base, all);
    const before = index > 0 ? product(base, layers, index - 1) : undefined;
    all[index] ??= (async () =>
      rolledOut(await values(entryOf(base, layers[index] as number, "mean")), await before))();
    return all[index];
  };

  const computed = async (entry: Entry): Promise<Float32Array> => {
    const { from, base = "", source, layer, head } = entry;
    if (from === "factors")
      return weightsOf(await read(entry), { ...entry, rank: entry.rank ?? 0, causal: entry.causal ?? false });
    if (from === "unit") {
      const { axes, sources } = header();
      const axis = axes[sources.find(({ id }) => id === source)?.query ?? ""];
      return inUnit(await values(entryOf(base, layer, head)), axis as Header["axes"][string]);
    }
    if (from === "layers") {
      const layers = header().sources.find(({ id }) => id === source)?.layers ?? [];
      return Float32Array.from(await product(base, layers, layers.indexOf(layer)));
    }
    if (from === "heads") {
      const heads = entries.filter(
        (tile) => tile.source === source && tile.layer === layer && typeof tile.head === "number",
      );
      if (heads.length !== entry.count) throw new Error(`the page lacks heads of ${source}, layer ${layer}`);
      return reduced(await Promise.all(heads.map(values)), head === "max" ? "max" : "mean");
    }
    const bytes = await read(entry);
    const tile = decodeTile(entry, new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    if (!tile) throw new Error("damaged");
    return Float32Array.from(tile.codes, (_, at) => tile.value(Math.floor(at / tile.cols), at % tile.cols));
  };

  const values = (entry: Entry): Promise<Float32Array> => {
    const matrix = kept.get(entry) ?? computed(entry);
    // The latest stand last, and the first go.
    kept.delete(entry);
    kept.set(entry, matrix);
    for (const oldest of kept.keys()) {
      if (kept.size * entry.rows * entry.cols * 4 <= KEPT) break;
      kept.delete(oldest);
    }
    return matrix;
  };

  return async (entry) => (entry.from ? codesOf(await values(entry), entry.scale, false) : read(entry));
}
