/**
 * The elements of an axis that a map draws: all but those that stand apart, and of a long text a window of these.
 * Selections index elements of the whole axis; pictures and pointers index the drawn elements.
 */
import type { Axis } from "../../wire/wire.ts";

type Side = Pick<Axis, "labels" | "special">;

export interface AxisPart {
  /** Elements of the axis that stand apart. */
  readonly apart: readonly number[];
  /** All others, in order, in the window or not. */
  readonly inside: readonly number[];
  /** The labels of those inside. */
  readonly names: readonly string[];
  /** The window: its first position among the elements inside, and its length. */
  readonly start: number;
  readonly count: number;
  /** The drawn elements. */
  drawn(): readonly number[];
  /** Labels of the drawn elements. */
  side(): Side;
  /** The position of an element among the drawn elements; -1: it is not drawn. */
  positionOf(element: number | undefined): number;
  /** Open a window of this size: the first elements, or those around the middle of the window before. */
  open(count: number): void;
  /** Move the window by some elements; whether it moved. */
  move(by: number): boolean;
  /** Move the window so that an element is in its middle, unless it is drawn anyway; returns whether it moved. */
  reveal(element: number): boolean;
}

export function createAxisPart(axis: Side, standsApart: readonly boolean[]): AxisPart {
  const elements = [...axis.labels.keys()];
  const apart = elements.filter((i) => standsApart[i]);
  const inside = elements.filter((i) => !standsApart[i]);
  const names = inside.map((i) => axis.labels[i] as string);
  const positions = new Int32Array(elements.length).fill(-1);
  inside.forEach((element, position) => {
    positions[element] = position;
  });
  let [start, count] = [0, inside.length];
  const to = (first: number): boolean => {
    const before = start;
    start = Math.max(0, Math.min(inside.length - count, Math.round(first)));
    return start !== before;
  };
  return {
    apart,
    inside,
    names,
    get start() {
      return start;
    },
    get count() {
      return count;
    },
    drawn: () => inside.slice(start, start + count),
    side() {
      const drawn = inside.slice(start, start + count);
      return {
        labels: names.slice(start, start + count),
        special: drawn.map((i) => axis.special[i] ?? 0),
      };
    },
    positionOf(element = -1) {
      const position = (positions[element] ?? -1) - start;
      return position >= 0 && position < count ? position : -1;
    },
    open(size) {
      const middle = count === inside.length ? 0 : start + count / 2;
      count = Math.max(0, Math.min(inside.length, size));
      to(middle - count / 2);
    },
    move: (by) => to(start + by),
    reveal(element) {
      const position = positions[element] ?? -1;
      return position >= 0 && (position < start || position >= start + count) && to(position - (count - 1) / 2);
    },
  };
}
