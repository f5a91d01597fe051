/** What a row gives to no element: to a sink, one more score of the softmax that the model itself has. */
import { printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";

/** Its name where names of elements stand; the twin of `SINK_NAME` in verbalise.py. */
export const SINK_NAME = "no token (sink)";

/** What a row gives to no element; undefined without a sink. */
export const toSink = (tile: Tile | null | undefined, row: number): number | undefined => tile?.meta.sink?.[row];

/** The same in words, as in "no token (sink) = 0.84"; "" without a sink. */
export function sinkWords(tile: Tile | null | undefined, row: number): string {
  const share = toSink(tile, row);
  return share === undefined ? "" : `${SINK_NAME} ${share > 0 ? `= ${printed(share, true)}` : "< 0.0001"}`;
}
