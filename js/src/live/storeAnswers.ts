/** Answers to a store's requests for matrices; the twin of attnwidgets/views/wire/handlers.py. */
import type { HeadKey, Placed, Reply, Request, TileMeta } from "../wire/wire.ts";
import type { LiveText } from "./liveText.ts";
import { Unreadable } from "./reader.ts";
import { thumbsOf, tileOf } from "./tiles.ts";

export type Answered<R> = [R, Uint8Array<ArrayBuffer>[]];

/** Float32 numbers as they travel. */
export const bytesOf = (values: Float32Array | Float64Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(values.slice().buffer as ArrayBuffer);

async function layerOf(
  text: LiveText,
  { id, source: name, layer, heads }: Extract<Request, { kind: "layer" }>,
): Promise<Answered<Reply>> {
  const source = text.source(name);
  const tiles: (TileMeta & Placed)[] = [];
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const refused: { head: HeadKey; message: string }[] = [];
  let offset = 0;
  for (const head of heads) {
    try {
      const [meta, data] = tileOf({ source: name, layer, head }, await text.matrix(source, layer, head), source.signed);
      tiles.push({ ...meta, offset, length: data.length });
      parts.push(data);
      offset += data.length;
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      refused.push({ head, message: error.message });
    }
  }
  const all = new Uint8Array(offset);
  for (const [i, part] of parts.entries()) all.set(part, (tiles[i] as Placed).offset);
  return [{ kind: "layer", id, source: name, layer, tiles, refused }, [all]];
}

/** Rejects with `Unreadable` where a page lacks an answer. */
export async function answerRequest(text: LiveText, request: Request): Promise<Answered<Reply>> {
  const { id, kind } = request;
  if (kind === "ping") return [{ kind: "pong", id }, []];
  if (kind === "cancel") throw new Unreadable("needs a running kernel");
  if (kind === "method") {
    await text.explain(request.source);
    return [{ kind: "made", id, source: request.source }, []];
  }
  if (kind === "layer") return layerOf(text, request);
  const source = text.source(request.source);
  if (kind === "thumbs") {
    const layers = await Promise.all(source.layers.map((layer) => text.matrices(source, layer)));
    const [meta, data] = thumbsOf(source.id, layers, text.axis(source), request.special, source.signed);
    return [{ kind, id, ...meta }, [data]];
  }
  const { layer, head } = request;
  const values = await text.matrix(source, layer, head);
  if (kind === "tile") {
    const [meta, data] = tileOf({ source: source.id, layer, head }, values, source.signed);
    return [{ kind, id, ...meta }, [data]];
  }
  const rows = source.signed ? 1 : Math.sqrt(values.length);
  const cols = values.length / rows;
  if (!(request.row >= 0 && request.row < rows)) throw new Unreadable(`row ${request.row} does not exist.`);
  const row = values.subarray(request.row * cols, (request.row + 1) * cols);
  return [{ kind, id, source: source.id, layer, head, row: request.row }, [bytesOf(row)]];
}
