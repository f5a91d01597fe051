/** The shared selection: reading it, writing it, and matching it with one view's store. */
import type { AnyModel } from "@anywidget/types";

import { headlessWords, headsOf } from "./views/base/mixers.ts";
import { followMoves, sign } from "./wire/moves.ts";
import type { ViewOptions } from "./wire/viewState.ts";
import type { Axis, Cell, Header, HeadKey, Preview, SelectionState, Source, Span } from "./wire/wire.ts";

/** Maximum number of pinned cells. */
export const MOST_PINS = 400;

/** The shared selection, from the side of a single view. */
export interface SelectionStore {
  get<K extends keyof SelectionState>(key: K): SelectionState[K];
  /** Set and save to the kernel (layer, head, unit, method, stack, pinned). */
  set(values: Partial<Omit<SelectionState, "hover">>): void;
  /** Preview a cell, a head or a feature, in the browser only. */
  hover(preview: Preview | null): void;
  /** Pin this cell only; pinning the pinned cell again, or null, unpins. */
  pin(cell: Cell | null): void;
  /** Pin all of these cells; the last is the primary pin. */
  pinAll(cells: readonly Cell[]): void;
  /** Add these heads to those chosen together, or remove them if all are among them. */
  toggleHeads(heads: SelectionState["heads"]): void;
  /** Add these heads to those chosen together. */
  addHeads(heads: SelectionState["heads"]): void;
  setSpan(span: Span | null): void;
  /** Unpin all cells, and choose no heads and no span. */
  clear(): void;
  subscribe(signal: AbortSignal, cb: (key: keyof SelectionState) => void): void;
}

/** The state that a view currently shows: its options and the selection, matched with the store. */
export interface Resolved {
  source: Source;
  layer: number;
  head: HeadKey;
  /** Shown in the heading if the selection cannot be followed: "layer 11 is not in rollout: showing 5". */
  notes: string[];
}

const BY_LAYER = ":layers";
const isByLayer = (method: string): boolean => method.endsWith(BY_LAYER);

type Heads = SelectionState["heads"];
type Model = AnyModel<SelectionState & Record<string, unknown>>;

const KEYS: (keyof SelectionState)[] = [
  "layer",
  "head",
  "unit",
  "method",
  "stack",
  "pinned",
  "pins",
  "heads",
  "span",
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
  /** All pinned cells in the indices of `source`, each once, in their order. */
  pinsIn(header: Header, source: Source): Cell[];
  /** The elements on this side of `source` that the span covers, as [start, stop), or null. */
  spanIn(side: Span["side"], header: Header, source: Source): [number, number] | null;
}

export function sameCell(a: Cell | null, b: Cell | null): boolean {
  if (a === null || b === null) return a === b;
  return a.unit === b.unit && a.query === b.query && a.key === b.key && a.layer === b.layer;
}

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

const without = (cells: readonly Cell[], cell: Cell): Cell[] => cells.filter((other) => !sameCell(other, cell));

/** `cells` without `cell`, or with it as the last. A token that becomes half of a pair is no longer alone. */
export function toggled(cells: readonly Cell[], cell: Cell): Cell[] {
  const others = without(cells, cell);
  if (others.length < cells.length) return others;
  const isPair = cell.query >= 0 && cell.key >= 0;
  return [...(isPair ? without(others, { ...cell, key: -1 }) : others), cell];
}

/** `cells` and `more`, those that are in both standing last. */
export function joined(cells: readonly Cell[], more: readonly Cell[]): Cell[] {
  return [...more.reduce((remaining, cell) => without(remaining, cell), [...cells]), ...more];
}

/** The cells of a rectangle between two corners, row by row. */
export function rectangle(from: readonly [number, number], to: readonly [number, number]): [number, number][] {
  const [top, left] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
  const [high, wide] = [Math.abs(from[0] - to[0]) + 1, Math.abs(from[1] - to[1]) + 1];
  return Array.from({ length: high * wide }, (_, i) => [top + Math.floor(i / wide), left + (i % wide)]);
}

/**
 * The selection through a proxy of its model, in the page of this number. Its listeners end with the signal passed to
 * them.
 */
