/** Labels of a matrix: those that fit, and always the hovered label. Never more nodes than fit. */
import { assign, createWatch, h, setChildren, setFlag, setStyles, setText, shortLabel, thinned } from "../../dom.ts";

const LINE = 14; // height in px that a label needs
const BOLDER = 1.1; // a pinned label is bold, and wider

let ruler: CanvasRenderingContext2D | null | undefined;

/** Width of a text in a font, in px. */
export function textWidth(text: string, font: string): number {
  ruler ??= h("canvas").getContext("2d");
  if (!ruler) return 7 * text.length;
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** The room in px for the labels of an axis that fit at `cell` px per cell; names longer than `most` px are cut. */
export function labelRoom(labels: readonly string[], cell: number, font: string, most: number): number {
  const widths = fitting(labels.length, cell).map((i) => textWidth(shortLabel(labels[i] ?? ""), font));
  return Math.min(most, Math.ceil(BOLDER * Math.max(0, ...widths)) + 8);
}

/** px of height of a text of `length` px that rises at 45 degrees, and the length for a height. */
export const slantHeight = (length: number): number => Math.ceil((length + LINE) * Math.SQRT1_2);
export const slantLength = (height: number): number => Math.floor(height / Math.SQRT1_2 - LINE);

/** Indices of the labels shown at `cell` px per cell. */
function fitting(count: number, cell: number): number[] {
  return thinned(count, cell, LINE);
}

export interface LabelLayout {
  labels: readonly string[];
  special: readonly number[];
  /** px of a cell along the axis. */
  cell: number;
  room: number;
  /** Top labels are slanted by 45 degrees where they do not fit flat; otherwise they are upright. */
  slant?: boolean;
}

export interface AxisLabels {
  element: HTMLElement;
  layout(layout: LabelLayout): void;
  /** Whether a top axis is flat, because its cells are wide enough. */
  flat(): boolean;
  /** Show the labels of the hovered and the pinned element over their neighbours. */
  mark(hovered: number | undefined, pinned: number | undefined): void;
}

/** Labels along a side: "left" downwards; "top" rotated unless the cells are wide enough for flat labels. */
export function createLabels(side: "left" | "top"): AxisLabels {
  const element = h(`div.labs.labs-${side}`, { "aria-hidden": "true" });
  const hover = h("span.lab.lab-over");
  const pin = h("span.lab.lab-over.lab-pin");
  let now: LabelLayout = { labels: [], special: [], cell: 0, room: 0 };
  let flat = false;
  let indices: number[] = [];
  let spans: HTMLElement[] = [];
  const isMarked = createWatch();
  const slanted = (): boolean => Boolean(now.slant) && !flat;

  const show = (span: HTMLElement, i = -1): HTMLElement => {
    const { labels, special, cell, room } = now;
    const hidden = i < 0 || i >= labels.length;
    assign(span, { hidden });
    if (hidden) return span;
    const text = shortLabel(labels[i] ?? "");
    if (setText(span, text)) span.title = text;
    setFlag(span, "data-special", Boolean(special[i]));
    const upright = side === "left";
    const middle = (i + 0.5) * cell;
    const at = `${flat ? i * cell : slanted() ? middle : middle - LINE / 2}px`;
    const most = flat ? "" : `${room - 3}px`; // the style sheet leaves 3 px free next to the cells
    setStyles(span, {
      [upright ? "top" : "left"]: at,
      [upright || slanted() ? "max-width" : "max-height"]: most,
      width: flat ? `${cell}px` : "",
    });
    return span;
  };

  return {
    element,
    flat: () => flat,
    layout(layout) {
      now = layout;
      flat = side === "top" && layout.room <= layout.cell + 2;
      setFlag(element, "data-flat", flat);
      setFlag(element, "data-slant", slanted());
      indices = fitting(layout.labels.length, layout.cell);
      spans = indices.map((i) => show(h("span.lab"), i));
      setChildren(element, ...spans, show(pin), show(hover));
    },
    mark(hovered = -1, pinned = -1) {
      if (!isMarked(now, hovered, pinned)) return;
      show(hover, hovered);
      show(pin, pinned);
      const touches = (i: number, other: number): boolean =>
        i !== other && other >= 0 && Math.abs(i - other) * now.cell < LINE;
      indices.forEach((i, k) => {
        setFlag(spans[k] as HTMLElement, "data-under", touches(i, hovered) || touches(i, pinned));
      });
    },
  };
}
