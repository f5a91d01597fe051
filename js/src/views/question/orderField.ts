/** A list that the reader sorts: by dragging, by arrows next to each item, or by keys. */
import { assign, h, iconButton, keyboard, on, safeText, setChildren, setFlag } from "../../dom.ts";
import type { Field } from "./fields.ts";

/** `choices` null: the reader makes the list; `offered` is what the view would add now, or "". */
export function createOrder(
  choices: readonly string[] | null,
  signal: AbortSignal,
  changed: (value: unknown) => void,
  offered: () => string,
): Field & { follow(): void; current(): string[] | null } {
  const list = h("ol.question-order", { "aria-label": "order, first item first" });
  const input = h("input.button.question-line", {
    type: "text",
    placeholder: "a name",
    "aria-label": "a name to add",
    maxlength: "200",
  });
  const add = h("button.button", { type: "button" }, "Add");
  const take = h("button.button", { type: "button" });
  const more = h("div.question-more", input, add, take);
  const element = h("div.question-ordering", list, ...(choices ? [] : [more]));
  let items: string[] = [...(choices ?? [])];
  let isOpen = true;

  const move = (from: number, to: number, focus = true): void => {
    const item = items[from];
    if (!isOpen || item === undefined || to < 0 || to >= items.length || from === to) return;
    items = items.toSpliced(from, 1).toSpliced(to, 0, item);
    draw();
    if (focus) (list.children[to] as HTMLElement).focus();
    changed(items);
  };
  const put = (name: string): void => {
    if (!name.trim() || items.includes(name)) return;
    items = [...items, name];
    draw();
    changed(items);
  };
  const remove = (place: number): void => {
    items = items.toSpliced(place, 1);
    draw();
    changed(items.length ? items : null);
  };
  const row = (name: string, place: number): HTMLElement => {
    const button = (sign: string, label: string, click: () => void): HTMLButtonElement =>
      iconButton(signal, sign, `${label}: ${safeText(name)}`, click);
    const up = button("↑", "earlier", () => move(place, place - 1));
    const down = button("↓", "later", () => move(place, place + 1));
    assign(up, { disabled: place === 0 });
    assign(down, { disabled: place === items.length - 1 });
    const ends = choices ? [] : [button("×", "remove", () => remove(place))];
    const words = h("span.question-name", { dir: "auto" }, safeText(name));
    const item = h("li.question-place", { tabindex: "0" }, h("b", `${place + 1}`), words, up, down, ...ends);
    keyboard(
      item,
      signal,
      {
        ArrowUp: () => (list.children[place - 1] as HTMLElement | undefined)?.focus(),
        ArrowDown: () => (list.children[place + 1] as HTMLElement | undefined)?.focus(),
        "Shift+ArrowUp": () => move(place, place - 1),
        "Shift+ArrowDown": () => move(place, place + 1),
      },
      "↑ ↓: item · Shift + ↑ ↓: move it",
    );
    return item;
  };
  const draw = (): void => {
    setChildren(list, ...items.map(row));
    setFlag(element, "data-closed", !isOpen);
    for (const control of element.querySelectorAll("button, input")) setFlag(control, "inert", !isOpen);
  };
  /** The place under the pointer while something is dragged. */
  const placeAt = (y: number): number => {
    const boxes = [...list.children].map((child) => child.getBoundingClientRect());
    const at = boxes.findIndex(({ bottom }) => y < bottom);
    return at < 0 ? boxes.length - 1 : at;
  };
  let dragged = -1;
  on(list, signal, {
    pointerdown(event) {
      const target = event.target as Element;
      const item = target.closest(".aw-question-place");
      if (!isOpen || !item || target.closest("button") || event.button !== 0) return;
      dragged = [...list.children].indexOf(item);
      list.setPointerCapture(event.pointerId);
      event.preventDefault();
      (item as HTMLElement).focus();
    },
    pointermove(event) {
      if (dragged < 0) return;
      const to = placeAt(event.clientY);
      if (to === dragged) return;
      move(dragged, to);
      dragged = to;
    },
    pointerup: () => {
      dragged = -1;
    },
    pointercancel: () => {
      dragged = -1;
    },
  });
  const addTyped = (): void => {
    put(input.value.trim());
    input.value = "";
  };
  on(add, signal, { click: addTyped });
  on(input, signal, { keydown: (event) => event.key === "Enter" && addTyped() });
  on(take, signal, { click: () => put(offered()) });
  const follow = (): void => {
    const name = offered();
    assign(take, { hidden: !name, textContent: `Add ${name}` });
  };
  draw();
  follow();
  return {
    element,
    follow,
    current: () => (items.length ? items : null),
    show(value) {
      const wanted = value === null ? items : (value as unknown[]).map((one) => [one].flat().join(" = "));
      if (JSON.stringify(wanted) === JSON.stringify(items)) return;
      items = wanted;
      draw();
    },
    open(is) {
      if (is === isOpen) return;
      isOpen = is;
      draw();
    },
  };
}
