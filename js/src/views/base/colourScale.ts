/** The colour scale next to every picture: its ramp and its range in numbers. The view's menu chooses among scales. */
import { type MapName, type Mode, rampCss, SCALE, valueAt } from "../../colour.ts";
import { assign, h, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Filters } from "../../wire/viewState.ts";

export interface ScaleState {
  map: MapName;
  range: readonly [number, number];
  /** Whether a signed map is used above zero alone. */
  isAbove?: boolean;
  /** The word for the end of a range that differs from picture to picture. */
  end?: string;
  /** The meaning of the numbers, as a tooltip: "share of the row". */
  words: string;
  /** The meaning of hatched cells, which hold no value: "not compared"; "" without such cells. */
  empty?: string;
  /** The meaning of a hatched column with a range from 0 to 1; "" without such a column. */
  sink?: string;
}

export interface ColourScale {
  element: HTMLElement;
  mode(): Mode;
  /** Whether all maps share a range. */
  common(): boolean;
  show(state: ScaleState): void;
  /** Apply the chosen filters. */
  follow(chosen: Pick<Filters, "scale" | "extent">): void;
}

export function createScale(): ColourScale {
  let mode: Mode = SCALE;
  let common = false;
  const ramp = h("span.ramp", { "aria-hidden": "true" });
  const [low, high] = [h("span"), h("span")];
  const [blank, column] = [h("span.hatched"), h("span.hatched", { "data-sink": "" })];
  const element = h("span.scale", { role: "img" }, low, ramp, high, blank, column);
  return {
    element,
    mode: () => mode,
    common: () => common,
    follow({ scale, extent }) {
      mode = scale || SCALE;
      common = extent === "all";
    },
    show({ map, range, end, words, isAbove, empty = "", sink = "" }) {
      setStyles(ramp, { background: rampCss(map) + (isAbove ? " right / 200%" : "") });
      const isLog = mode === "log" && range[0] >= 0;
      setText(low, isLog ? `≤ ${tickText(valueAt(1e-9, range, mode))}` : tickText(range[0]));
      setText(high, end ?? tickText(range[1]));
      const about = mode === SCALE ? words : `${words}; ${mode === "log" ? "logarithmic" : "square root"} scale`;
      const hatched = [empty, sink && `${sink}: 0 to 1`] as const;
      [blank, column].forEach((el, i) => {
        setText(el, hatched[i] ?? "");
        assign(el, { hidden: !hatched[i] });
      });
      const more = hatched.filter(Boolean).map((each) => `; hatched: ${each}`);
      assign(element, {
        title: about,
        ariaLabel: `${low.textContent} to ${high.textContent}, ${about}${more.join("")}`,
      });
    },
  };
}
