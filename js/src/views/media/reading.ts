/**
 * Which patch of a picture is read: under the pointer, by keys, pinned, or the strongest; its outline, its line of words,
 * and its exact number.
 */
import type { ViewContext } from "../../context.ts";
import { h, keyboard, on, setBox, setFlag, spotAt } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { HeadKey, Source } from "../../wire/wire.ts";
import { createExactRows, type ExactRows } from "../base/cellValues.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import type { Frame } from "../base/frame.ts";
import { headAddress, layerWords, moveHead, moveLayer } from "../base/navigation.ts";
import { type Chosen, elementName, elementsOf } from "./elements.ts";
import type { PatchRows } from "./rows.ts";

const KEYS =
  "arrows: read the next patch · Enter: what it reads · Space: pin the pair · Shift + ↑ ↓: layer · Shift + ← →: head · Home: back to the first · Escape: unpin";

/** The shown map, once its numbers have arrived. */
export interface Shown {
  source: Source;
  chosen: Chosen;
  rows: PatchRows;
  layer: number;
  head: HeadKey;
  values: Float32Array;
  /** Rows and columns of the picture, and the element of each of its patches. */
  grid: readonly [number, number];
  patches: readonly number[];
}

/** Whether the reading is of words apart from the picture: those that read a patch of it. */
const ofWords = ({ rows }: Shown): boolean => rows.patches.length === 0;

/** The parts around the reading. */
export interface Surroundings {
  root: HTMLElement;
  plot: HTMLElement;
  shown(): Shown | null;
  /** The size of the picture in px. */
  size(): readonly [number, number];
  /** The size of the model's input, in its px. */
  seen(): readonly [number, number] | null;
  frame(): Frame;
  look(side: Chosen["side"], index: number): void;
}

export interface Reading {
  /** Copies the number that is read; null in a view inside another. */
  copy: CopyButton | null;
  /** Draw the outlines and describe the elements that are read. */
  point(): void;
  /** Describe a small map; -1, -1: none is hovered. */
  pointMap(layer: number, head: number): void;
  /** Go back to the pinned or strongest element, unless the reader is in the picture. */
  settle(): void;
}

/** The elements of the reading, and its state. */
interface ReadingState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly plot: HTMLElement;
  readonly current: () => Shown | null;
  readonly size: () => readonly [number, number];
  readonly sizeSeen: () => readonly [number, number] | null;
  readonly frame: () => Frame;
  readonly look: (side: Chosen["side"], index: number) => void;
  readonly query: HTMLDivElement;
  readonly pinnedKey: HTMLDivElement;
  readonly hovered: HTMLDivElement;
  /** By its index in the grid; -1: the pinned element, or the strongest. */
  reading: number;
  /** Whether the readout is spoken: after a key, not after the pointer. */
  spoken: boolean;
  readonly exactRows: ExactRows;
  readonly copy: CopyButton | null;
}

export function createReading(
  ctx: ViewContext,
  signal: AbortSignal,
  { root, plot, shown: current, size, seen: sizeSeen, frame, look }: Surroundings,
): Reading {
  const { selection } = ctx;
  const [query, pinnedKey, hovered] = [h("div.spot.image-query-spot"), h("div.spot.image-pin-spot"), h("div.spot")];
  plot.append(hovered, query, pinnedKey);
  const exactRows = createExactRows(ctx, () => point(state));
  on(plot, signal, {
    pointermove(event) {
      state.spoken = false;
      readCell(state, cellAt(state, event));
    },
    pointerleave: () => readCell(state, -1),
    click(event) {
      if (event.shiftKey) pinPair(state, cellAt(state, event));
      else lookAt(state, cellAt(state, event));
    },
    blur: () => readCell(state, -1),
  });
  const copy = ctx.el === root ? createCopyButton(ctx, signal, () => numberAddress(state)) : null;

  const state: ReadingState = {
    ctx,
    root,
    plot,
    current,
    size,
    sizeSeen,
    frame,
    look,
    query,
    pinnedKey,
    hovered,
    reading: -1,
    spoken: false,
    exactRows,
    copy,
  };
  keyboard(
    plot,
    signal,
    {
      ArrowUp: step(state, -1, 0),
      ArrowDown: step(state, 1, 0),
      ArrowLeft: step(state, 0, -1),
      ArrowRight: step(state, 0, 1),
      Enter: () => lookAt(state, cursor(state)),
      " ": () => pinPair(state, cursor(state)),
      "Shift+ArrowUp": () => moveLayer(ctx, -1),
      "Shift+ArrowDown": () => moveLayer(ctx, 1),
      "Shift+ArrowLeft": () => moveHead(ctx, -1),
      "Shift+ArrowRight": () => moveHead(ctx, 1),
      Home: () => selection.clear(),
      Escape: () => selection.clear(),
    },
    KEYS,
  );
  return {
    copy,
    point: () => point(state),
    pointMap: (layer, head) => pointMap(state, layer, head),
    settle() {
      state.reading = plot.matches(":hover, :focus") ? state.reading : -1;
    },
  };
}

