import assert from "node:assert/strict";
import { test } from "node:test";
import {
  amount,
  type Part,
  partAt,
  pieces,
  rowsOf,
  type Sentence,
  type ShownSources,
  widthOfCopies,
} from "../src/views/circuits/sources/sources.ts";

const parts = [..."abcdefgh"].map((text): Part => ({ name: text, role: "", text, kind: text === "h" ? "answer" : "" }));
const sentence = { unfolded: [0, 3, 5, 7] } as Partial<Sentence> as Sentence;

test("what is not unfolded stands as runs; one message stands for itself", () => {
  assert.deepEqual(rowsOf(parts, sentence, new Set(), false), [0, [1, 3], 3, 4, 5, 6, 7]);
  assert.deepEqual(rowsOf(parts, sentence, new Set([1, 2]), false), [0, 1, 2, 3, 4, 5, 6, 7]);
});

test("before the first sentence are no words of the answer", () => {
  assert.deepEqual(rowsOf(parts, sentence, new Set(), true), [0, [1, 3], 3, 4, 5, 6]);
});

test("words of a sentence with what is between them", () => {
  assert.deepEqual(pieces("It is, Ada.", ["It", "is", ",", "Ada", "."]), [
    ["", "It"],
    [" ", "is"],
    ["", ","],
    [" ", "Ada"],
    ["", "."],
  ]);
  assert.deepEqual(pieces("a b", ["a", "␣b"]), [
    ["", "a"],
    [" ", "␣b"],
  ]);
});

test("a number is in nats or logits with its sign, and a share in percent", () => {
  const of = (measure: ShownSources["measure"]) => ({ measure, places: 2 }) as ShownSources;
  assert.equal(amount(of("nats"), 1.234), "+1.23 nats");
  assert.equal(amount(of("logits"), -1.234, 2), "−1.2340 logits");
  assert.equal(amount(of("share"), 0.1234), "12.3%");
});

test("a part of a picture lies beneath a pointer, in the view that is shown", () => {
  const boxes = [
    [0, 0, 0.5, 1],
    [0.5, 0, 1, 1],
    [0, 0, 1, 1],
  ] as const;
  assert.equal(partAt(boxes, [0, 1], 0.2, 0.6), 1);
  assert.equal(partAt(boxes, [2], 0.2, 0.6), 2);
  assert.equal(partAt(boxes, [0], 0.2, 0.5), null);
});

test("copies of a picture share a row while they are large enough, and are not taller than the pane", () => {
  assert.equal(widthOfCopies(3, 1000, 1), 280);
  assert.equal(widthOfCopies(3, 700, 1), 225);
  assert.equal(widthOfCopies(3, 400, 1), 194);
  assert.equal(widthOfCopies(1, 1000, 2), 150);
});
