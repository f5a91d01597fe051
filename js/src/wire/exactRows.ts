/** Requests for exact rows: only the newest few are kept, and none waits forever. */
import type { RowAsk } from "./requests.ts";

type Done = (values: Float32Array | null) => void;

const QUEUED = 4;

export interface RowWishes {
  /** The next request to send. */
  next(): RowAsk | undefined;
  /** Add a request; of those not in flight (key `flying`), the oldest beyond a few are dropped. */
  add(key: string, ask: RowAsk, flying: string | undefined): Promise<Float32Array | null>;
  finish(key: string, values: Float32Array | null): void;
  finishAll(): void;
}

export function createRows(): RowWishes {
  const wishes = new Map<string, { ask: RowAsk; done: Done[] }>();
  const finish = (key: string, values: Float32Array | null): void => {
    const wish = wishes.get(key);
    wishes.delete(key);
    for (const done of wish?.done ?? []) done(values);
  };
  return {
    finish,
    next: () => [...wishes.values()][0]?.ask,
    add: (key, ask, flying) =>
      new Promise((done) => {
        const wish = wishes.get(key);
        if (wish) {
          wish.done.push(done);
          return;
        }
        wishes.set(key, { ask, done: [done] });
        const [oldest, ...newer] = [...wishes.keys()].filter((k) => k !== flying);
        if (oldest !== undefined && newer.length >= QUEUED) finish(oldest, null);
      }),
    finishAll() {
      for (const key of [...wishes.keys()]) finish(key, null);
    },
  };
}
