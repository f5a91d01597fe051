/** Behaviour, pattern and cause over the steps, on a common axis; below them a row of squares for every claim. */
import type { ViewContext } from "../../context.ts";
import { createWatch, h, setChildren, setFlag } from "../../dom.ts";
import { createFigure } from "../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawLine,
  drawUpright,
  labelLines,
  labelRoom,
  lookOf,
  pointedAt,
  rangeOf,
} from "../charts/lineChart.ts";
import { rule, svg } from "../charts/svg.ts";
import { decimal } from "../circuits/words.ts";
import { halfWay, positionsOf, type Run } from "./run.ts";

export interface NamedCurve {
  name: string;
  values: readonly number[];
}

const SQUARE = 9;
const HEIGHT = 232;
const VERDICTS: Record<string, string> = { h: "holds", f: "fails", u: "undecided", g: "gap" };

export function createCurves(ctx: ViewContext) {
  const figure = createFigure();
  const claims = h("div.run-claims", { role: "group", "aria-label": "claims" });
  let [chart, positions]: [Chart | null, number[]] = [null, []];
  const isDrawn = createWatch();
  figure.plot.ariaLabel = "behaviour, pattern and cause over steps";

  /** The step whose checkpoint is nearest to the pointer; -1 outside the axes. */
  const stepAt = (event: MouseEvent): number => {
    if (!chart) return -1;
    const x = pointedAt(event, figure.picture, chart);
    if (Number.isNaN(x)) return -1;
    const away = positions.map((position) => Math.abs((chart?.x(position) ?? 0) - x));
    return away.indexOf(Math.min(...away));
  };

  return {
    element: h("div.run-curves", figure.element, claims),
    plot: figure.plot,
    placeAt: stepAt,
    /** Draw the curves with markers at the current step and at the hovered step. */
    draw(run: Run, curves: readonly NamedCurve[], step: number, over: number, width: number): void {
      positions = positionsOf(run.steps);
      const texts = curves.map(({ name }) => name);
      const [low, high] = rangeOf(curves.flatMap(({ values }) => [...values]));
      const room = labelRoom(width, texts, figure.legend);
      // Values slightly below zero extend below the axis, whose numbers stay round.
      chart = chartOf(width, room, run.steps.length, low > -0.1 ? 0 : low, Math.max(1, high), HEIGHT);
      const made = chart;
      const looks = curves.map((_, i) => lookOf(i, ctx.theme));
      const parts: SVGElement[] = [drawAxes(made, run.steps.map(String), positions), drawTicks(made, positions)];
      parts.push(drawUpright(made, positions[step] ?? 0, "aw-layer-now"));
      if (over >= 0 && over !== step) parts.push(drawUpright(made, positions[over] ?? 0, "aw-layer-over"));
      curves.forEach(({ values }, i) => {
        const look = looks[i] as (typeof looks)[number];
        parts.push(drawLine(made, values, look, positions));
        const half = halfWay(values);
        if (half >= 0) {
          const at = { cx: made.x(positions[half] ?? 0), cy: made.y(values[half] ?? 0), r: 6 };
          parts.push(svg("circle", { ...at, class: "aw-run-half", stroke: look.stroke }));
        }
      });
      const ends = curves.map(({ name, values }, i) => {
        const look = looks[i] as (typeof looks)[number];
        const last = values.findLastIndex(Number.isFinite);
        const [x, y] = [made.x(positions[last] ?? 0), made.y(values[last] ?? 0)];
        return { name, value: decimal(values[step] ?? Number.NaN), look, x, y };
      });
      parts.push(...labelLines(made, figure.legend, ends));
      figure.fill(width, HEIGHT, ...parts);
    },
    /** A square for every claim and step, on the axis of the curves. */
    drawClaims(run: Run, step: number): void {
      const made = chart;
      if (!made || !isDrawn(run, step, made.width, made.right)) return;
      const focusedRow = [...claims.children].findIndex((row) => row.contains(document.activeElement));
      const rows = run.claims.map(([claim, when, verdicts]) => {
        const squares = [...verdicts].map((letter, i) => {
          const verdict = VERDICTS[letter] ?? "";
          const at = `${run.steps[i]?.toLocaleString("en")}: ${verdict}`;
          const square = h("button.run-square", { type: "button", "data-step": String(i), "data-verdict": verdict });
          square.title = `step ${at}`;
          square.ariaLabel = `${claim}, step ${at}`;
          square.tabIndex = i === step ? 0 : -1;
          setFlag(square, "data-chosen", i === step);
          square.style.left = `${made.x(positions[i] ?? 0) - SQUARE / 2}px`;
          return square;
        });
        const name = h("div.run-claim.clip", h("b", { dir: "auto" }, claim), ` ${when}`);
        return h("div.run-row", name, h("div.run-squares", ...squares));
      });
      setChildren(claims, ...rows);
      rows[focusedRow]?.querySelector<HTMLElement>("[data-chosen]")?.focus({ preventScroll: true });
    },
  };
}

/** A short line on the axis at every step of which there is a checkpoint. */
function drawTicks({ x, bottom }: Chart, positions: readonly number[]): SVGElement {
  const group = svg("g", { class: "aw-run-ticks" });
  group.append(...positions.map((position) => rule(x(position), bottom, x(position), bottom + 4)));
  return group;
}
