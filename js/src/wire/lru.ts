/** A map that evicts its least recently used entries once they exceed a number of bytes. */
export class ByteLru<V> {
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  readonly #budget: number;
  #used = 0;

  constructor(budget: number) {
    this.#budget = budget;
  }

  get bytes(): number {
    return this.#used;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  delete(key: string): void {
    this.#used -= this.#entries.get(key)?.bytes ?? 0;
    this.#entries.delete(key);
  }

  /** The newest entry stays even if it alone exceeds the budget, since it is being shown. */
  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    this.#used += bytes;
    this.#entries.set(key, { value, bytes });
    for (const oldest of this.#entries.keys()) {
      if (this.#used <= this.#budget || oldest === key) break;
      this.delete(oldest);
    }
  }
}
