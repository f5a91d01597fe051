/** A list that the reader sorts: by dragging, by arrows next to each item, or by keys. */
import { assign, h, iconButton, keyboard, on, safeText, setChildren, setFlag } from "../../dom.ts";
import type { Field } from "./fields.ts";

/** Its elements, and the state that they show. */
interface OrderState {
  readonly choices: readonly string[] | null;
  readonly signal: AbortSignal;
  readonly changed: (value: unknown) => void;
  readonly offered: () => string;
  readonly list: HTMLOListElement;
  readonly input: HTMLInputElement;
  readonly take: HTMLButtonElement;
  readonly element: HTMLDivElement;
  /** The choices in their order. */
  items: string[];
  /** Whether the order can be changed. */
  isOpen: boolean;
}

/** `choices` null: the reader makes the list; `offered` is the item that the view would add now, or "". */
export function createOrder(
  choices: readonly string[] | null,
  signal: AbortSignal,
  changed: (value: unknown) => void,
  offered: () => string,
): Field & { follow(): void; current(): string[] | null } {
  const list = h("ol.question-order.column", { "aria-label": "order, first item first" });
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

  const state: OrderState = {
    choices,
    signal,
    changed,
    offered,
    list,
    input,
    take,
    element,
    items: [...(choices ?? [])],
    isOpen: true,
  };
  let dragged = -1;
  on(list, signal, {
    pointerdown(event) {
      const target = event.target as Element;
      const item = target.closest(".aw-question-place");
      if (!state.isOpen || !item || target.closest("button") || event.button !== 0) return;
      dragged = [...list.children].indexOf(item);
      list.setPointerCapture(event.pointerId);
      event.preventDefault();
      (item as HTMLElement).focus();
    },
    pointermove(event) {
      if (dragged < 0) return;
      const to = indexAt(state, event.clientY);
      if (to === dragged) return;
      move(state, dragged, to);
      dragged = to;
    },
    pointerup: () => {
      dragged = -1;
    },
    pointercancel: () => {
      dragged = -1;
    },
  });
  on(add, signal, { click: () => addTyped(state) });
  on(input, signal, { keydown: (event) => event.key === "Enter" && addTyped(state) });
  on(take, signal, { click: () => put(state, offered()) });
  draw(state);
  follow(state);
  return {
    element,
    follow: () => follow(state),
    current: () => (state.items.length ? state.items : null),
    show: (value) => show(state, value),
    open(is) {
      if (is === state.isOpen) return;
      state.isOpen = is;
      draw(state);
    },
  };
}

function move(state: OrderState, from: number, to: number, focus = true): void {
  const item = state.items[from];
  if (!state.isOpen || item === undefined || to < 0 || to >= state.items.length || from === to) return;
  state.items = state.items.toSpliced(from, 1).toSpliced(to, 0, item);
  draw(state);
  if (focus) (state.list.children[to] as HTMLElement).focus();
  state.changed(state.items);
}

function put(state: OrderState, name: string): void {
  if (!name.trim() || state.items.includes(name)) return;
  state.items = [...state.items, name];
  draw(state);
  state.changed(state.items);
}

function remove(state: OrderState, position: number): void {
  state.items = state.items.toSpliced(position, 1);
  draw(state);
  state.changed(state.items.length ? state.items : null);
}

function row(state: OrderState, name: string, position: number): HTMLElement {
  const { signal, list } = state;
  const button = (sign: string, label: string, click: () => void): HTMLButtonElement =>
    iconButton(signal, sign, `${label}: ${safeText(name)}`, click);
  const up = button("↑", "earlier", () => move(state, position, position - 1));
  const down = button("↓", "later", () => move(state, position, position + 1));
  assign(up, { disabled: position === 0 });
  assign(down, { disabled: position === state.items.length - 1 });
  const ends = state.choices ? [] : [button("×", "remove", () => remove(state, position))];
  const words = h("span.question-name", { dir: "auto" }, safeText(name));
  const item = h(
    "li.question-place.inline.boxed",
    { tabindex: "0" },
    h("b", `${position + 1}`),
    words,
    up,
    down,
    ...ends,
  );
  keyboard(
    item,
    signal,
    {
      ArrowUp: () => (list.children[position - 1] as HTMLElement | undefined)?.focus(),
      ArrowDown: () => (list.children[position + 1] as HTMLElement | undefined)?.focus(),
      "Shift+ArrowUp": () => move(state, position, position - 1),
      "Shift+ArrowDown": () => move(state, position, position + 1),
    },
    "↑ ↓: item · Shift + ↑ ↓: move it",
  );
  return item;
}

function draw(state: OrderState): void {
  const { element, isOpen } = state;
  setChildren(state.list, ...state.items.map((name, position) => row(state, name, position)));
  setFlag(element, "data-closed", !isOpen);
  for (const control of element.querySelectorAll("button, input")) setFlag(control, "inert", !isOpen);
}

/** The position under the pointer while an item is dragged. */
function indexAt(state: OrderState, y: number): number {
  const boxes = [...state.list.children].map((child) => child.getBoundingClientRect());
  const at = boxes.findIndex(({ bottom }) => y < bottom);
  return at < 0 ? boxes.length - 1 : at;
}

function addTyped(state: OrderState): void {
  const { input } = state;
  put(state, input.value.trim());
  input.value = "";
}

function follow(state: OrderState): void {
  const name = state.offered();
  assign(state.take, { hidden: !name, textContent: `Add ${name}` });
}

function show(state: OrderState, value: unknown): void {
  const items = value === null ? state.items : (value as unknown[]).map((item) => [item].flat().join(" = "));
  if (JSON.stringify(items) === JSON.stringify(state.items)) return;
  state.items = items;
  draw(state);
}
