/**
 * A page without a kernel: the same views, over models stored in the page. This host answers the store's requests from
 * the page's archive, as the kernel would, and says so if the file lacks an answer.
 */
import type { AnyModel, Host } from "@anywidget/types";
import type { ViewProps } from "../context.ts";
import { createRenderers, type PartCode } from "../runtime.ts";
import type {
  HeadKey,
  Placed,
  Question,
  QuestionReply,
  Reply,
  Request,
  Thumbs,
  TileMeta,
  ViewState,
} from "../wire/wire.ts";

type State = Record<string, unknown>;
type Listener = (...args: never[]) => void;

/** What a page holds in addition to the eager bytes of a store. */
interface Archive {
  tiles: (TileMeta & Placed)[];
  thumbs: (Thumbs & Placed)[];
}

/** An answer of a view's Python twin, recorded when the page was written. */
interface RecordedAnswer {
  topic: string;
  args: Record<string, unknown>;
  meta: unknown;
  buffers: Placed[];
}

interface Page {
  version: number;
  models: Record<string, { kind: "store" | "selection" | "view"; view?: string; state: State }>;
  views: string[];
  archive: Record<string, Archive["tiles"]>;
  thumbs: Record<string, Archive["thumbs"]>;
  answers: Record<string, RecordedAnswer[]>;
}

/** A model with the interface of ipywidgets: change events when a value differs, and messages. */
class PageModel {
  readonly #state: State;
  readonly #listeners = new Map<string, Set<Listener>>();
  onSend: (request: Request | Question) => void = () => undefined;

  constructor(state: State) {
    this.#state = state;
  }

  get(key: string): unknown {
    return this.#state[key];
  }

  set(key: string, value: unknown): void {
    const old = this.#state[key];
    if (old === value || (!ArrayBuffer.isView(value) && JSON.stringify(old) === JSON.stringify(value))) return;
    this.#state[key] = value;
    this.emit(`change:${key}`);
    this.emit("change");
  }

  on(name: string, callback: Listener): void {
    const known = this.#listeners.get(name);
    if (known) known.add(callback);
    else this.#listeners.set(name, new Set([callback]));
  }

  off(name: string, callback: Listener): void {
    this.#listeners.get(name)?.delete(callback);
  }