/** The patch that is read: under the pointer, pinned, or the strongest; an element of the map's axis, or -1. */
function readElement(state: ReadingState, now: Shown): { element: number; how: string } {
  const { ctx, reading } = state;
  const { rows, chosen, values, source } = now;
  const otherSide = chosen.side === "query" ? "key" : "query";
  const pinned = source.kind === "attributions" ? null : ctx.cell("pinned");
  const pin = pinned?.[otherSide] ?? -1;
  if (ofWords(now)) {
    const rest = rows.rest(now.layer, now.head);
    const most = rest.reduce((best, value, i) => (Math.abs(value) > Math.abs(rest[best] as number) ? i : best), 0);
    return pin >= 0 ? { element: pin, how: "pinned" } : { element: rows.others[most] ?? -1, how: "strongest" };
  }
  if (reading >= 0) {
    const element = rows.patches[reading] ?? -1;
    return { element, how: element === pin ? "pinned" : "" };
  }
  const over = ctx.cell("hover")?.[otherSide] ?? -1;
  if (over >= 0 && !state.plot.matches(":hover")) return { element: over, how: "" };
  if (pin >= 0) return { element: pin, how: "pinned" };
  let best = 0;
  for (let i = 1; i < values.length; i += 1)
    if (Math.abs(values[i] as number) > Math.abs(values[best] as number)) best = i;
  // Values are rounded: several may seem the strongest.
  const isAlone = values.every((value, i) => i === best || Math.abs(value) !== Math.abs(values[best] as number));
  return { element: rows.patches[best] ?? -1, how: isAlone ? "strongest" : "among the strongest" };
}

function spot(state: ReadingState, el: HTMLElement, cell: number): void {
  const { size } = state;
  const [rows, cols] = state.current()?.grid ?? [1, 1];
  const [wide, high] = [size()[0] / cols, size()[1] / rows];
  if (cell < 0) setBox(el, -1, -1, 0, 0);
  else setBox(el, (cell % cols) * wide, Math.floor(cell / cols) * high, wide, high);
}

/** Outlines and the readout. Runs on every pointer move. */
function point(state: ReadingState): void {
  const { ctx, frame, pinnedKey } = state;
  const shown = state.current();
  if (!shown) return;
  const { source, chosen, rows, values } = shown;
  const targets = source.kind === "attributions";
  const axis = ctx.axisOf(chosen.side === "query" ? source.key : source.query);
  const chosenAxis = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
  const { cells, grid } = elementsOf(axis);
  const { element, how } = readElement(state, shown);
  const cell = cells[element] ?? -1;
  spot(state, state.query, targets ? -1 : (elementsOf(chosenAxis).cells[chosen.index] ?? -1));
  spot(state, pinnedKey, how ? cell : -1);
  setFlag(pinnedKey, "data-pinned", how === "pinned");
  spot(state, state.hovered, ofWords(shown) ? state.reading : how ? -1 : cell);
  state.copy?.show();
  if (frame().readout.isSilent || element < 0) return;
  const exact = exactOf(state, shown, element, how === "pinned");
  const at = rows.others.indexOf(element);
  const value = cell >= 0 ? (values[cell] as number) : rows.rest(shown.layer, shown.head)[at];
  const peak =
    how === "strongest" && cell >= 0 ? Math.sign(value ?? 0) * rows.peak(shown.layer, shown.head) : undefined;
  const number =
    (exact ?? peak) === undefined || Number.isNaN(exact ?? peak)
      ? `≈ ${printed(value ?? Number.NaN, false)}`
      : printed((exact ?? peak) as number, true);
  const [from, to] = [elementName(ctx, chosenAxis, chosen.index), elementName(ctx, axis, element)];
  const pair = targets ? to : chosen.side === "query" ? `${from} → ${to}` : `${to} → ${from}`;
  const seen = state.sizeSeen();
  const [row, col] = [Math.floor(cell / grid[1]), cell % grid[1]];
  const px = (i: number, count: number, length: number): string =>
    `${Math.round((i * length) / count)}–${Math.round(((i + 1) * length) / count) - 1}`;
  const where = seen && cell >= 0 ? `px ${px(row, grid[0], seen[0])}, ${px(col, grid[1], seen[1])}` : "";
  frame().readout.show(
    [`${pair} ${number}`, where, mapWords(ctx, shown), how].filter(Boolean).join(" · "),
    state.spoken || state.root.contains(document.activeElement),
  );
}

