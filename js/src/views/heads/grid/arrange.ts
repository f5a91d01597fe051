/** The position of every head: by layer, sorted within its layer, ranked over all, or grouped by value. */
import { tickText } from "../../../numbers.ts";

export type Order = "layers" | "within" | "all" | "groups";

/** A head by its indices among the layers and heads of a source. */
export interface Spot {
  layer: number;
  head: number;
}

export interface Line {
  /** The label to its left; "" if the line continues the line above. */
  label: string;
  /** Null: hidden by a filter, with an empty cell in its position. */
  spots: (Spot | null)[];
}

export interface Arrangement {
  cols: number;
  lines: Line[];
  /** Heads that pass the filters. */
  shown: number;
}

/** Size of a head's cell in px. */
export interface Size {
  width: number;
  height: number;
}

/** Which heads there are, and how they are ordered. */
export interface Ordering {
  layers: number;
  heads: number;
  order: Order;
  /** Smallest value first. */
  lowest: boolean;
  /** The statistic; null: none, and heads are ordered by layer. */
  value: ((spot: Spot) => number) | null;
  keeps: (spot: Spot) => boolean;
  /** Whether a layer is without heads: its single map then takes the room of all. */
  isWhole: (layer: number) => boolean;
  layerName: (layer: number) => string;
}

export interface ArrangeOptions extends Ordering {
  /** Available width and height in px, and the largest side of a thumbnail. */
  room: number;
  tallest: number;
  largest: number;
}

interface Group {
  label: string;
  spots: Spot[];
}

const GROUPS = 5;

/** Side of a thumbnail in px: whole pixels, as wide as fits, small for few heads. */
export function thumbSide(lines: number, cols: number, room: number, tallest: number, largest: number): number {
  return Math.max(3, Math.floor(Math.min(largest, room / Math.max(1, cols), tallest / Math.max(1, lines))));
}

export function arrange(options: ArrangeOptions): Arrangement {
  const { layers, heads, value, keeps, isWhole, lowest, layerName } = options;
  const order = value ? options.order : "layers";
  const of = value ?? ((): number => NaN);
  // Heads without a value come last in either direction; heads with equal values are in the order of layer and head.
  const rank = (spot: Spot): number => (Number.isNaN(of(spot)) ? Infinity : lowest ? of(spot) : -of(spot));
  const sorted = (spots: Spot[]): Spot[] =>
    spots
      .map((spot) => [rank(spot), spot] as const)
      .sort(([a], [b]) => (a === b ? 0 : a - b))
      .map(([, spot]) => spot);
  const everyLayer = Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head): Spot => ({ layer, head })),
  );
  const shownByLayer = everyLayer.map((row) => row.filter(keeps));
  const shown = shownByLayer.reduce((sum, row) => sum + row.length, 0);
  if (order === "layers" || order === "within") {
    const withGaps = (row: Spot[], layer: number): (Spot | null)[] =>
      row.map((spot) => (isWhole(layer) ? row[0] : spot) as Spot).map((spot) => (keeps(spot) ? spot : null));
    const lines = everyLayer.map((row, layer) => ({
      label: layerName(layer),
      spots: order === "layers" ? withGaps(row, layer) : sorted(shownByLayer[layer] as Spot[]),
    }));
    return { cols: heads, lines, shown };
  }
  const all = sorted(shownByLayer.flat());
  const groups: Group[] = order === "all" ? [{ label: "", spots: all }] : bands(all, of);
  const [cols, needed] = columns(
    groups.map(({ spots }) => spots.length),
    options,
  );
  const lines = groups.flatMap(({ label, spots }) =>
    Array.from({ length: Math.ceil(spots.length / cols) }, (_, i): Line => {
      const members = spots.slice(i * cols, (i + 1) * cols);
      const first = members[0] && of(members[0]);
      const ranked = first === undefined || Number.isNaN(first) ? "–" : tickText(first);
      return { label: order === "all" ? ranked : i === 0 ? label : "", spots: members };
    }),
  );
  return { cols: needed, lines, shown };
}

