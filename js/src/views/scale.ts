/** The colour scale that stands beside every picture: its ramp, its range in numbers, and what one may change. */
import { type MapName, type Mode, rampCss, valueAt } from "../colour.ts";
import { guardKeys, h } from "../dom.ts";

export interface ScaleState {
  map: MapName;
  mode: Mode;
  range: readonly [number, number];
  /** What the numbers are, after the ramp: "share of the row". */
  words: string;
}

/** A tick: two digits, no noise. */
export function tickText(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e4 || size < 1e-3 ? size.toExponential(0).replace("e+", "e") : String(Number(size.toPrecision(2)));
  return value < 0 ? `−${text}` : text;
}

/** The smallest number of one digit and a half (1, 1.5, 2, 3, 5, 7 times a power of ten) not below `value`. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 5, 7, 10].find((m) => m * power >= value * (1 - 1e-9)) ?? 10;
  return Number((step * power).toPrecision(2));
}

const MODES: Record<Mode, string> = { sqrt: "√ scale", linear: "linear", log: "log scale" };

/** A colour scale. `modes` adds the choice of scale; `controls` are put at its end. */
export class ColourScale {
  readonly element: HTMLElement;
  readonly #ramp = h("span", { class: "aw-ramp", "aria-hidden": "true" });
  readonly #ticks = [h("span"), h("span"), h("span")];
  readonly #words = h("span", { class: "aw-scale-words" });
  readonly #mode: HTMLSelectElement | null;
  #drawn = "";

  constructor(signal: AbortSignal, onMode: ((mode: Mode) => void) | null, ...controls: HTMLElement[]) {
    const ticks = h("span", { class: "aw-ticks" }, ...this.#ticks);
    this.#mode = onMode
      ? h(
          "select",
          { class: "aw-select", "aria-label": "colour scale" },
          ...Object.entries(MODES).map(([value, name]) => h("option", { value }, name)),
        )
      : null;
    if (this.#mode && onMode) {
      const select = this.#mode;
      guardKeys(select, signal);
      select.addEventListener("change", () => onMode(select.value as Mode), { signal });
    }
    this.element = h(
      "div",
      { class: "aw-scale" },
      h("span", { class: "aw-scale-bar" }, this.#ramp, ticks),
      this.#words,
      ...(this.#mode ? [this.#mode] : []),
      ...controls,
    );
  }

  show(state: ScaleState): void {
    const { map, mode, range, words } = state;
    const name = `${map} ${mode} ${range} ${words}`;
    if (name === this.#drawn) return;
    this.#drawn = name;
    this.#ramp.style.background = rampCss(map);
    const middle = range[0] < 0 ? 0 : valueAt(0.5, range, mode);
    const [low, mid, high] = this.#ticks;
    if (low)
      low.textContent =
        mode === "log" && range[0] >= 0 ? `≤ ${tickText(valueAt(1e-9, range, mode))}` : tickText(range[0]);
    if (mid) mid.textContent = tickText(middle);
    if (high) high.textContent = tickText(range[1]);
    this.#words.textContent = words;
    if (this.#mode) this.#mode.value = mode;
  }
}
