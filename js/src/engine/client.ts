/**
 * The page's interface to an engine, which runs in the page itself for small models, and otherwise in a worker.
 * Requests run one after the other, in their order.
 */
import type { Engine } from "./engine.ts";
import {
  type About,
  aboutOf,
  buffersIn,
  type Call,
  type FromWorker,
  type OnToken,
  type Port,
  serve,
  type ToWorker,
} from "./serve.ts";
import type { Continuation, Edits, Outputs, PackedModel, Pass, Relevance, Rule, Sampling, Target } from "./types.ts";

export interface EngineClient {
  /** Transfer a part of the file of weights that begins at a byte; the page can no longer use the bytes. */
  load(at: number, bytes: Uint8Array): Promise<void>;
  pass(ids: readonly number[], edits: Edits, outputs: Outputs): Promise<Pass>;
  relevance(ids: readonly number[], edits: Edits, target: Target, rule: Rule): Promise<Relevance>;
  /**
   * Continue a text. Generation stops when `onToken` returns false, and waits for a returned promise before the next
   * token.
   */
  continued(ids: readonly number[], sampling: Sampling, onToken: OnToken): Promise<Continuation>;
  about(): About;
  /** Requests that wait fail; the weights are freed. */
  close(): void;
}

type Ask = (call: Call, onToken?: OnToken) => Promise<unknown>;

/** A client that runs one request after the other. */
function inOrder(ask: Ask, about: About, close: () => void): EngineClient {
  let last: Promise<unknown> = Promise.resolve();
  let closed = false;
  const next: Ask = (call, onToken) => {
    const answer = last.then(() => {
      if (closed) throw new Error("The model was closed.");
      return ask(call, onToken);
    });
    last = answer.catch(() => {});
    return answer;
  };
  return {
    load: async (at, bytes) => {
      await next({ name: "load", at, bytes });
    },
    pass: (ids, edits, outputs) => next({ name: "pass", ids, edits, outputs }) as Promise<Pass>,
    relevance: (ids, edits, target, rule) =>
      next({ name: "relevance", ids, edits, target, rule }) as Promise<Relevance>,
    continued: (ids, sampling, onToken) => next({ name: "continued", ids, sampling }, onToken) as Promise<Continuation>,
    about: () => about,
    close() {
      closed = true;
      close();
    },
  };
}

/** An engine in this thread. */
export function localClient(engine: Engine): EngineClient {
  return inOrder(
    (call, onToken = () => {}) => serve(engine, call, onToken),
    aboutOf(engine),
    () => {},
  );
}

/** An engine at the other end of a port, which `listen` serves. */
export async function portClient(port: Port, packed: PackedModel, close: () => void): Promise<EngineClient> {
  let count = 0;
  let settle: { id: number; resolve(value: unknown): void; reject(error: Error): void } | null = null;
  let tell: OnToken = () => {};
  const send = (message: ToWorker): void => port.postMessage(message, "call" in message ? partsIn(message.call) : []);
  port.onmessage = async ({ data }: MessageEvent<FromWorker>) => {
    if ("token" in data) send({ goes: (await tell(data.token, data.log)) !== false });
    else if (data.id === settle?.id) {
      if ("error" in data) settle.reject(new Error(data.error));
      else settle.resolve(data.value);
    }
  };
  const fail = (message: string): void => settle?.reject(new Error(message));
  (port as { onerror?: unknown }).onerror = (event: ErrorEvent) => fail(event.message ?? "The worker stopped.");
  const ask: Ask = (call, onToken = () => {}) =>
    new Promise((resolve, reject) => {
      count += 1;
      settle = { id: count, resolve, reject };
      tell = onToken;
      send({ id: count, call });
    });
  const about = (await ask({ name: "open", packed })) as About;
  return inOrder(ask, about, () => {
    close();
    fail("The model was closed.");
  });
}

/** Only bytes of the file are handed over: edits are used again. */
const partsIn = (call: Call): ArrayBuffer[] => (call.name === "load" ? buffersIn(call.bytes) : []);

/** An engine in a worker; `source` is the text of static/engine.js. A blob works from a folder, too, where files do not. */
export async function workerClient(source: string, packed: PackedModel): Promise<EngineClient> {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(address);
  const close = (): void => {
    worker.terminate();
    URL.revokeObjectURL(address);
  };
  try {
    return await portClient(worker as unknown as Port, packed, close);
  } catch (error) {
    close();
    throw error;
  }
}
