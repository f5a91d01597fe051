/** A slider through layers that belong to no source, between steppers. */
import { assign, h, iconButton, on, setText } from "../../dom.ts";

export interface PlainLayers {
  element: HTMLElement;
  show(layers: readonly number[], at: number): void;
}

/** `choose` is called with the place of a layer. */
export function createPlainLayers(signal: AbortSignal, choose: (place: number) => void): PlainLayers {
  let [count, now] = [0, 0];
  const move = (by: number): void => choose(Math.max(0, Math.min(count - 1, now + by)));
  const range = h("input.range", { type: "range", min: "0", "aria-label": "layer" });
  const less = iconButton(signal, "‹", "previous layer", () => move(-1));
  const more = iconButton(signal, "›", "next layer", () => move(1));
  const number = h("output");
  on(range, signal, { input: () => choose(Number(range.value)) });
  return {
    element: h("span.group", { role: "group", "aria-label": "layer" }, less, range, number, more),
    show(layers, at) {
      [count, now] = [layers.length, at];
      assign(range, { max: String(Math.max(0, count - 1)), ariaValueText: `layer ${layers[at]}`, hidden: count < 2 });
      assign(range, { value: String(at) });
      assign(less, { disabled: at <= 0, hidden: count < 2 });
      assign(more, { disabled: at >= count - 1, hidden: count < 2 });
      setText(number, `layer ${layers[at]}${count > 1 ? ` / ${layers.at(-1)}` : ""}`);
    },
  };
}
