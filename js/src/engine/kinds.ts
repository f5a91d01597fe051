/**
 * How the numbers of a tensor are packed, and where they are in a file of weights; the twin of
 * attnwidgets/views/page/live/kinds.py. Each tensor begins at a multiple of 16 bytes with its numbers; its scales, in
 * float16, begin at the next multiple of 16.
 */
/** Numbers along a row that share their scales. */
export const GROUP = 32;

/**
 * q8: int8 q with a scale s a group, q s. q4m: 4 bits q with a scale s and a least number m a group (interleaved), q s + m in
 * float32; the low halves of a group's 16 bytes are its numbers 0 to 15, the high halves 16 to 31.
 */
export const KINDS = {
  f32: { bits: 32, scales: 0 },
  f16: { bits: 16, scales: 0 },
  q8: { bits: 8, scales: 1 },
  q4m: { bits: 4, scales: 2 },
} as const;
export type Kind = keyof typeof KINDS;

/** A tensor of a model. Matrices are [to, from]; of vectors `to` is 1. */
export type PackedTensor = [name: string, kind: Kind, to: number, from: number];

/** A tensor in the file: addresses and lengths in bytes. */
export interface Stored {
  name: string;
  kind: Kind;
  to: number;
  from: number;
  at: number;
  bytes: number;
  scalesAt: number;
  scalesBytes: number;
}

const aligned = (at: number): number => (at + 15) & ~15;

/** Where the tensors of a model are in its file, and the length of the file. */
export function storedTensors(tensors: readonly PackedTensor[]): { tensors: Stored[]; bytes: number } {
  let end = 0;
  const stored = tensors.map(([name, kind, to, from]): Stored => {
    const packing = KINDS[kind];
    if (!packing) throw new TypeError(`The weights ${name} are packed as ${kind}, which this page does not read.`);
    if (packing.scales && from % GROUP)
      throw new TypeError(
        `The weights ${name} are packed as ${kind}, but their rows of ${from} are not groups of ${GROUP}.`,
      );
    const at = aligned(end);
    const bytes = (to * from * packing.bits) / 8;
    const scalesAt = aligned(at + bytes);
    const scalesBytes = ((to * from) / GROUP) * packing.scales * 2;
    end = scalesBytes ? scalesAt + scalesBytes : at + bytes;
    return { name, kind, to, from, at, bytes, scalesAt, scalesBytes };
  });
  return { tensors: stored, bytes: end };
}

/** Decode a 16-bit float. */
function number16(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

/** A table of all 65,536 numbers: a `DataView` a number would take a hundred times as long. */
let table: Float32Array | undefined;

/** Decode little-endian float16 numbers. Both arrays may share memory if `to` ends where `bytes` ends. */
export function widen(bytes: Uint8Array, to: Float32Array): void {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => number16(bits));
  const numbers = table;
  for (let i = 0, at = 0; i < to.length; i += 1, at += 2) to[i] = numbers[bytes[at]! | (bytes[at + 1]! << 8)]!;
}
