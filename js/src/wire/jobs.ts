/**
 * Jobs that the kernel accepted and answers later, after the running cell. Other requests continue meanwhile, and the
 * kernel is pinged now and then.
 */

/** A job that the kernel computes for a view, or will compute when no cell is running. */
export interface Job {
  text: string;
  /** Steps done; null before it starts. */
  done: number | null;
  /** Total steps, or null if it is open. */
  total: number | null;
}

/** Jobs shorter than this (ms) are not announced. */
export const ANNOUNCED_AFTER = 250;
const ALIVE_EVERY = 8000;

/** Accepted requests of type `A`, by id. */
export interface AcceptedJobs<A> {
  all: Map<number, A & Job>;
  /** Record progress of a request. */
  follow(id: number, request: A, news: Job): void;
  /** The kernel answered something. */
  heard(): void;
  /** The job to show: a running job, otherwise a waiting job; null until a job takes longer than a moment. */
  current(): (A & Job) | null;
}

/** `notify` announces changes, `ping` sends a message that must be answered, `lost` is called without an answer. */
export function createJobs<A>(notify: () => void, ping: () => void, lost: () => void): AcceptedJobs<A> {
  const all = new Map<number, A & Job & { since: number }>();
  let pulse: ReturnType<typeof setTimeout>;
  const heard = (): void => {
    clearTimeout(pulse);
    if (all.size === 0) return;
    pulse = setTimeout(() => {
      ping();
      pulse = setTimeout(() => all.size > 0 && lost(), ALIVE_EVERY);
    }, ALIVE_EVERY);
  };
  return {
    all,
    heard,
    follow(id, request, { text, done, total }) {
      const since = all.get(id)?.since ?? Date.now();
      if (!all.has(id)) setTimeout(notify, ANNOUNCED_AFTER);
      all.set(id, { ...request, text, done, total, since });
      heard();
    },
    current() {
      const old = [...all.values()].filter(({ since }) => Date.now() - since >= ANNOUNCED_AFTER);
      return old.find(({ done }) => done !== null) ?? old.at(-1) ?? null;
    },
  };
}
