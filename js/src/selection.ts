/** The shared selection: reading it, writing it, and matching it with one view's store. */
import type { AnyModel } from "@anywidget/types";

import type { Axis, Cell, Header, HeadKey, SelectionState, Source, ViewOptions } from "./wire/wire.ts";

/** The shared selection, as one view sees it. */
export interface SelectionStore {
  get<K extends keyof SelectionState>(key: K): SelectionState[K];
  /** Set and save to the kernel (layer, head, unit, method, stack, pinned). */
  set(values: Partial<Omit<SelectionState, "hover">>): void;
  /** Preview a cell, in the browser only. */
  hover(cell: Cell | null): void;
  /** Pin a cell; pinning the pinned cell again, or null, unpins. */
  pin(cell: Cell | null): void;
  subscribe(signal: AbortSignal, cb: (key: keyof SelectionState) => void): void;
}

/** What a view currently shows: its options and the selection, matched with the store. */
export interface Resolved {
  source: Source;
  layer: number;
  head: HeadKey;
  /** Shown in the heading if the selection cannot be followed: "layer 11 is not in rollout: showing 5". */
  notes: string[];
}

const BY_LAYER = ":layers";
const isByLayer = (method: string): boolean => method.endsWith(BY_LAYER);

type Model = AnyModel<SelectionState & Record<string, unknown>>;

const KEYS: (keyof SelectionState)[] = [
  "layer",
  "head",
  "unit",
  "method",
  "stack",
  "pinned",
  "target",
  "foil",
  "inside",
  "feature",
  "interventions",
  "hover",
];

export interface BoundSelection extends SelectionStore {
  /** The pinned or hovered cell in the indices of `source`, or null. */
  cellIn(which: "pinned" | "hover", header: Header, source: Source): Cell | null;
}

export function sameCell(a: Cell | null, b: Cell | null): boolean {
  if (a === null || b === null) return a === b;
  return a.unit === b.unit && a.query === b.query && a.key === b.key;
}

/** The selection through one model proxy. Its listeners end with the signal passed to them. */
export function createSelection(model: Model): BoundSelection {
  const save = (values: Partial<SelectionState>): void => {
    for (const [key, value] of Object.entries(values)) {
      model.set(key as keyof SelectionState, value as never);
    }
    // Saving sends everything set since the last save, but hovering concerns this browser only.
    const hover = model.get("hover");
    if (hover !== null) model.set("hover", null);
    model.save_changes();
    if (hover !== null) model.set("hover", hover);
  };
  return {
    get: (key) => model.get(key),
    set: save,
    hover(cell) {
      if (!sameCell(cell, model.get("hover"))) model.set("hover", cell);
    },
    pin(cell) {
      const now = model.get("pinned");
      if (cell === null && now === null) return;
      save({ pinned: sameCell(cell, now) ? null : cell });
    },
    subscribe(signal, cb) {
      for (const key of KEYS) {
        model.on(`change:${key}`, () => {
          if (!signal.aborted) cb(key);
        });
      }
    },
    cellIn(which, header, source) {
      const cell = model.get(which);
      return cell ? translateCell(cell, header, source) : null;
    },
  };
}

/** Token indices behind element `i`. */
function tokensOf(axis: Axis, i: number): number[] {
  return axis.spans ? (axis.spans[i] ?? []) : [i];
}

const INVERSE = new WeakMap<Axis, Map<number, number>>();

/** Index of the element of `to` that shares a token with element `i` of `from`; -1 if there is none. */
export function translateIndex(i: number, from: Axis, to: Axis): number {
  if (i < 0) return -1;
  if (from === to) return i < to.labels.length ? i : -1;
  const tokens = tokensOf(from, i);
  if (to.spans === null) {
    const first = tokens[0];
    return first !== undefined && first < to.labels.length ? first : -1;
  }
  let inverse = INVERSE.get(to);
  if (!inverse) {
    inverse = new Map();
    for (const [element, span] of to.spans.entries()) {
      for (const token of span) if (!inverse.has(token)) inverse.set(token, element);
    }
    INVERSE.set(to, inverse);
  }
  for (const token of tokens) {
    const element = inverse.get(token);
    if (element !== undefined) return element;
  }
  return -1;
}

/**
 * Translate a cell to the indices of `source`. Targets of attributions are not tokens, so only their numbers carry
 * over.
 */
