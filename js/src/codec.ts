/** Decoding tiles: codes to values, and values to as many digits as the code can stand for. */
import type { Codes, Tile } from "./context.ts";
import type { Codec, TileMeta } from "./wire.ts";

/** Bytes of one encoded tile. */
export function encodedLength(meta: TileMeta): number {
  return meta.codec === "u8tri" ? (meta.rows * (meta.rows + 1)) / 2 : meta.rows * meta.cols;
}

/** Largest code of a codec. */
export function topCode(codec: Codec): number {
  return codec === "i8" ? 127 : 255;
}

/** Unpack a lower triangle (row-major, diagonal included) into n * n with zeros above the diagonal. */
export function unpackTriangle(packed: Uint8Array, n: number): Uint8Array {
  const full = new Uint8Array(n * n);
  let from = 0;
  for (let row = 0; row < n; row += 1) {
    full.set(packed.subarray(from, from + row + 1), row * n);
    from += row + 1;
  }
  return full;
}

/** value = sign * (|code| / top) ** (1 / gamma) * scale */
export function decodeCode(code: number, top: number, gamma: number, scale: number): number {
  return Math.sign(code) * (Math.abs(code) / top) ** (1 / gamma) * scale;
}

/** Half the distance to the neighbouring codes: how far the true value may lie from the decoded one. */
export function codeError(code: number, top: number, gamma: number, scale: number): number {
  const size = Math.abs(code);
  const above = Math.min(top, size + 0.5);
  const below = Math.max(0, size - 0.5);
  const value = decodeCode(size, top, gamma, scale);
  return Math.max(decodeCode(above, top, gamma, scale) - value, value - decodeCode(below, top, gamma, scale));
}

/** A number with the digits that an error of `error` leaves standing; at least one significant digit. */
export function withinError(value: number, error: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const decimals = error > 0 ? Math.floor(-Math.log10(error)) : 6;
  const leading = Math.ceil(-Math.log10(size));
  if (size < 1e-4 || size >= 1e6) return signed(value, size.toExponential(size < 1e-4 ? 0 : 1));
  return signed(value, size.toFixed(Math.max(0, Math.min(8, Math.max(decimals, leading)))));
}

/** An exact number for reading: four significant digits, no trailing noise. */
export function exactText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return signed(value, size.toExponential(2));
  return signed(value, String(Number(size.toPrecision(4))));
}

function signed(value: number, text: string): string {
  return value < 0 ? `−${text}` : text;
}

class DecodedTile implements Tile {
  readonly meta: TileMeta;
  readonly codes: Codes;
  readonly #values: Float32Array;

  constructor(meta: TileMeta, codes: Codes) {
    this.meta = meta;
    this.codes = codes;
    this.#values = valueTable(meta.codec === "i8", meta.gamma, meta.scale);
  }

  get rows(): number {
    return this.meta.rows;
  }

  get cols(): number {
    return this.meta.cols;
  }

  value(row: number, col: number): number {
    return this.#values[(this.codes[row * this.meta.cols + col] ?? 0) & 255] ?? 0;
  }

  text(row: number, col: number): string {
    const code = this.codes[row * this.meta.cols + col] ?? 0;
    const { gamma, scale, codec } = this.meta;
    const top = topCode(codec);
    return withinError(decodeCode(code, top, gamma, scale), codeError(code, top, gamma, scale));
  }
}

/** Values of the 256 bytes a code can be (int8 codes by their byte). */
export function valueTable(isSigned: boolean, gamma: number, scale: number): Float32Array {
  const table = new Float32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    const code = isSigned ? (byte << 24) >> 24 : byte;
    table[byte] = decodeCode(code, isSigned ? 127 : 255, gamma, scale);
  }
  return table;
}

/** A tile from its bytes, or null when they are not what the header promises (a truncated message). */
export function decodeTile(meta: TileMeta, bytes: DataView): Tile | null {
  if (bytes.byteLength !== encodedLength(meta)) return null;
  if (meta.codec === "u8tri" && meta.rows !== meta.cols) return null;
  // A copy: the message's buffer may be shared with other tiles and would be kept alive whole.
  const raw = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice();
  const codes: Codes =
    meta.codec === "i8" ? new Int8Array(raw.buffer) : meta.codec === "u8tri" ? unpackTriangle(raw, meta.rows) : raw;
  return new DecodedTile(meta, codes);
}
