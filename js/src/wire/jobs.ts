/**
 * What the kernel took up and answers later: it waits until no cell is running, then computes. Meanwhile other
 * requests go on, and the kernel is asked now and then whether it is still there.
 */

/** What the kernel computes for a view, or will when no cell is running. */
export interface Job {
  text: string;
  /** Steps done; null before it began. */
  done: number | null;
  /** Steps in all, where that is known. */
  total: number | null;
}

/** What is computed sooner is not announced. */
export const ANNOUNCED_AFTER = 250;
const ALIVE_EVERY = 8000;

/** Requests of type `A`, by number. */
export interface Works<A> {
  all: Map<number, A & Job>;
  /** Take news of a request in. */
  follow(id: number, asked: A, news: Job): void;
  /** Somebody answered. */
  heard(): void;
  /** What to show: what is being computed, else what waits; null while neither takes longer than a moment. */
  current(): (A & Job) | null;
}

/** `tell` announces changes, `ask` sends what is to be answered, `lost` is called when nobody answers. */
export function createWorks<A>(tell: () => void, ask: () => void, lost: () => void): Works<A> {
  const all = new Map<number, A & Job & { since: number }>();
  let pulse: ReturnType<typeof setTimeout>;
  const heard = (): void => {
    clearTimeout(pulse);
    if (all.size === 0) return;
    pulse = setTimeout(() => {
      ask();
      pulse = setTimeout(() => all.size > 0 && lost(), ALIVE_EVERY);
    }, ALIVE_EVERY);
  };
  return {
    all,
    heard,
    follow(id, asked, { text, done, total }) {
      const since = all.get(id)?.since ?? Date.now();
      if (!all.has(id)) setTimeout(tell, ANNOUNCED_AFTER);
      all.set(id, { ...asked, text, done, total, since });
      heard();
    },
    current() {
      const old = [...all.values()].filter(({ since }) => Date.now() - since >= ANNOUNCED_AFTER);
      return old.find(({ done }) => done !== null) ?? old.at(-1) ?? null;
    },
  };
}
