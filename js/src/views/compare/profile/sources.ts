/** The chosen sources: a single source, several together, or the strongest; and their values by layer. */

import type { ViewContext } from "../../../context.ts";
import { toggled } from "../../../selection.ts";
import type { Cell } from "../../../wire/wire.ts";
import { currentElement, type ExplanationRows } from "../rows.ts";

/** The answer of `LayerProfile._profile`, without the values. */
export interface Profile {
  names: string[];
  remarks: string[];
  layers: number[];
  /** Lines of a probe by layer, which have no sources. */
  beside: [name: string, values: (number | null)[]][];
  query: number | null;
  /** The source that is shown while none is chosen. */
  strongest: number;
  follows: boolean;
  rows: boolean;
  /** For each line and layer in turn, whether its values are shares of a row. */
  shares: boolean[];
  alike: boolean;
}

export interface Sources {
  /** Sources chosen together: those of the pinned cells, or at first the marked sources. */
  together(): number[];
  /** Whether the reader chose none. */
  isStrongest(): boolean;
  /** The pinned source or the cues; none if the reader chose none. */
  chosen(): number[];
  /** The hovered source, the pinned source, the cues, or the strongest source. */
  keys(): number[];
  /** The sums over some sources [line][layer]. Hidden values do not count; if all are hidden, the sum is NaN. */
  sums(some: readonly number[]): number[][];
  hover(key: number): void;
  /** Pin a source alone. */
  pin(key: number): void;
  /** Add a source to those chosen together, or remove it. */
  toggle(key: number): void;
  /** Pin the query whose row is read. */
  pinTarget(query: number): void;
}

export function createSources(ctx: ViewContext, explanations: ExplanationRows<Profile>): Sources {
  const { selection } = ctx;
  let marked = ctx.options.marks.filter((mark): mark is number => typeof mark === "number");
  const query = (): number => explanations.meta?.query ?? -1;
  const pinned = (): number => ctx.cell("pinned")?.key ?? -1;
  const together = (): number[] => {
    // The sources of the read row. The rows of a comparison are not tokens: queries are compared as they were pinned.
    const [last, unit] = [selection.get("pinned"), ctx.source().unit];
    const here = selection.get("pins").filter((cell) => {
      return cell.key >= 0 && cell.unit === unit && cell.query === last?.query;
    });
    const { length } = explanations.axis().labels;
    if (pinned() < 0) return marked.filter((mark) => mark < length);
    return here.length > 1 ? here.map((cell) => cell.key) : [];
  };
  const chosen = (): number[] => {
    const some = together();
    return some.length || pinned() < 0 ? some : [pinned()];
  };
  const cellOf = (key: number): Cell => {
    const query = explanations.meta?.follows ? (explanations.meta.query ?? -1) : -1;
    return { unit: ctx.source().unit, query, key };
  };

  return {
    together,
    chosen,
    isStrongest: () => currentElement(ctx) < 0 && !chosen().length,
    keys() {
      const over = ctx.cell("hover")?.key ?? -1;
      const some = over >= 0 ? [over] : chosen();
      return some.length ? some : [explanations.meta?.strongest ?? 0];
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
    pin(key) {
      marked = [];
      const cell = cellOf(key);
      const again = pinned() === key;
      selection.pin(again && cell.query < 0 ? null : { ...cell, key: again ? -1 : key });
    },
    toggle(key) {
      selection.hover(null);
      selection.pinAll(toggled(marked.length && pinned() < 0 ? marked.map(cellOf) : ctx.pins(), cellOf(key)));
      marked = [];
    },
    pinTarget(index) {
      selection.pin({ unit: ctx.source().unit, query: index, key: pinned() });
    },
  };
}
