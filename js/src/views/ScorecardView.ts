/**
 * Scores of methods beside chance and an oracle: curves with their intervals, one metric at a time, and a table of
 * means. Everything is in the view's options; nothing is asked.
 */

import { fill, flag, h, keyboard, on, put, shortLabel, watchWidth } from "../dom.ts";
import { printed, roundUp } from "../numbers.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  type LineEnd,
  type Look,
  labelLines,
  labelRoom,
  lookOf,
} from "./charts/lineChart.ts";
import { svg } from "./charts/svg.ts";
import { createReadout, only, view } from "./frame.ts";
import { createMenu } from "./menu.ts";

type Score = number | null;

/** The twin of `described` in attnwidgets/views/scorecard_view.py. */
interface Card {
  name: string;
  title: string;
  model: string;
  examples: number;
  level: number;
  warning: string;
  axis: string;
  places: (number | string)[];
  remarks: string[];
  metrics: [name: string, direction: string][];
  rows: [name: string, baseline: boolean][];
  /** [metric][row][place] */
  mean: Score[][][];
  low: Score[][][];
  high: Score[][][];
  count: number[][][];
  /** mean, low, high [metric][row] over all places. */
  whole: Score[][][];
}

interface ScorecardOptions {
  cards: Card[];
  metric: string;
  hidden: string[];
  title: string;
}

/** A baseline so many times as high as all methods would only flatten their curves. */
const FAR = 1.5;
const ROW = 20;
const UNKNOWN = "undefined";

const wordsOf = (name: string): string => name.replaceAll("_", " ");
const number = (value: Score | undefined): number => value ?? Number.NaN;
/** Three decimals, so that columns can be compared; of what is smaller, two digits. */
const said = (value: Score | undefined): string => {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  return size >= 0.01 && size < 100 ? value.toFixed(3).replace("-", "−") : printed(value, false);
};
const numbers = (values: readonly Score[] | undefined): number[] => (values ?? []).map(number);

/** Where the values of the horizontal axis stand, from 0 to their number less one. */
export function placesOf(labels: readonly (number | string)[]): number[] {
  const values = labels.map(Number);
  const rises =
    labels.every((label) => typeof label === "number") && values.every((x, i) => i === 0 || x > (values[i - 1] ?? x));
  const [first = 0, last = 0] = [values[0], values.at(-1)];
  if (!rises || last <= first) return [...labels.keys()];
  return values.map((x) => ((x - first) / (last - first)) * (labels.length - 1));
}

/** Rows in the order of a column; what is undefined comes last, whichever way it is sorted. */
export function sortedRows(values: readonly (number | string)[], falling: boolean): number[] {
  const missing = (value: number | string | undefined): boolean => typeof value === "number" && Number.isNaN(value);
  return [...values.keys()].sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y));
    const order = typeof x === "string" ? x.localeCompare(String(y)) : Number(x) - Number(y);
    return falling ? -order : order;
  });
}

