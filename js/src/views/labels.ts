/** Labels beside a matrix: as many as fit, the one under the pointer always. Never more nodes than fit. */
import { h, shortLabel, thinned } from "../dom.ts";

const LINE = 14; // px a label needs across its direction
const LONGEST = 132;

let ruler: CanvasRenderingContext2D | null | undefined;

/** Width of a text in the font of an element, in px. */
export function textWidth(text: string, font: string): number {
  ruler ??= h("canvas").getContext("2d");
  if (!ruler) return 7 * text.length;
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** Room the labels of an axis need along their direction; names beyond `most` px are cut with an ellipsis. */
export function labelRoom(labels: readonly string[], shown: readonly number[], font: string, most = LONGEST): number {
  let widest = 0;
  for (const i of shown) widest = Math.max(widest, textWidth(shortLabel(labels[i] ?? ""), font));
  return Math.min(most, Math.ceil(widest) + 8);
}

export interface LabelLayout {
  labels: readonly string[];
  special: readonly number[];
  /** px of one cell along the axis. */
  cell: number;
  room: number;
}

/** Labels along one side: "left" reads downwards, "top" upwards unless the cells are wide enough to lie flat. */
export class AxisLabels {
  readonly element: HTMLElement;
  readonly #side: "left" | "top";
  readonly #hovered = h("span", { class: "aw-lab aw-lab-hover", hidden: true });
  readonly #pinned = h("span", { class: "aw-lab aw-lab-pin", hidden: true });
  #layout: LabelLayout | null = null;
  #flat = false;

  constructor(side: "left" | "top") {
    this.#side = side;
    this.element = h("div", { class: `aw-labs aw-labs-${side}`, "aria-hidden": "true" });
  }

  /** Indices that get a label at `cell` px each. */
  static shown(count: number, cell: number): number[] {
    return thinned(count, cell, LINE);
  }

  layout(layout: LabelLayout): void {
    this.#layout = layout;
    const { labels, cell } = layout;
    this.#flat = this.#side === "top" && layout.room <= cell + 2;
    this.element.toggleAttribute("data-flat", this.#flat);
    const spans = AxisLabels.shown(labels.length, cell).map((i) => this.#place(h("span", { class: "aw-lab" }), i));
    this.element.replaceChildren(...spans, this.#pinned, this.#hovered);
    this.#hovered.hidden = true;
    this.#pinned.hidden = true;
  }

  /** Room a flat or upright top axis takes. */
  get flat(): boolean {
    return this.#flat;
  }

  #place(span: HTMLElement, i: number): HTMLElement {
    const layout = this.#layout;
    if (!layout) return span;
    const { labels, special, cell, room } = layout;
    const text = shortLabel(labels[i] ?? "");
    if (span.textContent !== text) span.textContent = text;
    span.title = text;
    span.toggleAttribute("data-special", Boolean(special[i]));
    const centre = (i + 0.5) * cell;
    if (this.#flat) {
      span.style.left = `${centre - cell / 2}px`;
      span.style.width = `${cell}px`;
    } else {
      span.style[this.#side === "left" ? "top" : "left"] = `${centre - LINE / 2}px`;
      span.style[this.#side === "left" ? "maxWidth" : "maxHeight"] = `${room}px`;
    }
    return span;
  }

  /** Show the label of a hovered or pinned element over its neighbours; -1: none. */
  mark(which: "hover" | "pin", i: number): void {
    const span = which === "hover" ? this.#hovered : this.#pinned;
    const hidden = i < 0 || !this.#layout || i >= this.#layout.labels.length;
    span.hidden = hidden;
    if (!hidden) this.#place(span, i);
  }
}
