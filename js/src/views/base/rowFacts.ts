/**
 * The share of a row that no element receives (a sink, an additional score of the model's softmax), and how many keys
 * it may read.
 */
import { printed } from "../../numbers.ts";
import { comparedIn } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Source } from "../../wire/wire.ts";

/** Its name in lists of element names; the twin of `SINK_NAME` in verbalise.py. */
export const SINK_NAME = "no token (sink)";

/** The share of a row that no element receives; undefined without a sink. */
export const toSink = (tile: Tile | null | undefined, row: number): number | undefined => tile?.meta.sink?.[row];

/** Whether a key comes later in a causal map than the row. */
const isLater = (source: Source, row: number, key: number): boolean =>
  source.causal && source.query === source.key && key > row;

/** Whether a row was not compared with a key, which comes later, is outside a window or was not chosen. */
export const isUnread = (source: Source, tile: Tile | null | undefined, row: number, key: number): boolean =>
  isLater(source, row, key) || (tile ? comparedIn(tile.meta)?.[row * tile.cols + key] === 0 : false);

/**
 * Why a key lacks a weight in a row, in words: it comes later, was not compared with the row's query or is left out; ""
 * where it has a weight.
 */
export function absence(source: Source, tile: Tile | null | undefined, row: number, key: number): string {
  if (isLater(source, row, key)) return "masked, comes later";
  return tile && Number.isNaN(tile.value(row, key)) ? tile.text(row, key) : "";
}

/** How many keys a row may read; undefined where these are all, or all but the later keys. */
function keysRead(tile: Tile, row: number): number | undefined {
  const cells = comparedIn(tile.meta)?.subarray(row * tile.cols, (row + 1) * tile.cols);
  return cells?.reduce((sum, cell) => sum + cell, 0);
}

/** The share of a row that goes to a sink, in words; "" without a sink. */
export function sinkWords(tile: Tile | null | undefined, row: number): string {
  const share = toSink(tile, row);
  return share === undefined ? "" : `${SINK_NAME} ${share > 0 ? `= ${printed(share, true)}` : "< 0.0001"}`;
}

/** How many keys a row may read, in words; "" where these are all, or all but the later keys. */
export function readWords(tile: Tile | null | undefined, row: number): string {
  const reads = tile && row >= 0 ? keysRead(tile, row) : undefined;
  return reads === undefined ? "" : `reads ${reads} of ${tile?.cols} keys`;
}

/** Facts about a row, as in "no token (sink) = 0.84 · reads 4 of 11 keys"; "" for an ordinary row. */
export const rowWords = (tile: Tile | null | undefined, row: number): string =>
  [sinkWords(tile, row), readWords(tile, row)].filter(Boolean).join(" · ");

/** How many keys the rows of a map may read, in a sentence; the twin of `words_of` in presentation.py. */
export function readsSentence(tile: Tile): string {
  if (!tile.meta.compared) return "";
  const most = Math.max(...Array.from({ length: tile.rows }, (_, row) => keysRead(tile, row) ?? 0));
  return ` A row reads at most ${most} of ${tile.cols} keys.`;
}
