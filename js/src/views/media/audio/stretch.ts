/** The stretch of seconds that is shown: zooming and moving within a sound. */

/** The shortest stretch, in seconds. */
const SHORTEST = 0.05;

export interface Stretch {
  from: number;
  to: number;
}

/** Multiply the visible seconds by `factor`; `second` does not move. */
export function zoomed({ from, to }: Stretch, factor: number, second: number, whole: number): Stretch {
  const width = Math.min(whole, Math.max(Math.min(SHORTEST, whole), (to - from) * factor));
  return within({ from: second - ((second - from) / (to - from || 1)) * width, to: 0 }, width, whole);
}

/** The stretch `by` seconds further. */
export const moved = ({ from, to }: Stretch, by: number, whole: number): Stretch =>
  within({ from: from + by, to: 0 }, to - from, whole);

function within({ from }: Stretch, width: number, whole: number): Stretch {
  const start = Math.max(0, Math.min(whole - width, from));
  return { from: start, to: start + width };
}

/** Round seconds for the axis, at least `apart` px from each other. */
export function ticksOf({ from, to }: Stretch, width: number, apart: number): number[] {
  const least = ((to - from) * apart) / Math.max(1, width);
  const power = 10 ** Math.floor(Math.log10(least || 1));
  const step = ([1, 2, 5, 10].find((m) => m * power >= least) ?? 10) * power;
  const ticks: number[] = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9; i += 1)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
