/**
 * The panes of an Explorer: the map in the middle, heads at its left, and a panel at its right. On a wide page all
 * three are side by side; on a narrower page the panel replaces the heads (the drawer), and on a phone a single pane is
 * visible at a time.
 */
import type { ViewContext } from "../../context.ts";
import { h, on, setFlag, setText } from "../../dom.ts";
import { createMenu, type Item } from "../base/menu.ts";

/**
 * px below which a panel replaces the heads, and below which a single pane is visible at a time; so in
 * parts/explorer.css.
 */
const [NARROW, PHONE] = [1000, 600];

/** The key under which the open tab and the chosen panel are stored, while texts change. */
const OPEN = "panes";

export interface Panel {
  name: string;
  title: string;
  element: HTMLElement;
  /** Draw it, whenever it is opened. */
  open: () => void;
  /** Whether it needs more room than a column. */
  roomy?: boolean;
}

export interface Panes {
  element: HTMLElement;
  /** Set which panels there are, whether there are heads to choose from, and whether a picture replaces them. */
  offer(isOffered: (name: string) => boolean, hasHeads: boolean, isPicture: boolean): void;
  /** Follow the width of the page. */
  fit(width: number): void;
  /** Whether this panel is visible. */
  isOpen(name: string): boolean;
}

/** Shows the first panel, or the panel open for the previous text; a menu next to its tab leads to the others. */
export function createPanes(
  { lasting }: ViewContext,
  signal: AbortSignal,
  heads: HTMLElement,
  map: HTMLElement,
  panels: readonly Panel[],
): Panes {
  const tab = (name: string, title: string): HTMLButtonElement =>
    h("button.tab.ghost", { type: "button", role: "tab", "data-name": name }, title);
  const [first] = panels;
  const panelTab = tab("", "");
  const tabs = [tab("map", "Map"), tab("heads", "Heads"), panelTab];
  const more = createMenu("other panels", signal, (name) => show(name));
  const bar = h("div.tabs.inline", h("div.tab-list", { role: "tablist", "aria-label": "panels" }, ...tabs), more.field);
  const side = h("div.pane.side", ...panels.map(({ element }) => element));
  const element = h("div.panes", { role: "group", "aria-label": "all panels" }, heads, map, bar, side);
  let [now, chosen] = (lasting.get(OPEN) as [string, string] | undefined) ?? ["map", first?.name ?? ""];
  let offered: readonly Panel[] = panels;
  let isHeadless = false;
  let [isWide, isPicture, lastWidth] = [false, false, 0];

  const isOpen = (name: string): boolean => name === chosen && (isWide || element.dataset.tab === "side");
  const show = (name: string): void => {
    now = name;
    // Without heads, the panel has their space.
    const target = name === "heads" && isHeadless ? chosen : name;
    const panel = offered.find((candidate) => candidate.name === target);
    if (panel) chosen = target;
    lasting.set(OPEN, [now, chosen]);
    element.dataset.tab = panel ? "side" : name;
    if (isOpen(chosen)) panels.find((candidate) => candidate.name === chosen)?.open();
    setFlag(element, "data-roomy", Boolean(panels.find((candidate) => candidate.name === chosen)?.roomy));
    for (const other of panels) other.element.hidden = other.name !== chosen;
    // On a wide page the panel always is next to the map.
    const selected = isWide || panel ? "" : now;
    for (const button of tabs) button.ariaSelected = String(button.dataset.name === selected);
    const items: Item[] = offered.map(({ name: value, title: label }) => ({ value, label }));
    more.offer(items, chosen);
    setText(panelTab, panels.find((candidate) => candidate.name === chosen)?.title ?? "");
  };
  on(bar, signal, {
    click({ target }) {
      const button = (target as Element).closest<HTMLElement>("[role=tab]");
      if (button) show(button.dataset.name || chosen);
    },
  });
  const fit = (width: number): void => {
    lastWidth = width;
    // The order of reading and tabbing is that on the page: from left to right, and tabs before their panels.
    const order = width < NARROW ? [bar, heads, side, map] : [heads, map, bar, side];
    if (element.firstElementChild !== order[0]) element.append(...order);
    // A picture has several columns, and needs all the width.
    const isPhone = width < (isPicture ? NARROW : PHONE);
    const wasWide = isWide;
    isWide = width >= NARROW;
    if (now === (isPhone ? "heads" : "map")) show(isPhone ? "map" : "heads");
    else if (wasWide !== isWide) show(now);
  };
  return {
    element,
    isOpen,
    fit,
    offer(isOffered, hasHeads, pictured) {
      isHeadless = !hasHeads;
      setFlag(element, "data-headless", isHeadless);
      setFlag(element, "data-picture", pictured);
      if (isPicture !== pictured) {
        isPicture = pictured;
        fit(lastWidth);
      }
      offered = panels.filter(({ name }) => isOffered(name));
      if (offered.some(({ name }) => name === chosen)) show(now);
      else show(first?.name ?? "");
    },
  };
}
