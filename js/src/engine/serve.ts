/** Requests to an engine, in the page or in a worker. */
import { createEngine, type Engine } from "./engine.ts";
import type { Continuation, Edits, Outputs, PackedModel, Pass, Relevance, Rule, Sampling, Target } from "./types.ts";
import type { Modules } from "./wasm.ts";

/** Which kernels compute, the bytes of the weights' file, and why it is slow ("" where it is not). */
export type About = Pick<Engine, "backend" | "bytes" | "slow">;

/** A request. */
export type Call =
  | { name: "open"; packed: PackedModel }
  | { name: "load"; at: number; bytes: Uint8Array }
  | { name: "pass"; ids: readonly number[]; edits: Edits; outputs: Outputs }
  | { name: "relevance"; ids: readonly number[]; edits: Edits; target: Target; rule: Rule }
  | { name: "continued"; ids: readonly number[]; sampling: Sampling };
type Answer = About | Pass | Relevance | Continuation | null;

/** Whether a continuation should proceed after a token. */
export type OnToken = (id: number, log: number) => boolean | void | Promise<boolean | void>;

export const aboutOf = ({ backend, bytes, slow }: Engine): About => ({ backend, bytes, slow });

/** Answer a request; `open` has made the engine. */
export async function serve(engine: Engine, call: Call, onToken: OnToken): Promise<Answer> {
  if (call.name === "load") {
    engine.load(call.at, call.bytes);
    return null;
  }
  if (call.name === "pass") return engine.pass(call.ids, call.edits, call.outputs);
  if (call.name === "relevance") return engine.relevance(call.ids, call.edits, call.target, call.rule);
  if (call.name === "open") return aboutOf(engine);
  const tokens = engine.tokens(call.ids, call.sampling);
  let step = tokens.next();
  while (!step.done) step = tokens.next(await onToken(step.value.id, step.value.log));
  return step.value;
}

/** Messages from a page to its worker: requests, and whether a continuation should proceed. */
export type ToWorker = { id: number; call: Call } | { goes: boolean };
export type FromWorker = { id: number; value: Answer } | { id: number; error: string } | { token: number; log: number };

/** An end of a channel: a worker, its global object, or a port. */
export interface Port {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  onmessage: ((event: MessageEvent) => void) | null;
}

/** Buffers of a value that can be handed over. */
export function buffersIn(value: unknown): ArrayBuffer[] {
  if (ArrayBuffer.isView(value)) return [value.buffer as ArrayBuffer];
  return value && typeof value === "object" ? Object.values(value).flatMap(buffersIn) : [];
}

/** Answer the requests that come through a port, in order: the client waits for each. */
export function listen(port: Port, modules: Modules): void {
  let engine: Engine | undefined;
  let goOn: (goes: boolean) => void = () => {};
  const answer = async (call: Call): Promise<Answer> => {
    if (call.name === "open") engine = await createEngine(call.packed, modules);
    return serve(engine!, call, (token, log) => {
      port.postMessage({ token, log } satisfies FromWorker, []);
      return new Promise<boolean>((resolve) => {
        goOn = resolve;
      });
    });
  };
  port.onmessage = async ({ data }: MessageEvent<ToWorker>) => {
    if (!("call" in data)) {
      goOn(data.goes);
      return;
    }
    try {
      const value = await answer(data.call);
      port.postMessage({ id: data.id, value }, buffersIn(value));
    } catch (error) {
      port.postMessage({ id: data.id, error: (error as Error).message } satisfies FromWorker, []);
    }
  };
}
