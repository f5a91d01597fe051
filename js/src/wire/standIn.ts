/**
 * A small model may stand in for a kernel that is gone: its weights wait in the browser, and the requests of views are
 * computed there. The code is a part, which is loaded when it is needed (src/live/standIn.ts).
 */
import type { AnyModel, Host } from "@anywidget/types";
import { atEnd } from "../dom.ts";
import type { Declared } from "./binary.ts";
import type { TileClient } from "./tiles.ts";
import type { ViewState } from "./viewState.ts";
import type { SelectionState, StoreState } from "./wire.ts";

export type StateOf<T> = T & Record<string, unknown>;

/** A view with its models, each as the page has it and as views use it. */
export interface Relieved {
  props: { model: AnyModel<ViewState>; signal: AbortSignal; host: Host };
  model: Declared<StateOf<ViewState>>;
  given: AnyModel<StateOf<StoreState>>;
  store: Declared<StateOf<StoreState>>;
  selection: AnyModel<StateOf<SelectionState>>;
  tiles: TileClient;
}

/** Answers in place of the kernel, for all views of a page. */
export interface StandIn {
  /** Whether the kernel is gone, or a view shows a text that the kernel does not have. */
  isNeeded(view: Relieved): boolean;
  /** Answer for a view from now on, until the kernel answers again. */
  relieve(view: Relieved): Promise<void>;
  /** A model that was created in the page, by its reference. */
  modelOf(ref: string, signal: AbortSignal): AnyModel<never> | undefined;
}

/** Holds the stand-in that all views of a page share. */
export interface StandInHolder {
  standIn?: StandIn | undefined;
}

/** The part with the code. */
interface Code {
  code(lent: readonly unknown[]): { standIn?(): StandIn };
}

/** Milliseconds after which a view requests the model: the visible parts come first. */
const SOON = 2000;

/** Let the stand-in answer a view when the kernel is gone; resolves once it does, if the kernel is already gone. */
export async function joinStandIn(view: Relieved, holder: StandInHolder, lent: readonly unknown[]): Promise<void> {
  const { model, props, store, tiles } = view;
  const isLost = (): boolean => tiles.status().state === "no-kernel";
  const relieve = async (): Promise<void> => {
    const { code } = store.get("stand_in") ?? {};
    if (!code || !(isLost() || holder.standIn?.isNeeded(view))) return;
    if (!holder.standIn) {
      const { exports } = await props.host.getWidget<Code>(code);
      holder.standIn ??= exports.code(lent).standIn?.();
    }
    await holder.standIn?.relieve(view);
  };
  // After the client that gives up a request has finished.
  tiles.subscribe(props.signal, () => isLost() && queueMicrotask(() => relieve().catch(console.error)));
  const timer = setTimeout(() => {
    const given = store.get("stand_in");
    if (!given || given.code || tiles.status().state !== "ok") return;
    try {
      model.send({ kind: "ask", id: 0, topic: "stand_in", args: {} });
    } catch {
      // The comm is closed: no kernel can receive the request.
    }
  }, SOON);
  atEnd(props.signal, () => clearTimeout(timer));
  await relieve();
}
