/** What a row gives to no element (to a sink, one more score of the model's softmax), and how many keys it may read. */
import { printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";

/** Its name where names of elements stand; the twin of `SINK_NAME` in verbalise.py. */
export const SINK_NAME = "no token (sink)";
/** What stands in a cell whose key its row may not read: no weight, rather than a weight of zero. */
export const NOT_COMPARED = "not compared";

/** What a row gives to no element; undefined without a sink. */
export const toSink = (tile: Tile | null | undefined, row: number): number | undefined => tile?.meta.sink?.[row];

const UNPACKED = new WeakMap<Tile["meta"], Uint8Array>();

/** Which keys each row may read, 1 or 0 for every cell; undefined where these are all, or all but the later ones. */
export function comparedIn({ meta }: Tile): Uint8Array | undefined {
  if (!meta.compared) return undefined;
  let cells = UNPACKED.get(meta);
  if (!cells) {
    const bits = atob(meta.compared);
    cells = Uint8Array.from({ length: meta.rows * meta.cols }, (_, i) => (bits.charCodeAt(i >> 3) >> (i & 7)) & 1);
    UNPACKED.set(meta, cells);
  }
  return cells;
}

/** Whether a row may read a key, as far as a tile says more than that later keys are not read. */
export const isCompared = (tile: Tile, row: number, key: number): boolean =>
  comparedIn(tile)?.[row * tile.cols + key] !== 0;

/** How many keys a row may read; undefined where these are all, or all but the later ones. */
function keysRead(tile: Tile, row: number): number | undefined {
  const cells = comparedIn(tile)?.subarray(row * tile.cols, (row + 1) * tile.cols);
  return cells?.reduce((sum, cell) => sum + cell, 0);
}

/** What a row gives to a sink, in words; "" without one. */
export function sinkWords(tile: Tile | null | undefined, row: number): string {
  const share = toSink(tile, row);
  return share === undefined ? "" : `${SINK_NAME} ${share > 0 ? `= ${printed(share, true)}` : "< 0.0001"}`;
}

/** How many keys a row may read, in words; "" where these are all, or all but the later ones. */
export function readWords(tile: Tile | null | undefined, row: number): string {
  const reads = tile && row >= 0 ? keysRead(tile, row) : undefined;
  return reads === undefined ? "" : `reads ${reads} of ${tile?.cols} keys`;
}

/** What is special about a row, as in "no token (sink) = 0.84 · reads 4 of 11 keys"; "" if nothing is. */
export const rowWords = (tile: Tile | null | undefined, row: number): string =>
  [sinkWords(tile, row), readWords(tile, row)].filter(Boolean).join(" · ");

/** How many keys the rows of a map may read, in a sentence; the twin of `words_of` in presentation.py. */
export function readsSentence(tile: Tile): string {
  if (!tile.meta.compared) return "";
  const most = Math.max(...Array.from({ length: tile.rows }, (_, row) => keysRead(tile, row) ?? 0));
  return ` A row reads at most ${most} of ${tile.cols} keys.`;
}
