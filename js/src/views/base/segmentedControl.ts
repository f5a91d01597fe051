/** A choice among a few named options: radio buttons that look like a single control, or a menu where room is short. */
import { h, on, setChildren, setFlag } from "../../dom.ts";
import { createMenu, type Menu } from "./menu.ts";

export interface Segments<Name extends string> {
  element: HTMLElement;
  value(): Name;
  choose(name: Name): void;
  /** Set the options; the first is chosen. */
  offer(choices: Partial<Record<Name, string>>): void;
}

const FOLDS = new WeakMap<Element, (is: boolean) => void>();

/** Show a segmented control as a menu, or as its buttons again. */
export const foldSegments = (element: Element, is: boolean): void => FOLDS.get(element)?.(is);

/** Starts with the first option; `changed` is called when the reader chooses. */
export function createSegments<Name extends string>(
  name: string,
  choices: Partial<Record<Name, string>>,
  signal: AbortSignal,
  changed: () => void,
): Segments<Name> {
  const element = h("fieldset.segments", { "aria-label": name });
  // Radio buttons are grouped by name across the whole page.
  const group = `aw-${Math.random()}`;
  let inputs: HTMLInputElement[] = [];
  let offered: [string, string][] = [];
  let menu: Menu | undefined;
  let isFolded = false;
  const value = (): Name => (inputs.find(({ checked }) => checked)?.value ?? "") as Name;
  const drawMenu = (): void => {
    if (isFolded)
      menu?.offer(
        offered.map(([value, label]) => ({ value, label })),
        value(),
      );
  };
  const choose = (name: string): void => {
    for (const input of inputs) input.checked = input.value === name;
    drawMenu();
  };
  const segments: Segments<Name> = {
    element,
    value,
    choose,
    offer(choices) {
      offered = Object.entries(choices) as [string, string][];
      inputs = offered.map(([value]) => h("input", { type: "radio", name: group, value }));
      const labels = inputs.map((input, i) => h("label.segment", input, offered[i]?.[1] ?? ""));
      setChildren(element, ...labels, ...(menu ? [menu.field] : []));
      choose(offered[0]?.[0] ?? "");
    },
  };
  segments.offer(choices);
  FOLDS.set(element, (is) => {
    isFolded = is;
    setFlag(element, "data-folded", is);
    if (is && !menu) {
      menu = createMenu(name, signal, (chosen) => {
        choose(chosen);
        changed();
      });
      element.append(menu.field);
    }
    drawMenu();
  });
  on(element, signal, { change: changed });
  return segments;
}
