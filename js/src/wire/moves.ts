/**
 * Moves of the reader in a page reach other pages through the kernel, since only some front ends tell other pages what
 * a page saved. A page is everything that shares the models: a notebook in JupyterLab, a single output in Colab.
 */
import type { AnyModel } from "@anywidget/types";
import type { Moved, SelectionState, Where } from "./wire.ts";

type Model = AnyModel<SelectionState & Record<string, unknown>>;

/** Announce the values that the page is about to save, so that the kernel accepts only these. */
export function sign(model: Model, page: number, names: string[]): void {
  const last = model.get("writer");
  const awaited = last?.page === page ? last.names : [];
  model.set("writer", { page, count: (last?.count ?? 0) + 1, names: [...new Set([...awaited, ...names])] });
}

/**
 * Apply the moves that the kernel reports, of this page or another. Values that this page saved since then come back
 * later and take precedence; until they do, nothing jumps back. A page that opens requests the reader's state: its
 * front end may have given it an old state.
 */
export function followMoves(model: Model, page: number, signal: AbortSignal): void {
  if (model.get("writer")?.page !== page) {
    model.set("writer", { page, count: 0, names: [] });
    const question: Where = { kind: "where" };
    try {
      model.send(question, undefined, []);
    } catch {
      // The comm is closed: neither a kernel nor another page is connected.
    }
  }
  model.on("msg:custom", (({ kind, writer, values }: Moved) => {
    if (signal.aborted || kind !== "moved") return;
    const last = model.get("writer");
    if (writer?.page === page) {
      if (writer.count !== last?.count) return;
      model.set("writer", { ...writer, names: [] });
    }
    const awaited = model.get("writer")?.names ?? [];
    for (const [name, value] of Object.entries(values)) {
      if (!awaited.includes(name)) model.set(name, value as never);
    }
  }) as never);
}
