/** The wave: least and largest sample of every part, at several widths, so that any stretch is drawn from few numbers. */

/** Samples of the finest part. */
const FINEST = 32;

export interface Pyramid {
  /** From the finest: [least, largest] of part after part. */
  levels: Int16Array[];
  samples: Int16Array;
}

export function pyramidOf(samples: Int16Array): Pyramid {
  let now = new Int16Array(2 * Math.ceil(samples.length / FINEST));
  for (let part = 0; part < now.length / 2; part += 1) {
    let [low, high] = [32767, -32768];
    for (let i = part * FINEST; i < Math.min(samples.length, (part + 1) * FINEST); i += 1) {
      const value = samples[i] as number;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    now[2 * part] = low;
    now[2 * part + 1] = high;
  }
  const levels = [now];
  while (now.length > 4) {
    const next = new Int16Array(2 * Math.ceil(now.length / 4));
    for (let part = 0; part < next.length / 2; part += 1) {
      const other = Math.min(4 * part + 2, now.length - 2);
      next[2 * part] = Math.min(now[4 * part] as number, now[other] as number);
      next[2 * part + 1] = Math.max(now[4 * part + 1] as number, now[other + 1] as number);
    }
    levels.push(next);
    now = next;
  }
  return { levels, samples };
}

/** Least and largest sample between two samples, the second not included. */
export function extent({ levels, samples }: Pyramid, from: number, to: number): [number, number] {
  const [first, last] = [Math.max(0, Math.floor(from)), Math.min(samples.length, Math.ceil(to))];
  let [low, high] = [32767, -32768];
  const level = Math.floor(Math.log2((last - first) / FINEST));
  const parts = levels[Math.min(level, levels.length - 1)];
  if (level < 0 || !parts) {
    for (let i = first; i < last; i += 1) {
      const value = samples[i] as number;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return low > high ? [0, 0] : [low, high];
  }
  const size = FINEST * 2 ** Math.min(level, levels.length - 1);
  for (let part = Math.floor(first / size); part * size < last && 2 * part < parts.length; part += 1) {
    low = Math.min(low, parts[2 * part] as number);
    high = Math.max(high, parts[2 * part + 1] as number);
  }
  return low > high ? [0, 0] : [low, high];
}
