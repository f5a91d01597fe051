/** How alike every two explanations rank: a small matrix of numbers on colour. A cell is two of them, to be compared. */

import { heatMap, luminance, mapTable, place, type Rgb } from "../../colour.ts";
import type { Theme } from "../../context.ts";
import { fill, h, keyboard, on } from "../../dom.ts";

/** What `CompareView._agreement` says of one measure. */
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

/** `choose` is called with the row and column of a cell that is clicked; `point` with the one under the pointer. */
export function createAgreementTable(
  signal: AbortSignal,
  choose: (row: number, col: number) => void,
  point: (row: number, col: number) => void,
): AgreementTable {
  const head = h("thead");
  const body = h("tbody");
  const element = h("table.agree", { role: "grid", "aria-label": "agreement of every two" }, head, body);
  let count = 0;
  let cells: HTMLElement[] = [];
  let active = 1;

  const find = (event: Event): number => cells.indexOf((event.target as Element).closest("td") as HTMLElement);
  const at = (index: number): [number, number] => [Math.floor(index / count), index % count];
  const move = (by: number) => (): void => {
    const to = Math.max(0, Math.min(cells.length - 1, active + by));
    const [row, col] = at(active);
    // Sideways stays in the row.
    if (Math.abs(by) === 1 && (col + by < 0 || col + by >= count)) return;
    if (Math.abs(by) > 1 && (row + Math.sign(by) < 0 || row + Math.sign(by) >= count)) return;
    reach(to);
    cells[to]?.focus();
  };
  const reach = (index: number): void => {
    if (cells[active]) (cells[active] as HTMLElement).tabIndex = -1;
    active = index;
    if (cells[active]) (cells[active] as HTMLElement).tabIndex = 0;
  };
  const pick = (): void => choose(...at(active));
  on(body, signal, {
    click(event) {
      const index = find(event);
      if (index < 0) return;
      reach(index);
      pick();
    },
    pointerover: (event) => {
      const index = find(event);
      if (index >= 0) point(...at(index));
    },
    pointerleave: () => point(-1, -1),
    focusin: (event) => {
      const index = find(event);
      if (index < 0) return;
      reach(index);
      point(...at(index));
    },
    focusout: () => point(-1, -1),
  });
  keyboard(body, signal, {
    ArrowLeft: move(-1),
    ArrowRight: move(1),
    ArrowUp: () => move(-count)(),
    ArrowDown: () => move(count)(),
    Enter: pick,
    " ": pick,
  });

  const build = (names: readonly string[]): void => {
    count = names.length;
    cells = [];
    const numbers = names.map((name, i) => h("th", { scope: "col", title: name }, String(i + 1)));
    fill(head, h("tr", h("td"), ...numbers));
    const rows = names.map((name, row) => {
      const own = names.map((_, col) => {
        const cell = h("td", { role: "gridcell", tabindex: "-1" });
        if (row === col) cell.dataset.self = "";
        return cell;
      });
      cells.push(...own);
      return h("tr", h("th", { scope: "row", title: name }, h("b", String(row + 1)), ` ${name}`), ...own);
    });
    fill(body, ...rows);
    active = Math.min(1, cells.length - 1);
    reach(active);
  };

  return {
    element,
    show(names, { values, title, chance }, pair, theme) {
      if (count !== names.length || body.textContent === "" || element.dataset.names !== names.join("\n")) {
        element.dataset.names = names.join("\n");
        build(names);
      }
      const signed = chance === 0;
      const map = heatMap(signed, theme);
      cells.forEach((cell, index) => {
        const [row, col] = at(index);
        const value = values[row]?.[col] ?? Number.NaN;
        const rgb = colourOf(value, signed, map);
        cell.textContent = value
          .toFixed(2)
          .replace(/^-0\.00$/, "0.00")
          .replace("-", "−");
        // That each agrees with itself says nothing, and takes no colour.
        cell.style.background = row === col ? "" : `rgb(${rgb.join(" ")})`;
        cell.style.color = row === col ? "" : luminance(rgb) > 0.18 ? "#000" : "#fff";
        cell.ariaLabel = `${names[row]} and ${names[col]}: ${cell.textContent}`;
        cell.title = `${title}: ${cell.ariaLabel}`;
        const chosen = pair !== null && ((pair[0] === row && pair[1] === col) || (pair[0] === col && pair[1] === row));
        cell.ariaSelected = String(chosen);
      });
    },
  };
}

function colourOf(value: number, signed: boolean, map: ReturnType<typeof heatMap>): Rgb {
  const table = mapTable(map);
  const at = 3 * Math.round(255 * place(Number.isFinite(value) ? value : 0, signed ? [-1, 1] : [0, 1], "linear"));
  return [table[at] ?? 0, table[at + 1] ?? 0, table[at + 2] ?? 0];
}
