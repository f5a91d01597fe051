/** The current step: a slider between two steppers, and a button that plays to the end. */

import { assign, atEnd, h, iconButton, keyboard, on, setChildren, setText } from "../../../dom.ts";
import { PAUSE, PLAY } from "../../base/icons.ts";
import { drawing } from "../../charts/svg.ts";

const PLAY_EVERY_MS = 450;

export interface StepSlider {
  element: HTMLElement;
  at(): number;
  /** The last step. */
  until(last: number): void;
  go(step: number): void;
  stop(): void;
  /** The counted elements, their number out of all, and both for screen readers. */
  name(label: string, count: string, words: string): void;
}

/** `moved` is called whenever the step changes. */
export function createStepSlider(signal: AbortSignal, moved: () => void): StepSlider {
  const [heading, count] = [h("b"), h("output")];
  const play = h("button.button.icon", { type: "button" });
  const slider = h("input.range", { type: "range", min: "0", step: "1", value: "0" });
  const by = (step: number) => (): void => {
    stop();
    go(at() + step);
  };
  const less = iconButton(signal, "‹", "one token fewer", by(-1));
  const more = iconButton(signal, "›", "one token more", by(1));
  let timer: ReturnType<typeof setTimeout> | undefined;

  const at = (): number => slider.valueAsNumber;
  const isLast = (): boolean => at() >= Number(slider.max);
  const go = (step: number): void => {
    slider.value = String(step);
    moved();
  };
  const showPlay = (): void => {
    const name = timer ? "pause" : "play";
    if (play.ariaLabel === name) return;
    assign(play, { ariaLabel: name, title: name });
    setChildren(play, drawing(timer ? PAUSE : PLAY));
  };
  const stop = (): void => {
    clearTimeout(timer);
    timer = undefined;
    showPlay();
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
      timer = setTimeout(tick, PLAY_EVERY_MS);
      showPlay();
    },
  });
  on(slider, signal, {
    input() {
      stop();
      moved();
    },
  });
  keyboard(slider, signal, {}, "← →: one token more or fewer · Home, End: none, all");
  atEnd(signal, () => clearTimeout(timer));
  showPlay();
  play.hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return {
    element: h(
      "div.removal-control",
      h("div.removal-head", heading, count),
      h("span.group", { role: "group", "aria-label": "step" }, play, less, slider, more),
    ),
    at,
    until(last) {
      slider.max = String(last);
      slider.value = String(Math.min(last, at()));
    },
    go,
    stop,
    name(label, many, words) {
      setText(heading, label);
      setText(count, many);
      slider.ariaLabel = label;
      slider.ariaValueText = words;
      less.disabled = at() === 0;
      more.disabled = isLast();
    },
  };
}
