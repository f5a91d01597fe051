/** A row of buttons that shows those that fit: a button at its end unfolds the others below. */

import { assign, h, on, onResize, setFlag, setText } from "../../dom.ts";

export interface FoldedRow {
  /** Show these items, and fold those that do not fit; pressed items are folded last. */
  fill(items: readonly HTMLElement[]): void;
}

/**
 * The visible items among items of these widths in `room` px, `gap` px apart, followed by a button of `more` px if some
 * are hidden. Items with `first` are preferred; at least one is visible.
 */
export function fitting(
  widths: readonly number[],
  first: readonly boolean[],
  room: number,
  gap: number,
  more: number,
): boolean[] {
  const whole = widths.reduce((sum, width) => sum + width + gap, -gap);
  if (whole <= room) return widths.map(() => true);
  const order = [...widths.keys()].sort((a, b) => Number(first[b] ?? false) - Number(first[a] ?? false) || a - b);
  const shown = widths.map(() => false);
  let left = room - more;
  for (const [rank, i] of order.entries()) {
    left -= (widths[i] as number) + gap;
    if (left < 0 && rank > 0) break;
    shown[i] = true;
  }
  return shown;
}

/** Keep the children of `row` in a single line until the reader unfolds it. */
export function foldRow(row: HTMLElement, signal: AbortSignal): FoldedRow {
  const more = h("button.button.fold", { type: "button", "aria-expanded": "false" });
  let items: readonly HTMLElement[] = [];
  let isOpen = false;
  const fit = (): void => {
    for (const item of items) assign(item, { hidden: false });
    setFlag(row, "data-open", isOpen);
    setText(more, isOpen ? "fewer" : `+ ${items.length}`);
    more.ariaExpanded = String(isOpen);
    more.hidden = false;
    const gap = Number.parseFloat(getComputedStyle(row).columnGap) || 0;
    const widths = items.map((item) => item.getBoundingClientRect().width);
    const pressed = items.map((item) => item.ariaPressed === "true" || item.matches(":focus"));
    const room = row.clientWidth;
    const shown = fitting(widths, pressed, room, gap, more.getBoundingClientRect().width);
    const folded = shown.filter((isShown) => !isShown).length;
    assign(more, { hidden: room <= 0 || folded === 0 });
    if (isOpen || room <= 0 || folded === 0) return;
    setText(more, `+ ${folded}`);
    more.title = `${folded} more`;
    for (const [i, item] of items.entries()) assign(item, { hidden: !shown[i] });
  };
  on(more, signal, {
    click() {
      isOpen = !isOpen;
      fit();
    },
  });
  onResize(row, signal, fit);
  return {
    fill(now) {
      items = now;
      row.replaceChildren(...items, more);
      fit();
    },
  };
}
