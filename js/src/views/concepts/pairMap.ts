/** The amount that each pair of levels adds beyond its two slots, as a small map. */
import type { Theme } from "../../colour.ts";
import { h, safeText, setChildren, shortLabel } from "../../dom.ts";
import { decimal } from "../circuits/words.ts";
import { fillOf } from "../text/stripColour.ts";
import { topOf } from "./influence.ts";
import { levelName, type Pair, type Shapes, type Slot } from "./shapes.ts";

/** Most columns whose cells hold their number. */
const NUMBERED = 7;

const named = (slot: Slot, level: number): string => safeText(levelName(slot.levels[level] ?? ""));

/** Fill a table with the map of a pair; `chosen` are the indices of the chosen levels. */
export function drawPair(table: HTMLElement, { slots }: Shapes, pair: Pair, chosen: string, theme: Theme): void {
  const [first, second] = pair.slots.map((at) => slots[at]);
  if (!first || !second) return;
  const top = Math.max(...pair.values.map(topOf), 1e-12);
  const isNumbered = second.levels.length <= NUMBERED;
  const head = second.levels.map((level) =>
    h("th.pair-level", { scope: "col", title: level }, h("span", { dir: "auto" }, shortLabel(levelName(level), 12))),
  );
  const rows = pair.values.map((row, a) => {
    const cells = row.map((value, b) => {
      const fill = fillOf((value ?? Number.NaN) / top, theme, true);
      const name = `${named(first, a)} × ${named(second, b)}: ${decimal(value ?? Number.NaN, 2, true)}`;
      const button = h(
        "button.pair-cell",
        {
          type: "button",
          "data-cell": `${a},${b}`,
          "aria-label": name,
          title: name,
          "aria-pressed": String(chosen === `${a},${b}`),
          ...(fill.flips ? { "data-flip": "" } : {}),
        },
        isNumbered ? decimal(value ?? Number.NaN, 2, true) : "",
      );
      button.style.background = fill.css;
      return h("td", button);
    });
    const level = first.levels[a] ?? "";
    return h(
      "tr",
      h("th.pair-level", { scope: "row", title: level, dir: "auto" }, shortLabel(levelName(level), 14)),
      ...cells,
    );
  });
  setChildren(table, h("thead", h("tr", h("td"), ...head)), h("tbody", ...rows));
}
