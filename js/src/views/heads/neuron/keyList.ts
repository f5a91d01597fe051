/** The keys of a row below each other, with the step's result: a strip of numbers or a bar. Only visible rows exist. */
import type { ViewContext } from "../../../context.ts";
import { h, on, setFlag, setText, shortLabel } from "../../../dom.ts";
import { type Bar, type Box, type Chosen, createChosen } from "../../base/chosen.ts";
import type { Picture } from "../../base/gestures.ts";
import { styleValue } from "../../base/styleValue.ts";
import { textWidth } from "../../maps/labels.ts";
import { type Ink, largest, offsetOf, sharpContext } from "./ink.ts";
import { aligned, numberOf, type Row, type Step, vectorOf } from "./row.ts";

const LINE = 22;
/** Height where the view gives none: more rows scroll; the half row hints at more below. */
const TALLEST = 9.5 * LINE;
/** Width in px of the numbers at the right. */
const VALUES = 64;
/** Longer names are cut to this width. */
const MEASURED = 256;
/**
 * Scores share a scale, so that cap, bias and mask are visible; the dot product and the weights have separate scales.
 */
const SCORES: Step[] = ["scaled", "capped", "biased", "masked"];

export interface KeyList {
  list: HTMLElement;
  show(state: KeyState): void;
  /** `grown` (0 to 1): progress of the bars from the previous step. */
  draw(grown: number): void;
  /** Mark the hovered key; -1: none. */
  point(key: number): void;
  /** Remember the current bars: those of the next step grow out of them. */
  leave(): void;
  reveal(key: number): void;
  /** The key at a position on the page, or -1. */
  keyAt(event: MouseEvent): number;
  /** All keys as a picture of rows, and the key in each row. */
  picture: Picture;
  keyIn(rank: number): number;
  /** Outline keys that are chosen together, and draw the span; in another order than the text's, each separately. */
  choose(keys: readonly number[], span: readonly [number, number] | null): void;
}

export interface KeyState {
  row: Row;
  step: Step;
  labels: readonly string[];
  special: readonly number[];
  /** Keys in display order. */
  order: ArrayLike<number>;
  key: number;
  width: number;
  /** Height in px; 0: as high as the keys need. */
  tall: number;
  ink: Ink;
}

/** Start and length of every key's bar, as shares of the width. */
interface Bars {
  zero: number;
  lengths: Float32Array;
}

/** Whether a mask hides a key from the query: its zero after the softmax is not a weight. */
const isMasked = ({ masked }: Row["by"], key: number): boolean => masked?.[key] === -Infinity;

function barsOf({ by, count }: Row, step: Step): Bars | null {
  const values = by[step];
  if (!values) return null;
  const lengths = new Float32Array(count);
  const scaled = SCORES.includes(step) ? SCORES.filter((name) => by[name]) : [step];
  let [low, high] = [0, 0];
  for (const name of scaled) {
    for (const value of by[name] ?? []) {
      if (value > high) high = value;
      if (value < low && value !== -Infinity) low = value;
    }
  }
  const span = high - low || 1;
  const isAfter = step === "softmax";
  for (const [i, value] of values.entries())
    lengths[i] = value === -Infinity || (isAfter && isMasked(by, i)) ? NaN : value / span;
  return { zero: -low / span, lengths };
}

/** Largest magnitude among the numbers of all keys. */
function largestOf({ q, k, dim }: Row, step: Step): number {
  let most = 1e-30;
  for (let i = 0; i < k.length; i += 1) {
    const size = Math.abs((k[i] as number) * (step === "product" ? (q[i % dim] as number) : 1));
    if (size > most) most = size;
  }
  return most;
}

/** The elements of the list, and the state that they show. */
interface KeyListState {
  readonly ctx: Pick<ViewContext, "theme">;
  readonly canvas: HTMLCanvasElement;
  readonly space: HTMLDivElement;
  readonly list: HTMLDivElement;
  readonly chosen: Chosen;
  readonly pool: { line: HTMLElement; name: HTMLElement; value: HTMLElement }[];
  /** The shown row and step, and the bars of the step before, from which they grow. */
  now: KeyState | null;
  before: Bars | null;
  shown: Bars | null;
  readonly strips: HTMLCanvasElement;
  /** Largest magnitude of a strip. */
  top: number;
  /** px that the list shows. */
  tall: number;
  /** How far the bars have grown, and when they began. */
  grownTo: number;
  begins: number;
  /** The key under the pointer; -1: none. */
  hovered: number;
  /** px of the longest label, of the labels of `measured`. */
  names: number;
  measured: string;
}