  emit(name: string, ...args: unknown[]): void {
    for (const callback of [...(this.#listeners.get(name) ?? [])]) callback(...(args as never[]));
  }

  /** The model as one view sees it: its listeners are removed when the signal aborts. */
  proxy(signal: AbortSignal): AnyModel {
    return {
      get: (key: string) => this.get(key),
      set: (key: string, value: unknown) => this.set(key, value),
      save_changes: () => undefined,
      send: (request: Request | Question) => this.onSend(request),
      on: (name: string, callback: Listener) => {
        this.on(name, callback);
        signal.addEventListener("abort", () => this.off(name, callback));
      },
      off: (name: string, callback: Listener) => this.off(name, callback),
    } as unknown as AnyModel;
  }
}

/** Decode a slice of base64 text; `offset` and `length` count decoded bytes. */
export function base64Slice(text: string, offset: number, length: number): Uint8Array<ArrayBuffer> {
  const first = Math.floor(offset / 3);
  const last = Math.ceil((offset + length) / 3);
  const binary = atob(text.slice(4 * first, 4 * last));
  const skip = offset - 3 * first;
  const out = new Uint8Array(length);
  for (let i = 0; i < length; i += 1) out[i] = binary.charCodeAt(skip + i);
  return out;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<DataView<ArrayBuffer>> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new DataView(await new Response(stream).arrayBuffer());
}

/** Decoded length of base64 text. */
function decodedLength(text: string): number {
  return (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
}

function textOf(id: string): string {
  return document.getElementById(id)?.textContent?.replace(/\s+/g, "") ?? "";
}

const MISSING = "not in this file; open the notebook with a kernel to see it";

/** Answer a store's request from the archive; `bytes` reads its base64 text. */
async function answerRequest(request: Request, archive: Archive, bytes: () => string): Promise<[Reply, DataView[]]> {
  const { id, kind } = request;
  if (kind === "ping") return [{ kind: "pong", id }, []];
  const refused = (message: string): [Reply, DataView[]] => [{ kind: "error", id, message, needsKernel: true }, []];
  if (kind === "row") return refused("exact values need a running kernel");
  if (kind === "method" || kind === "cancel") return refused("needs a running kernel");
  const archivedTile = ({ source, layer, head }: Pick<TileMeta, "source" | "layer" | "head">) =>
    archive.tiles.find((t) => t.source === source && t.layer === layer && t.head === head);
  if (kind === "layer") {
    const { source, layer, heads } = request;
    const tiles: (TileMeta & Placed)[] = [];
    const refused: { head: HeadKey; message: string }[] = [];
    const parts: BlobPart[] = [];
    let length = 0;
    for (const head of heads) {
      const tile = archivedTile({ source, layer, head });
      if (!tile) {
        refused.push({ head, message: MISSING });
        continue;
      }
      const data = await inflate(base64Slice(bytes(), tile.offset, tile.length));
      tiles.push({ ...tile, offset: length, length: data.byteLength });
      parts.push(data);
      length += data.byteLength;
    }
    return [{ kind, id, source, layer, tiles, refused }, [new DataView(await new Blob(parts).arrayBuffer())]];
  }
  const entry = kind === "thumbs" ? archive.thumbs.find((t) => t.source === request.source) : archivedTile(request);
  if (!entry) return refused(MISSING);
  const { offset, length, ...meta } = entry;
  return [{ kind, id, ...meta } as Reply, [await inflate(base64Slice(bytes(), offset, length))]];
}

/** Answer a view's question from the answers recorded in the page. */
async function answerQuestion(
  question: Question,
  recorded: RecordedAnswer[],
  bytes: () => string,
): Promise<[QuestionReply, DataView[]]> {
  const { id } = question;
  const recordedAnswer =
    question.kind === "ask" &&
    recorded.find(
      ({ topic, args }) => topic === question.topic && JSON.stringify(args) === JSON.stringify(question.args),
    );
  if (!recordedAnswer) return [{ kind: "error", id, message: "not in this file; it needs a running kernel" }, []];
  const buffers = recordedAnswer.buffers.map(({ offset, length }) => inflate(base64Slice(bytes(), offset, length)));
  return [{ kind: "answer", id, meta: recordedAnswer.meta }, await Promise.all(buffers)];
}

async function start(): Promise<void> {
  const page = JSON.parse(document.getElementById("aw-state")?.textContent ?? "null") as Page | null;
  if (!page) return;
  const models = new Map<string, PageModel>();
  await Promise.all(
    Object.entries(page.models).map(async ([id, { kind, state }]) => {
      if (kind === "store") {
        const text = textOf(`aw-data-${id}`);
        state.eager = text
          ? await inflate(base64Slice(text, 0, decodedLength(text)))
          : new DataView(new ArrayBuffer(0));
      }
      const model = new PageModel(state);
      models.set(id, model);
      if (kind === "selection") return;
      let bytes: string | null = null;
      const read = (): string => {
        bytes ??= textOf(`aw-tiles-${id}`);
        return bytes;
      };
      const archive = { tiles: page.archive[id] ?? [], thumbs: page.thumbs?.[id] ?? [] };
      model.onSend = (request) => {
        (kind === "store"
          ? answerRequest(request as Request, archive, read)
          : answerQuestion(request as Question, page.answers?.[id] ?? [], read)
        )
          .catch((): [Reply, DataView[]] => {
            const message = "this could not be read from the file";
            return [{ kind: "error", id: request.id, message }, []];
          })
          .then(([reply, buffers]) => model.emit("msg:custom", reply, buffers));
      };
    }),
  );
  const renderers = createRenderers();
  for (const code of (globalThis as { awParts?: PartCode[] }).awParts ?? []) renderers.add(code);
  const named = (ref: string): PageModel => {
    const model = models.get(ref.replace(/^anywidget:/, ""));
    if (!model) throw new Error(`this page has no model ${ref}`);
    return model;
  };
  for (const el of document.querySelectorAll<HTMLElement>(".aw-view[data-model]")) {
    const id = el.dataset.model ?? "";
    const name = page.models[id]?.view;
    if (!name) continue;
    const { signal } = new AbortController();
    const host = {
      getModel: async (ref: string) => named(ref).proxy(signal),
    } as unknown as Host;
    const model = named(id).proxy(signal) as unknown as AnyModel<ViewState>;
    const props: ViewProps = { model, el, signal, host };
    void renderers.render(props, name);
  }
}

if (typeof document !== "undefined") {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => void start());
  else void start();
}
