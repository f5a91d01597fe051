/**
 * A small row beneath a text: how much the visible block forgets at each token. Its cells are aligned with the tokens
 * of a text of a single line; under a longer text they share the width. The darker a cell, the more is forgotten there.
 */

import { colourAt, heatMap } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, onResize, quoted, setFlag, setStyles, setText } from "../../dom.ts";
import type { Answers } from "../../wire/answers.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { headAt } from "../base/navigation.ts";

/** The least end of the scale: the twin of forgetting.py. */
const LEAST = 0.01;
/** A difference that two decimals do not show. */
const ALIKE = 0.005;
/** px of a cell below which two cells touch. */
const NARROW = 4;

/** The option "forgetting": names of the rows of each layer, by stack and number. */
type Layers = Record<string, Record<number, string[]>>;

interface Row {
  /** "decay", or "beta". */
  name: string;
  values: Float32Array;
}

export interface Forgetting {
  element: HTMLElement;
  /** Follow the selection, and the pointer. */
  show(): void;
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The rows of a head, or of the mean over all that forget; those that do not, are all NaN. */
export function rowsOf(names: readonly string[], heads: number, bytes: DataView, head: HeadKey): Row[] {
  const count = bytes.byteLength / 4 / heads / names.length;
  const at = (row: number, i: number): number => bytes.getFloat32(4 * (row * count + i), true);
  const each = Array.from({ length: heads }, (_, i) => i);
  return names
    .map((name, row) => {
      const chosen = typeof head === "number" ? [head] : each.filter((h) => !Number.isNaN(at(row * heads + h, 0)));
      const values = Float32Array.from({ length: count }, (_, i) => mean(chosen.map((h) => at(row * heads + h, i))));
      return { name, values };
    })
    .filter(({ values }) => values.some((value) => !Number.isNaN(value)));
}

/** Where most is forgotten, in a sentence: the twin of `forgetting_words` in forgetting.py. */
export function forgettingWords(rows: readonly Row[], labels: readonly string[]): string {
  const parts = rows.map(({ name, values }) => {
    const finite = [...values].filter((value) => !Number.isNaN(value));
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    if (high - low < ALIKE) return `${name} ${high.toFixed(2)} at every token`;
    const [most, word] = name === "decay" ? [low, "lowest"] : [high, "highest"];
    const at = labels[values.indexOf(most)]?.trim();
    return `${name} ${word} at “${at}” (${most.toFixed(2)}), ${mean(finite).toFixed(2)} on average`;
  });
  return parts.length > 0 ? `What is forgotten: ${parts.join("; ")}.` : "";
}

/** The rows of the shown block, none if it forgets nothing; or why they are missing, "" before they arrive. */
function read(ctx: ViewContext, answers: Answers): Row[] | string {
  const { source, layer, head } = ctx.resolved();
  if (!layersOf(ctx)?.[layer]) return [];
  const request = ["forgetting", { stack: source.stack, unit: source.unit, layer }] as const;
  const answer = answers.get<{ names: string[]; heads: number }>(...request, true);
  const [bytes] = answer?.buffers ?? [];
  if (!answer || !bytes) return answers.failure(...request) ?? "";
  return rowsOf(answer.meta.names, answer.meta.heads, bytes, head);
}

/** The option for the shown map; undefined for attributions, and for maps of changed models. */
function layersOf(ctx: ViewContext): Layers[string] | undefined {
  const { kind, mixers, method, stack } = ctx.source();
  const { forgetting } = ctx.options as { forgetting?: Layers };
  return kind === "map" && mixers && !method.includes("#") ? forgetting?.[stack] : undefined;
}

/** Its elements, and the state that they show. */
interface ForgettingState {
  readonly ctx: ViewContext;
  readonly answers: Answers;
  readonly texts: HTMLElement;
  readonly bars: HTMLDivElement;
  readonly words: HTMLSpanElement;
  readonly element: HTMLDivElement;
  /** The drawn rows; null until they arrive. */
  rows: Row[] | null;
  /** The input of the drawn bars. */
  drawn: string;
  /** The element reached by keys; -1: none. */
  reached: number;
  /** px where the words of the lines end. */
  ends: number[];
}

/** `texts` holds the tokens above the row. */
export function createForgetting(
  ctx: ViewContext,
  signal: AbortSignal,
  answers: Answers,
  texts: HTMLElement,
): Forgetting {
  const role = { role: "slider", tabindex: "0", "aria-label": "what is forgotten at each token", "aria-valuemin": "0" };
  const [bars, words] = [h("div.forget-bars", role), h("span.forget-words.clip")];
  const element = h("div.forget", { hidden: "" }, bars, words);

  const view: ForgettingState = {
    ctx,
    answers,
    texts,
    bars,
    words,
    element,
    rows: null,
    drawn: "",
    reached: -1,
    ends: [],
  };
  on(bars, signal, {
    pointermove(event) {
      const x = event.clientX - bars.getBoundingClientRect().left;
      hover(
        ctx,
        view.ends.length > 0 && x < (view.ends.at(-1) ?? 0) ? view.ends.filter((end) => end <= x).length - 1 : -1,
      );
    },
    pointerleave: () => hover(ctx, -1),
    focusout() {
      view.reached = -1;
      hover(ctx, -1);
    },
  });
  keyboard(
    bars,
    signal,
    {
      ArrowLeft: go(view, (at) => at - 1),
      ArrowRight: go(view, (at) => at + 1),
      Home: go(view, () => 0),
      End: go(view, (_, last) => last),
    },
    "← → Home End: token",
  );
  onResize([texts, bars], signal, () => element.hidden || show(view));
  return { element, show: () => show(view) };
}

function hover(ctx: ViewContext, key: number): void {
  ctx.selection.hover(key < 0 ? null : { unit: ctx.source().unit, query: -1, key });
}

/** The edges of the cells, in px of the row, which is as wide as a text of a single line. */
function edges(view: ForgettingState, count: number): number[] {
  const { bars } = view;
  const tokens = [...view.texts.querySelectorAll(".aw-tok")].map((token) => token.getBoundingClientRect());
  const { left, width } = view.element.getBoundingClientRect();
  const [first, last] = [tokens[0], tokens.at(-1)];
  const isInLine = tokens.every((box, i) => box.top < (first?.bottom ?? 0) && box.left >= (tokens[i - 1]?.left ?? 0));
  const isUnder = Boolean(last && isInLine && tokens.length === count && last.right <= left + width);
  setStyles(bars, { flex: isUnder ? `0 0 ${(last as DOMRect).right - left}px` : "" });
  if (isUnder) return [...tokens.map((box) => box.left - left), (last as DOMRect).right - left];
  const wide = bars.getBoundingClientRect().width;
  return Array.from({ length: count + 1 }, (_, i) => (i * wide) / count);
}

function paint(view: ForgettingState, count: number): void {
  const { ctx } = view;
  view.ends = edges(view, count);
  const rows = view.rows ?? [];
  const looks = [JSON.stringify(view.ends), ctx.theme, ...rows.map(({ name, values }) => `${name} ${values.join()}`)];
  if (view.drawn === looks.join("|")) return;
  view.drawn = looks.join("|");
  const map = heatMap(false, ctx.theme, "");
  const gap = (view.ends.at(-1) ?? 0) / count < NARROW ? 0 : 1;
  const bands = rows.map(({ name, values }) => {
    const lost = [...values].map((value) => (name === "decay" ? 1 - value : value) || 0);
    const top = Math.max(LEAST, ...lost);
    const stops = lost.map((value, i) => {
      const colour = `rgb(${colourAt(map, Math.max(0, Math.min(1, value / top))).join(" ")})`;
      const [from = 0, to = 0] = [view.ends[i], view.ends[i + 1]];
      return `${colour} ${from}px ${to - gap}px, transparent ${to - gap}px ${to}px`;
    });
    return `linear-gradient(90deg, ${stops.join(", ")})`;
  });
  setStyles(view.bars, {
    "background-image": bands.join(", ") || "none",
    "background-position": bands.map((_, i) => `0 ${i * 100}%`).join(", "),
    "background-size": `${view.ends.at(-1) ?? 0}px calc(${100 / Math.max(1, bands.length)}% - ${bands.length - 1}px)`,
  });
}

function go(view: ForgettingState, to: (at: number, last: number) => number): () => void {
  return (): void => {
    const last = (view.rows?.[0]?.values.length ?? 0) - 1;
    view.reached = Math.max(0, Math.min(last, to(view.reached, last)));
    hover(view.ctx, view.reached);
  };
}

function show(view: ForgettingState): void {
  const { ctx, words, element } = view;
  const layers = layersOf(ctx);
  assign(element, { hidden: !layers });
  if (!layers) return;
  const state = read(ctx, view.answers);
  view.rows = typeof state === "string" ? null : state;
  setFlag(element, "data-stale", !view.rows);
  const { source, layer, head } = ctx.resolved();
  const { labels } = ctx.axisOf(source.key);
  const rows = view.rows ?? [];
  const cell = ctx.cell("hover") ?? ctx.cell("pinned");
  const at = cell ? (cell.key >= 0 ? cell.key : cell.query) : -1;
  const numbers = rows.map(({ name, values }) => {
    const [low, high] = at < 0 ? [Math.min(...values), Math.max(...values)] : [values[at], values[at]];
    const [from, to] = [low, high].map((value) => (value as number).toFixed(2));
    return from === to ? `${name} ${from}` : `${name} ${from} to ${to}`;
  });
  const name = at >= 0 && rows.length > 0 ? `${quoted(labels, at, ctx.options.indexBase)}: ` : "";
  const nothing = typeof state === "string" ? state : `${headAt(ctx, layer, head)} forgets nothing`;
  setText(words, `${name}${numbers.join(", ") || nothing}`);
  const summary = forgettingWords(rows, labels);
  assign(view.bars, {
    ariaLabel: summary || "what is forgotten at each token",
    ariaValueMax: String(Math.max(0, labels.length - 1)),
    ariaValueNow: String(Math.max(0, at)),
    ariaValueText: words.textContent ?? "",
    title: summary && `${summary} In each row, the darker the more is forgotten.`,
  });
  paint(view, labels.length);
}
