/** The chosen sources: one, several together, or the strongest; and their values by layer. */

import type { ViewContext } from "../../../context.ts";
import { createWatch } from "../../../dom.ts";
import { currentElement, type ExplanationRows } from "../rows.ts";

/** What `LayerProfile._profile` returns in addition to the values. */
export interface Profile {
  names: string[];
  remarks: string[];
  layers: number[];
  query: number | null;
  follows: boolean;
  rows: boolean;
  /** For each line and layer in turn, whether its values are shares of a row. */
  shares: boolean[];
  alike: boolean;
}

export interface Sources {
  /** Sources chosen together. */
  cues: ReadonlySet<number>;
  /** Whether the reader chose none. */
  isStrongest(): boolean;
  /** The pinned source or the cues; none if the reader chose none. */
  chosen(): number[];
  /** The hovered source, the pinned one, the cues, or the strongest one. */
  keys(): number[];
  /** The sums over some sources [line][layer]. Hidden values do not count; if all are hidden, the sum is NaN. */
  sums(some: readonly number[]): number[][];
  hover(key: number): void;
  /** Pin a source, or add it to the cues (`adding`). */
  pin(key: number, adding: boolean): void;
  /** Pin the query whose row is read. */
  pinTarget(query: number): void;
}

/** `changed` is called when the cues change. */
export function createSources(ctx: ViewContext, explanations: ExplanationRows<Profile>, changed: () => void): Sources {
  const { selection } = ctx;
  const cues = new Set(ctx.options.marks.filter((mark): mark is number => typeof mark === "number"));
  const isOther = createWatch();
  let strongestSource = 0;

  const query = (): number => explanations.meta?.query ?? -1;
  const pinned = (): number => ctx.cell("pinned")?.key ?? -1;
  /** The source with the highest value of the first line in any layer, without special tokens and the query itself. */
  const strongest = (): number => {
    const { meta, shown } = explanations;
    const { special } = explanations.axis();
    if (!isOther(shown, special, query())) return strongestSource;
    let best = -1;
    strongestSource = 0;
    for (let key = 0; key < special.length; key += 1) {
      if (special[key] || (meta?.rows && key === query())) continue;
      for (const row of shown.slice(0, meta?.layers.length)) {
        const size = Math.abs(row[key] as number);
        if (size > best) [best, strongestSource] = [size, key];
      }
    }
    return strongestSource;
  };

  const known = (): number[] => {
    const { length } = explanations.axis().labels;
    return [...cues].filter((cue) => cue < length);
  };

  return {
    cues,
    chosen: () => (pinned() >= 0 ? [pinned()] : known()),
    isStrongest: () => currentElement(ctx) < 0 && !cues.size,
    keys() {
      const key = currentElement(ctx);
      if (key >= 0) return [key];
      const some = known();
      return some.length ? some : [strongest()];
    },
    sums(some) {
      const { names, layers } = explanations.meta as Profile;
      return names.map((_, line) =>
        layers.map((_l, layer) => {
          const row = explanations.shown[line * layers.length + layer];
          const values = some.map((key) => row?.[key] ?? NaN).filter((value) => !Number.isNaN(value));
          return values.length ? values.reduce((sum, value) => sum + value) : NaN;
        }),
      );
    },
    hover(key) {
      const { unit } = ctx.source();
      selection.hover(key < 0 ? null : { unit, query: explanations.meta?.rows ? query() : -1, key });
    },
    pin(key, adding) {
      const { unit } = ctx.source();
      const row = explanations.meta?.follows ? query() : -1;
      const now = pinned();
      if (adding) {
        if (now >= 0) cues.add(now);
        if (!cues.delete(key)) cues.add(key);
        selection.hover(null);
        if (now >= 0) selection.pin(row < 0 ? null : { unit, query: row, key: -1 });
        changed();
        return;
      }
      cues.clear();
      const again = now === key;
      selection.pin(again && row < 0 ? null : { unit, query: row, key: again ? -1 : key });
    },
    pinTarget(index) {
      selection.pin({ unit: ctx.source().unit, query: index, key: pinned() });
    },
  };
}
