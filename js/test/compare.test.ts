import assert from "node:assert/strict";
import { test } from "node:test";
import { chartOf, lookOf, spreadOut } from "../src/views/charts/lineChart.ts";
import { byRank, difference, rankOf, shares } from "../src/views/compare/differences.ts";
import { everyEdge, flowOf, leastAt, positionOf, stepOf } from "../src/views/compare/flow/mass.ts";
import { shortForm } from "../src/views/compare/picture.ts";
import { fillColumns } from "../src/views/compare/stretch.ts";
import { type Fill, fillOf, NOTHING } from "../src/views/text/stripColour.ts";

const rounded = (values: Iterable<number>): number[] => Array.from(values, (v) => Number(v.toFixed(4)));

test("strips are compared in shares of their own sum of magnitudes", () => {
  assert.deepEqual(rounded(shares(Float32Array.of(1, -3))), [0.25, -0.75]);
  assert.deepEqual([...shares(Float32Array.of(0, 0))], [0, 0]);
  const found = difference(Float32Array.of(1, 3), Float32Array.of(10, -10));
  assert.deepEqual(rounded(found), [-0.25, 1.25]);
  const left = difference(Float32Array.of(1, Number.NaN, 3), Float32Array.of(5, 5, 10));
  assert.deepEqual(rounded(left), [0, Number.NaN, 0.25], "what is left out of one is no part of its sum");
});

test("ranks count from the largest value, and equal values share the best rank", () => {
  assert.deepEqual(rankOf(Float32Array.of(0.2, -5, 0.9, 0.2)), [2, 4, 1, 2]);
  assert.deepEqual(rankOf(Float32Array.of(0.2, Number.NaN, 0.9)), [2, 0, 1], "what is left out has no rank");
  assert.deepEqual(
    [1, 2, 3, 4, 11, 12, 13, 21, 112].map((rank) => byRank(rank)),
    ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"],
  );
});

test("labels at line ends do not overlap, and stay inside the picture if they fit", () => {
  const found = spreadOut([50, 50, 52, 200], 16, 0, 200);
  const sorted = [...found].sort((a, b) => a - b);
  for (let i = 1; i < sorted.length; i += 1) assert.ok((sorted[i] as number) - (sorted[i - 1] as number) >= 16);
  assert.ok(Math.max(...found) <= 200);
  assert.deepEqual(spreadOut([10, 100], 16, 0, 200), [10, 100], "those that are apart stay");
});

test("twelve lines look different", () => {
  for (const theme of ["light", "dark"] as const) {
    assert.equal(new Set(Array.from({ length: 12 }, (_, i) => JSON.stringify(lookOf(i, theme)))).size, 12);
  }
});

test("a chart maps its range onto its height, whatever the values", () => {
  const chart = chartOf(600, 100, 6, -1, 3);
  assert.equal(chart.y(-1), chart.bottom);
  assert.equal(chart.y(3), chart.top);
  assert.ok(chart.x(5) <= chart.right && chart.x(0) >= chart.left);
  assert.ok(Number.isFinite(chartOf(600, 100, 1, 0, 0).y(0)));
});

const steps = [0, 1, 2].map((layer) => stepOf((q, k) => ((q * 7 + k * 3 + layer * 5) % 11) + 0.5, 4));

test("rows become shares, and a row of zeros stays zero", () => {
  for (const { rows } of steps) {
    for (let q = 0; q < 4; q += 1) {
      const sum = rows.subarray(4 * q, 4 * q + 4).reduce((a, b) => a + b, 0);
      assert.ok(Math.abs(sum - 1) < 1e-6);
    }
  }
  assert.deepEqual([...stepOf(() => 0, 2).rows], [0, 0, 0, 0]);
});

