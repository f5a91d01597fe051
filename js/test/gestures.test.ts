import assert from "node:assert/strict";
import { test } from "node:test";
import { boxOf, outlineOf } from "../src/views/base/chosen.ts";

const SIZE = { rows: 3, cols: 4, cellWidth: 10.1, cellHeight: 5 };
const lines = (path: string): number => path.split("M").length - 1;

test("cells that touch have one outline, cells apart have one each", () => {
  const at = (query: number, key: number) => boxOf({ query, key }, SIZE);
  assert.equal(lines(outlineOf([at(0, 0)])), 4);
  assert.equal(lines(outlineOf([at(0, 0), at(2, 2)])), 8);
  assert.equal(lines(outlineOf([at(0, 0), at(0, 1)])), 6);
  const block = [0, 1, 2].flatMap((query) => [0, 1, 2, 3].map((key) => at(query, key)));
  assert.equal(lines(outlineOf(block)), 2 * (3 + 4)); // the border of the whole map
});

test("a token alone is outlined as its row or column", () => {
  assert.deepEqual(boxOf({ query: 1, key: -1 }, SIZE), [0, 5, 40.4, 5]);
  assert.deepEqual(boxOf({ query: -1, key: 2 }, SIZE), [20.2, 0, 10.1, 15]);
});
