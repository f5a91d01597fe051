/** The overlays of a heatmap: hovered row and column, pinned cell, outlined cells. Moved, never rebuilt. */
import { h, setBox, setChildren } from "../../dom.ts";
import type { Cell } from "../../wire/wire.ts";
import type { Size } from "./size.ts";

/** The largest number of outlined cells: each is a DOM node. */
const MOST_MARKS = 400;

export interface Crosshair {
  elements: HTMLElement[];
  /** Move all overlays; an index of -1 leaves that direction open. */
  move(size: Size, hover: Cell | null, pinned: Cell | null): void;
  /** Outline the cells of `ViewOptions.marks`. */
  mark(size: Size, cells: readonly (readonly [number, number])[]): void;
}

export function createCrosshair(): Crosshair {
  const marks = h("div.marks");
  const pinRow = h("div.band.band-pin");
  const [row, col] = [h("div.band"), h("div.band")];
  const [pin, cursor] = [h("div.cursor.pin"), h("div.cursor")];

  const cell = (el: HTMLElement, { cellWidth, cellHeight }: Size, query = -1, key = -1): void =>
    setBox(el, key * cellWidth, query * cellHeight, cellWidth, cellHeight);
  const rowBand = (el: HTMLElement, size: Size, query = -1): void =>
    setBox(el, 0, query * size.cellHeight, size.width, size.cellHeight);

  return {
    elements: [marks, pinRow, row, col, pin, cursor],
    move(size, hover, pinned) {
      rowBand(row, size, hover?.query);
      rowBand(pinRow, size, pinned?.query);
      setBox(col, (hover?.key ?? -1) * size.cellWidth, 0, size.cellWidth, size.height);
      cell(cursor, size, hover?.query, hover?.key);
      cell(pin, size, pinned?.query, pinned?.key);
    },
    mark(size, cells) {
      setChildren(
        marks,
        ...cells.slice(0, MOST_MARKS).map(([query, key]) => {
          const el = h("div.mark");
          cell(el, size, query, key);
          return el;
        }),
      );
    },
  };
}
