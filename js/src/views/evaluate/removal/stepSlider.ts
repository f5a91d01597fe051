/** The current step: a slider, and a button that plays to the end. */

import { atEnd, h, keyboard, on, setText } from "../../../dom.ts";

const PLAY_EVERY_MS = 450;

export interface StepSlider {
  element: HTMLElement;
  at(): number;
  /** The last step. */
  until(last: number): void;
  go(step: number): void;
  stop(): void;
  /** The text beside the slider, and its text for screen readers. */
  name(count: string, label: string, words: string): void;
}

/** `moved` is called whenever the step changes. */
export function createStepSlider(signal: AbortSignal, moved: () => void): StepSlider {
  const play = h("button.button", { type: "button" }, "▷ play");
  const slider = h("input.range", { type: "range", min: "0", step: "1", value: "0" });
  const beside = h("output");
  let timer: ReturnType<typeof setTimeout> | undefined;

  const at = (): number => slider.valueAsNumber;
  const isLast = (): boolean => at() >= Number(slider.max);
  const go = (step: number): void => {
    slider.value = String(step);
    moved();
  };
  const stop = (): void => {
    clearTimeout(timer);
    timer = undefined;
    setText(play, "▷ play");
  };
  const tick = (): void => {
    if (isLast()) {
      stop();
      return;
    }
    go(at() + 1);
    timer = setTimeout(tick, PLAY_EVERY_MS);
  };
  on(play, signal, {
    click() {
      if (timer) {
        stop();
        return;
      }
      if (isLast()) go(0);
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
        go(at() + 1);
        return;
      }
      setText(play, "❚❚ pause");
      timer = setTimeout(tick, PLAY_EVERY_MS);
    },
  });
  on(slider, signal, {
    input() {
      stop();
      moved();
    },
  });
  keyboard(slider, signal, {}, "← →: one token more or less · Home, End: none, all");
  atEnd(signal, () => clearTimeout(timer));
  return {
    element: h("div.row.removal-control", play, slider, beside),
    at,
    until(last) {
      slider.max = String(last);
      slider.value = String(Math.min(last, at()));
    },
    go,
    stop,
    name(count, label, words) {
      setText(beside, count);
      slider.ariaLabel = label;
      slider.ariaValueText = words;
    },
  };
}
