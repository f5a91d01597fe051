import assert from "node:assert/strict";
import { test } from "node:test";
import { bins, marked, rangeOf } from "../src/views/circuits/claims/claim.ts";
import { darkness, readLens, topOf, valueAt } from "../src/views/circuits/lens/lens.ts";
import { foldedWords, heightOf, rowsShown, withRow } from "../src/views/circuits/lens/rows.ts";
import {
  type Activation,
  activationName,
  differing,
  endOf,
  type Patching,
  ranked,
  rawOf,
  shareOf,
} from "../src/views/circuits/patch/patching.ts";
import { chance, decimal, word } from "../src/views/circuits/words.ts";

const PATCHING: Patching = {
  direction: "denoise",
  estimate: false,
  sites: ["state", "head"],
  layers: 2,
  clean: 4,
  corrupt: -4,
  gap: 8,
  cleanTokens: ["The", "␣France", "␣is"],
  corruptTokens: ["The", "␣Italy", "␣is"],
  differs: [1],
  first: 1,
  target: "␣Paris",
  foil: "␣Rome",
  checked: [],
  agreement: null,
  warning: "",
  predicted: [[["␣Paris", 0.7]], null],
  raw: { state: [0, 8, 0, 0, 0.4, 7.6], head: [0, Number.NaN, -2, 6] },
};

const NAMES = {
  layerName: (layer: number) => String(layer),
  headName: (head: unknown) => String(head),
  options: { indexBase: 0 },
} as Parameters<typeof activationName>[0];

test("shares are what patching adds, as parts of the gap; what is not known is not a number", () => {
  assert.equal(shareOf(PATCHING, ["state", 0, 1, null]), 1);
  assert.equal(shareOf(PATCHING, ["head", 1, null, 1]), 0.75);
  assert.equal(rawOf(PATCHING, ["head", 1, null, 0]), -2);
  assert.ok(Number.isNaN(rawOf(PATCHING, ["mlp", 0, 1, null])));
  assert.ok(Number.isNaN(rawOf(PATCHING, ["head", 1, 2, 0])), "one position of a head was not swept");
  assert.equal(shareOf({ ...PATCHING, gap: null }, ["head", 1, null, 0]), -2);
  assert.equal(endOf({ ...PATCHING, gap: null }), 8);
});

test("heads are ranked by size, without those that do nothing or are not there", () => {
  assert.deepEqual(ranked(PATCHING, 5), [
    ["head", 1, null, 1],
    ["head", 1, null, 0],
  ] satisfies Activation[]);
});

test("a place and the words of both runs are named by direction", () => {
  assert.equal(activationName(NAMES, PATCHING, ["head", 1, null, 0]), "head 1.0");
  assert.equal(activationName(NAMES, PATCHING, ["state", 1, 1, null]), "state 1 at \u2068“France”\u2069");
  assert.deepEqual(differing(PATCHING), ["␣Italy", "␣France"]);
  assert.deepEqual(differing({ ...PATCHING, direction: "noise" }), ["␣France", "␣Italy"]);
  // Aligned texts have gaps, which are no words.
  const aligned = {
    ...PATCHING,
    differs: [1, 2],
    cleanTokens: ["of", "", "␣France"],
    corruptTokens: ["of", "␣Lie", "stein"],
  };
  assert.deepEqual(differing(aligned), ["stein", "␣France"]);
});

test("words are shown without the space before them, and hostile ones safely", () => {
  assert.equal(word("␣Paris"), "Paris");
  assert.equal(word("␣␣"), "␣␣");
  assert.equal(word("\u202eevil"), "⟨U+202E⟩evil");
  assert.equal(decimal(-0.001), "0.00");
  assert.equal(decimal(-0.28), "−0.28");
  assert.equal(decimal(6.44, 2, true), "+6.44");
  assert.equal(chance(0.00004), "< 0.0001");
});

test("rows before the answer rises are folded, and a chosen one takes the place of the one before it", () => {
  const ranks = Array.from({ length: 31 }, (_, row) => Math.max(0, 24 - row));
  const rows = rowsShown(31, ranks, 19);
  assert.equal(rows.length, 19);
  assert.deepEqual(rows.slice(11), [22, 24, 25, 26, 27, 28, 29, 30]);
  assert.equal(foldedWords(rows, 31), "odd layers to 23 folded");
  const moved = withRow(rows, 13);
  assert.equal(moved.length, 19);
  assert.ok(moved.includes(13) && !moved.includes(12));
  assert.equal(heightOf(rows, 23), 11.5);
  assert.equal(heightOf(rows, 24), 12);
  assert.deepEqual(rowsShown(3, [1, 0, 0], 19), [0, 1, 2]);
});

const view = (numbers: Float32Array | Int32Array): DataView => new DataView(numbers.buffer);

test("a lens is read by row and token", () => {
  const floats = (...values: number[]): DataView => view(new Float32Array(values));
  const wholes = (...values: number[]): DataView => view(new Int32Array(values));
  const meta = {
    ...{ answer: "b", tokens: ["x", "y"], layers: 1, labels: ["a", "b"], k: 1, title: "", warning: "" },
    predicted: [],
  };
  const buffers = [
    floats(0, 0.25, 0.5, 1),
    floats(3, 2, 1, 0),
    floats(9, 4, 0, 0),
    wholes(99, 9, 1, 0),
    wholes(0, 0, 1, 1),
    wholes(7, 7, 8, 8),
    floats(0.5, 0.75, 0.5, 1),
  ];
  const lens = readLens({ meta, buffers });
  assert.equal(valueAt(lens, "kl", 0, 1), 4);
  assert.deepEqual(topOf(lens, 1, 0), [{ label: "b", id: 8, p: 0.5 }]);
  assert.equal(darkness(lens, "probability", 0, 1), 0.25);
  assert.equal(darkness(lens, "rank", 1, 1), 1, "the first rank is darkest");
  assert.equal(darkness(lens, "rank", 0, 0), 0);
  assert.equal(darkness(lens, "entropy", 0, 0), 1);
});

test("texts of a claim are marked where they differ", () => {
  assert.deepEqual(marked("The opposite of hot is", "The opposite of big is"), [
    ["The opposite of ", false],
    ["hot ", true],
    ["is", false],
  ]);
  assert.deepEqual(marked("fadeb", "fadgb"), [
    ["fad", false],
    ["e", true],
    ["b", false],
  ]);
});

test("a histogram holds every text, in round steps", () => {
  const [low, high, step] = rangeOf([-0.05, 0.42, 1]);
  assert.deepEqual([low, Number(high.toFixed(6)), step], [-0.1, 1, 0.1]);
  const heights = bins([-0.05, 0.42, 1], low, high, 11);
  assert.equal(
    heights.reduce((sum, one) => sum + one, 0),
    3,
  );
  assert.equal(heights[0], 1);
  assert.equal(heights[10], 1);
});
