import assert from "node:assert/strict";
import { test } from "node:test";
import { forgettingWords, rowsOf } from "../src/views/text/forgetting.ts";

const NAMES = ["decay", "beta"];
/** [name][head][token]: head 0 attends. */
const VALUES = [NaN, NaN, NaN, 1, 0.5, 0.75, 0.5, 0.5, 0.25, NaN, NaN, NaN, 0, 1, 0.5, 0, 0, 1];
const BYTES = new DataView(Float32Array.from(VALUES).buffer);

test("a head that attends forgets nothing, and the mean is over those that forget", () => {
  const read = (head: number | "mean" | "max") =>
    rowsOf(NAMES, 3, BYTES, head).map(({ name, values }) => [name, ...values]);
  assert.deepEqual(read(0), []);
  assert.deepEqual(read(1), [
    ["decay", 1, 0.5, 0.75],
    ["beta", 0, 1, 0.5],
  ]);
  assert.deepEqual(read("mean"), [
    ["decay", 0.75, 0.5, 0.5],
    ["beta", 0, 0.5, 0.75],
  ]);
  assert.deepEqual(read("max"), read("mean"));
});

test("where most is forgotten is said as in Python", () => {
  const rows = rowsOf(NAMES, 3, BYTES, 1);
  assert.equal(
    forgettingWords(rows, ["a", " b", "c"]),
    "What is forgotten: decay lowest at “b” (0.50), 0.75 on average; beta highest at “b” (1.00), 0.50 on average.",
  );
  const same = [{ name: "decay", values: Float32Array.of(0.9, 0.9) }];
  assert.equal(forgettingWords(same, ["a", "b"]), "What is forgotten: decay 0.90 at every token.");
  assert.equal(forgettingWords([], []), "");
});
