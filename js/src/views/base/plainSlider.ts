/** A slider through numbers that belong to no source (layers, steps), between steppers. */
import { assign, h, iconButton, on, setText } from "../../dom.ts";

export interface PlainSlider {
  element: HTMLElement;
  show(numbers: readonly number[], at: number): void;
}

/** `choose` is called with the index of the chosen number. */
export function createPlainSlider(signal: AbortSignal, name: string, choose: (position: number) => void): PlainSlider {
  let [count, now] = [0, 0];
  const move = (by: number): void => choose(Math.max(0, Math.min(count - 1, now + by)));
  const range = h("input.range", { type: "range", min: "0", "aria-label": name });
  const less = iconButton(signal, "‹", `previous ${name}`, () => move(-1));
  const more = iconButton(signal, "›", `next ${name}`, () => move(1));
  const number = h("output");
  const printed = (value = 0): string => value.toLocaleString("en");
  on(range, signal, { input: () => choose(Number(range.value)) });
  return {
    element: h("span.group", { role: "group", "aria-label": name }, less, range, number, more),
    show(numbers, at) {
      [count, now] = [numbers.length, at];
      const words = `${name} ${printed(numbers[at])}`;
      assign(range, { max: String(Math.max(0, count - 1)), ariaValueText: words, hidden: count < 2 });
      assign(range, { value: String(at) });
      assign(less, { disabled: at <= 0, hidden: count < 2 });
      assign(more, { disabled: at >= count - 1, hidden: count < 2 });
      setText(number, `${words}${count > 1 ? ` / ${printed(numbers.at(-1))}` : ""}`);
    },
  };
}
