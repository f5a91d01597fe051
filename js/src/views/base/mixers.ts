/** The layers and heads of a model whose blocks do not all attend: the twin of block_mixers.py. */

import type { HeadGroup, HeadKey, Source } from "../../wire/wire.ts";

/** The label in the head control of a block without heads. */
const ALL_CHANNELS = "all channels";

const groupsOf = ({ mixers }: Source, layer: number): readonly HeadGroup[] => mixers?.layers[layer] ?? [];

/** The group of each of a layer's heads; [] in models of attention alone. */
const owners = (source: Source, layer: number): HeadGroup[] =>
  groupsOf(source, layer).flatMap((group) => new Array<HeadGroup>(Math.max(1, group.heads)).fill(group));

/** The group of a head; all of them for a reduction over heads. */
function groupsAt(source: Source, layer: number, head: HeadKey): readonly HeadGroup[] {
  const group = typeof head === "number" ? owners(source, layer)[head] : undefined;
  return group ? [group] : groupsOf(source, layer);
}

/** The heads of a layer, as far as the header lists them before the layer is read. */
export function headsOf(source: Source, layer: number): readonly number[] {
  const { length } = owners(source, layer);
  const heads = source.heads ?? [];
  return length ? heads.filter((head) => head < length) : heads;
}

/** How a head, or all heads of a layer, mix tokens: "gated delta rule"; "" in models of attention alone. */
export function kindWords(source: Source, layer: number, head: HeadKey = "-"): string {
  return [...new Set(groupsAt(source, layer, head).map(({ name }) => name))].join(" and ");
}

/** "all channels" for a block without heads; "" for heads. */
export function headlessWords(source: Source, layer: number, head: HeadKey): string {
  const groups = groupsAt(source, layer, head);
  return head !== "-" && groups.length > 0 && groups.every(({ heads }) => !heads) ? ALL_CHANNELS : "";
}

/** Why a head cannot be knocked out, or "". */
export function fixedWords(source: Source, layer: number, head: number): string {
  return owners(source, layer)[head]?.fixed ?? "";
}

/** Whether this is a head of attention, as all are in models of attention alone. */
export function attends(source: Source, layer: number, head: number): boolean {
  return owners(source, layer)[head]?.attends ?? true;
}

/**
 * The meaning of a value, as a sentence; of a reduction, the part that holds for all of its heads; "" for attention.
 */
export function meaningOf(source: Source, layer: number, head: HeadKey): string {
  const words = groupsAt(source, layer, head).map(({ meaning }) => source.mixers?.meanings[meaning] ?? "");
  return words.reduce((most, word) => (word.length > most.length ? word : most), "");
}
