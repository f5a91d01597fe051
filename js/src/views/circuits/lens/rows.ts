/** The rows of a lens that are shown: where they do not all fit, those before the answer rises are thinned. */

/**
 * All rows if they fit; else every second (third, ...) row until the answer comes first and stays there, and all from
 * then on. The twin of `folded` in attnwidgets/views/still/circuits.py.
 */
export function rowsShown(count: number, ranks: readonly number[], most: number): number[] {
  const all = Array.from({ length: count }, (_, row) => row);
  if (count <= most) return all;
  let rise = 0;
  for (let row = 0; row < count; row += 1) if ((ranks[row] ?? 0) > 0) rise = Math.min(row + 1, count - 1);
  for (let step = 2; step <= count; step += 1) {
    const thinned = all.filter((row) => row % step === 0 || row >= rise);
    if (thinned.length <= most) return thinned;
    const even = all.filter((row) => row % step === 0 || row === count - 1);
    if (even.length <= most) return even;
  }
  return [count - 1];
}

/** The rows including a chosen row, which replaces the row before it; their number does not change. */
export function withRow(rows: readonly number[], row: number): number[] {
  if (rows.includes(row)) return [...rows];
  const before = rows.findLastIndex((shown) => shown < row);
  const at = before <= 0 ? Math.min(1, rows.length - 1) : before;
  return rows.map((current, i) => (i === at ? row : current)).sort((a, b) => a - b);
}

/** "odd layers to 23 folded", or how many are. */
export function foldedWords(rows: readonly number[], count: number): string {
  const hidden = Array.from({ length: count }, (_, row) => row).filter((row) => !rows.includes(row));
  if (!hidden.length) return "";
  const isOdd = hidden.every((row) => row % 2 === 1) && rows.length > 2;
  return isOdd ? `odd layers to ${hidden.at(-1)} folded` : `${hidden.length} layers folded`;
}

/** The position of a row among the shown rows: between two of them if it is folded. */
export function heightOf(rows: readonly number[], row: number): number {
  const after = rows.findIndex((shown) => shown >= row);
  if (after < 0) return rows.length - 1;
  if (rows[after] === row || after === 0) return after;
  const [low, high] = [rows[after - 1] as number, rows[after] as number];
  return after - 1 + (row - low) / (high - low);
}
