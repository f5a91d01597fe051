/** The largest keys of the pinned row as bars, next to a map that leaves space for them. */

import { h, listed, setFlag, setStyles, setText } from "../../dom.ts";
import { amountText } from "../base/meters.ts";
import { SINK_NAME } from "../base/rowFacts.ts";
import { largestOf } from "../text/rowValues.ts";

const MOST = 8;

export interface RowBars {
  element: HTMLElement;
  /** Show a row: its name, its values, the names of the elements that stand apart, and the weight on a sink. */
  show(
    title: string,
    values: ArrayLike<number>,
    labels: readonly string[],
    apart: readonly number[],
    names: string,
    base: number,
    sink?: number,
  ): void;
}

export function createRowBars(): RowBars {
  const title = h("b");
  const element = h("div.row-bars", { "aria-hidden": "true" }, title);
  const line = () => {
    const [name, bar, value] = [h("span.bar-name"), h("i.bar"), h("span.bar-value")];
    const made = { element: h("div.bar-line", name, h("span.bar-room", bar), value), name, bar, value };
    element.append(made.element);
    return made;
  };
  const lines: ReturnType<typeof line>[] = [];
  return {
    element,
    show(words, values, labels, apart, names, base, sink) {
      while (lines.length < MOST + 2) lines.push(line());
      setText(title, words);
      const inside = Float32Array.from(values, (value, i) => (apart.includes(i) ? Number.NaN : value));
      const largest = largestOf(inside, MOST).filter((i) => Math.abs(inside[i] as number) > 0);
      const rest = apart.reduce((sum, i) => sum + (values[i] || 0), 0);
      const shown = largest.map((i) => [listed(labels, i, base), inside[i] as number, false] as const);
      const rows = [
        ...shown,
        ...(names && values.length > 0 ? [[names, rest, true] as const] : []),
        ...(sink === undefined ? [] : [[SINK_NAME, sink, true] as const]),
      ];
      const end = Math.max(...rows.map(([, value]) => Math.abs(value)), 0) || 1;
      lines.forEach(({ element: line, name, bar, value }, i) => {
        const row = rows[i];
        line.style.visibility = row ? "" : "hidden";
        if (!row) return;
        const [label, number, isApart] = row;
        if (setText(name, label)) name.title = name.textContent ?? "";
        setText(value, amountText(number, end));
        setStyles(bar, { width: `${(100 * Math.abs(number)) / end}%` });
        setFlag(line, "data-apart", isApart);
        setFlag(line, "data-against", number < 0);
      });
    },
  };
}
