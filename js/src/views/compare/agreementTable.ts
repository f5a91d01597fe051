/** The agreement of every two explanations as a small matrix of coloured numbers. Clicking a cell compares the two. */

import type { Theme } from "../../colour.ts";
import { colourAt, cssOf, heatMap, inkOn } from "../../colour.ts";
import { assign, h, keyboard, on, setChildren, setFlag, setStyles, setText } from "../../dom.ts";

/** How far along the ramp a full agreement is. */
const DARKEST = 0.7;

/** A measure in the answer of `CompareView._agreement`. */
export interface Ranking {
  title: string;
  values: number[][];
  chance: number;
  paper: string;
}

export interface AgreementTable {
  element: HTMLElement;
  show(names: readonly string[], ranking: Ranking, pair: readonly [number, number] | null, theme: Theme): void;
}

/** `choose` is called with the row and column of a clicked cell, `point` with those under the pointer. */
export function createAgreementTable(
  signal: AbortSignal,
  choose: (row: number, col: number) => void,
  point: (row: number, col: number) => void,
): AgreementTable {
  const head = h("thead");
  const body = h("tbody");
  const element = h("table.agree", { role: "grid", "aria-label": "pairwise agreement" }, head, body);
  let count = 0;
  let cells: HTMLElement[] = [];
  let active = 1;

  const find = (event: Event): number => cells.indexOf((event.target as Element).closest("td") as HTMLElement);
  const at = (index: number): [number, number] => [Math.floor(index / count), index % count];
  const reach = (index: number): void => {
    active = index;
    cells.forEach((cell, i) => {
      cell.tabIndex = i === index ? 0 : -1;
    });
  };
  const move = (down: number, right: number) => (): void => {
    const [row, col] = at(active);
    const to = col + right;
    if (to >= 0 && to < count) cells[(row + down) * count + to]?.focus();
  };
  const pick = (): void => choose(...at(active));
  const over = (event: Event): void => {
    const index = find(event);
    if (index < 0) return;
    if (event.type !== "pointerover") reach(index);
    if (event.type === "click") pick();
    else point(...at(index));
  };
  const leave = (): void => point(-1, -1);
  on(body, signal, { click: over, pointerover: over, pointerleave: leave, focusin: over, focusout: leave });
  keyboard(body, signal, {
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    ArrowUp: move(-1, 0),
    ArrowDown: move(1, 0),
    Enter: pick,
    " ": pick,
  });

  const build = (names: readonly string[]): void => {
    count = names.length;
    cells = [];
    const numbers = names.map((name, i) => h("th", { scope: "col", title: name }, String(i + 1)));
    setChildren(head, h("tr", h("td"), ...numbers));
    const rows = names.map((name, row) => {
      const rowCells = names.map((_, col) => {
        const cell = h("td", { role: "gridcell", tabindex: "-1" });
        setFlag(cell, "data-self", row === col);
        return cell;
      });
      cells.push(...rowCells);
      return h("tr", h("th", { scope: "row", title: name }, h("b", String(row + 1)), ` ${name}`), ...rowCells);
    });
    setChildren(body, ...rows);
    reach(Math.min(1, cells.length - 1));
  };

  return {
    element,
    show(names, { values, title }, pair, theme) {
      const joined = names.join("\n");
      if (count !== names.length || element.dataset.names !== joined) {
        element.dataset.names = joined;
        build(names);
      }
      // A neutral ramp, since agreement is not an amount of a text; negative values are hatched.
      const map = heatMap(false, theme, "greys");
      cells.forEach((cell, index) => {
        const [row, col] = at(index);
        const value = values[row]?.[col] ?? NaN;
        const rgb = colourAt(map, DARKEST * (Math.max(0, value) || 0));
        const text = value
          .toFixed(2)
          .replace(/^-0\.00$/, "0.00")
          .replace("-", "−");
        const ariaLabel = `${names[row]} and ${names[col]}: ${text}`;
        const ariaSelected = String(row !== col && [row, col].every((index) => pair?.includes(index)));
        setText(cell, text);
        // The diagonal is trivial and stays uncoloured.
        if (row !== col) setStyles(cell, { "background-color": cssOf(rgb), color: inkOn(rgb) });
        setFlag(cell, "data-negative", row !== col && value < 0);
        assign(cell, { ariaLabel, ariaSelected, title: `${title}: ${ariaLabel}` });
      });
    },
  };
}
