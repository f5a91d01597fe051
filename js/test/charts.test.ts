/** Line charts: positions of values, labels without overlaps, sorted rows. */
import assert from "node:assert/strict";
import test from "node:test";
import { spreadOut } from "../src/views/charts/lineChart.ts";
import { positionsOf } from "../src/views/evaluate/scorecard/curves.ts";
import { sortedRows } from "../src/views/evaluate/scorecard/table.ts";
import { halfWay } from "../src/views/training/run.ts";

test("rising numbers are placed by value, anything else in order", () => {
  assert.deepEqual(positionsOf([0, 1, 4]), [0, 0.5, 2]);
  assert.deepEqual(positionsOf(["a", "b", "c"]), [0, 1, 2]);
  assert.deepEqual(positionsOf([3, 1, 2]), [0, 1, 2]);
  assert.deepEqual(positionsOf([7]), [0]);
});

test("undefined values come last in either sort direction", () => {
  const values = [0.2, Number.NaN, -1, 3];
  assert.deepEqual(sortedRows(values, true), [3, 0, 2, 1]);
  assert.deepEqual(sortedRows(values, false), [2, 0, 3, 1]);
  assert.deepEqual(sortedRows(["b", "a"], false), [1, 0]);
});

test("names at line ends keep apart and stay inside", () => {
  const heights = spreadOut([50, 51, 52, 100], 16, 10, 100);
  const sorted = heights.toSorted((a, b) => a - b);
  assert.ok(sorted.slice(1).every((y, i) => y - (sorted[i] as number) >= 16));
  assert.ok(Math.max(...heights) <= 100);
  assert.deepEqual(heights, sorted);
});

test("a curve is half way unless it comes back, or has few points", () => {
  assert.equal(halfWay([0, 0.1, 0.6, 0.5, 1]), 2);
  assert.equal(halfWay([1, Number.NaN, 0.9, 0.4, 0.5, 0]), 3);
  assert.equal(halfWay([0, 0.1, 0.6, 0.5, 0.05]), -1);
  assert.equal(halfWay([0, 0, 0, 0, 0]), -1);
  assert.equal(halfWay([0, 0.6, 0.7, 1]), -1);
});
