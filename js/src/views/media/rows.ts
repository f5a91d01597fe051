/** The elements that an element reads, or that read it, in every layer and head: the answers "reads" and "readers". */
import { valueTable } from "../../wire/codec.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import type { HeadKey } from "../../wire/wire.ts";

/** Elements that follow each other, as [first, count], or any, as [numbers]. */
type Runs = [number, number] | [number[]];

/** The twin of `packed_values` in attnwidgets/views/media/handlers.py. */
export interface PatchRowsMeta {
  layers: number[];
  heads: number;
  grid: [number, number];
  patches: Runs;
  others: Runs;
  signed: boolean;
  exact: boolean;
}

export interface PatchRows {
  layers: readonly number[];
  heads: number;
  grid: readonly [number, number];
  /** The element of every patch, row by row, and the other elements. */
  patches: readonly number[];
  others: readonly number[];
  /** Values of patches of a layer, by its index, and a head, by its index or a reduction over heads. */
  map(layer: number, head: HeadKey): Float32Array;
  /** Values of the other elements. */
  rest(layer: number, head: HeadKey): Float32Array;
  /** The exact sum over patches. */
  sum(layer: number, head: HeadKey): number;
  /** The largest magnitude among patches; NaN without such a head. */
  peak(layer: number, head: HeadKey): number;
}

const GAMMA = 0.5;
const READ = new WeakMap<Answer<PatchRowsMeta>, PatchRows>();

const elements = ([first, count]: Runs): readonly number[] =>
  typeof first === "number" ? Array.from({ length: count as number }, (_, i) => first + i) : first;

const floats = (bytes: DataView | undefined): Float32Array =>
  Float32Array.from({ length: (bytes?.byteLength ?? 0) >> 2 }, (_, i) => (bytes as DataView).getFloat32(4 * i, true));

/** Read an answer; decoded once, each map on first use. */
export function readRows(answer: Answer<PatchRowsMeta>): PatchRows {
  const cached = READ.get(answer);
  if (cached) return cached;
  const { meta, buffers } = answer;
  const [codes, scaleBytes, sumBytes, restBytes, restScale] = buffers;
  const [patches, others] = [elements(meta.patches), elements(meta.others)];
  const [scale, sums] = [floats(scaleBytes), floats(sumBytes)];
  const restScales = floats(restScale);
  const exact = meta.exact ? floats(restBytes) : null;
  const all = Array.from({ length: meta.heads }, (_, i) => i);
  const decoded = new Map<string, Float32Array>();
  const decode = (from: DataView | undefined, count: number, at: number, top: number): Float32Array => {
    const values = valueTable(meta.signed, GAMMA, Number.isNaN(top) ? 0 : top);
    const out = new Float32Array(count);
    if (from) for (let i = 0; i < count; i += 1) out[i] = values[from.getUint8(at * count + i)] as number;
    return out;
  };
  /** Of a head, or reduced over those that there are. */
  const reduced = (layer: number, head: HeadKey, kind: string, mapAt: (at: number) => Float32Array): Float32Array => {
    const name = `${kind} ${layer} ${head}`;
    let values = decoded.get(name);
    if (values) return values;
    if (head === "mean" || head === "max") {
      const there = all.map((index) => layer * meta.heads + index).filter((at) => !Number.isNaN(scale[at]));
      const maps = there.map(mapAt);
      values = Float32Array.from(maps[0] ?? [], (_, i) => {
        const column = maps.map((map) => map[i] as number);
        return head === "max" ? Math.max(...column) : column.reduce((a, b) => a + b, 0) / column.length;
      });
    } else values = mapAt(layer * meta.heads + (head === "-" ? 0 : head));
    decoded.set(name, values);
    return values;
  };
  const rows: PatchRows = {
    layers: meta.layers,
    heads: meta.heads,
    grid: meta.grid,
    patches,
    others,
    map: (layer, head) =>
      reduced(layer, head, "patches", (at) => decode(codes, patches.length, at, scale[at] as number)),
    rest: (layer, head) =>
      reduced(layer, head, "rest", (at) =>
        exact
          ? exact.subarray(at * others.length, (at + 1) * others.length)
          : decode(restBytes, others.length, at, restScales[at] as number),
      ),
    sum: (layer, head) => reduced(layer, head, "sum", (at) => sums.subarray(at, at + 1))[0] ?? 0,
    peak: (layer, head) =>
      typeof head === "number" || head === "-"
        ? (scale[layer * meta.heads + (head === "-" ? 0 : head)] ?? Number.NaN)
        : rows.map(layer, head).reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0),
  };
  READ.set(answer, rows);
  return rows;
}
