/**
 * A list of amounts: a name, a bar, a number. Colour shows the side, length the value. Rows are moved, never rebuilt.
 */
import { assign, h, setStyles, setText } from "../../dom.ts";

export interface Meter {
  name: string;
  /** The position, in quiet digits after the name. */
  position?: string;
  value: number;
  kind: "amount" | "for" | "against" | "apart";
  /** Whether this is the pinned element. */
  strong?: boolean;
  /** The element that a click chooses. */
  index?: number;
}

interface Row {
  row: HTMLElement;
  name: HTMLElement;
  position: HTMLElement;
  bar: HTMLElement;
  value: HTMLElement;
  index: number;
}

/** An amount with the decimals that the largest of its list needs for two digits. */
export function amountText(value: number, top: number): string {
  if (Number.isNaN(value)) return "–";
  const decimals = top > 0 ? Math.max(0, Math.min(8, 2 - Math.max(-6, Math.ceil(Math.log10(top) - 1e-9)))) : 2;
  const least = 10 ** -decimals;
  const size = Math.abs(value);
  if (size > 0 && size < least / 2) return value < 0 ? `> −${least.toFixed(decimals)}` : `< ${least.toFixed(decimals)}`;
  return value < 0 ? `−${size.toFixed(decimals)}` : size.toFixed(decimals);
}

export interface Meters {
  element: HTMLElement;
  /** Show some amounts; a bar is full at `top`. */
  show(meters: readonly Meter[], top: number): void;
}

/** A list named `label`; `choose` is called with the `index` of a clicked row. */
export function createMeters(label: string, signal: AbortSignal, choose?: (index: number) => void): Meters {
  const element = h("div.meters", { role: "list", "aria-label": label });
  const rows: Row[] = [];
  const rowAt = (i: number): Row => {
    let made = rows[i];
    if (!made) {
      const [name, position, bar, value] = [h("span"), h("span.dim"), h("span"), h("span.meter-value")];
      const row = h(
        "div.meter",
        { role: "listitem" },
        h("span.meter-name", name, position),
        h("span.meter-bar", { "aria-hidden": "true" }, bar),
        value,
      );
      made = { row, name, position, bar, value, index: -1 };
      rows.push(made);
      const here = made;
      if (choose) row.addEventListener("click", () => here.index >= 0 && choose(here.index), { signal });
      element.append(row);
    }
    return made;
  };
  return {
    element,
    show(meters, top) {
      meters.forEach((meter, i) => {
        const made = rowAt(i);
        made.index = meter.index ?? -1;
        if (setText(made.name, meter.name)) made.name.title = meter.name;
        setText(made.position, meter.position ? ` ${meter.position}` : "");
        setText(made.value, amountText(meter.value, top));
        assign(made.bar, { className: meter.kind === "apart" ? "aw-special-sum" : `aw-${meter.kind}` });
        setStyles(made.bar, { width: `${top > 0 ? Math.min(100, (100 * Math.abs(meter.value)) / top) || 0 : 0}%` });
        made.row.toggleAttribute("data-strong", Boolean(meter.strong));
        made.row.toggleAttribute("data-choice", Boolean(choose) && made.index >= 0);
        assign(made.row, { hidden: false });
      });
      for (const { row } of rows.slice(meters.length)) assign(row, { hidden: true });
    },
  };
}
