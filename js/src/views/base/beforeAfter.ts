/** A model's predictions before and after a change: a row for each outcome, with a bar for each side. */
import { h, shortLabel } from "../../dom.ts";

export interface Outcome {
  label: string;
  before: number;
  after: number;
  /** The text beside the label. */
  mark?: string;
  /** Whether this is the top outcome after the change but not before. */
  turned?: boolean;
}

/** No arrow for a difference that the printed digits do not show. */
const STILL = 5e-4;

/** A table of outcomes with values formatted by `print` and labels of at most `longest` characters. */
export function beforeAfter(
  what: string,
  outcomes: readonly Outcome[],
  print: (value: number) => string,
  longest = 40,
): HTMLElement {
  const rows = outcomes.map(({ label, before, after, mark, turned }) => {
    const bars = [before, after].map((value, i) => {
      const bar = h("span");
      bar.style.width = `${(100 * Math.max(0, Math.min(1, value))).toFixed(2)}%`;
      return h(i ? "span.bar" : "span.bar.was", bar);
    });
    const up = after - before;
    const text = shortLabel(label, longest);
    const turn = Math.abs(up) < STILL ? "" : up > 0 ? "up" : "down";
    return h(
      "tr",
      turned ? { "data-turn": turn, "data-turned": "" } : { "data-turn": turn },
      h("th", { scope: "row", title: text }, h("bdi", text), h("small", mark ? ` ${mark}` : "")),
      h("td", print(before)),
      h("td", h("div.both-bars", { "aria-hidden": "true" }, ...bars)),
      h("td", print(after)),
    );
  });
  const heads = [what, "before", "", "after"].map((text) => (text ? h("th", { scope: "col" }, text) : h("td")));
  return h("table.both", h("thead", h("tr", ...heads)), h("tbody", ...rows));
}
