/** The weights of a live model, unpacked from float16. */
import type { Model, Shape } from "./forward.ts";

/** A model as a page holds it: names and sizes of its tensors in the order in which they follow each other. */
export interface PackedModel {
  shape: Shape;
  layers: number;
  tensors: [name: string, count: number][];
}

/** The number that 16 bits stand for. */
function number16(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

/** A table of all 65,536 numbers: a `DataView` a number would take a hundred times as long. */
let table: Float32Array | undefined;

/** Unpack little-endian float16 numbers. Names of a layer begin with its number: "0.q". */
export function unpackModel({ shape, layers, tensors }: PackedModel, bytes: Uint8Array): Model {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => number16(bits));
  const known = table;
  const model: Model = { ...shape, weights: {}, layers: Array.from({ length: layers }, () => ({})) };
  let at = 0;
  for (const [name, count] of tensors) {
    const values = new Float32Array(count);
    for (let i = 0; i < count; i += 1, at += 2) values[i] = known[bytes[at]! | (bytes[at + 1]! << 8)]!;
    const [layer, own] = name.split(".");
    if (own) model.layers[Number(layer)]![own] = values;
    else model.weights[name] = values;
  }
  return model;
}
