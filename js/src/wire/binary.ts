/** Bytes in messages and in state. Front ends hand them over as DataView, Uint8Array or ArrayBuffer; views get DataViews. */
import type { AnyModel } from "@anywidget/types";

/** Why numbers are missing, and what the reader can do. */
export const NO_BYTES = "its numbers did not come along. Run the cell again, or end it with view.frame()";

type Heard = (message: unknown, buffers: DataView[]) => void;

const EMPTY = new DataView(new ArrayBuffer(0));

/** The same bytes as a DataView; undefined if they are none. */
export function viewOf(bytes: unknown): DataView | undefined {
  if (ArrayBuffer.isView(bytes)) return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  // Not by `instanceof`: it may come from another frame.
  const isBuffer = /^\[object (Shared)?ArrayBuffer\]$/.test(Object.prototype.toString.call(bytes));
  return isBuffer ? new DataView(bytes as ArrayBuffer) : undefined;
}

/** The same model, with every buffer in its state and its messages as a DataView, empty where there is no buffer. */
export function withDataViews<State extends Record<string, unknown>>(model: AnyModel<State>): AnyModel<State> {
  const listeners = new WeakMap<Heard, Heard>();
  const listenerOf = (name: unknown, callback: Heard): Heard => {
    if (name !== "msg:custom") return callback;
    const known =
      listeners.get(callback) ?? ((message, buffers) => callback(message, [...(buffers ?? [])].map(viewOrEmpty)));
    listeners.set(callback, known);
    return known;
  };
  return {
    get: (name: string) => viewOf(model.get(name)) ?? model.get(name),
    set: (name: string, value: State[string]) => model.set(name, value),
    save_changes: () => model.save_changes(),
    send: (message: unknown) => model.send(message, undefined, []),
    on: (name: string, callback: Heard) => model.on(name, listenerOf(name, callback) as never),
    off: (name: string, callback: Heard) => model.off(name, listenerOf(name, callback) as never),
  } as unknown as AnyModel<State>;
}

const viewOrEmpty = (bytes: unknown): DataView => viewOf(bytes) ?? EMPTY;