export function createKeyList(ctx: Pick<ViewContext, "theme">, signal: AbortSignal): KeyList {
  const canvas = h("canvas.neuron-bars");
  const space = h("div.neuron-space");
  const list = h(
    "div.neuron-keys",
    { tabindex: "0", role: "application", "aria-roledescription": "keys of the row" },
    canvas,
    space,
  );
  const chosen = createChosen(space);
  const pool: { line: HTMLElement; name: HTMLElement; value: HTMLElement }[] = [];
  const strips = h("canvas");

  const view: KeyListState = {
    ctx,
    canvas,
    space,
    list,
    chosen,
    pool,
    now: null,
    before: null,
    shown: null,
    strips,
    top: 1,
    tall: 0,
    grownTo: 1,
    begins: 0,
    hovered: -1,
    names: 0,
    measured: "",
  };
  on(list, signal, { scroll: () => draw(view, view.grownTo) });
  return {
    list,
    draw: (grown) => draw(view, grown),
    show: (state) => show(view, state),
    point(key) {
      view.hovered = key;
      for (const [i, { line }] of pool.entries())
        setFlag(line, "data-hovered", view.now?.order[view.begins + i] === key);
    },
    leave() {
      view.before = view.shown;
    },
    reveal: (key) => reveal(view, key),
    picture: { element: space, size: () => view.now && [view.now.row.count, 1] },
    keyIn: (rank) => keyIn(view, rank),
    choose: (keys, span) => choose(view, keys, span),
    keyAt(event) {
      if (!view.now) return -1;
      const rank = Math.floor((event.clientY - list.getBoundingClientRect().top + list.scrollTop) / LINE);
      return rank >= 0 && rank < view.now.row.count ? (view.now.order[rank] as number) : -1;
    },
  };
}

function rowFor(view: KeyListState, i: number): { line: HTMLElement; name: HTMLElement; value: HTMLElement } {
  const { pool } = view;
  let line = pool[i];
  if (!line) {
    const [name, value] = [h("bdi.neuron-name"), h("span.neuron-value")];
    line = { line: h("div.neuron-key", { "aria-hidden": "true" }, name, value), name, value };
    pool.push(line);
    view.space.append(line.line);
  }
  return line;
}

