/** The means of the shown methods with their intervals, sorted by a column. */

import { h, on, setChildren, setFlag, shortLabel } from "../../../dom.ts";
import { intervalWords, numberOf, numbersOf, type Score, type Shown, scoreWords, wordsOf } from "./scores.ts";

/** Rows sorted by a column; undefined values come last in either direction. */
export function sortedRows(values: readonly (number | string)[], falling: boolean): number[] {
  const missing = (value: number | string | undefined): boolean => typeof value === "number" && Number.isNaN(value);
  return [...values.keys()].sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y));
    const order = typeof x === "string" ? x.localeCompare(String(y)) : Number(x) - Number(y);
    return falling ? -order : order;
  });
}

export interface ScoreTable {
  element: HTMLElement;
  /** `chosen` is the row whose value is read. */
  show(scores: Shown, chosen: number): void;
}

/** `choose` is called with the name of a row. */
export function createScoreTable(signal: AbortSignal, choose: (name: string) => void): ScoreTable {
  const element = h("table.scores-table");
  let scores: Shown | null = null;
  let chosen = -1;
  let sortBy = 1;
  let falling = true;
  let sorted = false; // chosen by the reader

  const draw = ({ card, metric, way, count, whole, shown, isCurve }: Shown): void => {
    const { rows, axis } = card;
    const [mean, low, high] = whole as [Score[], Score[], Score[]];
    const least = count.map((row) => Math.min(...row));
    const columns: [string, (number | string)[]][] = [
      ["method", rows.map(([name]) => name)],
      [isCurve ? `mean over ${axis}` : "mean", numbersOf(mean)],
      ["interval", high.map((value, row) => numberOf(value) - numberOf(low[row]))],
      ["n", least],
    ];
    const order = sortedRows(columns[sortBy]?.[1] ?? [], falling).filter((row) => shown.includes(row));
    const best = order.filter((row) => !rows[row]?.[1] && mean[row] !== null);
    const sign = way.startsWith("lower") ? -1 : way.startsWith("higher") ? 1 : 0;
    const top = Math.max(...best.map((row) => sign * numberOf(mean[row])));
    const head = columns.map(([name], column) => {
      const isBy = column === sortBy;
      const arrow = isBy ? (falling ? " ▾" : " ▴") : "";
      const button = h("button", { type: "button", "data-column": String(column) }, name + arrow);
      return h("th", { scope: "col", "aria-sort": isBy ? (falling ? "descending" : "ascending") : "none" }, button);
    });
    const body = order.map((row) => {
      const [name = "", baseline = false] = rows[row] ?? [];
      const line = h(
        "tr",
        h(
          "th",
          { scope: "row", title: name },
          h("button.scores-row.ghost", { type: "button", "data-name": name }, shortLabel(name, 60)),
        ),
        h("td", scoreWords(mean[row])),
        h("td", intervalWords(low[row], high[row], "–")),
        h("td", String(least[row])),
      );
      setFlag(line, "data-chosen", row === chosen);
      setFlag(line, "data-baseline", baseline);
      setFlag(line, "data-best", sign !== 0 && !baseline && sign * numberOf(mean[row]) === top);
      return line;
    });
    const at = element.querySelector<HTMLElement>("button:focus")?.dataset ?? {};
    const focused = at.column ? `[data-column="${at.column}"]` : at.name ? `[data-name="${CSS.escape(at.name)}"]` : "";
    const caption = h("caption.sr", `means of ${wordsOf(metric)}`);
    setChildren(element, caption, h("thead", h("tr", ...head)), h("tbody", ...body));
    if (focused) element.querySelector<HTMLElement>(focused)?.focus();
  };
  on(element, signal, {
    click({ target }) {
      const name = (target as Element).closest("tr")?.querySelector<HTMLElement>("[data-name]")?.dataset.name;
      if (name !== undefined) choose(name);
      const column = Number((target as Element).closest("button")?.dataset.column ?? -1);
      if (column < 0 || !scores) return;
      falling = column === sortBy ? !falling : column > 0;
      sortBy = column;
      sorted = true;
      draw(scores);
    },
  });
  return {
    element,
    show(now, row) {
      if (scores === now && chosen === row) return;
      [scores, chosen] = [now, row];
      if (!sorted) falling = !now.way.startsWith("lower");
      draw(now);
    },
  };
}
