/** The engine as the page asks it: every answer is a promise, whether it is computed in a worker or in the page. */
import type { Engine } from "./engine.ts";
import type { Continuation, Edits, Pass, Relevance, Rule, Sampling, Target, Wanted } from "./types.ts";

export interface EngineClient {
  load(at: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  pass(ids: readonly number[], edits: Edits, wanted: Wanted): Promise<Pass>;
  relevance(ids: readonly number[], edits: Edits, target: Target, rule: Rule): Promise<Relevance>;
  continued(
    ids: readonly number[],
    sampling: Sampling,
    onToken: (id: number, log: number) => boolean | void | Promise<boolean | void>,
  ): Promise<Continuation>;
  about(): { backend: string; bytes: number; slow: string };
  close(): void;
}

/** The engine in the page itself. */
export function localClient(engine: Engine): EngineClient {
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(run: () => T | Promise<T>): Promise<T> => {
    const next = last.then(run);
    last = next.catch(() => undefined);
    return next;
  };
  return {
    load: (at, bytes) => inTurn(() => engine.load(at, bytes)),
    pass: (ids, edits, wanted) => inTurn(() => engine.pass(ids, edits, wanted)),
    relevance: (ids, edits, target, rule) => inTurn(() => engine.relevance(ids, edits, target, rule)),
    continued: (ids, sampling, onToken) =>
      inTurn(async () => {
        const steps = engine.tokens(ids, sampling);
        for (let step = steps.next(); ; step = steps.next(await onToken(step.value.id, step.value.log)))
          if (step.done) return step.value;
      }),
    about: () => engine,
    close: () => undefined,
  };
}

export function workerClient(_source: string, _packed: unknown): Promise<EngineClient> {
  throw new Error("not yet");
}