/** The numbers of the visible keys as an image, a pixel each. */
function strip(
  view: KeyListState,
  { row, step, ink, order }: KeyState,
  first: number,
  last: number,
): HTMLCanvasElement | null {
  const { strips } = view;
  const pen = strips.getContext("2d");
  if (!pen || last <= first) return null;
  [strips.width, strips.height] = [row.dim, last - first];
  const image = new ImageData(row.dim, last - first);
  for (let rank = first; rank < last; rank += 1) {
    for (const [i, value] of vectorOf(row, step, order[rank] as number).entries()) {
      const [at, shade] = [4 * ((rank - first) * row.dim + i), offsetOf(value / view.top)];
      for (let c = 0; c < 3; c += 1) image.data[at + c] = ink.table[shade + c] as number;
      image.data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return strips;
}

function draw(view: KeyListState, grown: number): void {
  const { list, pool, now, tall } = view;
  if (!now || now.width <= 0) return;
  view.grownTo = grown;
  const { row, step, labels, special, order, key, width, ink } = now;
  const first = Math.max(0, Math.floor(list.scrollTop / LINE));
  const last = Math.min(row.count, Math.ceil((list.scrollTop + tall) / LINE));
  const pen = sharpContext(view.canvas, width, tall);
  const left = view.names;
  const room = Math.max(1, width - left - VALUES - 8);
  const most = largest(row.by[step] ?? []);
  const isStrip = step === "vectors" || step === "product";
  const image = isStrip ? strip(view, now, first, last) : null;
  if (pen) pen.imageSmoothingEnabled = false;
  view.begins = first;
  for (let rank = first; rank < last; rank += 1) {
    const at = order[rank] as number;
    const { line, name, value } = rowFor(view, rank - first);
    line.hidden = false;
    line.style.top = `${rank * LINE}px`;
    name.style.width = `${left}px`;
    const label = shortLabel(labels[at] ?? "");
    if (setText(name, label)) name.title = label;
    setFlag(name, "data-special", Boolean(special[at]));
    setFlag(line, "data-chosen", at === key);
    setFlag(line, "data-hovered", at === view.hovered);
    const number = numberOf(row, step, at);
    setText(
      value,
      isStrip
        ? ""
        : number === -Infinity || (step === "softmax" && isMasked(row.by, at))
          ? "masked"
          : aligned(number, most),
    );
    if (!pen) continue;
    const y = rank * LINE - list.scrollTop;
    const x = left + 8;
    if (image) pen.drawImage(image, 0, rank - first, row.dim, 1, x, y + 3, room, LINE - 6);
    else bar(view, pen, at, x, y, room, grown, ink);
  }
  for (let i = last - first; i < pool.length; i += 1) (pool[i] as (typeof pool)[number]).line.hidden = true;
}

function bar(
  view: KeyListState,
  pen: CanvasRenderingContext2D,
  key: number,
  x: number,
  y: number,
  room: number,
  grown: number,
  ink: Ink,
): void {
  const { before, shown } = view;
  if (!shown) return;
  const mix = (from: number, to: number): number => from + (to - from) * grown;
  const length = shown.lengths[key] as number;
  const masked = Number.isNaN(length);
  const zero = x + room * mix(before?.zero ?? shown.zero, shown.zero);
  const long = room * mix(before?.lengths[key] || 0, masked ? 0 : length);
  const isShare = view.now?.step === "softmax";
  pen.fillStyle = isShare ? ink.share : long < 0 ? ink.negative : ink.positive;
  pen.fillRect(Math.min(zero, zero + long), y + 4, Math.abs(long), LINE - 8);
  pen.fillStyle = ink.line;
  pen.fillRect(zero - 0.5, y, 1, LINE);
  if (!masked) return;
  // Masked keys are not zeros.
  pen.strokeStyle = ink.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = 0; at < room; at += 7) {
    pen.moveTo(x + at, y + LINE - 5);
    pen.lineTo(x + at + 5, y + 5);
  }
  pen.stroke();
}

function keyIn(view: KeyListState, rank: number): number {
  return view.now?.order[rank] ?? -1;
}

function show(view: KeyListState, state: KeyState): void {
  const { list } = view;
  if (state.row !== view.now?.row || state.step !== view.now.step) {
    view.shown = barsOf(state.row, state.step);
    if (!view.shown) view.top = largestOf(state.row, state.step);
  }
  view.now = state;
  // Whole rows.
  view.tall = LINE * Math.min(Math.floor((state.tall || TALLEST) / LINE), state.row.count);
  list.style.height = `${view.tall}px`;
  const { labels, width } = state;
  if (view.measured !== `${width} ${labels.length} ${labels[0]}`) {
    view.measured = `${width} ${labels.length} ${labels[0]}`;
    const fontFamily = styleValue(view.ctx, list, "font-family");
    const most = Math.min(140, Math.round(width * 0.32));
    const widths = labels.slice(0, MEASURED).map((label) => textWidth(shortLabel(label), `600 13px ${fontFamily}`));
    view.names = Math.min(most, Math.ceil(Math.max(24, ...widths)) + 9);
  }
  view.canvas.style.marginBottom = `${-view.tall}px`;
  view.space.style.height = `${state.row.count * LINE}px`;
}

function reveal(view: KeyListState, key: number): void {
  const { list, now, tall } = view;
  if (!now) return;
  let rank = 0;
  while (rank < now.row.count && now.order[rank] !== key) rank += 1;
  const top = rank * LINE;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + LINE > list.scrollTop + tall) list.scrollTop = top + LINE - tall;
}

function choose(view: KeyListState, keys: readonly number[], span: readonly [number, number] | null): void {
  const wide = view.list.clientWidth;
  const ranks = new Map(Array.from(view.now?.order ?? [], (key, rank) => [key, rank]));
  const box = (key: number): Box[] => {
    const rank = ranks.get(key);
    return rank === undefined ? [] : [[1, rank * LINE + 1, wide - 6, LINE - 2]];
  };
  const [start, stop] = span ?? [0, 0];
  const covered = Array.from({ length: stop - start }, (_, i) => ranks.get(start + i) ?? -1).filter((at) => at >= 0);
  const bars = covered.map((rank): Bar => [rank * LINE, (rank + 1) * LINE]);
  view.chosen.draw(keys.flatMap(box), bars);
}
