/**
 * Two texts in aligned columns, and their numbers: the answers of `TwoTexts` in attnwidgets/views/compare/two_texts.py.
 */

import type { ViewContext } from "../../../context.ts";
import type { Answer } from "../../../wire/embeddedAnswers.ts";
import { baseKey } from "../../../wire/keys.ts";
import type { TwoTextsOptions } from "../../../wire/viewState.ts";
import type { HeadKey } from "../../../wire/wire.ts";

/**
 * The columns of an axis: for each text the first element in the column (-1: none), its label, and properties of the
 * column.
 */
export interface Columns {
  elements: (readonly [number, number])[];
  labels: readonly [string[], string[]];
  same: number[];
  special: number[];
}

/** The answer to "texts". */
export interface Texts {
  keys: Columns;
  /** Null: the same columns as the keys. */
  queries: Columns | null;
  /** The column whose row is read without a pin. */
  query: number;
}

/** The answer to "rows" in addition to the values [A, B, A less B; column]. */
export interface RowsMeta {
  query: number | null;
  shares: boolean;
  /** The amount that no token has, for each text; null if nothing is conserved. Absent from maps. */
  rests?: [number, number] | null;
  verdict?: string;
  about?: [target: string, foil: string | null];
}

/** The answer to "maps" in addition to the values [A, B, A less B; query, key]. */
export interface MapsMeta {
  shape: [number, number];
  shares: boolean;
}

/** The address of the numbers: the arguments of "rows" and "maps", without the query. */
export interface MapAddress {
  method: string;
  stack: string;
  unit: string;
  layer: number;
  head: HeadKey;
}

/** The rows of both texts over the columns, and their difference. */
export type Rows = readonly [Float32Array, Float32Array, Float32Array];

export const settings = (ctx: ViewContext): TwoTextsOptions => ctx.options as TwoTextsOptions;

/** The address of the shown numbers; attributions by layer are read at the input. */
export function addressOf(ctx: ViewContext): { address: MapAddress; isMap: boolean; recorded: boolean } {
  const { source, layer, head } = ctx.resolved();
  const method = source.method.replace(/:layers$/, "");
  const isMap = source.kind === "map" && method === source.method;
  const at = isMap ? { layer, head } : { layer: 0, head: "-" as const };
  const recorded = settings(ctx).recorded.includes(baseKey(method).split("#")[0] as string);
  return { address: { method, stack: source.stack, unit: source.unit, ...at }, isMap, recorded };
}

export const queriesOf = ({ keys, queries }: Texts): Columns => queries ?? keys;

/** The column that contains an element of the first text; -1: none. */
export function columnOf({ elements }: Columns, element: number): number {
  if (element < 0) return -1;
  let [low, column] = [0, -1];
  // Elements are in order: the last column that begins at or before the element.
  for (; low < elements.length; low += 1) {
    const first = elements[low]?.[0] ?? -1;
    if (first > element) break;
    if (first >= 0) column = low;
  }
  return column;
}

/** Whether both texts have elements in a column. */
export const hasBoth = ({ elements }: Columns, column: number): boolean => !elements[column]?.includes(-1);

const READ = new WeakMap<Answer<unknown>, Float32Array>();

/** The numbers of an answer, decoded once. */
function valuesOf(answer: Answer<unknown>): Float32Array {
  let values = READ.get(answer);
  if (!values) {
    const bytes = answer.buffers[0] as DataView;
    values = Float32Array.from({ length: bytes.byteLength / 4 }, (_, i) => bytes.getFloat32(4 * i, true));
    READ.set(answer, values);
  }
  return values;
}

/** Three rows of an answer to "rows". */
export function rowsIn(answer: Answer<RowsMeta>): Rows {
  const values = valuesOf(answer);
  const count = values.length / 3;
  return [0, 1, 2].map((i) => values.subarray(i * count, (i + 1) * count)) as unknown as Rows;
}

/** The rows of a query in an answer to "maps", which holds all columns. */
export function rowIn(answer: Answer<MapsMeta>, query: number): Rows {
  const values = valuesOf(answer);
  const [rows, cols] = answer.meta.shape;
  return [0, 1, 2].map((i) =>
    values.subarray((i * rows + query) * cols, (i * rows + query + 1) * cols),
  ) as unknown as Rows;
}

/** The three matrices of an answer to "maps". */
export function matricesIn(answer: Answer<MapsMeta>): Rows {
  const values = valuesOf(answer);
  const size = answer.meta.shape[0] * answer.meta.shape[1];
  return [0, 1, 2].map((i) => values.subarray(i * size, (i + 1) * size)) as unknown as Rows;
}
