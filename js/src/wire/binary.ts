/**
 * Values of messages and state in their declared types, however a front end represents them: bytes as DataView (others
 * pass Uint8Array or ArrayBuffer), and null for Python's None (kernels in the browser leave it out).
 */
import type { AnyModel } from "@anywidget/types";

/** Why numbers are missing, with advice for the reader. */
export const NO_BYTES = "its data was not transferred. Run the cell again, or end it with view.frame()";

type Heard = (message: unknown, buffers: DataView[]) => void;

const EMPTY = new DataView(new ArrayBuffer(0));

/** The same bytes as a DataView; undefined if they are none. */
export function viewOf(bytes: unknown): DataView | undefined {
  if (ArrayBuffer.isView(bytes)) return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  // Not by `instanceof`: it may be from another frame.
  const isBuffer = /^\[object (Shared)?ArrayBuffer\]$/.test(Object.prototype.toString.call(bytes));
  return isBuffer ? new DataView(bytes as ArrayBuffer) : undefined;
}

// The fields that may be null in the axes and in the sources of a header.
const NULLABLE = { axes: ["spans", "boundary", "grid", "cells", "times"], sources: ["heads", "computed"] } as const;
type Parts = Record<string, object> | object[];

// By the received header, so that the same header stays the same object.
const whole = new WeakMap<object, unknown>();

/** A value of the state with null for every None: kernels in the browser leave None out, at any depth. */
export function withNulls(name: string, value: unknown): unknown {
  if (name !== "header" || typeof value !== "object" || value === null) return value ?? null;
  const cached = whole.get(value);
  if (cached) return cached;
  const lacking = Object.entries(NULLABLE).some(([group, names]) =>
    Object.values((value as Record<string, Parts>)[group] ?? {}).some((part) => names.some((n) => !(n in part))),
  );
  const made = lacking ? completed(value as Record<string, Parts>) : value;
  whole.set(value, made);
  return made;
}

function completed(header: Record<string, Parts>): unknown {
  const made: Record<string, unknown> = { ...header };
  for (const [group, names] of Object.entries(NULLABLE)) {
    const nulls = Object.fromEntries(names.map((n) => [n, null]));
    const parts = header[group] ?? {};
    made[group] = Array.isArray(parts)
      ? parts.map((part) => ({ ...nulls, ...part }))
      : Object.fromEntries(Object.entries(parts).map(([key, part]) => [key, { ...nulls, ...part }]));
  }
  return made;
}

/** A model whose messages may be answered by other code. */
export interface Declared<State extends Record<string, unknown>> extends AnyModel<State> {
  /** Receives messages in place of the kernel; null: they are sent, and changes are saved. */
  answer: ((message: never) => void) | null;
  /** Receive a message as if the kernel had sent it. */
  hear(message: unknown, buffers: readonly unknown[]): void;
}

/** The same model with its state and messages as declared: DataViews, empty without a buffer, and nulls. */
export function asDeclared<State extends Record<string, unknown>>(model: AnyModel<State>): Declared<State> {
  const heard = new Set<Heard>();
  const listeners = new WeakMap<Heard, Heard>();
  const listenerOf = (name: unknown, callback: Heard): Heard => {
    if (name !== "msg:custom") return callback;
    const wrapped =
      listeners.get(callback) ?? ((message, buffers) => callback(message, [...(buffers ?? [])].map(viewOrEmpty)));
    listeners.set(callback, wrapped);
    heard.add(wrapped);
    return wrapped;
  };
  const declared = {
    answer: null as Declared<State>["answer"],
    hear: (message: unknown, buffers: readonly unknown[]) => {
      for (const listener of [...heard]) listener(message, buffers as DataView[]);
    },
    get: (name: string) => viewOf(model.get(name)) ?? withNulls(name, model.get(name)),
    set: (name: string, value: State[string]) => model.set(name, value),
    save_changes: () => declared.answer || model.save_changes(),
    send: (message: never) => (declared.answer ? declared.answer(message) : model.send(message, undefined, [])),
    on: (name: string, callback: Heard) => model.on(name, listenerOf(name, callback) as never),
    off: (name: string, callback: Heard) => {
      const listener = listenerOf(name, callback);
      heard.delete(listener);
      model.off(name, listener as never);
    },
  };
  return declared as unknown as Declared<State>;
}

const viewOrEmpty = (bytes: unknown): DataView => viewOf(bytes) ?? EMPTY;