export function translateCell(cell: Cell, header: Header, source: Source): Cell | null {
  const query = header.axes[source.query];
  const key = header.axes[source.key];
  if (!query || !key) return null;
  const within = (i: number, axis: Axis): number => (i >= 0 && i < axis.labels.length ? i : -1);
  if (cell.unit === source.unit) {
    const same = { unit: source.unit, query: within(cell.query, query), key: within(cell.key, key) };
    return same.query < 0 && same.key < 0 ? null : same;
  }
  const origin =
    header.sources.find((s) => s.unit === cell.unit && s.stack === source.stack && s.kind === "map") ??
    header.sources.find((s) => s.unit === cell.unit && s.stack === source.stack);
  const fromQuery = origin && header.axes[origin.query];
  const fromKey = origin && header.axes[origin.key];
  if (!fromQuery || !fromKey) return null;
  const moved = {
    unit: source.unit,
    query:
      source.kind === "attributions" || origin.kind === "attributions"
        ? -1
        : translateIndex(cell.query, fromQuery, query),
    key: translateIndex(cell.key, fromKey, key),
  };
  return moved.query < 0 && moved.key < 0 ? null : moved;
}

/** The element of `list` nearest to `wanted`. */
export function nearest(list: readonly number[], wanted: number): number {
  let best = list[0] ?? 0;
  for (const item of list) if (Math.abs(item - wanted) < Math.abs(best - wanted)) best = item;
  return best;
}

function choose<T>(list: T[], wanted: (item: T) => boolean): [T[], boolean] {
  const matching = list.filter(wanted);
  return matching.length > 0 ? [matching, true] : [list, false];
}

/** The head to show for a selected one: itself, a reduction, or "-" if there is no head axis. */
export function resolveHead(source: Source, wanted: HeadKey): HeadKey {
  if (source.heads === null) return "-";
  if (wanted === "mean" || wanted === "max") return wanted;
  if (wanted === "-") return "mean";
  return nearest(source.heads, wanted);
}

/**
 * What a view shows. Its own options take precedence over the selection; if the store lacks something, the nearest
 * available replaces it, and `notes` says so.
 */
export function resolve(header: Header, options: ViewOptions, selection: Pick<SelectionStore, "get">): Resolved {
  const notes: string[] = [];
  const wantedMethod = options.method ?? selection.get("method");
  const layers = `${wantedMethod}:layers`;
  const inside = selection.get("inside") && header.sources.some((s) => s.method === layers);
  const method = inside ? layers : wantedMethod;
  const [byMethod, hasMethod] = choose(header.sources, (s) => s.method === method);
  const first = byMethod[0];
  if (!first) throw new Error("attnwidgets: there is no map to show: the store is empty");
  if (!hasMethod && method) notes.push(`${method} is not available: showing ${first.title}`);
  const ofMethod = byMethod.filter((s) => s.method === first.method);
  const stack = options.stack ?? selection.get("stack");
  const [byStack, hasStack] = choose(ofMethod, (s) => s.stack === stack);
  const inStack = byStack.filter((s) => s.stack === byStack[0]?.stack);
  if (!hasStack && options.stack) notes.push(`no ${stack} attention in ${first.title}`);
  const unit = options.unit ?? selection.get("unit");
  const [byUnit, hasUnit] = choose(inStack, (s) => s.unit === unit);
  const source = byUnit[0] ?? first;
  if (!hasUnit && unit) notes.push(`${source.title} has no ${unit} unit: showing ${source.unit}`);

  const wanted = selection.get("layer");
  const layer = nearest(source.layers, wanted);
  if (layer !== wanted && source.kind === "map") {
    const base = options.indexBase;
    notes.push(`layer ${wanted + base} is not in ${source.title}: showing ${layer + base}`);
  }
  const wantedHead = selection.get("head");
  const head = resolveHead(source, wantedHead);
  if (typeof wantedHead === "number" && typeof head === "number" && head !== wantedHead) {
    notes.push(`head ${wantedHead + options.indexBase} is not available: showing ${head + options.indexBase}`);
  }
  return { source, layer, head, notes };
}

/** For attributions at the input, the same in a layer, and vice versa; null if the store has no such pair. */
export function counterpart(header: Header, shown: Resolved, selection: Pick<SelectionStore, "get">): Resolved | null {
  const { method, unit, stack } = shown.source;
  const other = isByLayer(method) ? method.replace(BY_LAYER, "") : method + BY_LAYER;
  const source = header.sources.find(({ id }) => id === `${other}/${unit}/${stack}`);
  if (!source) return null;
  const layer = nearest(source.layers, selection.get("layer"));
  return { ...shown, source, layer, head: resolveHead(source, selection.get("head")) };
}

/** Attributions in every layer, if the store has them; otherwise `shown` itself. */
export function layered(header: Header, shown: Resolved, selection: Pick<SelectionStore, "get">): Resolved {
  return (!isByLayer(shown.source.method) && counterpart(header, shown, selection)) || shown;
}
