/** Names that a reader gives to features: edited in place, sent to the kernel. */
import { h } from "../../dom.ts";
import type { Answers } from "../../wire/answers.ts";

/** Sends names of features to the kernel in order. */
export interface Naming {
  tell(of: number, feature: number, name: string): void;
  /** Why the last name could not be saved. */
  why(): string | undefined;
}

export function createFeatureNames(answers: () => Answers): Naming {
  let last: Record<string, unknown> = {};
  return {
    tell(of, feature, name) {
      last = { of, feature, name };
      // The same name may have been set and removed before.
      answers().retry("name", true);
      answers().get("name", last);
    },
    why: () => answers().failure("name", last),
  };
}

/** An input field for a feature's name, sent when editing ends. */
export function nameField(current: string, feature: number, tell: (name: string) => void): HTMLInputElement {
  const field = h("input.name.boxed", {
    "aria-label": `name of feature ${feature}`,
    placeholder: "add a name",
    type: "text",
    spellcheck: "false",
  });
  field.value = field.title = current;
  let saved = current;
  const end = (): void => {
    const name = field.value.trim();
    if (name === saved) return;
    saved = name;
    tell(name);
  };
  field.addEventListener("blur", end);
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") field.value = saved;
    if (event.key === "Enter" || event.key === "Escape") field.blur();
  });
  return field;
}
