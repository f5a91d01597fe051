/**
 * Jobs that the kernel accepted and answers later, after the running cell. Other requests continue meanwhile, and the
 * kernel is pinged now and then.
 */

/** A job that the kernel computes for a view, or will compute when no cell is running. */
export interface Job {
  text: string;
  /** Steps done; null before it starts. */
  done: number | null;
  /** Total steps, if known. */
  total: number | null;
}

/** Jobs shorter than this (ms) are not announced. */
export const ANNOUNCED_AFTER = 250;
const ALIVE_EVERY = 8000;

/** Accepted requests of type `A`, by id. */
export interface Works<A> {
  all: Map<number, A & Job>;
  /** Record progress of a request. */
  follow(id: number, asked: A, news: Job): void;
  /** The kernel answered something. */
  heard(): void;
  /** The job to show: a running one, otherwise a waiting one; null until one takes longer than a moment. */
  current(): (A & Job) | null;
}

/** `notify` announces changes, `ping` sends a message that must be answered, `lost` is called without an answer. */
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
