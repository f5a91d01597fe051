/**
 * Load a model from the folder of its page: parts of its weights and its tokenizer, as classic scripts one after the
 * other. These load over http and from a file alike, where browsers refuse `fetch`, modules and workers.
 */
import { base64Bytes } from "../host/base64.ts";
import { Unreadable } from "./reader.ts";

type File = readonly [name: string, bytes: number, crc32: number];

/** Where the files of a model are; written by attnwidgets/views/page/live/packing.py. Sizes are those of decoded bytes. */
export interface Files {
  /** Relative to the page; the last folder is named as the model. */
  folder: string;
  parts: readonly File[];
  tokenizer: File;
  bytes: number;
}

/** Bytes that have arrived so far, and the error that stopped the download; "": no error. */
export interface Arrived {
  done: number;
  total: number;
  text: string;
}

type Tell = (arrived: Arrived) => void;

/** The functions that the scripts of a model call. */
interface Receivers {
  awPart?(model: string, part: number, base64: string): void;
  awTokenizer?(model: string, json: string): void;
}

/** Milliseconds after which the page names a part that has not arrived. */
const LATE_AFTER = 10_000;

/** Resolvers of pending scripts, by model and part. */
const awaited = new Map<string, (text: string) => void>();
const TOKENIZER = "tokenizer";

/** Let scripts deliver their data; a script that arrives after the reader stopped is dropped. */
function receive(): void {
  const receivers = globalThis as Receivers;
  receivers.awPart = (model, part, base64) => awaited.get(`${model}/${part}`)?.(base64);
  receivers.awTokenizer = (model, json) => awaited.get(`${model}/${TOKENIZER}`)?.(json);
}

/** The text that a script hands over under a key. */
function textOf(source: string, key: string, name: string, signal: AbortSignal): Promise<string> {
  const script = document.createElement("script");
  return new Promise<string>((arrived, fail) => {
    awaited.set(key, arrived);
    const missing = (): void => fail(new Unreadable(`${name} is missing, or cannot be read.`));
    script.onload = missing; // the script has run, and did not deliver the part
    script.onerror = missing;
    signal.addEventListener("abort", () => fail(signal.reason), { once: true });
    script.src = source;
    document.head.append(script);
  }).finally(() => {
    awaited.delete(key);
    script.remove();
  });
}

let table: Uint32Array | undefined;

/** The checksum of zlib and gzip. */
export function crc32(bytes: Uint8Array): number {
  table ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    let rest = byte;
    for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
    return rest;
  });
  let sum = 0xffffffff;
  for (let i = 0; i < bytes.length; i += 1) sum = table[(sum ^ bytes[i]!) & 255]! ^ (sum >>> 8);
  return ~sum >>> 0;
}

function checked(bytes: Uint8Array<ArrayBuffer>, [name, length, sum]: File): Uint8Array<ArrayBuffer> {
  if (bytes.length !== length || crc32(bytes) !== sum)
    throw new Unreadable(`${name} is damaged, or belongs to another model.`);
  return bytes;
}

/**
 * A download that resumes where it was stopped or failed. It resolves to the tokenizer as JSON.
 *
 * `put` takes the bytes of the file of weights from an offset on; rejects with `Unreadable` for a part that is missing
 * or damaged.
 */
export function createDownload(
  { folder, parts, tokenizer, bytes: total }: Files,
  put: (at: number, bytes: Uint8Array<ArrayBuffer>) => Promise<void>,
): (signal: AbortSignal, tell: Tell) => Promise<string> {
  const model = folder.split("/").at(-2) as string;
  let [next, done, failures] = [0, 0, 0];
  let json: string | undefined;
  const read = async ([name]: File, part: number | string, signal: AbortSignal, tell: Tell): Promise<string> => {
    // A retry uses another address, since browsers cache scripts.
    const again = failures > 0 && location.protocol !== "file:" ? `?again=${failures}` : "";
    const timer = setTimeout(() => tell({ done, total, text: `${name} does not arrive.` }), LATE_AFTER);
    return textOf(`${folder}${name}${again}`, `${model}/${part}`, name, signal).finally(() => clearTimeout(timer));
  };
  const all = async (signal: AbortSignal, tell: Tell): Promise<string> => {
    tell({ done, total, text: "" });
    if (json === undefined) {
      const text = await read(tokenizer, TOKENIZER, signal, tell);
      checked(new TextEncoder().encode(text), tokenizer);
      json = text;
    }
    for (let file = parts[next]; file; file = parts[next]) {
      const bytes = checked(base64Bytes(await read(file, next, signal, tell)), file);
      signal.throwIfAborted();
      await put(done, bytes);
      [next, done] = [next + 1, done + file[1]];
      tell({ done, total, text: "" });
      // The page stays usable: a part takes the browser some tenths of a second.
      await new Promise((turn) => setTimeout(turn));
      signal.throwIfAborted();
    }
    return json;
  };
  return (signal, tell) => {
    receive();
    return all(signal, tell).catch((error) => {
      failures += 1;
      throw error;
    });
  };
}
