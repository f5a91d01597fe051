/** Filters for rows that come from a view's Python twin, whose properties arrive with the rows. */

import type { ViewContext } from "../../context.ts";
import { h } from "../../dom.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import type { Filters } from "../../wire/viewState.ts";
import type { Source } from "../../wire/wire.ts";
import { filteredRow, filterSlot, hidesValues } from "./filters.ts";

const READ = new WeakMap<Answer<unknown>, Float32Array[]>();

/** The numbers of an answer as rows of `cols` values, decoded once. */
export function rowsOf(answer: Answer<unknown>, cols: number): Float32Array[] {
  let rows = READ.get(answer);
  if (!rows) {
    const bytes = answer.buffers[0] as DataView;
    const count = cols ? Math.floor(bytes.byteLength / 4 / cols) : 0;
    rows = Array.from({ length: count }, (_, row) =>
      Float32Array.from({ length: cols }, (_v, i) => bytes.getFloat32(4 * (row * cols + i), true)),
    );
    READ.set(answer, rows);
  }
  return rows;
}

export interface RowFilters {
  /** The element of the form. */
  element: HTMLElement;
  /** Show the form, worded for the shown rows. */
  offer(shown: Pick<Source, "signed" | "stochastic">): void;
  /** Rows with hidden values as NaN; computed once for the same rows and filters. */
  of(rows: Float32Array[], filters: Filters, special: readonly number[], shares: readonly boolean[]): Float32Array[];
}

export function createRowFilters(ctx: ViewContext): RowFilters {
  const element = h("span");
  let source: Partial<Source> = {};
  let from: readonly unknown[] = [];
  let filteredRows: Float32Array[] = [];
  return {
    element,
    offer(shown) {
      source = shown;
      if (element.childElementCount > 0) return;
      const value = (): Source => ({ ...ctx.source(), ...source });
      element.append(filterSlot(Object.create(ctx, { source: { value } })));
    },
    of(rows, filters, special, shares) {
      if (!hidesValues(filters)) return rows;
      const now = [rows, special, filters.special, filters.mass, filters.least];
      if (now.some((values, i) => values !== from[i])) {
        from = now;
        filteredRows = rows.map((row, i) => filteredRow(row, special, filters, Boolean(shares[i])));
      }
      return filteredRows;
    },
  };
}
