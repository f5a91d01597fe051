/** Bytes written as text. */

/** The native decoder: Chromium 140, Firefox 133, Safari 18.2 and later. */
type Decoder = { fromBase64?(text: string): Uint8Array<ArrayBuffer> };

/** Decode a slice of base64 text; `offset` and `length` count decoded bytes. */
export function base64Slice(text: string, offset: number, length: number): Uint8Array<ArrayBuffer> {
  const first = Math.floor(offset / 3);
  const last = Math.ceil((offset + length) / 3);
  const part = text.slice(4 * first, 4 * last);
  const skip = offset - 3 * first;
  const all = (Uint8Array as Decoder).fromBase64?.(part);
  if (all) return all.subarray(skip, skip + length);
  const binary = atob(part);
  const out = new Uint8Array(length);
  for (let i = 0; i < length; i += 1) out[i] = binary.charCodeAt(skip + i);
  return out;
}

/** Decode base64 text. */
export function base64Bytes(text: string): Uint8Array<ArrayBuffer> {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return base64Slice(text, 0, (text.length / 4) * 3 - padding);
}
