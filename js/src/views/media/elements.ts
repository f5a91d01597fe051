/** The elements of an axis that is, or contains, a picture: patches, and the elements apart from them. */
import type { ViewContext } from "../../context.ts";
import { quoted, safeText } from "../../dom.ts";
import type { Axis, Cell, Source } from "../../wire/wire.ts";

export interface Elements {
  grid: readonly [number, number];
  /** The patch that each element is, row by row, or -1. */
  cells: readonly number[];
  /** The element of every patch. */
  patches: readonly number[];
  /** The other elements: class and register tokens, words. */
  others: readonly number[];
}

const CACHE = new WeakMap<Axis, Elements>();

/** The positions of the patches on an axis. */
export function elementsOf(axis: Axis): Elements {
  const cached = CACHE.get(axis);
  if (cached) return cached;
  const { grid, cells: given, special, labels } = axis;
  let next = 0;
  const cells = labels.map((_, i) => {
    if (!grid) return -1;
    if (given) return given[i] as number;
    return special[i] ? -1 : next++;
  });
  const patches: number[] = [];
  cells.forEach((cell, i) => {
    if (cell >= 0) patches[cell] = i;
  });
  const others = [...cells.keys()].filter((i) => (cells[i] as number) < 0);
  const made: Elements = { grid: grid ?? [0, 0], cells, patches, others };
  CACHE.set(axis, made);
  return made;
}

/** Whether the keys of a source are, or contain, the patches of a picture. */
export const isOfPicture = (ctx: ViewContext, source: Source): boolean => ctx.axisOf(source.key).grid !== null;

/**
 * The element whose map a picture opens with: the last word, else the class token, else the patch in the middle (padding is none). Its twin
 * is `opening_element` in attnwidgets/views/media/handlers.py.
 */
export function openingElement(axis: Axis): number {
  const { grid, patches, others } = elementsOf(axis);
  const word = others.findLast((i) => !axis.special[i]);
  if (word !== undefined) return word;
  const apart = others.find((i) => axis.labels[i] !== "[PAD]");
  if (apart !== undefined) return apart;
  const [rows, cols] = grid;
  return patches[Math.floor(rows / 2) * cols + Math.floor(cols / 2)] ?? 0;
}

/** The name of an element in a sentence: [CLS], patch 6,9, or a word in quotes. */
export function elementName(ctx: ViewContext, axis: Axis, i: number): string {
  const label = axis.labels[i];
  if (label === undefined) return "–";
  if ((elementsOf(axis).cells[i] ?? -1) >= 0) return `patch ${label}`;
  return axis.special[i] || /^\[.*\]$/.test(label) ? safeText(label) : quoted(axis.labels, i, ctx.options.indexBase);
}

/** The chosen direction: the elements that an element reads ("query"), or those that read it ("key"). */
export interface Chosen {
  side: "query" | "key";
  index: number;
}

/** The chosen element: the pinned element, else that of the opening. Attributions have none. */
export function chosenElement(ctx: ViewContext, pinned: Cell | null, into: boolean): Chosen {
  const source = ctx.source();
  if (source.kind === "attributions") return { side: "query", index: 0 };
  if (pinned && pinned.query >= 0) return { side: "query", index: pinned.query };
  if (pinned && pinned.key >= 0) return { side: "key", index: pinned.key };
  const axis = ctx.axisOf(into ? source.key : source.query);
  return { side: into ? "key" : "query", index: openingElement(axis) };
}
