/** Bytes that were compressed by zlib. */

/** Several blocks joined to a single block. */
export function joined(parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Inflate bytes without a `Blob` or a `Response`, each of which would cost messages between processes. */
export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // Damaged bytes cause reading to fail as well, which the caller handles.
  for (const written of [writer.write(bytes), writer.close()]) written.catch(() => undefined);
  const reader = readable.getReader();
  const parts: Uint8Array[] = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
  return joined(parts);
}
