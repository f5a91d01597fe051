/** The panel next to the picture: the probability of each word, and the chosen word over time. */
import { h, on, setChildren, setFlag, setStyles, setText, shortLabel } from "../../../dom.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { type HeardMap, peakOf, type SpokenWord, seconds } from "./heard.ts";

/** px of the chart of a word. */
const [WIDE, TALL, BASE] = [276, 74, 62];

export interface Panel {
  element: HTMLElement;
  /** The words; redrawn only if they differ. */
  offer(words: readonly SpokenWord[]): void;
  /** `row` of the map is drawn over time, with `marked` highlighted; `word` is the chosen word. */
  show(
    word: number,
    map: HeardMap | null,
    values: Float32Array,
    row: number,
    marked: readonly [number, number] | null,
  ): void;
}

/** `number` writes a value of the map; `choose` is called with a word. */
export function createPanel(
  signal: AbortSignal,
  number: (value: number) => string,
  choose: (word: number) => void,
): Panel {
  const list = h("div.audio-sure", { role: "list", "aria-label": "probability of each word" });
  const sure = h("section", h("p.audio-h", h("b", "probability of each word"), h("span", "p(word)")), list);
  const [about, peak] = [h("b"), h("span")];
  const chart = svg("svg", { width: WIDE, height: TALL, viewBox: `0 0 ${WIDE} ${TALL}`, role: "img" });
  const over = h("section", h("p.audio-h", about, peak), chart as unknown as HTMLElement);
  const element = h("div.audio-panel", sure, over);
  let rows: HTMLElement[] = [];
  let drawn: readonly SpokenWord[] | null = null;
  on(list, signal, {
    click({ target }) {
      const at = rows.findIndex((row) => row.contains(target as Node));
      if (at >= 0) choose(at);
    },
  });
  return {
    element,
    offer(words) {
      if (words === drawn) return;
      drawn = words;
      sure.hidden = !words.some(({ p }) => p !== null);
      rows = words.map(({ word, p }) => {
        const bar = h("span.amount");
        setStyles(bar, { width: `${100 * (p ?? 0)}%` });
        return h(
          "div.audio-sure-row",
          { role: "listitem" },
          h("bdi", shortLabel(word, 12)),
          h("span.meter-bar", { "aria-hidden": "true" }, bar),
          h("span", p === null ? "–" : p.toFixed(2)),
        );
      });
      setChildren(list, ...rows);
    },
    show(word, map, values, row, marked) {
      for (const [i, element] of rows.entries()) setFlag(element, "data-now", i === word);
      over.hidden = !map || row < 0;
      if (!map || row < 0) return;
      const { columns, step } = map;
      const [at, highest] = peakOf(values, row, columns);
      const top = peakOf(values, 0, values.length)[1] || 1;
      const x = (second: number): number => (second / (columns * step)) * WIDE;
      const y = (value: number): number => BASE - (Math.max(0, value) / top) * (BASE - 8);
      const points = Array.from({ length: columns }, (_, i) => {
        const value = values[row * columns + i] as number;
        return `${x((i + 0.5) * step).toFixed(1)},${y(value).toFixed(1)}`;
      });
      const isLate = x(at * step) > WIDE - 80;
      const label = { x: x((at + 0.5) * step) + (isLate ? -10 : 10), y: Math.max(12, y(highest) + 4) };
      const parts = [
        svg("polyline", { points: points.join(" "), class: "aw-audio-curve" }),
        svg("line", { x1: 0, x2: WIDE, y1: BASE + 0.5, y2: BASE + 0.5, class: "aw-audio-line" }),
        svg("circle", { cx: x((at + 0.5) * step), cy: y(highest), r: 4, class: "aw-audio-dot" }),
        svg("text", { ...label, "text-anchor": isLate ? "end" : "start" }, number(highest)),
      ];
      if (marked) {
        const [begin, end] = marked.map(x) as [number, number];
        parts.unshift(svg("rect", { x: begin, y: 0, width: end - begin, height: BASE, class: "aw-audio-band" }));
      }
      setAttributes(chart, {
        "aria-label": `“${map.labels[row]}” over time, highest at ${seconds(at * step)} s`,
      }).replaceChildren(...parts);
      setText(about, `“${shortLabel(map.labels[row] ?? "", 16)}” over time`);
      setText(peak, `peak at ${seconds(at * step)} s`);
    },
  };
}
