/** Requests for exact rows: only the newest few are pending, and none waits forever. */
import type { RowRequest } from "./requests.ts";

type Done = (values: Float32Array | null) => void;

const QUEUED = 4;

export interface RowQueue {
  /** The next request to send. */
  next(): RowRequest | undefined;
  /** Add a request; of those not in flight (key `flying`), the oldest beyond a few are dropped. */
  add(key: string, ask: RowRequest, flying: string | undefined): Promise<Float32Array | null>;
  finish(key: string, values: Float32Array | null): void;
  finishAll(): void;
}

export function createRowQueue(): RowQueue {
  const pending = new Map<string, { ask: RowRequest; done: Done[] }>();
  const finish = (key: string, values: Float32Array | null): void => {
    const entry = pending.get(key);
    pending.delete(key);
    for (const done of entry?.done ?? []) done(values);
  };
  return {
    finish,
    next: () => [...pending.values()][0]?.ask,
    add: (key, ask, flying) =>
      new Promise((done) => {
        const wish = pending.get(key);
        if (wish) {
          wish.done.push(done);
          return;
        }
        pending.set(key, { ask, done: [done] });
        const [oldest, ...newer] = [...pending.keys()].filter((k) => k !== flying);
        if (oldest !== undefined && newer.length >= QUEUED) finish(oldest, null);
      }),
    finishAll() {
      for (const key of [...pending.keys()]) finish(key, null);
    },
  };
}
