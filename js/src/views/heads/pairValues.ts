/** The value of a pair of query and key in every layer and head: from the tiles if all are loaded, else from Python. */
import type { ViewContext } from "../../context.ts";
import type { Answers } from "../../wire/answers.ts";
import { floatsOf } from "../../wire/buffers.ts";
import type { Source } from "../../wire/wire.ts";

/** Tokens up to which the pair is read from tiles: decoding those of every head of a longer text would take long. */
const FEW = 128;

/** The arguments of the request "pair". */
export const pairRequest = (source: Source, query: number, key: number) => ({ source: source.id, query, key });

/** [layer][head]; NaN: not computed. Empty before any value arrives. `quiet`: the reader did not choose this pair. */
export function pairValues(
  ctx: ViewContext,
  answers: Answers,
  source: Source,
  query: number,
  key: number,
  quiet = false,
): ArrayLike<number>[] {
  const heads = source.heads ?? ["-" as const];
  const isShort = [source.query, source.key].every((axis) => ctx.axisOf(axis).labels.length <= FEW);
  const tiles = isShort
    ? source.layers.map((layer) => heads.map((head) => ctx.tiles.get(source.id, layer, head)))
    : [[undefined]];
  if (tiles.flat().every(Boolean)) {
    return tiles.map((row) => row.map((tile) => tile?.value(query, key) ?? Number.NaN));
  }
  const bytes = answers.get("pair", pairRequest(source, query, key), quiet)?.buffers[0];
  const values = bytes && floatsOf(bytes);
  return values ? source.layers.map((_, i) => values.slice(i * heads.length, (i + 1) * heads.length)) : [];
}