export function createSelection(model: Model, page: number): BoundSelection {
  const save = (changes: Partial<SelectionState>): void => {
    const values = { ...changes };
    // The pinned cell is the last of all pins, and heads belong to their stack.
    if (values.pins) values.pinned = values.pins.at(-1) ?? null;
    else if (values.pinned !== undefined) values.pins = values.pinned ? [values.pinned] : [];
    if (values.stack !== undefined && values.stack !== model.get("stack")) values.heads = [];
    const moved = Object.entries(values).filter(([key, value]) => !isSame(value, model.get(key)));
    if (moved.length === 0) return;
    for (const [key, value] of moved) model.set(key as keyof SelectionState, value as never);
    sign(
      model,
      page,
      moved.map(([key]) => key),
    );
    model.save_changes();
  };
  /** The heads chosen together. The shown head is the first of them, so that they do not change with the layer. */
  const chosenHeads = (): Heads => {
    const [heads, layer, head] = [model.get("heads"), model.get("layer"), model.get("head")];
    return heads.length || typeof head !== "number" ? heads : [[layer, head]];
  };
  const notIn =
    (heads: Heads) =>
    ([layer, head]: Heads[number]): boolean =>
      !heads.some((other) => other[0] === layer && other[1] === head);
  return {
    get: (key) => model.get(key),
    set: save,
    hover(preview) {
      if (!isSame(preview, model.get("hover"))) model.set("hover", preview);
    },
    pin(cell) {
      const now = model.get("pinned");
      if (cell === null && now === null) return;
      save({ pinned: sameCell(cell, now) ? null : cell });
    },
    pinAll: (pins) => save({ pins: pins.slice(-MOST_PINS) }),
    toggleHeads(heads) {
      const now = chosenHeads();
      const others = now.filter(notIn(heads));
      save({ heads: heads.some(notIn(now)) ? [...others, ...heads] : others });
    },
    addHeads(heads) {
      save({ heads: [...chosenHeads().filter(notIn(heads)), ...heads] });
    },
    setSpan(span) {
      if (span !== null || model.get("span") !== null) save({ span });
    },
    clear() {
      if (model.get("pins").length || model.get("heads").length || model.get("span")) {
        save({ pins: [], heads: [], span: null });
      }
    },
    subscribe(signal, cb) {
      followMoves(model, page, signal);
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
    pinsIn(header, source) {
      const moved = model.get("pins").flatMap((cell) => translateCell(cell, header, source) ?? []);
      // Several pinned tokens may be in the same word; the word takes the order of the last.
      const byPosition = new Map<string, Cell>();
      for (const cell of moved) {
        const position = [cell.query, cell.key, cell.layer].join();
        byPosition.delete(position);
        byPosition.set(position, cell);
      }
      return [...byPosition.values()];
    },
    spanIn(side, header, source) {
      const span = model.get("span");
      return span && translateSpan(span, side, header, source);
    },
  };
}

/** Token indices behind element `i`. */
function tokensOf(axis: Axis, i: number): number[] {
  return axis.spans ? (axis.spans[i] ?? []) : [i];
}

const INVERSE = new WeakMap<Axis, Map<number, number>>();

/** Index of the element of an axis that holds a token; -1 if there is none. */
function elementOf(token: number, axis: Axis): number {
  if (axis.spans === null) return token < axis.labels.length ? token : -1;
  let inverse = INVERSE.get(axis);
  if (!inverse) {
    inverse = new Map();
    for (const [element, span] of axis.spans.entries()) {
      for (const token of span) if (!inverse.has(token)) inverse.set(token, element);
    }
    INVERSE.set(axis, inverse);
  }
  return inverse.get(token) ?? -1;
}

/** Indices of the elements of `to` that share a token with element `i` of `from`. */
function elementsOf(i: number, from: Axis, to: Axis): number[] {
  if (i < 0) return [];
  const elements = from === to ? [i] : tokensOf(from, i).map((token) => elementOf(token, to));
  return elements.filter((at) => at >= 0 && at < to.labels.length);
}

/** Index of the first element of `to` that shares a token with element `i` of `from`; -1 if there is none. */
export function translateIndex(i: number, from: Axis, to: Axis): number {
  return elementsOf(i, from, to)[0] ?? -1;
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
    const same = { ...cell, query: within(cell.query, query), key: within(cell.key, key) };
    return same.query < 0 && same.key < 0 ? null : same;
  }
  const origin = originOf(cell.unit, header, source);
  const fromQuery = origin && header.axes[origin.query];
  const fromKey = origin && header.axes[origin.key];
  if (!fromQuery || !fromKey) return null;
  const moved = {
    ...cell,
    unit: source.unit,
    query:
      source.kind === "attributions" || origin.kind === "attributions"
        ? -1
        : translateIndex(cell.query, fromQuery, query),
    key: translateIndex(cell.key, fromKey, key),
  };
  return moved.query < 0 && moved.key < 0 ? null : moved;
}

