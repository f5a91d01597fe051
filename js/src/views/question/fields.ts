/** The fields of a question next to its view: a typed line, options to choose from, room for words. */
import { assign, h, on, safeText, setChildren, setFlag } from "../../dom.ts";
import { HOW, MOST_CHARACTERS } from "./kinds.ts";

/** A field: its value counts once the reader changed it. */
export interface Field {
  element: HTMLElement;
  /** Show an answer, or none. */
  show(value: unknown): void;
  /** Whether the reader can change it. */
  open(is: boolean): void;
}

/** A text field for numbers, and for values that the view can give as well; `changed` is called with the text. */
export function createLine(
  kind: string,
  unit: string | null,
  signal: AbortSignal,
  changed: (text: string) => void,
  enter: () => void,
): Field & { clear(): void } {
  const form = HOW[kind]?.form ?? "";
  const input = h("input.button.question-line", {
    type: "text",
    inputmode: kind === "number" ? "decimal" : "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: form,
    "aria-label": `answer: ${form}`,
  });
  if (kind === "number") input.dataset.awKeys = "Enter: submit";
  const element = h(
    "span.question-typed",
    input,
    ...(kind === "number" && unit ? [h("span.dim", safeText(unit))] : []),
  );
  on(input, signal, {
    input: () => changed(input.value),
    keydown: (event) => event.key === "Enter" && enter(),
  });
  return {
    element,
    clear: () => assign(input, { value: "" }),
    show: (value) => {
      if (kind === "number" && document.activeElement !== input)
        assign(input, { value: value === null ? "" : String(value) });
    },
    open: (is) => assign(element, { hidden: !is }),
  };
}

/** Options of which the reader chooses a single option or several. */
export function createOptions(
  choices: readonly string[],
  multiple: boolean,
  signal: AbortSignal,
  changed: (value: unknown) => void,
): Field {
  const group = `aw-${Math.random()}`; // radio buttons are grouped by name across the whole page
  const inputs = choices.map((value) => h("input", { type: multiple ? "checkbox" : "radio", name: group, value }));
  const element = h("fieldset.question-options.column", { "aria-label": multiple ? "options, several" : "options" });
  setChildren(
    element,
    ...inputs.map((input, i) =>
      h("label.question-option", input, h("span", { dir: "auto" }, safeText(choices[i] as string))),
    ),
  );
  const chosen = (): string[] => choices.filter((_, i) => inputs[i]?.checked);
  // As Python sorts text: by code points.
  const byPoints = (a: string, b: string): number => {
    const [first, second] = [[...a], [...b]];
    const at = first.findIndex((point, i) => point !== second[i]);
    if (at < 0) return first.length - second.length;
    return (first[at]?.codePointAt(0) ?? 0) - (second[at]?.codePointAt(0) ?? -1);
  };
  on(element, signal, { change: () => changed(multiple ? chosen().sort(byPoints) : chosen()[0]) });
  return {
    element,
    show(value) {
      const checked = [value].flat();
      for (const input of inputs) input.checked = checked.includes(input.value);
    },
    open: (is) => {
      for (const input of inputs) assign(input, { disabled: !is });
    },
  };
}

/** Room for words. */
export function createText(signal: AbortSignal, changed: (text: string) => void, enter: () => void): Field {
  const field = h("textarea.button.question-text", {
    rows: "4",
    dir: "auto",
    maxlength: String(MOST_CHARACTERS),
    "aria-label": "answer",
    placeholder: "your answer",
  });
  field.dataset.awKeys = "Ctrl + Enter: submit";
  on(field, signal, {
    input: () => changed(field.value),
    keydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && enter(),
  });
  return {
    element: field,
    show: (value) => {
      if (document.activeElement !== field || field.readOnly)
        assign(field, { value: value === null ? "" : String(value) });
    },
    open: (is) => {
      assign(field, { readOnly: !is });
      setFlag(field, "data-closed", !is);
    },
  };
}
