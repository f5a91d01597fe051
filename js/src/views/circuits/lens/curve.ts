/** The rank of the answer over the layers, on the rows of the table. */
import type { ViewContext } from "../../../context.ts";
import { on } from "../../../dom.ts";
import { rule, setAttributes, svg } from "../../charts/svg.ts";
import { heightOf } from "./rows.ts";

const [LEFT, RIGHT] = [26, 46];
const TICKS = [0, 9, 99, 999, 9999, 99999];
const NAMES = ["1st", "10", "100", "1,000", "10⁴", "10⁵"];

export interface CurveState {
  /** Ranks by row: the shown lens, and the other lens if it has arrived. */
  lines: readonly { name: string; ranks: readonly number[]; isShown: boolean }[];
  rows: readonly number[];
  chosen: number;
  width: number;
  row: number;
  /** px above the first row. */
  top: number;
}

export function createCurve(ctx: ViewContext, signal: AbortSignal, choose: (row: number) => void) {
  const element = svg("svg", { class: "aw-drawn aw-lens-curve", role: "img" });
  let state: CurveState | null = null;
  on(element, signal, {
    click(event) {
      if (!state) return;
      const { top, row, rows } = state;
      const at = Math.floor((event.clientY - element.getBoundingClientRect().top - top) / row);
      const nearest = rows[Math.max(0, Math.min(rows.length - 1, at))];
      if (nearest !== undefined) choose(nearest);
    },
  });
  void ctx;
  return {
    element,
    show(now: CurveState): void {
      state = now;
      const { lines, rows, chosen, width, row, top } = now;
      const height = top + rows.length * row + 4;
      const largest = Math.max(9, ...lines.flatMap(({ ranks }) => ranks));
      const last = Math.max(
        1,
        TICKS.findIndex((tick) => tick >= largest) < 0 ? TICKS.length - 1 : TICKS.findIndex((tick) => tick >= largest),
      );
      const end = Math.log10((TICKS[last] as number) + 1);
      const x = (rank: number): number => LEFT + (Math.log10(rank + 1) / end) * (width - LEFT - RIGHT);
      const y = (at: number): number => top + (heightOf(rows, at) + 0.5) * row;
      const parts: SVGElement[] = TICKS.slice(0, last + 1).flatMap((tick, i) => [
        rule(x(tick), top, x(tick), height - 4, { class: "aw-lens-tick" }),
        svg("text", { x: x(tick), y: 14, "text-anchor": "middle" }, NAMES[i]),
      ]);
      const drawn = [...lines].sort((a, b) => Number(a.isShown) - Number(b.isShown));
      // Named where the lines are farthest from each other.
      const [first, second] = lines;
      let apart = rows[Math.floor(rows.length / 3)] ?? 0;
      if (first && second) {
        let widest = -1;
        for (const at of rows) {
          const gap = Math.abs(x(first.ranks[at] ?? 0) - x(second.ranks[at] ?? 0));
          if (gap > widest) [widest, apart] = [gap, at];
        }
      }
      for (const { name, ranks, isShown } of drawn) {
        const points = ranks.map((rank, at) => `${x(rank).toFixed(1)} ${y(at).toFixed(1)}`);
        parts.push(
          svg("path", { d: `M${points.join("L")}`, class: isShown ? "aw-lens-line aw-lens-shown" : "aw-lens-line" }),
          ...rows.map((at) =>
            svg("circle", {
              cx: x(ranks[at] ?? 0),
              cy: y(at),
              r: isShown && at === chosen ? 5 : isShown ? 2.5 : 2,
              class: isShown ? "aw-lens-shown" : "",
            }),
          ),
        );
        if (lines.length > 1) {
          const at = x(ranks[apart] ?? 0);
          const isRight = at > width - 80;
          parts.push(
            svg(
              "text",
              {
                x: at + (isRight ? -9 : 9),
                y: y(apart) + 4,
                "text-anchor": isRight ? "end" : "start",
                class: isShown ? "aw-lens-name aw-lens-shown" : "aw-lens-name",
              },
              name,
            ),
          );
        }
      }
      setAttributes(element, { width, height, viewBox: `0 0 ${width} ${height}` });
      element.replaceChildren(...parts);
    },
  };
}
