/** The colour scale beside every picture: its ramp, its range in numbers, and its settings. */
import { type MapName, type Mode, rampCss, SCALE, valueAt } from "../../colour.ts";
import { assign, h, on, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";

export interface ScaleState {
  map: MapName;
  range: readonly [number, number];
  /** What the numbers mean, shown after the ramp: "share of the row". */
  words: string;
  /** Text and click handler of the button that switches to a common range; null if there is no choice. */
  button: readonly [string, string] | null;
}

export interface ColourScale {
  element: HTMLElement;
  mode(): Mode;
  /** Whether all maps share one range. */
  common(): boolean;
  show(state: ScaleState): void;
  /** Apply a choice made elsewhere. */
  follow(mode: Mode, common: boolean): void;
}

const MODES: Record<Mode, string> = { linear: "linear", sqrt: "√ scale", log: "log scale" };

/** A scale; `modes` adds a menu of scales. `changed` is called when the reader chooses. */
export function createScale(signal: AbortSignal, modes: boolean, changed: () => void): ColourScale {
  let mode: Mode = SCALE;
  let common = false;
  const ramp = h("span.ramp", { "aria-hidden": "true" });
  const [low, middle, high, words] = [h("span"), h("span"), h("span"), h("span")];
  const options = Object.entries(MODES).map(([value, name]) => h("option", { value }, name));
  const select = h("select.button", { "aria-label": "colour scale" }, ...options);
  const button = h("button.button", { type: "button" });
  select.hidden = !modes;
  on(select, signal, {
    change() {
      mode = select.value as Mode;
      changed();
    },
  });
  on(button, signal, {
    click() {
      common = !common;
      changed();
    },
  });
  const bar = h("span.scale-bar", ramp, h("span.ticks", low, middle, high));
  return {
    element: h("div.row", bar, words, select, button),
    mode: () => mode,
    common: () => common,
    follow(...chosen) {
      [mode, common] = chosen;
      assign(select, { value: mode });
    },
    show(state) {
      const { map, range } = state;
      setStyles(ramp, { background: rampCss(map) });
      const isLog = mode === "log" && range[0] >= 0;
      setText(low, isLog ? `≤ ${tickText(valueAt(1e-9, range, mode))}` : tickText(range[0]));
      setText(middle, tickText(range[0] < 0 ? 0 : valueAt(0.5, range, mode)));
      setText(high, tickText(range[1]));
      setText(words, state.words);
      const [text = "", title = ""] = state.button ?? [];
      assign(button, { hidden: !text, title, ariaPressed: String(common) });
      setText(button, text);
    },
  };
}
