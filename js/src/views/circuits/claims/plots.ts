/** Pictures of a claim: its head compared with the controls, and the distribution of the effect over texts. */
import { rule, setAttributes, svg } from "../../charts/svg.ts";
import { decimal } from "../words.ts";
import { bins, rangeOf, type ShownClaim } from "./claim.ts";

const NAMES = 108;
const ROW = 44;
/** px of all rows, where they have room. */
const TALL = 136;

const defined = (values: readonly (number | null)[]): number[] => values.flatMap((value) => value ?? []);

/** Positions of round numbers on an axis. */
function ticksOf(low: number, high: number): number[] {
  const step = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50].find((step) => (high - low) / step <= 6) ?? (high - low) / 5;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

export function drawEffect(picture: SVGElement, claim: ShownClaim, margin: number, width: number): void {
  const { mean, interval, heads, baselines } = claim;
  const all = [
    mean,
    ...interval,
    margin,
    ...heads.flatMap(([, list]) => list.map(([, , value]) => value)),
    ...baselines.map(([, value]) => value),
  ];
  const [low, high] = rangeOf(defined(all).map((value) => Math.max(-10, Math.min(10, value))));
  const x = (value: number): number =>
    NAMES + 12 + ((Math.max(low, Math.min(high, value)) - low) / (high - low)) * (width - NAMES - 34);
  const groups: [string, number[]][] = [
    ...heads.map(([name, list]): [string, number[]] => [
      `${list.length} ${name}`,
      defined(list.map(([, , value]) => value)),
    ]),
    ...baselines.map(([name, value]): [string, number[]] => [name, defined([value])]),
  ];
  const rows = 1 + groups.length;
  const row = Math.max(20, Math.min(ROW, TALL / rows));
  const [top, bottom] = [20, 22 + rows * row];
  const y = (i: number): number => top + (i + 0.5) * row;
  const parts: SVGElement[] = ticksOf(low, high).flatMap((at) => [
    rule(x(at), top, x(at), bottom, { class: Math.abs(at) < 1e-9 ? "aw-claim-zero" : "aw-claim-tick" }),
    svg("text", { x: x(at), y: bottom + 15, "text-anchor": "middle" }, String(Number(at.toFixed(2))).replace("-", "−")),
  ]);
  // The label of the margin is next to the head's number if both are close.
  const apart = mean === null ? Infinity : x(margin) - x(mean);
  const isNear = Math.abs(apart) < 60;
  const words = !isNear
    ? x(margin)
    : apart < 0
      ? x(margin) - Math.max(0, 20 + apart)
      : x(margin) + Math.max(0, 20 - apart);
  const anchor = !isNear ? "middle" : apart < 0 ? "end" : "start";
  parts.push(
    rule(x(margin), top, x(margin), bottom, { class: "aw-claim-margin" }),
    svg("text", { x: words, y: 13, "text-anchor": anchor }, `margin ${margin}`),
    svg("text", { x: NAMES, y: y(0) + 4, "text-anchor": "end", class: "aw-claim-own" }, `head ${claim.head}`),
  );
  const [from, to] = interval;
  if (mean !== null) {
    parts.push(
      rule(x(from ?? low), y(0), x(to ?? high), y(0), { class: "aw-claim-interval" }),
      svg("circle", { cx: x(mean), cy: y(0), r: 7, class: "aw-claim-mean" }),
      svg(
        "text",
        { x: x(mean), y: y(0) - 12, "text-anchor": "middle", class: "aw-claim-own aw-claim-halo" },
        decimal(mean),
      ),
    );
  }
  groups.forEach(([name, values], i) => {
    parts.push(svg("text", { x: NAMES, y: y(i + 1) + 4, "text-anchor": "end", class: "aw-claim-name" }, name));
    // Marks that would overlap are moved apart.
    const used: [number, number][] = [];
    for (const value of [...values].sort((a, b) => a - b)) {
      let level = 0;
      while (used.some(([at, on]) => on === level && Math.abs(at - x(value)) < 8)) level += 1;
      used.push([x(value), level]);
      const shift = (level % 2 ? 1 : -1) * Math.ceil((level % 5) / 2) * (row / 8);
      parts.push(svg("circle", { cx: x(value), cy: y(i + 1) + shift, r: 4, class: "aw-claim-dot" }));
    }
  });
  setAttributes(picture, {
    width,
    height: bottom + 20,
    viewBox: `0 0 ${width} ${bottom + 20}`,
    "aria-label": `head ${claim.head} ${decimal(mean ?? Number.NaN)}, margin ${margin}; ${groups.map(([name, values]) => `${name}: up to ${decimal(Math.max(...values))}`).join(", ")}`,
  });
  picture.replaceChildren(...parts);
}

export function drawTexts(picture: SVGElement, claim: ShownClaim, margin: number, width: number, height: number): void {
  const values = defined(claim.beyond);
  const [low, high, step] = rangeOf([...values, margin]);
  const count = Math.max(1, Math.round((high - low) / step));
  const heights = bins(values, low, high, count);
  const most = Math.max(1, ...heights);
  const base = height - 24;
  const x = (value: number): number => 6 + ((value - low) / (high - low)) * (width - 12);
  const block = Math.min(16, (base - 30) / most);
  const parts = heights.flatMap((number, i): SVGElement[] => {
    const [left, right] = [x(low + i * step), x(low + (i + 1) * step)];
    const isBelow = low + (i + 1) * step <= margin + 1e-9;
    const blocks =
      block >= 5
        ? Array.from({ length: number }, (_, j) => [base - (j + 1) * block, block - 2] as const)
        : [[base - number * block, number * block] as const];
    return [
      ...(number ? blocks : []).map(([top, tall]) =>
        svg("rect", {
          x: left + 1,
          y: top,
          width: Math.max(1, right - left - 2),
          height: tall,
          rx: 2,
          class: isBelow ? "aw-claim-against" : "aw-claim-for",
        }),
      ),
      ...(number
        ? [
            svg(
              "text",
              { x: (left + right) / 2, y: base - number * block - 5, "text-anchor": "middle", class: "aw-claim-name" },
              String(number),
            ),
          ]
        : []),
    ];
  });
  parts.push(
    rule(0, base + 0.5, width, base + 0.5, { class: "aw-claim-tick" }),
    rule(x(margin), 18, x(margin), base, { class: "aw-claim-margin" }),
    ...ticksOf(low, high).map((at) =>
      svg(
        "text",
        { x: Math.max(10, Math.min(width - 10, x(at))), y: base + 17, "text-anchor": "middle" },
        String(Number(at.toFixed(2))).replace("-", "−"),
      ),
    ),
  );
  setAttributes(picture, {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "aria-label": `${values.length} texts by what the head does beyond its control; ${claim.below} below the margin`,
  });
  picture.replaceChildren(...parts);
}
