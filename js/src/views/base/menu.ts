/** A menu whose items may be under headings, with a line of explanation and a badge each. */
import { assign, h, keyboard, on, reserve, setChildren, setFlag, setText } from "../../dom.ts";
import { createPopover, isOpen, uniqueName } from "./popover.ts";

export interface Item {
  value: string;
  label: string;
  /** The heading of its group. */
  group?: string;
  /** A line of explanation. */
  note?: string;
  /** The duration of its computation ("instant", "seconds", "minutes"), or another word about it. */
  badge?: string;
  /** More about the badge, for screen readers and under the pointer. */
  cost?: string;
  /** Unavailable; `note` gives the reason. */
  off?: boolean;
}

export interface Menu {
  field: HTMLElement;
  /**
   * Set the items, grouped in order; with fewer than two the menu is hidden. The button keeps room for the label of
   * `next`.
   */
  offer(items: readonly Item[], current: string, next?: string): void;
}

/** Milliseconds after which letters begin a new word. */
const TYPED_MS = 600;

/**
 * The first item from `start` on, wrapping around, whose label begins with the typed text; else an item that contains
 * it, if it is longer than a letter; `start` if there is none.
 */
export function typedItem(items: readonly Item[], start: number, typed: string): number {
  const order = items.map((_, i) => (start + i) % items.length);
  const labelled = (i: number): string => items[i]?.label.toLowerCase() ?? "";
  const prefix = typed.toLowerCase();
  const inside = (i: number): boolean => prefix.length > 1 && labelled(i).includes(prefix);
  return order.find((i) => labelled(i).startsWith(prefix)) ?? order.find(inside) ?? start;
}

/** The option of an item; `id` names it for screen readers. */
function createOption(item: Item, id: string, isChosen: boolean): HTMLElement {
  const { label, note = "", badge = "", cost = "", off = false } = item;
  const option = h(
    "div.menu-item",
    {
      role: "option",
      id,
      "aria-selected": String(isChosen),
      "aria-disabled": String(off),
      "aria-label": label,
      "aria-description": [note, [badge, cost].filter(Boolean).join(": ")].filter(Boolean).join(" · "),
    },
    h("span.menu-label", label),
    h("span.note", note),
  );
  if (badge) option.append(h("span.badge", { "data-of": badge, title: cost }, badge));
  return option;
}

/** Options under the headings of their groups. */
function grouped(items: readonly Item[], options: readonly HTMLElement[]): HTMLElement[] {
  const groups = [...new Set(items.map(({ group = "" }) => group))];
  return groups.flatMap((name) => {
    const members = options.filter((_, i) => (items[i]?.group ?? "") === name);
    if (!name) return members;
    const heading = h("div.menu-heading", { "aria-hidden": "true" }, name);
    return [h("div.menu-group", { role: "group", "aria-label": name }, heading, ...members)];
  });
}

export function createMenu(name: string, signal: AbortSignal, choose: (value: string) => void): Menu {
  const id = uniqueName();
  const list = h("div.menu.menu-list", { id, role: "listbox", "aria-label": name });
  const value = h("span.menu-value");
  const button = h(
    "button.button.menu-button",
    { type: "button", role: "combobox", "aria-controls": id, "aria-haspopup": "listbox", "aria-label": name },
    h("span.menu-name", name),
    value,
    h("span.menu-arrow", { "aria-hidden": "true" }, "▾"),
  );
  const field = h("span.field.choice", button, list);
  let items: readonly Item[] = [];
  let options: HTMLElement[] = [];
  let drawnState = "";
  let chosen = 0;
  let active = 0;
  let typed = "";
  let typedAt = 0;

  const move = (to: number): void => {
    active = Math.max(0, Math.min(items.length - 1, to));
    for (const [i, option] of options.entries()) setFlag(option, "data-active", i === active);
    button.setAttribute("aria-activedescendant", `${id}-${active}`);
    if (isOpen(list)) options[active]?.scrollIntoView({ block: "nearest" });
  };
  const take = (i: number): void => {
    const item = items[i];
    if (!item || item.off) return;
    list.hidePopover();
    choose(item.value);
  };
  createPopover(button, list, signal, () => {
    typed = "";
    fill();
    button.focus({ preventScroll: true });
    move(chosen);
  });
  const step = (by: number) => (): void => (isOpen(list) ? move(active + by) : list.showPopover());
  const enter = (): void => (isOpen(list) ? take(active) : list.showPopover());
  on(button, signal, {
    keydown(event) {
      const { key, ctrlKey, metaKey, altKey, timeStamp } = event;
      if (!isOpen(list) || ctrlKey || metaKey || altKey || key.length > 1 || (key === " " && !typed)) return;
      // In the menu, letters find an item; the view must not handle them.
      event.stopImmediatePropagation();
      event.preventDefault();
      typed = timeStamp - typedAt > TYPED_MS ? key : typed + key;
      typedAt = timeStamp;
      move(typedItem(items, typed.length > 1 ? active : (active + 1) % items.length, typed));
    },
    blur: () => list.hidePopover(),
  });
  keyboard(button, signal, {
    ArrowDown: step(1),
    ArrowUp: step(-1),
    Home: step(-Infinity),
    End: step(Infinity),
    Enter: enter,
    " ": enter,
    Escape: () => list.hidePopover(),
  });
  on(list, signal, {
    toggle: () => move(active),
    // The button keeps the focus.
    pointerdown: (event) => event.preventDefault(),
    click: ({ target }) => take(options.findIndex((option) => option.contains(target as Node))),
  });
  /** The options are made when the list opens: most lists never do. */
  const fill = (): void => {
    if (options.length > 0) return;
    options = items.map((item, i) => createOption(item, `${id}-${i}`, i === chosen));
    setChildren(list, ...grouped(items, options));
  };
  return {
    field,
    offer(offered, current, next) {
      assign(field, { hidden: offered.length < 2 });
      const stateKey = JSON.stringify([offered, current, next]);
      if (stateKey === drawnState) return;
      drawnState = stateKey;
      items = offered;
      chosen = items.findIndex((item) => item.value === current);
      setText(value, items[chosen]?.label ?? "");
      reserve(value, ...items.flatMap((item) => (item.value === next ? [item.label] : [])));
      options = [];
      setChildren(list);
      if (!isOpen(list)) return;
      fill();
      move(active);
    },
  };
}
