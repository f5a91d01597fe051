/** A menu whose items have a second line for their cost, or for why they are unavailable. */
import { h, keyboard, on, reserve, setChildren, setFlag } from "../../dom.ts";

export interface Item {
  value: string;
  label: string;
  /** The second line. */
  note?: string;
  /** Unavailable; `note` says why. */
  off?: boolean;
}

export interface Menu {
  field: HTMLElement;
  /** Set the items; with fewer than two the menu is hidden. The button keeps room for the label of `next`. */
  offer(items: readonly Item[], current: string, next?: string): void;
}

export function createMenu(name: string, signal: AbortSignal, choose: (value: string) => void): Menu {
  const id = `aw-${Math.random()}-`;
  const list = h("div.menu", { id, role: "listbox", "aria-label": name, hidden: "" });
  const button = h("button.button", {
    type: "button",
    role: "combobox",
    "aria-controls": id,
    "aria-label": name,
    "aria-expanded": "false",
  });
  const field = h("span.field.choice", name, button, list);
  let items: readonly Item[] = [];
  let drawnState = "";
  let chosen = 0;
  let active = 0;

  const open = (shown: boolean): void => {
    list.hidden = !shown;
    button.ariaExpanded = String(shown);
    if (shown) move(chosen);
  };
  const move = (to: number): void => {
    active = Math.max(0, Math.min(items.length - 1, to));
    for (const [i, option] of [...list.children].entries()) setFlag(option, "data-active", i === active);
    button.setAttribute("aria-activedescendant", id + active);
    list.children[active]?.scrollIntoView({ block: "nearest" });
  };
  const take = (i: number): void => {
    const item = items[i];
    if (!item || item.off) return;
    open(false);
    choose(item.value);
  };
  const step = (by: number) => (): void => (list.hidden ? open(true) : move(active + by));
  const enter = (): void => (list.hidden ? open(true) : take(active));
  keyboard(button, signal, {
    ArrowDown: step(1),
    ArrowUp: step(-1),
    Home: step(-Infinity),
    End: step(Infinity),
    Enter: enter,
    " ": enter,
    Escape: () => open(false),
  });
  on(button, signal, { click: () => open(Boolean(list.hidden)), blur: () => open(false) });
  on(list, signal, {
    // The button keeps the focus.
    pointerdown: (event) => event.preventDefault(),
    click: ({ target }) => take([...list.children].findIndex((option) => option.contains(target as Node))),
  });
  return {
    field,
    offer(offered, current, next) {
      field.hidden = offered.length < 2;
      const stateKey = JSON.stringify([offered, current, next]);
      if (stateKey === drawnState) return;
      drawnState = stateKey;
      items = offered;
      chosen = items.findIndex(({ value }) => value === current);
      button.textContent = items[chosen]?.label ?? "";
      reserve(button, ...items.flatMap(({ value, label }) => (value === next ? [`${label} ▾`] : [])));
      setChildren(
        list,
        ...items.map(({ label, note = "", off = false }, i) =>
          h(
            "div",
            {
              role: "option",
              id: id + i,
              "aria-selected": String(i === chosen),
              "aria-disabled": String(off),
              "aria-label": label,
              "aria-description": note,
            },
            label,
            h("div.note", note),
          ),
        ),
      );
      move(active);
    },
  };
}
