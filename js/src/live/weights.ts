/** The weights of a live model, unpacked; as attnwidgets/views/page/live/kinds.py packs them. */
import type { Model, Shape } from "./forward.ts";

/** A model as a page holds it: its tensors in the order in which they follow each other. */
export interface PackedModel {
  shape: Shape;
  layers: number;
  /** Matrices are [to, from]; `to` of a vector is 1. */
  tensors: [name: string, kind: Kind, to: number, from: number][];
}

type Kind = "f32" | "f16" | "q8" | "q4m";

/** Numbers that share a scale. */
const GROUP = 32;
/** Bytes of the numbers, and of the scales of each group. */
const SIZES: Record<Kind, [number: number, scales: number]> = { f32: [4, 0], f16: [2, 0], q8: [1, 2], q4m: [0.5, 4] };

/** The number that 16 bits stand for. */
function number16(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

/** A table of all 65,536 numbers: a `DataView` a number would take a hundred times as long. */
let table: Float32Array | undefined;

function halves(bytes: Uint8Array, at: number, count: number): Float32Array {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => number16(bits));
  const all = table;
  return Float32Array.from({ length: count }, (_, i) => all[bytes[at + 2 * i]! | (bytes[at + 2 * i + 1]! << 8)]!);
}

function unpacked(kind: Kind, count: number, bytes: Uint8Array, at: number, scalesAt: number): Float32Array {
  if (kind === "f16") return halves(bytes, at, count);
  if (kind === "f32") return new Float32Array(bytes.slice(at, at + 4 * count).buffer);
  const scales = halves(bytes, scalesAt, ((count / GROUP) * SIZES[kind][1]) / 2);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i += 1) {
    const [group, place] = [Math.floor(i / GROUP), i % GROUP];
    if (kind === "q8") values[i] = ((bytes[at + i]! << 24) >> 24) * scales[group]!;
    else {
      const pair = bytes[at + (group * GROUP) / 2 + (place % 16)]!;
      const code = place < 16 ? pair & 15 : pair >> 4;
      values[i] = Math.fround(code * scales[2 * group]!) + scales[2 * group + 1]!;
    }
  }
  return values;
}

const aligned = (at: number): number => Math.ceil(at / 16) * 16;

/** Unpack the tensors of a model. Names of a layer begin with its number: "0.q". */
export function unpackModel({ shape, layers, tensors }: PackedModel, bytes: Uint8Array): Model {
  const model: Model = { ...shape, weights: {}, layers: Array.from({ length: layers }, () => ({})) };
  let end = 0;
  for (const [name, kind, to, from] of tensors) {
    const [size, ofScales] = SIZES[kind];
    const at = aligned(end);
    const count = to * from;
    const scalesAt = aligned(at + count * size);
    end = ofScales ? scalesAt + (count / GROUP) * ofScales : at + count * size;
    const values = unpacked(kind, count, bytes, at, scalesAt);
    const [layer, own] = name.split(".");
    if (own) model.layers[Number(layer)]![own] = values;
    else model.weights[name] = values;
  }
  return model;
}
