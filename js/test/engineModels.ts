/** Random tensors as tests/views/engine_models.py makes them, packed as in a file of weights. */
import { storedTensors } from "../src/engine/kinds.ts";
import type { PackedModel } from "../src/engine/types.ts";

/** Whole numbers below 2**31 - 1 (Park and Miller 1988). */
export function randomBits(count: number, seed: number): number[] {
  let state = (1_000_003 * (seed + 1)) % 2_147_483_647;
  return Array.from({ length: count }, () => {
    state = (state * 16_807) % 2_147_483_647;
    return state;
  });
}

/** How a tensor is made: its seed, and offset and scale of float32 numbers. */
export type Recipe = [seed: number, offset: number, scale: number];

/** The file of weights of a model. */
export function fileOf(packed: PackedModel, recipes: readonly Recipe[]): Uint8Array {
  const { tensors, bytes } = storedTensors(packed.tensors);
  const file = new Uint8Array(bytes);
  const view = new DataView(file.buffer);
  tensors.forEach(({ kind, to, from, at, scalesAt, scalesBytes }, i) => {
    const [seed, offset, scale] = recipes[i]!;
    const bits = randomBits(to * from, seed);
    const groupBits = randomBits(scalesBytes / 2, seed + 5_000);
    bits.forEach((one, j) => {
      if (kind === "f32") view.setFloat32(at + 4 * j, offset + (one / 2_147_483_647 - 0.5) * scale, true);
      else if (kind === "f16")
        view.setUint16(at + 2 * j, ((one & 1) << 15) | ((10 + ((one >> 1) % 3)) << 10) | ((one >> 8) & 1023), true);
      else if (kind === "q8") view.setInt8(at + j, (one % 255) - 127);
      else {
        const byte = at + (j >> 5) * 16 + (j & 15);
        file[byte] = file[byte]! | (((one >> 4) & 15) << (j & 16 ? 4 : 0));
      }
    });
    groupBits.forEach((one, j) => {
      const fraction = (one >> 8) & 1023;
      const top = kind === "q8" ? 5 + (one % 2) : j % 2 ? 32 + 12 : 9;
      view.setUint16(scalesAt + 2 * j, (top << 10) | fraction, true);
    });
  });
  return file;
}