/** The source whose axes a cell or span in another unit counts. */
function originOf(unit: string, header: Header, source: Source): Source | undefined {
  const same = header.sources.filter((s) => s.unit === unit && s.stack === source.stack);
  return same.find((s) => s.kind === "map") ?? same[0];
}

const ofExplanations = ({ method, stack }: Source): boolean => method === "comparison" && stack === "self";

/**
 * Translate a span to the elements on a side of `source`. In self-attention both sides are the same text, so a span of
 * either side is a span of the other.
 */
export function translateSpan(span: Span, side: Span["side"], header: Header, source: Source): [number, number] | null {
  const origin = originOf(span.unit, header, source);
  if (!origin) return null;
  // The rows of a comparison are explanations: there the text of both sides is that of the keys.
  const chosen = ofExplanations(origin) ? "key" : span.side;
  const [from, to] = [header.axes[origin[chosen]], header.axes[source[side]]];
  if (!from || !to || (side !== chosen && origin.query !== origin.key)) return null;
  if (from !== to && side === "query" && source.kind === "attributions") return null;
  let [start, stop] = [Number.POSITIVE_INFINITY, 0];
  for (let i = span.start; i < span.stop; i += 1) {
    for (const at of elementsOf(i, from, to)) [start, stop] = [Math.min(start, at), Math.max(stop, at + 1)];
  }
  return start < stop ? [start, stop] : null;
}

/** The element of `list` nearest to `target`. */
export function nearest(list: readonly number[], target: number): number {
  let best = list[0] ?? 0;
  for (const item of list) if (Math.abs(item - target) < Math.abs(best - target)) best = item;
  return best;
}

function choose<T>(list: T[], matches: (item: T) => boolean): [T[], boolean] {
  const matching = list.filter(matches);
  return matching.length > 0 ? [matching, true] : [list, false];
}

/** The head to show for a selected head: itself, a reduction, or "-" without a head axis. */
export function resolveHead(source: Source, layer: number, head: HeadKey): HeadKey {
  if (source.heads === null) return "-";
  if (head === "mean" || head === "max") return head;
  if (head === "-") return "mean";
  return nearest(headsOf(source, layer), head);
}

/**
 * The state that a view shows. The options of the view take precedence over the selection; if the store lacks
 * something, the nearest available replaces it, and `notes` mentions it.
 */
export function resolve(header: Header, options: ViewOptions, selection: Pick<SelectionStore, "get">): Resolved {
  const notes: string[] = [];
  const selectedMethod = options.method ?? selection.get("method");
  const layers = `${selectedMethod}:layers`;
  const inside = selection.get("inside") && header.sources.some((s) => s.method === layers);
  const method = inside ? layers : selectedMethod;
  const [byMethod, hasMethod] = choose(header.sources, (s) => s.method === method);
  const first = byMethod[0];
  if (!first) throw new Error("attnwidgets: nothing to show: the store is empty");
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

  const selectedLayer = selection.get("layer");
  const layer = nearest(source.layers, selectedLayer);
  if (layer !== selectedLayer && source.kind === "map") {
    const base = options.indexBase;
    notes.push(`layer ${selectedLayer + base} is not in ${source.title}: showing ${layer + base}`);
  }
  const selectedHead = selection.get("head");
  const head = resolveHead(source, layer, selectedHead);
  const isOther = typeof selectedHead === "number" && typeof head === "number" && head !== selectedHead;
  if (isOther && !headlessWords(source, layer, head)) {
    notes.push(`head ${selectedHead + options.indexBase} is not available: showing ${head + options.indexBase}`);
  }
  return { source, layer, head, notes };
}

/** For attributions at the input, the same in a layer, and vice versa; null if the store lacks such a pair. */
export function counterpart(header: Header, shown: Resolved, selection: Pick<SelectionStore, "get">): Resolved | null {
  const { method, unit, stack } = shown.source;
  const other = isByLayer(method) ? method.replace(BY_LAYER, "") : method + BY_LAYER;
  const source = header.sources.find(({ id }) => id === `${other}/${unit}/${stack}`);
  if (!source) return null;
  const layer = nearest(source.layers, selection.get("layer"));
  return { ...shown, source, layer, head: resolveHead(source, layer, selection.get("head")) };
}

/** Attributions in every layer, if the store has them; otherwise `shown` itself. */
export function layered(header: Header, shown: Resolved, selection: Pick<SelectionStore, "get">): Resolved {
  return (!isByLayer(shown.source.method) && counterpart(header, shown, selection)) || shown;
}
