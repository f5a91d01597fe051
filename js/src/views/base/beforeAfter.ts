/**
 * A model's predictions before and after a change: a row for each outcome, with a grey bar before and a bar in ink now.
 */
import { h, shortLabel } from "../../dom.ts";

export interface Outcome {
  label: string;
  /** Null: a number, which the label spells. */
  before: number | null;
  /** Null while nothing is changed: the bar then shows the current prediction. */
  after: number | null;
  /** The text next to the label. */
  mark?: string;
  /** Whether this is the top outcome after the change but not before. */
  turned?: boolean;
}

/** A table of outcomes with values formatted by `print` and labels of at most `longest` characters. */
export function beforeAfter(
  heading: string,
  outcomes: readonly Outcome[],
  print: (value: number | null) => string,
  longest = 40,
): HTMLElement {
  const isChanged = outcomes.some(({ after }) => after !== null);
  const rows = outcomes.map(({ label, before, after, mark, turned }) => {
    const [was, now] = [after === null ? null : before, after ?? before];
    const bars = [was, now].map((value, i) => {
      const kind = i ? "span.both-now" : "span.both-was";
      if (value === null) return h(kind);
      const bar = h("span");
      bar.style.width = `${(100 * Math.max(0, Math.min(1, value))).toFixed(2)}%`;
      return h(kind, bar);
    });
    const text = shortLabel(label, longest);
    return h(
      "tr",
      turned ? { "data-turned": "" } : {},
      h("th", { scope: "row", title: text }, h("bdi", text), h("small", mark ? ` ${mark}` : "")),
      h("td", h("div.both-bars", { "aria-hidden": "true" }, ...bars)),
      h("td", was === null ? "" : print(was)),
      h("td", print(now)),
    );
  });
  const heads = [heading, "", isChanged ? "before" : "", "now"];
  const cells = heads.map((text) => (text ? h("th", { scope: "col" }, text) : h("td")));
  return h("table.both", h("thead", h("tr", ...cells)), h("tbody", ...rows));
}
