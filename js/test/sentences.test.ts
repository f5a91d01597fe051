import assert from "node:assert/strict";
import { test } from "node:test";
import { around, linksOf, strongest } from "../src/views/circuits/sentences/links.ts";

const VALUES = [
  [9, 0, 0, 0],
  [3, 9, 0, 0],
  [2, -1, 9, 0],
  [0.5, Number.NaN, 4, 9],
];
const value = (row: number, column: number): number => VALUES[row]?.[column] ?? 0;
const NONE = [0, 0, 0, 0];

test("the strongest links come first; the diagonal, what is near, special or no number is none", () => {
  const { all, top } = linksOf(value, 4, 1, NONE);
  assert.deepEqual(
    all.map((link) => [link.query, link.key, link.value]),
    [
      [3, 2, 4],
      [1, 0, 3],
      [2, 0, 2],
      [2, 1, -1],
      [3, 0, 0.5],
    ],
  );
  assert.equal(top, 4);
  assert.deepEqual(
    linksOf(value, 4, 2, NONE).all.map((link) => link.value),
    [2, 0.5],
  );
  assert.ok(linksOf(value, 4, 1, [1, 0, 0, 0]).all.every(({ key }) => key !== 0));
  assert.equal(linksOf(() => 0, 3, 1, NONE).top, 0);
});

test("arcs are cut by their share of the largest, and at three a sentence", () => {
  const links = linksOf(value, 4, 1, NONE);
  assert.deepEqual(
    strongest(links, 0.5).map((link) => link.value),
    [4, 3, 2],
  );
  const many = linksOf(() => 1, 50, 1, Array(50).fill(0));
  assert.equal(strongest(many, 0).length, 150);
  assert.equal(
    strongest(
      linksOf(() => 1, 200, 1, Array(200).fill(0)),
      0,
    ).length,
    300,
  );
});

test("a sentence has those it depends on and those that depend on it", () => {
  const { on, of } = around(linksOf(value, 4, 1, NONE), 2);
  assert.deepEqual(
    on.map((link) => link.key),
    [0, 1],
  );
  assert.deepEqual(
    of.map((link) => link.query),
    [3],
  );
});