/** How many columns of a line the head at a column spans, from that column on; 0: it began at an earlier column. */
export function breadthAt(spots: Line["spots"], col: number): number {
  const spot = spots[col];
  if (!spot) return 1;
  return spots[col - 1] === spot ? 0 : spots.filter((other) => other === spot).length;
}

/** Heads down, layers across: the heat table of a grid with too many heads for thumbnails. */
export function table(
  layers: number,
  heads: number,
  keeps: (spot: Spot) => boolean,
  headName: (head: number) => string,
): Arrangement {
  const lines = Array.from({ length: heads }, (_, head) => ({
    label: headName(head),
    spots: Array.from({ length: layers }, (_, layer) => (keeps({ layer, head }) ? { layer, head } : null)),
  }));
  return { cols: layers, lines, shown: lines.flatMap(({ spots }) => spots).filter(Boolean).length };
}

/** The number of heads per line at which they are as large as possible, and how many of these columns are used. */
function columns(sizes: number[], { room, tallest, largest }: ArrangeOptions): [number, number] {
  const most = Math.max(1, ...sizes);
  for (let side = largest; side > 3; side -= 1) {
    const cols = Math.max(1, Math.floor(room / side));
    const lines = sizes.reduce((sum, size) => sum + Math.ceil(size / cols), 0);
    if (lines * side <= tallest) return [cols, Math.min(cols, most)];
  }
  const cols = Math.max(1, Math.floor(room / 3));
  return [cols, Math.min(cols, most)];
}

/** Split a sorted list into groups between round numbers, keeping its order. */
function bands(sorted: Spot[], of: (spot: Spot) => number): Group[] {
  const values = sorted.map(of).filter((value) => !Number.isNaN(value));
  const [low, high] = [
    values.reduce((a, b) => Math.min(a, b), Infinity),
    values.reduce((a, b) => Math.max(a, b), -Infinity),
  ];
  const step = high > low ? niceStep((high - low) / GROUPS) : 0;
  const groups: (Group & { key: number })[] = [];
  for (const spot of sorted) {
    const value = of(spot);
    // The largest value belongs to the group below its edge, not to a separate group.
    const bin = step > 0 ? Math.floor(value / step + 1e-9) : 0;
    const key = Number.isNaN(value) ? NaN : value === high && step > 0 && bin * step === high ? bin - 1 : bin;
    let group = groups.at(-1);
    if (!group || !Object.is(group.key, key)) {
      const ends = [key * step, (key + 1) * step].map((edge) => tickText(Number(edge.toPrecision(6))));
      group = { key, label: Number.isNaN(key) ? "–" : step > 0 ? ends.join("–") : tickText(value), spots: [] };
      groups.push(group);
    }
    group.spots.push(spot);
  }
  return groups;
}

/** The smallest of 1, 2, 5 times a power of ten not below `size`. */
function niceStep(size: number): number {
  const power = 10 ** Math.floor(Math.log10(size));
  return power * ([1, 2, 5].find((m) => m * power >= size * (1 - 1e-9)) ?? 10);
}

/**
 * The heads that a text names: "3" is a layer, "3.7" (or 4-8, L3H7) a head, "*.7" head 7 of every layer, separated by
 * spaces. Null if the text is not of this form.
 */
export function headFilter(text: string): ((layer: string, head: string) => boolean) | null {
  const named: [string, string][] = [];
  for (const word of text.split(/[\s,;]+/).filter(Boolean)) {
    const match = /^L?(\*|\d+)(?:[.\-–H](\*|\d+))?$/i.exec(word);
    if (!match) return null;
    named.push([match[1] as string, match[2] ?? "*"]);
  }
  const fits = (wish: string, is: string): boolean => wish === "*" || wish === is;
  return (layer, head) => named.length === 0 || named.some(([l, h]) => fits(l, layer) && fits(h, head));
}
