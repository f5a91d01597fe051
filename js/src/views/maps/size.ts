/** The size of a drawn matrix: it fills the width, fits a screen's height, and short texts stay small. */

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
  /** The number of cells per pixel along each side; a pixel shows their maximum. */
  pool: number;
}

const TALLEST = 640;
const LARGEST_CELL = 44;
/** Thickness in px of a cell in a map of one to six rows or columns; more of them share the room of six. */
const STRIPE = 22;

/**
 * The size of rows x cols cells in a width of `room` px. Cells are square, unless that makes a strip too thin to read.
 */
export function fit(rows: number, cols: number, room: number): Size {
  const width = Math.max(1, room);
  let cell = Math.min(LARGEST_CELL, width / Math.max(1, cols), TALLEST / Math.max(1, rows));
  // Cells of whole pixels look even; for small cells the lost width would be more visible than unevenness.
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