function mapWords(ctx: ViewContext, { source }: Shown): string {
  const { layer, head } = ctx.resolved();
  if (source.kind === "attributions") return source.layers.length > 1 ? layerWords(ctx, source, layer) : "";
  if (typeof head === "number") return `head ${headAddress(ctx, layer, head)}`;
  return `layer ${ctx.layerName(layer)}${head === "-" ? "" : `, ${head} of heads`}`;
}

/** The exact number, requested when it is pinned, or when the pointer rests. */
function exactOf(state: ReadingState, { source, chosen }: Shown, element: number, ask: boolean): number | undefined {
  const targets = source.kind === "attributions";
  const row = targets
    ? Math.max(0, state.ctx.cell("pinned")?.query ?? 0)
    : chosen.side === "query"
      ? chosen.index
      : element;
  const key = targets || chosen.side === "query" ? element : chosen.index;
  return state.exactRows(row, ask)?.[key];
}

function numberAddress(state: ReadingState): ({ of: string } & Record<string, unknown>) | null {
  const { ctx } = state;
  const shown = state.current();
  if (!shown) return null;
  const { source, chosen } = shown;
  const { layer, head } = ctx.resolved();
  const { element } = readElement(state, shown);
  const [row, key] = chosen.side === "query" ? [chosen.index, element] : [element, chosen.index];
  const query = source.kind === "attributions" ? Math.max(0, ctx.cell("pinned")?.query ?? 0) : row;
  return element < 0 ? null : { of: "cell", source: source.id, layer, head, query, key };
}

function pointMap(state: ReadingState, layer: number, head: number): void {
  const { ctx } = state;
  const shown = state.current();
  if (!shown || layer < 0) {
    point(state);
    return;
  }
  const { source, rows } = shown;
  const first = rows.others[0];
  const axis = ctx.axisOf(source.key);
  const share = first === undefined ? "" : ` · ${axis.labels[first]} ${(rows.rest(layer, head)[0] ?? 0).toFixed(3)}`;
  const name = source.heads
    ? `head ${headAddress(ctx, source.layers[layer] as number, source.heads[head] as number)}`
    : `layer ${ctx.layerName(source.layers[layer] ?? layer)}`;
  state.frame().readout.show(`${name}${share} · patches ${rows.sum(layer, head).toFixed(3)}`, false);
}

// ---- pointer and keys ----
function cellAt(state: ReadingState, event: MouseEvent): number {
  const [rows, cols] = state.current()?.grid ?? [0, 0];
  const at = spotAt(event, state.plot, rows, cols);
  return at ? at[0] * cols + at[1] : -1;
}

/** Read a patch: linked views follow. */
function readCell(state: ReadingState, cell: number): void {
  state.reading = cell;
  const shown = state.current();
  if (!shown) return;
  const { chosen, patches, source } = shown;
  const element = patches[cell] ?? -1;
  const row = source.kind === "attributions" ? -1 : chosen.index;
  const over = ofWords(shown)
    ? { query: -1, key: element }
    : chosen.side === "query"
      ? { query: row, key: element }
      : { query: element, key: row };
  state.ctx.selection.hover(cell < 0 ? null : { unit: source.unit, ...over });
  point(state);
}

/** Pin the chosen element together with the patch that is read. */
function pinPair(state: ReadingState, cell: number): void {
  const shown = state.current();
  if (!shown || cell < 0) return;
  const { chosen, rows, source } = shown;
  if (ofWords(shown)) {
    lookAt(state, cell);
    return;
  }
  const element = rows.patches[cell] as number;
  const pair = chosen.side === "query" ? { query: chosen.index, key: element } : { query: element, key: chosen.index };
  state.ctx.selection.pin({ unit: source.unit, ...pair });
}

/** Look at a patch; for a chosen word, show the readers of the patch. */
function lookAt(state: ReadingState, cell: number): void {
  const shown = state.current();
  if (!shown || cell < 0) return;
  const { source, patches, chosen } = shown;
  const element = patches[cell] as number;
  if (source.kind === "attributions") return;
  state.look(source.query === source.key ? chosen.side : "key", element);
}

function step(state: ReadingState, rows: number, cols: number): () => void {
  return (): void => {
    const shown = state.current();
    if (!shown) return;
    const [down, across] = shown.grid;
    const from = Math.max(0, cursor(state));
    const row = Math.max(0, Math.min(down - 1, Math.floor(from / across) + rows));
    const col = Math.max(0, Math.min(across - 1, (from % across) + cols));
    state.spoken = true;
    readCell(state, row * across + col);
  };
}

function cursor(state: ReadingState): number {
  const { reading } = state;
  const shown = state.current();
  if (!shown || reading >= 0) return shown ? reading : -1;
  return shown.patches.indexOf(ofWords(shown) ? shown.chosen.index : readElement(state, shown).element);
}
