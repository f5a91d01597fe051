/** A model of a page without a kernel. */
import type { AnyModel } from "@anywidget/types";
import type { Question, Request } from "../wire/wire.ts";

export type State = Record<string, unknown>;
type Listener = (...args: never[]) => void;

/** A model with the interface of ipywidgets: change events when a value differs, and messages. */
export class PageModel {
  readonly #state: State;
  readonly #listeners = new Map<string, Set<Listener>>();
  onSend: (request: Request | Question) => void = () => undefined;
  /** Whether a view uses it, on the page or inside another; false for the models of other texts. */
  isDrawn = false;

  constructor(state: State) {
    this.#state = state;
  }

  get(key: string): unknown {
    return this.#state[key];
  }

  set(key: string, value: unknown): void {
    this.setAll({ [key]: value });
  }

  /** Set several values, and then notify of those that differ. */
  setAll(values: State): void {
    const changed = Object.entries(values).filter(([key, value]) => {
      const old = this.#state[key];
      return old !== value && (ArrayBuffer.isView(value) || JSON.stringify(old) !== JSON.stringify(value));
    });
    Object.assign(this.#state, Object.fromEntries(changed));
    for (const [key] of changed) this.emit(`change:${key}`);
    if (changed.length > 0) this.emit("change");
  }

  on(name: string, callback: Listener): void {
    const listeners = this.#listeners.get(name);
    if (listeners) listeners.add(callback);
    else this.#listeners.set(name, new Set([callback]));
  }

  off(name: string, callback: Listener): void {
    this.#listeners.get(name)?.delete(callback);
  }

  emit(name: string, ...args: unknown[]): void {
    for (const callback of [...(this.#listeners.get(name) ?? [])]) callback(...(args as never[]));
  }

  /** The model from the side of a single view: its listeners are removed when the signal aborts. */
  proxy(signal: AbortSignal): AnyModel {
    return {
      get: (key: string) => this.get(key),
      set: (key: string, value: unknown) => this.set(key, value),
      save_changes: () => undefined,
      send: (request: Request | Question) => this.onSend(request),
      on: (name: string, callback: Listener) => {
        this.on(name, callback);
        signal.addEventListener("abort", () => this.off(name, callback));
      },
      off: (name: string, callback: Listener) => this.off(name, callback),
    } as unknown as AnyModel;
  }
}
