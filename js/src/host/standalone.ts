/**
 * The page without a kernel: the same views over models that live in the page. It answers the store's requests
 * from the archive in the page, as the kernel would, and says so where the file does not hold the answer.
 */
import type { AnyModel, Host } from "@anywidget/types";
import type { ViewProps } from "../context.ts";
import { createRenderers } from "../runtime.ts";
import type { Placed, Reply, Request, Thumbs, TileMeta, ViewState } from "../wire.ts";

type State = Record<string, unknown>;
type Listener = (...args: never[]) => void;

/** What a page holds besides the eager bytes of a store. */
interface Archive {
  tiles: (TileMeta & Placed)[];
  thumbs: (Thumbs & Placed)[];
}

interface Page {
  version: number;
  models: Record<string, { kind: "store" | "selection" | "view"; view?: string; state: State }>;
  views: string[];
  archive: Record<string, Archive["tiles"]>;
  thumbs: Record<string, Archive["thumbs"]>;
}

/** A model as ipywidgets has it: change events when a value differs, and messages. */
class PageModel {
  readonly #state: State;
  readonly #listeners = new Map<string, Set<Listener>>();
  onSend: (request: Request) => void = () => undefined;

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

  /** The model for one view: what it listens to ends with its signal. */
  proxy(signal: AbortSignal): AnyModel {
    return {
      get: (key: string) => this.get(key),
      set: (key: string, value: unknown) => this.set(key, value),
      save_changes: () => undefined,
      send: (request: Request) => this.onSend(request),
      on: (name: string, callback: Listener) => {
        this.on(name, callback);
        signal.addEventListener("abort", () => this.off(name, callback));
      },
      off: (name: string, callback: Listener) => this.off(name, callback),
    } as unknown as AnyModel;
  }
}

/** Bytes of base64 text, from and to byte positions of the decoded data. */
export function base64Slice(text: string, offset: number, length: number): Uint8Array<ArrayBuffer> {
  const first = Math.floor(offset / 3);
  const last = Math.ceil((offset + length) / 3);
  const binary = atob(text.slice(4 * first, 4 * last));
  const skip = offset - 3 * first;
  const out = new Uint8Array(length);
  for (let i = 0; i < length; i += 1) out[i] = binary.charCodeAt(skip + i);
  return out;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<DataView> {
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

/** Answer a store's request from the archive; `bytes` reads its base64 text. */
async function answer(request: Request, archive: Archive, bytes: () => string): Promise<[Reply, DataView[]]> {
  const { id, kind } = request;
  if (kind === "ping") return [{ kind: "pong", id }, []];
  const refused = (message: string): [Reply, DataView[]] => [{ kind: "error", id, message, needsKernel: true }, []];
  if (kind === "row") return refused("exact values need a running kernel");
  if (kind === "method" || kind === "cancel") return refused("needs a running kernel");
  const found =
    kind === "thumbs"
      ? archive.thumbs.find((t) => t.source === request.source)
      : archive.tiles.find((t) => t.source === request.source && t.layer === request.layer && t.head === request.head);
  if (!found) return refused("not in this file; open the notebook with a kernel to see it");
  const { offset, length, ...meta } = found;
  return [{ kind, id, ...meta } as Reply, [await inflate(base64Slice(bytes(), offset, length))]];
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
      if (kind !== "store") return;
      let tiles: string | null = null;
      const read = (): string => {
        tiles ??= textOf(`aw-tiles-${id}`);
        return tiles;
      };
      model.onSend = (request) => {
        answer(request, { tiles: page.archive[id] ?? [], thumbs: page.thumbs?.[id] ?? [] }, read)
          .catch((): [Reply, DataView[]] => {
            const message = "this matrix could not be read from the file";
            return [{ kind: "error", id: request.id, message }, []];
          })
          .then(([reply, buffers]) => model.emit("msg:custom", reply, buffers));
      };
    }),
  );
  const renderers = createRenderers();
  const named = (ref: string): PageModel => {
    const model = models.get(ref.replace(/^anywidget:/, ""));
    if (!model) throw new Error(`this page has no model ${ref}`);
    return model;
  };
  for (const el of document.querySelectorAll<HTMLElement>(".aw-view[data-model]")) {
    const id = el.dataset.model ?? "";
    const render = renderers[page.models[id]?.view ?? ""];
    if (!render) continue;
    const { signal } = new AbortController();
    const host = {
      getModel: async (ref: string) => named(ref).proxy(signal),
      getWidget: async () => ({ exports: renderers, render: async () => undefined }),
    } as unknown as Host;
    const model = named(id).proxy(signal) as unknown as AnyModel<ViewState>;
    const props: ViewProps = { model, el, signal, host };
    void render(props);
  }
}

if (typeof document !== "undefined") {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => void start());
  else void start();
}