export const renderScorecardView = view((ctx, root, signal) => {
  const settings = (): ScorecardOptions => ctx.options as unknown as ScorecardOptions;
  const title = h("b.title");
  const about = h("span.where");
  const set = (values: Partial<ScorecardOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const metrics = createMenu("metric", signal, (name) => {
    hovered = -1;
    set({ metric: name });
  });
  const direction = h("div.line");
  const chips = h("div.scores-chips", { role: "group", "aria-label": "methods" });
  const picture = svg("svg", { "aria-hidden": "true" });
  const plot = h("div.profile-plot.scores-plot", {
    tabindex: "0",
    role: "application",
    "aria-roledescription": "line chart",
  });
  const legend = h("ul.profile-legend");
  const readout = createReadout();
  const table = h("table.scores-table");
  const warning = h("div.warning", { role: "note" });
  let chart: Chart | null = null;
  let width = 0;
  let hovered = -1;
  let sortBy = 1;
  let falling = true;
  let sorted = false; // by the reader
  let drawnChips = "";
  let places: number[] = [];

  root.classList.add("aw-scores");
  root.role = "group";
  plot.append(picture);
  fill(
    root,
    h("div.row.head", title, about, metrics.field),
    direction,
    chips,
    h("div.profile-figure", plot, legend),
    ...readout.elements,
    warning,
    h("div.scores-scroll", table),
  );

  const card = (): Card => {
    const { cards, metric } = settings();
    return cards.find((one) => one.metrics.some(([name]) => name === metric)) ?? (cards[0] as Card);
  };
  const metricAt = (): number =>
    Math.max(
      0,
      card().metrics.findIndex(([name]) => name === settings().metric),
    );
  const isHidden = (row: number): boolean => {
    const [name = "", baseline] = card().rows[row] ?? [];
    return !baseline && settings().hidden.includes(name);
  };
  const shownRows = (): number[] => [...card().rows.keys()].filter((row) => !isHidden(row));
  /** Methods by their hue, then dash; baselines in the page's own ink. */
  const looks = (): Look[] => {
    let [methods, others] = [0, 0];
    return card().rows.map(([, baseline]) => {
      if (!baseline) return lookOf(methods++, ctx.theme);
      return { stroke: "currentColor", dash: ["7 4", "2 3", "10 3 2 3"][others++ % 3] as string };
    });
  };
  const isCurve = (): boolean => card().places.length > 1;

  const update = (): void => {
    const { cards } = settings();
    const { name, title: what, model, examples, warning: warns, level, axis } = card();
    const [metric, way] = card().metrics[metricAt()] as [string, string];
    put(title, ctx.options.title || what || "scores");
    put(about, [model, `${examples} example${examples === 1 ? "" : "s"}`].filter(Boolean).join(" · "));
    metrics.offer(
      cards.flatMap((one) =>
        one.metrics.map(([value, note]) => ({
          value,
          label: wordsOf(value),
          note: [cards.length > 1 ? one.name : "", note].filter(Boolean).join(" · "),
        })),
      ),
      metric,
    );
    const ends = examples > 1 ? ` · bands: ${Math.round(100 * level)} % intervals over examples` : "";
    put(direction, `${wordsOf(metric)}${isCurve() ? ` by ${axis}` : ""} · ${way}${ends}`);
    root.ariaLabel = `${ctx.options.title || what}, ${wordsOf(metric)}${name ? `, ${name}` : ""}`;
    if (!sorted) falling = !way.startsWith("lower");
    const undefinedRows = shownRows().some((row) => card().mean[metricAt()]?.[row]?.some((value) => value === null));
    put(warning, undefinedRows ? `${UNKNOWN}: ${warns || "no example has this score"}` : warns);
    drawChips();
    drawTable();
    paint();
  };

  const swatch = ({ stroke, dash }: Look): SVGElement => {
    const box = svg("svg", { width: 18, height: 8, "aria-hidden": "true" });
    box.append(svg("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke, "stroke-width": 2, "stroke-dasharray": dash }));
    return box;
  };

  const drawChips = (): void => {
    const { rows } = card();
    const drawn = looks();
    const methods = rows.flatMap(([name, baseline], row) => (baseline ? [] : [{ name, row }]));
    const look = JSON.stringify(methods);
    chips.hidden = methods.length < 2;
    if (look !== drawnChips) {
      drawnChips = look;
      fill(
        chips,
        ...methods.map(({ name, row }) => {
          const hint = `${name}: click to show or hide, double click (or s) to show alone`;
          const attributes = { type: "button", title: hint, "data-row": String(row) };
          return h("button.scores-chip", attributes, h("span"), shortLabel(name, 40));
        }),
      );
    }
    // In place: a double click is two on the same button.
    for (const chip of chips.querySelectorAll("button")) {
      const row = Number(chip.dataset.row);
      chip.ariaPressed = String(!isHidden(row));
      fill(chip.firstElementChild as Element, swatch(drawn[row] as Look));
    }
  };
  const rowOf = (event: Event): number => {
    const chip = (event.target as Element).closest<HTMLElement>(".aw-scores-chip");
    return chip ? Number(chip.dataset.row) : -1;
  };
  /** Show one method alone, or, where `before` has it alone already, all. */
  const solo = (row: number, before: readonly string[]): void => {
    const names = card().rows.flatMap(([name, baseline], other) => (baseline || other === row ? [] : [name]));
    const own = card().rows[row]?.[0] ?? "";
    const alone = names.every((name) => before.includes(name)) && !before.includes(own);
    set({ hidden: alone ? [] : names });
  };
  let beforeClick: readonly string[] = [];
  on(chips, signal, {
    click(event) {
      const [name = ""] = card().rows[rowOf(event)] ?? [];
      if (!name || event.detail > 1) return; // the second click of two
      const { hidden } = settings();
      beforeClick = hidden;
      set({ hidden: hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name] });
    },
    dblclick(event) {
      const row = rowOf(event);
      if (row >= 0) solo(row, beforeClick);
    },
    keydown(event) {
      const row = rowOf(event);
      if (event.key === "s" && row >= 0) solo(row, settings().hidden);
      if (event.key === "a") set({ hidden: [] });
    },
  });
  chips.dataset.awKeys = "Enter: show or hide · s: show alone, or all again · a: all";

  const drawTable = (): void => {
    const { rows, whole, count, axis } = card();
    const at = metricAt();
    const [mean = [], low = [], high = []] = whole.map((part) => part[at] ?? []);
    const least = rows.map((_, row) => Math.min(...(count[at]?.[row] ?? [0])));
    const columns: [string, (number | string)[]][] = [
      ["method", rows.map(([name]) => name)],
      [isCurve() ? `mean over ${axis}` : "mean", rows.map((_, row) => number(mean[row]))],
      ["interval", rows.map((_, row) => number(high[row]) - number(low[row]))],
      ["n", least],
    ];
    const order = sortedRows(columns[sortBy]?.[1] ?? [], falling).filter((row) => !isHidden(row));
    const best = order.filter((row) => !rows[row]?.[1] && mean[row] !== null);
    const way = card().metrics[at]?.[1] ?? "";
    const sign = way.startsWith("lower") ? -1 : way.startsWith("higher") ? 1 : 0;
    const top = Math.max(...best.map((row) => sign * number(mean[row])));
    const head = columns.map(([name], column) => {
      const arrow = column === sortBy ? (falling ? " ▾" : " ▴") : "";
      const button = h("button", { type: "button", "data-column": String(column) }, name + arrow);
      const sorted = column === sortBy ? (falling ? "descending" : "ascending") : "none";
      return h("th", { scope: "col", "aria-sort": sorted }, button);
    });
    const focused = table.querySelector("button:focus")?.getAttribute("data-column");
    fill(
      table,
      h("caption.sr", `means of ${wordsOf(settings().metric)}`),
      h("thead", h("tr", ...head)),
      h(
        "tbody",
        ...order.map((row) => {
          const [name = "", baseline = false] = rows[row] ?? [];
          const ends = low[row] === null || low[row] === undefined ? "–" : `${said(low[row])} to ${said(high[row])}`;
          const line = h(
            "tr",
            h("th", { scope: "row", title: name }, shortLabel(name, 60)),
            h("td", said(mean[row])),
            h("td", ends),
            h("td", String(least[row] ?? 0)),
          );
          flag(line, "data-baseline", baseline);
          flag(line, "data-best", sign !== 0 && !baseline && sign * number(mean[row]) === top);
          return line;
        }),
      ),
    );
    if (focused) table.querySelector<HTMLElement>(`[data-column="${focused}"]`)?.focus();
  };
  on(table, signal, {
    click({ target }) {
      const column = Number((target as Element).closest("button")?.dataset.column ?? -1);
      if (column < 0) return;
      falling = column === sortBy ? !falling : column > 0;
      sortBy = column;
      sorted = true;
      drawTable();
    },
  });

  const paint = (): void => {
    if (width <= 0) return;
    if (isCurve()) paintCurves();
    else paintPoints();
    say();
  };

  const paintCurves = (): void => {
    const { rows, places: labels, mean, low, high, whole } = card();
    const at = metricAt();
    const shown = shownRows();
    const drawn = looks();
    places = placesOf(labels);
    const line = (row: number): number[] => numbers(mean[at]?.[row]);
    const methods = shown.filter((row) => !rows[row]?.[1]);
    const ends = (some: readonly number[]): number[] =>
      some
        .flatMap((row) => [...line(row), ...numbers(low[at]?.[row]), ...numbers(high[at]?.[row])])
        .filter(Number.isFinite);
    const highest = Math.max(0, ...ends(methods));
    const far = (row: number): boolean => {
      const own = line(row).filter(Number.isFinite);
      return Boolean(rows[row]?.[1]) && highest > 0 && own.length > 0 && Math.min(...own) > FAR * highest;
    };
    const every = ends(shown.filter((row) => !far(row)));
    const top = roundUp(Math.max(0, ...every)) || 1;
    const least = Math.min(0, ...every);
    const base = least < 0 ? -roundUp(-least) : 0;
    const value = (row: number): Score | undefined =>
      hovered < 0 ? whole[0]?.[at]?.[row] : mean[at]?.[row]?.[hovered];
    const names = shown.map((row) => `${shortLabel(rows[row]?.[0] ?? "", 32)} −0.0000`);
    const tall = Math.max(190, 16 * shown.length + 40);
    const axis = chartOf(width, labelRoom(width, names, legend), labels.length, base, top, width < 520 ? 190 : tall);
    chart = axis;
    sized(axis.width, axis.height);
    const marks =
      hovered < 0
        ? []
        : [svg("line", { class: "aw-layer-over", x1: xAt(hovered), x2: xAt(hovered), y1: axis.top, y2: axis.bottom })];
    const near = shown.filter((row) => !far(row));
    const bands = near
      .filter((row) => !rows[row]?.[1])
      .map((row) =>
        drawBand(axis, numbers(low[at]?.[row]), numbers(high[at]?.[row]), drawn[row]?.stroke ?? "", places),
      );
    const paths = near.map((row) => drawLine(axis, line(row), drawn[row] as Look, places));
    const labelled = shown.map((row): LineEnd => {
      const heights = line(row);
      const last = heights.findLastIndex(Number.isFinite);
      const away = far(row);
      return {
        name: `${shortLabel(rows[row]?.[0] ?? "", 32)}${away ? " ↑" : ""}`,
        value: said(value(row)),
        look: drawn[row] as Look,
        x: last < 0 ? axis.right : axis.x(places[last] ?? last),
        y: last < 0 ? axis.bottom : away ? axis.top : axis.y(heights[last] as number),
        title: away ? "beyond the top of the picture" : "",
      };
    });
    const leaders = labelLines(axis, legend, labelled);
    const text = labels.map((label) =>
      typeof label === "number" ? String(Number(label.toPrecision(3))) : shortLabel(label, 12),
    );
    picture.replaceChildren(drawAxes(axis, text, places), ...marks, ...bands, ...leaders, ...paths.reverse());
  };

  const sized = (wide: number, high: number): void => {
    picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    picture.setAttribute("width", String(wide));
    picture.setAttribute("height", String(high));
  };
  const xAt = (place: number): number => chart?.x(places[place] ?? place) ?? 0;

  /** One number for each method: a point with its interval in a row of its own. */
  const paintPoints = (): void => {
    const { rows, mean, low, high } = card();
    const at = metricAt();
    const shown = shownRows();
    const drawn = looks();
    const of = (values: Score[][][], row: number): number => number(values[at]?.[row]?.[0]);
    const every = shown.flatMap((row) => [of(mean, row), of(low, row), of(high, row)]).filter(Number.isFinite);
    const top = roundUp(Math.max(0, ...every)) || 1;
    const least = Math.min(0, ...every);
    const base = least < 0 ? -roundUp(-least) : 0;
    const left = Math.min(180, width * 0.4);
    const right = width - 12;
    const bottom = ROW * shown.length + 4;
    const x = (value: number): number => left + ((value - base) / (top - base)) * (right - left);
    chart = null;
    sized(width, bottom + 22);
    const group = svg("g", { class: "aw-axes" });
    for (const value of [base, (base + top) / 2, top]) {
      group.append(svg("line", { x1: x(value), x2: x(value), y1: 0, y2: bottom }));
      group.append(
        svg(
          "text",
          { x: x(value), y: bottom + 15, "text-anchor": value === top ? "end" : "middle" },
          printed(value, false),
        ),
      );
    }
    const lines = shown.flatMap((row, i) => {
      const y = ROW * i + ROW / 2 + 2;
      const [name = ""] = rows[row] ?? [];
      const { stroke } = drawn[row] as Look;
      const label = svg(
        "text",
        { x: left - 10, y: y + 4, "text-anchor": "end" },
        shortLabel(name, Math.floor(left / 7.2)),
      );
      const [value, from, to] = [of(mean, row), of(low, row), of(high, row)];
      if (Number.isNaN(value)) return [label, svg("text", { x: left + 6, y: y + 4 }, UNKNOWN)];
      const span = Number.isFinite(from)
        ? [svg("line", { x1: x(from), x2: x(to), y1: y, y2: y, stroke, "stroke-width": 2 })]
        : [];
      const shape = rows[row]?.[1]
        ? svg("path", { d: `M${x(value)} ${y - 5}l5 5l-5 5l-5-5Z`, fill: stroke })
        : svg("circle", { cx: x(value), cy: y, r: 4.5, fill: stroke });
      return [label, ...span, shape];
    });
    fill(legend);
    picture.replaceChildren(group, ...lines);
  };

  const say = (): void => {
    const { rows, mean, low, high, count, whole, places: labels, axis, remarks } = card();
    const at = metricAt();
    const here = hovered < 0 ? 0 : hovered;
    const curve = isCurve();
    const from =
      curve && hovered < 0
        ? whole.map((part) => part[at] ?? [])
        : [mean, low, high].map((part) => (part[at] ?? []).map((row) => row[here] ?? null));
    const words = shownRows().map((row) => {
      const [value, least, most] = from.map((part) => part[row]);
      const ends = least === null || least === undefined ? "" : ` (${said(least)} to ${said(most)})`;
      const n = curve && hovered >= 0 ? (count[at]?.[row]?.[here] ?? 0) : 0;
      const some = n && n < card().examples ? `, n = ${n}` : "";
      return `${rows[row]?.[0]} ${said(value)}${ends}${some}`;
    });
    const remark = remarks[here] ? ` (${remarks[here]})` : "";
    const where = !curve ? "" : hovered < 0 ? `mean over ${axis}: ` : `${axis} ${labels[hovered]}${remark}: `;
    readout.show(`${where}${words.join(" · ")}`, true);
    plot.ariaLabel = `${root.ariaLabel}. ${curve ? "Left and right arrows read the values. " : ""}${words.slice(0, 6).join(", ")}`;
  };

  const point = (place: number): void => {
    if (place === hovered || !isCurve()) return;
    hovered = place;
    paint();
  };
  on(plot, signal, {
    pointermove(event) {
      if (!chart) return;
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) * chart.width) / box.width;
      const all = places.map((_, i) => Math.abs(xAt(i) - x));
      point(x < chart.left - 8 || x > chart.right + 8 ? -1 : all.indexOf(Math.min(...all)));
    },
    pointerleave: () => point(-1),
    blur: () => point(-1),
  });
  const step = (by: number) => (): void => {
    const last = card().places.length - 1;
    point(hovered < 0 ? (by === 1 || by === -Infinity ? 0 : last) : Math.max(0, Math.min(last, hovered + by)));
  };
  const keys = {
    ArrowLeft: step(-1),
    ArrowRight: step(1),
    Home: step(-Infinity),
    End: step(Infinity),
    Escape: () => point(-1),
  };
  keyboard(plot, signal, keys, "← →: values along the axis · Escape: means");
  watchWidth(
    root,
    (now) => {
      width = now;
      paint();
    },
    signal,
  );
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles")) update();
  };
});
