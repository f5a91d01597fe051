/** What lies over a heatmap: the hovered row and column, the pinned cell, outlined cells. Moved, never rebuilt. */
import { h } from "../dom.ts";
import type { Cell } from "../wire.ts";
import type { Size } from "./fit.ts";

/** Outlined cells beyond this number are not drawn: they would be a second picture made of nodes. */
const MOST_MARKS = 400;

export class Crosshair {
  readonly #marks = h("div", { class: "aw-marks" });
  readonly #pinRow = h("div", { class: "aw-band aw-band-pin", hidden: true });
  readonly #row = h("div", { class: "aw-band", hidden: true });
  readonly #col = h("div", { class: "aw-band", hidden: true });
  readonly #pin = h("div", { class: "aw-cursor aw-pin", hidden: true });
  readonly #cursor = h("div", { class: "aw-cursor", hidden: true });
  readonly elements = [this.#marks, this.#pinRow, this.#row, this.#col, this.#pin, this.#cursor];

  /** Put everything where it belongs; an index of -1 leaves that direction open. */
  move(size: Size, hover: Cell | null, pinned: Cell | null): void {
    band(this.#row, size, hover?.query ?? -1, -1);
    band(this.#col, size, -1, hover?.key ?? -1);
    band(this.#pinRow, size, pinned && pinned.key < 0 ? pinned.query : -1, -1);
    box(this.#cursor, size, hover);
    box(this.#pin, size, pinned);
  }

  /** Outline the cells of `ViewOptions.marks`. */
  mark(size: Size, marks: readonly (number | [number, number])[]): void {
    const cells = marks.filter((m): m is [number, number] => Array.isArray(m)).slice(0, MOST_MARKS);
    const boxes = cells.map(([query, key]) => {
      const el = h("div", { class: "aw-mark" });
      place(el, size, query, key, 1, 1);
      return el;
    });
    this.#marks.replaceChildren(...boxes);
  }
}

function place(el: HTMLElement, size: Size, row: number, col: number, rows: number, cols: number): void {
  el.style.transform = `translate(${col * size.cellWidth}px, ${row * size.cellHeight}px)`;
  el.style.width = `${Math.max(1, cols * size.cellWidth)}px`;
  el.style.height = `${Math.max(1, rows * size.cellHeight)}px`;
}

function band(el: HTMLElement, size: Size, row: number, col: number): void {
  el.hidden = row < 0 && col < 0;
  if (row >= 0) place(el, size, row, 0, 1, size.cols);
  else if (col >= 0) place(el, size, 0, col, size.rows, 1);
}

function box(el: HTMLElement, size: Size, cell: Cell | null): void {
  el.hidden = !cell || cell.query < 0 || cell.key < 0;
  if (cell && !el.hidden) place(el, size, cell.query, cell.key, 1, 1);
}
