/** The size of a drawn matrix in a box: short texts have large cells, long texts are pooled or shown in a window. */

import { density } from "../../dom.ts";

export interface Size {
  /** Drawn rows and columns: fewer than there are in a window. */
  rows: number;
  cols: number;
  /** px */
  width: number;
  height: number;
  /** px of a cell; below 1 in the whole map of a long text. */
  cellWidth: number;
  cellHeight: number;
  /** The number of cells per pixel along each side; a pixel shows their maximum. */
  pool: number;
}

/** px */
export interface Box {
  width: number;
  height: number;
}

const LARGEST_CELL = 28;
/** Up to this number of rows and columns, cells are wider than high, up to these sizes. */
const FEW = 8;
const FEW_CELL: Box = { width: 78, height: 43 };
/** Smaller cells than this are shown by a window, whose cells have room for a line of text. */
const SMALLEST_CELL = 8;
const WINDOW_CELL = 16;
/** Thickness in px of a cell in a map of one to six rows or columns; further rows share the room of six. */
const STRIPE = 22;

const even = (cell: number): number => (cell >= 6 ? Math.floor(cell) : cell);

/** px of the cells of rows x cols in a box, none of them left out. */
function cellOf(rows: number, cols: number, { width, height }: Box): [number, number] {
  const [across, down] = [width / Math.max(1, cols), height / Math.max(1, rows)];
  if (rows <= FEW && cols <= FEW) {
    const high = even(Math.min(FEW_CELL.height, down));
    return [even(Math.min(FEW_CELL.width, across, Math.max(2 * high, LARGEST_CELL))), high];
  }
  const cell = even(Math.min(LARGEST_CELL, across, down));
  const least = (count: number): number => (STRIPE * Math.min(count, 6)) / Math.max(1, count);
  return [
    cols < rows ? Math.min(Math.max(cell, least(cols)), across) : cell,
    rows < cols ? Math.min(Math.max(cell, least(rows)), down) : cell,
  ];
}

/** The size of rows x cols cells in a box: all of them if `whole`, or else those that fit at a readable size. */
export function fit(rows: number, cols: number, box: Box, whole = false): Size {
  const room = { width: Math.max(1, box.width), height: Math.max(1, box.height) };
  let shown: [number, number] = [rows, cols];
  let [cellWidth, cellHeight] = cellOf(rows, cols, room);
  if (!whole && (cellWidth < SMALLEST_CELL || cellHeight < SMALLEST_CELL)) {
    const most = (length: number): number => Math.max(1, Math.floor(length / WINDOW_CELL));
    shown = [Math.min(rows, most(room.height)), Math.min(cols, most(room.width))];
    [cellWidth, cellHeight] = cellOf(...shown, room).map((cell) => Math.max(cell, WINDOW_CELL)) as [number, number];
  }
  const [high, wide] = shown;
  const dots = Math.max(1, Math.min(3, density()));
  const pool = Math.max(1, Math.ceil(1 / (Math.max(cellWidth, cellHeight) * dots) - 1e-6));
  return {
    rows: high,
    cols: wide,
    width: Math.max(1, Math.round(wide * cellWidth * 100) / 100),
    height: Math.max(1, Math.round(high * cellHeight * 100) / 100),
    cellWidth,
    cellHeight,
    pool,
  };
}

/** px above and below an element in its parent, including its margins; overlays of both do not count. */
export function heightBeside(el: HTMLElement): number {
  const [self, ...others] = [el, ...(el.parentElement?.children ?? [])];
  const around = others.map((sibling) => {
    const { marginTop, marginBottom, position } = getComputedStyle(sibling);
    if (position === "absolute") return 0;
    const margins = (Number.parseFloat(marginTop) || 0) + (Number.parseFloat(marginBottom) || 0);
    return (sibling === self ? 0 : (sibling as HTMLElement).offsetHeight) + margins;
  });
  return around.reduce((sum, height) => sum + height, 0);
}
