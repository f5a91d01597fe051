/** Sizes of the grid: thumbnails as large as there is room for, or a heat table. */

import {
  type Arrangement,
  arrange,
  breadthAt,
  type Order,
  type Ordering,
  type Size,
  table,
  thumbSide,
} from "./arrange.ts";

/** Side of a thumbnail in px: the largest; the least, below which the grid is a heat table; the least with a name. */
const [LARGEST, LEAST_SIDE, NAMED] = [160, 12, 36];
/** Size of a cell of the heat table in px. */
const [WIDEST, HIGHEST] = [24, 20];
/** Width in px left of the grid, for names of layers or values; height below a thumbnail, for its name. */
const [NAMES, VALUES] = [34, 62];
export const FOOT = 15;
/** Height in px of names above the grid and of its scrollbar. */
const AROUND = 28;
/** Smallest width in px at which the ranked heads are next to the grid, and their width. */
export const TWO_COLUMNS = 640;
const ASIDE = 300;
/** Height in px of a stand-alone view, and of the grid in it: next to the ranked heads, or above them. */
const [HEIGHT, TALL, LOW] = [480, 318, 190];
/** Width in px of a narrow grid: if its thumbnails would be too small there, it is a heat table at any width. */
const NARROW = 300;
/** Height of a narrow heat table: its six thumbnails are below it. */
const LOW_TABLE = 112;

/** The heads to be laid out, and the available room. */
export interface LayoutOptions extends Ordering {
  headName: (head: number) => string;
  /** Width of grid and ranked heads in px, and the requested height. */
  width: number;
  height: number | null;
  /** Whether the ranked heads are next to the grid. */
  isBeside: boolean;
}

export interface Layout extends Arrangement {
  /** Size of a cell, and the height of its last part, for a name. */
  size: Size;
  foot: number;
  isTable: boolean;
  order: Order;
  /** Width of the names at the left, and the height of the whole. */
  names: number;
  height: number;
  /** Line and column by "layer head". */
  positions: Map<string, [number, number]>;
}

export const NOTHING: Layout = {
  cols: 0,
  lines: [],
  shown: 0,
  size: { width: 0, height: 0 },
  foot: 0,
  isTable: false,
  order: "layers",
  names: NAMES,
  height: 0,
  positions: new Map(),
};

export function layOut(options: LayoutOptions): Layout {
  const { layers, heads, order, isBeside, width } = options;
  const tallest = isBeside ? (options.height ?? HEIGHT) - (HEIGHT - TALL) : LOW;
  const across = Math.max(40, (isBeside ? width - ASIDE : width) - NAMES - 2);
  // Below ranked heads, the height of the grid never depends on how it is sorted: nothing moves.
  const plain = thumbSide(layers, heads, across, tallest, LARGEST);
  const isTable = layers * heads > 1 && thumbSide(layers, heads, NARROW, LOW, LARGEST) < LEAST_SIDE;
  const names = !isTable && ["all", "groups"].includes(order) ? VALUES : NAMES;
  const room = across - names + NAMES - 12; // leaves space for a scrollbar
  const isPlain = order === "layers";
  const foot = isTable || isPlain ? 0 : FOOT;
  const size = (): Size => {
    if (isTable) {
      const [wide, high] = [Math.floor(across / layers), Math.floor((isBeside ? tallest : LOW_TABLE) / heads)];
      return { width: Math.max(3, Math.min(WIDEST, wide)), height: Math.max(3, Math.min(HIGHEST, high)) };
    }
    const within = Math.min(plain, Math.floor(room / heads));
    const side = isPlain ? plain : order === "within" ? within : Math.max(NAMED, plain);
    return { width: side, height: side + foot };
  };
  const sorted = {
    ...options,
    room,
    tallest: isPlain ? tallest : Number.POSITIVE_INFINITY,
    largest: isPlain ? plain : Math.max(NAMED, plain),
  };
  const arrangement = isTable ? table(layers, heads, options.keeps, options.headName) : arrange(sorted);
  const positions: Layout["positions"] = new Map();
  for (const [row, { spots }] of arrangement.lines.entries()) {
    for (const [col, at] of spots.entries())
      if (at && breadthAt(spots, col)) positions.set(`${at.layer} ${at.head}`, [row, col]);
  }
  const box = size();
  const fixed = isTable ? box.height * heads : Math.min(tallest, plain * layers);
  const isFull = isBeside && !isPlain && !isTable;
  const height = Math.max(isFull ? tallest : fixed, Math.min(tallest, 3 * NAMED)) + AROUND;
  return { ...arrangement, size: box, foot, isTable, order, names, height, positions };
}
