/** How large a matrix is drawn: it fills the width, stays within a screen's height, and short texts stay small. */

import { density } from "../../dom.ts";

export interface Size {
  rows: number;
  cols: number;
  /** px */
  width: number;
  height: number;
  /** px of one cell; below 1 for long texts. */
  cellWidth: number;
  cellHeight: number;
  /** Cells along each side that share one pixel, by their maximum. */
  pool: number;
}

const TALLEST = 640;
const LARGEST_CELL = 44;
/** px of a cell across a map of one to six rows or columns; more of them share the room of six. */
const STRIPE = 22;

/** Size of rows x cols cells in `room` px of width. Cells are squares, except where that leaves a stripe too thin to read. */
export function fit(rows: number, cols: number, room: number): Size {
  const width = Math.max(1, room);
  let cell = Math.min(LARGEST_CELL, width / Math.max(1, cols), TALLEST / Math.max(1, rows));
  // Whole pixels a cell look even; for small cells the lost width would show more than the unevenness.
  if (cell >= 6) cell = Math.floor(cell);
  let [cellWidth, cellHeight] = [cell, cell];
  const least = (count: number): number => (STRIPE * Math.min(count, 6)) / Math.max(1, count);
  if (rows < cols) cellHeight = Math.max(cell, least(rows));
  if (cols < rows) cellWidth = Math.min(Math.max(cell, least(cols)), width / Math.max(1, cols));
  const dots = Math.max(1, Math.min(3, density()));
  const pool = Math.max(1, Math.ceil(1 / (Math.max(cellWidth, cellHeight) * dots) - 1e-6));
  return {
    rows,
    cols,
    width: Math.max(1, Math.round(cols * cellWidth * 100) / 100),
    height: Math.max(1, Math.round(rows * cellHeight * 100) / 100),
    cellWidth,
    cellHeight,
    pool,
  };
}
