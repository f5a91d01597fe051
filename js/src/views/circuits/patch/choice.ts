/** The state of a PatchView, and the exchange of its chosen activations with the selection. */
import type { ViewContext } from "../../../context.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { Cell } from "../../../wire/wire.ts";
import type { CopyButton } from "../../base/copyPython.ts";
import type { Frame } from "../../base/frame.ts";
import type { Segments } from "../../base/segmentedControl.ts";
import type { Control } from "../../base/toolbar.ts";
import type { Panel } from "./panel.ts";
import {
  type Activation,
  activationAt,
  type Direction,
  isSame,
  type PatchedRun,
  type Patching,
  type PatchOptions,
  type Site,
  widthOf,
} from "./patching.ts";
import type { SiteMap } from "./siteMap.ts";
import type { Texts } from "./texts.ts";

export type Mode = Direction | "estimate";

/** The elements of the view, and the state that they show. */
export interface PatchState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly answers: Answers;
  readonly modes: Segments<Mode>;
  readonly layers: Control;
  readonly heads: Control & { offer(count: number, head: number): void };
  readonly texts: Texts;
  readonly panel: Panel;
  readonly which: Segments<Site>;
  readonly axis: HTMLDivElement;
  readonly maps: HTMLDivElement;
  readonly copy: CopyButton;
  readonly claim: CopyButton;
  readonly frame: Frame;
  readonly body: HTMLElement;
  readonly siteMaps: Map<Site, SiteMap>;
  /** The shares of the chosen direction; the previous shares until they arrive. */
  patching: Patching | null;
  /** The shares of the other directions, for the panel. */
  others: Patching[];
  /** The activation under the pointer. */
  over: Activation | null;
  /** px of the body. */
  box: { width: number; height: number };
  /** px of the panel; 0 until it is laid out. */
  panelWidth: number;
  /** Runs the model once the choice has rested. */
  timer: ReturnType<typeof setTimeout> | undefined;
  /** The activations for which the model was run. */
  rested: readonly Activation[] | null;
  /** The selection after this view's last update, to tell others' choices from those made here. */
  selectionSeen: string;
  /** The run with the chosen activations patched, and why it is missing. */
  run: [PatchedRun | null, string];
}

export function options(ctx: ViewContext): PatchOptions {
  return ctx.options as PatchOptions;
}

export function save(ctx: ViewContext, values: Partial<PatchOptions>): void {
  ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
  ctx.model.save_changes();
}

export function cells(ctx: ViewContext): readonly Activation[] {
  return options(ctx).cells;
}

export function current(ctx: ViewContext): Activation | undefined {
  return cells(ctx).at(-1);
}

export function layerNow(ctx: ViewContext): number {
  return current(ctx)?.[1] ?? ctx.selection.get("layer");
}

export function tokenSites(state: PatchState): Site[] {
  return (state.patching?.sites ?? []).filter((site) => site !== "head");
}

export function pinOf([site, layer, token]: Activation): Cell | null {
  return site === "head" || token === null ? null : { unit: "token", query: token, key: -1, layer };
}

function snapshot(ctx: ViewContext): string {
  return JSON.stringify([ctx.selection.get("layer"), ctx.selection.get("head"), ctx.selection.get("pinned")]);
}

/** Choose activations here; the last is also chosen in the other views of the text. */
export function choose(state: PatchState, activations: readonly Activation[], adds: boolean): void {
  const { ctx } = state;
  const now = cells(ctx);
  const toggled =
    activations.length === 1 && now.some((chosen) => isSame(chosen, activations[0] as Activation))
      ? now.filter((chosen) => !isSame(chosen, activations[0] as Activation))
      : [...now.filter((chosen) => !activations.some((other) => isSame(chosen, other))), ...activations];
  const next = adds ? toggled : activations;
  const last = next.at(-1);
  if (last) {
    const [site, layer, , head] = last;
    const pin = pinOf(last);
    ctx.selection.set({
      layer,
      ...(site === "head" && head !== null && ctx.source().heads ? { head } : {}),
      ...(pin ? { pinned: pin } : {}),
    });
  }
  state.selectionSeen = snapshot(ctx);
  save(ctx, { cells: next.map((activation) => [...activation] as unknown as Activation) });
}

/** A choice in another view or a control replaces this view's: its layer and head, or its token of a layer. */
export function follow(state: PatchState): void {
  const { patching } = state;
  const now = snapshot(state.ctx);
  if (now === state.selectionSeen || !patching) return;
  const [layer, head, pinned] = JSON.parse(now) as [number, number | string, Cell | null];
  const [oldLayer, oldHead, oldPinned] = state.selectionSeen
    ? (JSON.parse(state.selectionSeen) as [number, number | string, Cell | null])
    : [layer, head, pinned];
  const isFirst = !state.selectionSeen;
  state.selectionSeen = now;
  if (isFirst) return;
  const last = current(state.ctx);
  const to = Math.max(0, Math.min(patching.layers - 1, layer));
  const token = pinned?.unit === "token" ? Math.max(pinned.query, pinned.key) : -1;
  const isToken = token >= patching.first && token < patching.cleanTokens.length;
  const site = last?.[0] ?? "state";
  const [fallback] = tokenSites(state);
  const of = site === "head" ? fallback : site;
  if (JSON.stringify(pinned) !== JSON.stringify(oldPinned) && pinned?.layer !== undefined && isToken && of) {
    save(state.ctx, { cells: [activationAt(of, Math.min(pinned.layer, patching.layers - 1), token)] });
  } else if (head !== oldHead && typeof head === "number" && head < widthOf(patching, "head")) {
    save(state.ctx, { cells: [activationAt("head", to, head)] });
  } else if (layer !== oldLayer && last) {
    save(state.ctx, { cells: [[last[0], to, last[2], last[3]]] });
  }
}
