/** Exact rows that views wait for: the newest few are asked for, and nobody waits for ever. */
import type { RowAsk } from "./requests.ts";

type Done = (values: Float32Array | null) => void;

const QUEUED = 4;

export interface RowWishes {
  /** The one to ask for next. */
  next(): RowAsk | undefined;
  /** Add a wish; of those that are not in flight (under the name `flying`) the oldest beyond a few are dropped. */
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
