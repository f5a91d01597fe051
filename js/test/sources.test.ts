import assert from "node:assert/strict";
import { test } from "node:test";
import { type Part, pieces, rowsOf, type Sentence } from "../src/views/circuits/sources/sources.ts";

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
