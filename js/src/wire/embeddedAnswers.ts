/** Answers embedded in a view for its first requests, cut out of a block of bytes. */
import type { Opening } from "./viewState.ts";

/** An answer from Python: JSON and buffers. */
export interface Answer<T> {
  meta: T;
  buffers: DataView[];
}

export interface EmbeddedAnswer {
  topic: string;
  args: Record<string, unknown>;
  answer: Answer<unknown>;
}

/** Unpack `ViewState.opening`. */
export function unpackAnswers(packed: DataView | null | undefined): EmbeddedAnswer[] {
  if (!packed?.byteLength) return [];
  let at = packed.byteOffset + 4;
  const next = (length: number): DataView => {
    at += length;
    return new DataView(packed.buffer.slice(at - length, at)); // a copy, so that numbers are aligned
  };
  const openings: Opening[] = JSON.parse(new TextDecoder().decode(next(packed.getUint32(0, true))));
  return openings.map(({ topic, args, meta, lengths }) => ({
    topic,
    args,
    answer: { meta, buffers: lengths.map(next) },
  }));
}
