/** A choice among a few named options: radio buttons that look like one control. */
import { h, on } from "../../dom.ts";

export interface Segments<Name extends string> {
  element: HTMLElement;
  value(): Name;
  choose(name: Name): void;
}

/** Starts with the first option; `changed` is called when the reader chooses. */
export function createSegments<Name extends string>(
  name: string,
  choices: Record<Name, string>,
  signal: AbortSignal,
  changed: () => void,
): Segments<Name> {
  const element = h("fieldset.segments", { "aria-label": name });
  // Radio buttons are grouped by name across the whole page.
  const group = `aw-${Math.random()}`;
  const inputs = (Object.keys(choices) as Name[]).map((value) => {
    const input = h("input", { type: "radio", name: group, value });
    element.append(h("label.segment", input, choices[value]));
    return input;
  });
  const choose = (value: Name): void => {
    for (const input of inputs) input.checked = input.value === value;
  };
  choose(Object.keys(choices)[0] as Name);
  on(element, signal, { change: changed });
  return { element, value: () => (inputs.find(({ checked }) => checked)?.value ?? "") as Name, choose };
}
