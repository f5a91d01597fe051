/** What a row gives to no element (to a sink, one more score of the model's softmax), and how many keys it may read. */
import { printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";

/** Its name where names of elements stand; the twin of `SINK_NAME` in verbalise.py. */
export const SINK_NAME = "no token (sink)";

/** What a row gives to no element; undefined without a sink. */
export const toSink = (tile: Tile | null | undefined, row: number): number | undefined => tile?.meta.sink?.[row];

/** What is special about a row, as in "no token (sink) = 0.84 · reads 4 of 11 keys"; "" if nothing is. */
export function rowWords(tile: Tile | null | undefined, row: number): string {
  const [share, reads] = [toSink(tile, row), tile?.meta.reads?.[row]];
  const words: string[] = [];
  if (share !== undefined) words.push(`${SINK_NAME} ${share > 0 ? `= ${printed(share, true)}` : "< 0.0001"}`);
  if (reads !== undefined) words.push(`reads ${reads} of ${tile?.cols} keys`);
  return words.join(" · ");
}

/** How many keys the rows of a map may read, in a sentence; the twin of `words_of` in presentation.py. */
export const readsSentence = ({ meta, cols }: Tile): string =>
  meta.reads ? ` A row reads at most ${Math.max(...meta.reads)} of ${cols} keys.` : "";