test("the mass of a token equals the product of the layers below it, without loss", () => {
  for (const level of [1, 2, 3]) {
    const { masses, share } = flowOf(steps, level, 2, 0, Infinity);
    let row = [0, 0, 1, 0];
    for (let at = level - 1; at >= 0; at -= 1) {
      const rows = steps[at]?.rows as Float32Array;
      row = row.map((_, k) => row.reduce((sum, mass, q) => sum + mass * (rows[4 * q + k] as number), 0));
    }
    assert.deepEqual(rounded(masses[0] ?? []), rounded(row));
    assert.ok(Math.abs(share - 1) < 1e-6, "with every edge all of the mass is shown");
  }
  assert.deepEqual(flowOf(steps, 0, 1, 0, 10).edges, [], "the input comes from nowhere");
});

test("at most the budget of edges is drawn, and the share they carry is reported", () => {
  const all = everyEdge(steps, 0, Infinity);
  const some = everyEdge(steps, 0, 5);
  assert.equal(all.edges.length, 48);
  assert.equal(some.count, 48);
  const between = all.edges.filter(({ query, key }) => query !== key);
  const masses = (edges: typeof between): number[] => rounded(edges.map(({ mass }) => mass));
  assert.deepEqual(masses(some.edges), masses(between.slice(-5)), "the strongest between tokens are kept");
  const more = everyEdge(steps, 0, between.length + 2);
  assert.equal(more.edges.filter(({ query, key }) => query === key).length, 2, "what stays in place comes after them");
  const carried = some.edges.reduce((sum, { mass }) => sum + mass, 0) / 12;
  assert.ok(Math.abs(some.share - carried) < 1e-9);
  assert.ok(flowOf(steps, 3, 0, 0.05, 1000).edges.every(({ mass }) => mass >= 0.05));
});

test("the slider runs from 0.2 % to 50 %, and positions map back", () => {
  assert.deepEqual([leastAt(0), leastAt(1)], [0.002, 0.5]);
  assert.equal(leastAt(positionOf(0.04)), 0.04);
});

test("a number in a narrow cell is rounded to a decimal, unless nothing were left of it", () => {
  const all = ["−0.21", "+0.057", "0.04", "> −0.01", "10.5", ""];
  assert.deepEqual(all.map(shortForm), ["−.21", "+.057", ".04", "> −.01", "10.5", ""]);
});

/** Looks whose pixel is the number of the element, from 1. */
const numbered = (count: number): Fill[] =>
  Array.from({ length: count }, (_, i) => ({ css: "x", pixel: i + 1, flips: false }));

test("every element has its columns of the screen, with a gap at its end", () => {
  const out = new Uint32Array(6);
  fillColumns(out, Float32Array.of(0.1, 0.2, 0.3), numbered(3), 0);
  assert.deepEqual([...out], [1, 1, 2, 2, 3, 3]);
  const apart = new Uint32Array(6);
  fillColumns(apart, Float32Array.of(0.1, 0.2, 0.3), numbered(3), 1);
  assert.deepEqual([...apart], [1, 0, 2, 0, 3, 0]);
});

test("a column of the screen that stands for several elements shows the largest, and no hidden one", () => {
  const out = new Uint32Array(2);
  fillColumns(out, Float32Array.of(0.1, -0.9, Number.NaN, 0.2), numbered(4), 0);
  assert.deepEqual([...out], [2, 4]);
  const looks = numbered(4);
  looks[1] = NOTHING;
  const without = new Uint32Array(2);
  fillColumns(without, Float32Array.of(0.1, -0.9, 0, 0), looks, 0);
  assert.deepEqual([...without], [1, 3]);
});

test("a fill has the same colour as a pixel and in CSS", () => {
  for (const t of [-1, -0.4, 0.3, 1]) {
    const { css, pixel } = fillOf(t, "light", true);
    const [red, green, blue, alpha] = (css.match(/[\d.]+/g) ?? []).map(Number);
    assert.deepEqual([pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255], [red, green, blue]);
    assert.ok(Math.abs((pixel >>> 24) / 255 - (alpha ?? 0)) < 0.003);
  }
});
