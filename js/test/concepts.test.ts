import assert from "node:assert/strict";
import { test } from "node:test";
import { inWords, openingCode } from "../src/views/base/openText.ts";
import { type Concepts, nearestIndex, pWords, scoreWords } from "../src/views/concepts/concepts.ts";
import { nearestPoint, sideWords, signedWords, topOf } from "../src/views/concepts/influence.ts";
import { levelName, lossWords, percent, type Shapes, slotNames } from "../src/views/concepts/shapes.ts";

const CONCEPTS: Concepts = {
  concepts: ["negation"],
  layers: [1, 2, 6],
  target: "negative",
  about: "logistic, 3 runs, at mean",
  examples: 4,
  level: 0.05,
  accurate: 0.6,
  scores: [[0.25, 0.9, null]],
  accuracy: [[0.9, 0.5, null]],
  p: [[0.0004, 0.01, null]],
  significant: [[true, false, false]],
  low: [0.3, 0.1, 0],
  high: [0.7, 0.95, 1],
  notes: [],
};

test("the nearest layer is shown where there is no such one", () => {
  assert.equal(nearestIndex([1, 2, 6], 6), 2);
  assert.equal(nearestIndex([1, 2, 6], 3), 1);
  assert.equal(nearestIndex([1, 2, 6], 40), 2);
  assert.equal(nearestIndex([4], 0), 0);
});

test("a score is said with the band, the accuracy, and why it is significant or not", () => {
  assert.equal(
    scoreWords(CONCEPTS, 0, 0),
    "negation at layer 1: raises 0.25 of the examples (random 0.30 to 0.70), accuracy 0.90; significant, p < 0.001",
  );
  assert.match(scoreWords(CONCEPTS, 0, 1), /not significant: accuracy is below 0\.6$/);
  const chance = { ...CONCEPTS, p: [[0.2, 0.01, null]], significant: [[false, false, false]] };
  assert.match(scoreWords(chance, 0, 0), /not significant: p 0\.200 is above 0\.05$/);
  assert.equal(scoreWords(CONCEPTS, 0, 2), "negation at layer 6: no score");
  assert.deepEqual([null, undefined, 0.0001, 1].map(pWords), ["–", "–", "< 0.001", "1.000"]);
});

test("influences of a list have as many decimals as the largest needs", () => {
  assert.equal(signedWords(-0.0345, 0.43), "−0.035");
  assert.equal(signedWords(0.000123, 0.00043), "+0.000123");
  assert.equal(signedWords(12, 40), "+12.0");
  assert.equal(signedWords(null, 1), "–");
  assert.equal(topOf([0.1, null, -2]), 2);
  assert.equal(topOf([]), 0);
});

test("columns say what their texts do to a measure, and nothing of leaving out where nothing is fitted", () => {
  const head = { of: "head", measure: "loss" } as const;
  assert.equal(sideWords(head, "helpful"), "leaving one out raises the loss");
  assert.equal(sideWords({ ...head, measure: "margin" }, "helpful"), "leaving one out lowers the margin");
  assert.equal(sideWords({ ...head, measure: "output" }, "harmful"), "leaving one out lowers the output");
  assert.equal(sideWords({ ...head, of: "gradients" }, "harmful"), "gradients against the test’s");
});

test("the point under the pointer is the nearest within reach", () => {
  const points = [[10, 10], null, [14, 10]] as const;
  assert.equal(nearestPoint(points, 13, 10), 2);
  assert.equal(nearestPoint(points, 10, 12), 0);
  assert.equal(nearestPoint(points, 90, 90), -1);
});

test("what a sum over slots loses is the first number", () => {
  const shapes = { fidelities: [0.782, 0.973], estimated: false } as unknown as Shapes;
  assert.deepEqual(lossWords(shapes), [
    "21.8 %",
    "of the model’s variance is lost by a sum over slots; with pairs it loses 2.7 %.",
  ]);
  assert.equal(lossWords({ ...shapes, estimated: true, fidelities: [0.5, null] })[0], "about 50.0 %");
  assert.equal(lossWords({ ...shapes, fidelities: [null, null] })[0], "");
  assert.equal(lossWords({ ...shapes, fidelities: [1 + 1e-15, null] })[0], "0.0 %");
  assert.equal(slotNames("how x adj"), "how × adj");
  assert.equal(percent(0.0001), "< 0.1 %");
  assert.equal(percent(null), "–");
  assert.equal(levelName("very "), "very");
  assert.equal(levelName(""), "(nothing)");
});

test("a text opens as a line of Python in which it is a string", () => {
  assert.equal(openingCode('a "b"\n'), 'aw.explore(model, tokenizer, "a \\"b\\"\\n")');
  assert.equal(inWords("a\u202eb"), "\u2068“a⟨U+202E⟩b”\u2069");
  assert.equal(inWords("x".repeat(99), 9).length, 13);
});
