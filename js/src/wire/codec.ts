/** Decoding tiles: codes to values, and values to text with the digits that the code supports. */

import { withinError } from "../numbers.ts";
import type { Codes, ThumbSheet, Tile } from "./tile.ts";
import type { AnyTileMeta, Thumbs, TileMeta } from "./wire.ts";

/** The code of a hidden cell: filtered out, or not readable by its row. It is not zero. */
export const HIDDEN = 256;
/** The same in transmitted signed codes. */
const UNREAD = -128;
/** Its text. */
export const LATER = "comes later";
/** The text of a cell whose row was not compared with its key: no weight, rather than a weight of zero. */
export const NOT_COMPARED = "not compared";

/** Bytes of an encoded tile. */
export function encodedLength(meta: TileMeta): number {
  return meta.codec === "u8tri" ? (meta.rows * (meta.rows + 1)) / 2 : meta.rows * meta.cols;
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

/**
 * The largest difference between the true and the decoded value: half the distance to the neighbouring codes, and `slack`
 * codes more.
 */
export function codeError(code: number, top: number, gamma: number, scale: number, slack = 0): number {
  const size = Math.abs(code);
  const above = Math.min(top, size + 0.5 + slack);
  const below = Math.max(0, size - 0.5 - slack);
  const value = decodeCode(size, top, gamma, scale);
  return Math.max(decodeCode(above, top, gamma, scale) - value, value - decodeCode(below, top, gamma, scale));
}

/** Largest |code|. */
export function peakCode(codes: Codes): number {
  let [low, high] = [0, 0];
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i] as number;
    if (code > high && code !== HIDDEN) high = code;
    else if (code < low) low = code;
  }
  return Math.max(-low, high);
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

const UNPACKED = new WeakMap<AnyTileMeta, Uint8Array>();

/** Which keys each row may read, 1 or 0 for every cell; undefined where these are all, or all but the later keys. */
export function comparedIn(meta: AnyTileMeta): Uint8Array | undefined {
  if (!meta.compared) return undefined;
  let cells = UNPACKED.get(meta);
  if (!cells) {
    const bits = atob(meta.compared);
    cells = Uint8Array.from({ length: meta.rows * meta.cols }, (_, i) => (bits.charCodeAt(i >> 3) >> (i & 7)) & 1);
    UNPACKED.set(meta, cells);
  }
  return cells;
}

/** A tile from its bytes, or null if they do not match the header (a truncated message). */
export function decodeTile(meta: AnyTileMeta, bytes: DataView): Tile | null {
  const { rows: high, cols: wide, codec, gamma, scale, whole, slack } = meta;
  const [rows, cols] = whole ?? [high, wide];
  const packed = codec === "u8tri";
  const length = encodedLength(meta);
  if (bytes.byteLength !== length + (whole ? 4 * cols : 0) || (packed && high !== wide)) return null;
  // A copy: the buffer of the message may be shared with other tiles, and would stay in memory as a whole.
  const raw = new Uint8Array(bytes.buffer, bytes.byteOffset, length).slice();
  const isSigned = codec === "i8";
  let codes: Codes = isSigned ? new Int8Array(raw.buffer) : packed ? unpackTriangle(raw, high) : raw;
  const compared = comparedIn(meta);
  if (compared) codes = Int16Array.from(codes, (code, i) => (compared[i] ? code : HIDDEN));
  else if (isSigned && codes.includes(UNREAD))
    codes = Int16Array.from(codes, (code) => (code === UNREAD ? HIDDEN : code));
  const top = isSigned ? 127 : 255;
  const values = valueTable(isSigned, gamma, scale);
  // Cells per code: 1, unless the tile is coarse.
  const [down, across] = [Math.ceil(rows / high), Math.ceil(cols / wide)];
  const codeAt = (row: number, col: number): number =>
    codes[Math.floor(row / down) * wide + Math.floor(col / across)] ?? 0;
  let peak: number | undefined;
  let received: Float32Array | undefined =
    whole && Float32Array.from({ length: cols }, (_, i) => bytes.getFloat32(length + 4 * i, true));
  return {
    meta,
    rows,
    cols,
    codes,
    value(row, col) {
      const code = codeAt(row, col);
      return code === HIDDEN ? Number.NaN : (values[code & 255] as number);
    },
    text(row, col) {
      const code = codeAt(row, col);
      if (code === HIDDEN) return compared ? NOT_COMPARED : LATER;
      const error = codeError(code, top, gamma, scale, slack);
      const words = withinError(decodeCode(whole ? Math.abs(code) : code, top, gamma, scale), error);
      return !whole || words.startsWith("<") || code === 0 ? words : `${isSigned ? "±" : ""}${words} or less`;
    },
    peak() {
      peak ??= decodeCode(peakCode(codes), top, gamma, scale);
      return peak;
    },
    received() {
      // The mean over all queries: those that were not compared with a key give it nothing.
      received ??= meanOfColumns(codes, high, wide, values, !compared);
      return received;
    },
  };
}

/** The mean of each column, over all rows or over those whose cell is not hidden (`ofSeen`). A separate function because it is hot. */
function meanOfColumns(codes: Codes, rows: number, cols: number, values: Float32Array, ofSeen: boolean): Float32Array {
  const sums = new Float64Array(cols);
  const seen = new Uint32Array(cols);
  const someHidden = codes instanceof Int16Array;
  for (let row = 0, at = 0; row < rows; row += 1) {
    for (let col = 0; col < cols; col += 1, at += 1) {
      const code = codes[at] as number;
      if (someHidden) {
        if (code === HIDDEN) continue;
        seen[col] = (seen[col] as number) + 1;
      }
      sums[col] = (sums[col] as number) + (values[code & 255] as number);
    }
  }
  return Float32Array.from(sums, (sum, col) => sum / (someHidden && ofSeen ? (seen[col] as number) : rows));
}

/** Thumbnails from their bytes, or null if their number differs from the header's. */
export function decodeThumbs(meta: Thumbs, bytes: DataView): ThumbSheet | null {
  if (bytes.byteLength !== meta.scale.flat().length * meta.rows * meta.cols) return null;
  const Numbers = meta.signed ? Int8Array : Uint8Array;
  return { meta, codes: new Numbers(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength) };
}
