/**
 * The reader's choices in a text, carried over to another text; the twin of attnwidgets/views/base/texts.py. No choice
 * may point at another element afterwards.
 */
import type { Cell, Header, SelectionState, Source } from "../wire/wire.ts";

/** A selection to read. */
interface Chosen {
  get(key: string): unknown;
}

/**
 * The index in another text of the element that corresponds to an element of this text: in a beginning or end that both
 * share, or at the same index of texts of the same length if its label is the same; else null.
 */
export function indexIn(before: readonly string[], after: readonly string[], at: number): number | null {
  const shorter = Math.min(before.length, after.length);
  let [first, last] = [0, 0];
  while (first < shorter && before[first] === after[first]) first += 1;
  while (last < shorter - first && before.at(-1 - last) === after.at(-1 - last)) last += 1;
  if (at < first) return at;
  if (at >= before.length - last) return at - before.length + after.length;
  return before.length === after.length && before[at] === after[at] ? at : null;
}

/** Method, stack, layer, head and pins of a selection, as far as another text has them. */
export function carriedOver(left: Chosen, leftHeader: Header, to: Chosen, header: Header): Partial<SelectionState> {
  const read = <K extends keyof SelectionState>(from: Chosen, key: K): SelectionState[K] =>
    from.get(key) as SelectionState[K];
  const { sources } = header;
  const values: Partial<SelectionState> = {};
  const method = read(left, "method").replace(/[@:].*/, "");
  if (sources.some((source) => source.method === method)) values.method = method;
  const stack = read(left, "stack");
  if (sources.some((source) => source.stack === stack)) values.stack = stack;
  const layer = read(left, "layer");
  if (sources.some(({ layers }) => layers.includes(layer))) values.layer = layer;
  const head = read(left, "head");
  if (typeof head === "string" || sources.some(({ heads }) => heads?.includes(head))) values.head = head;
  const unit = read(left, "unit");
  const isChosen = unit !== read(left, "opening")?.unit;
  if (isChosen && sources.some((source) => source.unit === unit)) values.unit = unit;
  if (read(to, "pins").length === 0) {
    const pins = read(left, "pins").flatMap((cell) => carriedPin(cell, stack, leftHeader, header) ?? []);
    Object.assign(values, { pins, pinned: pins.at(-1) ?? null });
  }
  return values;
}

function carriedPin(cell: Cell, stack: string, leftHeader: Header, header: Header): Cell | null {
  const isOf = (source: Source): boolean =>
    source.kind === "map" && source.unit === cell.unit && source.stack === stack;
  const [before, after] = [leftHeader, header].map(({ axes, sources }) => {
    const source = sources.find(isOf);
    return source && { query: axes[source.query]?.labels ?? [], key: axes[source.key]?.labels ?? [] };
  });
  if (!before || !after) return null;
  const [query, key] = (["query", "key"] as const).map((side) =>
    cell[side] < 0 ? cell[side] : indexIn(before[side], after[side], cell[side]),
  );
  return typeof query === "number" && typeof key === "number" ? { ...cell, query, key } : null;
}
