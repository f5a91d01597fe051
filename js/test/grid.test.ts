import assert from "node:assert/strict";
import { test } from "node:test";
import { lut } from "../src/colour.ts";
import {
  type Arrangement,
  type ArrangeOptions,
  arrange,
  breadthAt,
  headFilter,
  type Spot,
} from "../src/views/heads/grid/arrange.ts";
import { type Atlas, tableOf } from "../src/views/heads/grid/atlas.ts";
import { SOURCE } from "./fake.ts";

const VALUES = [
  [0.9, 0.1, 0.5],
  [0.3, NaN, 0.7],
];

const wanted = (changes: Partial<ArrangeOptions> = {}): ArrangeOptions => ({
  layers: 2,
  heads: 3,
  order: "layers",
  lowest: false,
  value: ({ layer, head }) => VALUES[layer]?.[head] ?? NaN,
  keeps: () => true,
  isWhole: () => false,
  layerName: (layer) => `L${layer}`,
  room: 300,
  tallest: 300,
  largest: 72,
  ...changes,
});

const read = ({ lines }: Arrangement): string[] =>
  lines.map(({ label, spots }) => [label, ...spots.map((s) => (s ? `${s.layer}.${s.head}` : "-"))].join(" "));

test("the one map of a layer without heads takes the room of all heads", () => {
  const keeps = ({ layer, head }: Spot): boolean => layer === 0 || head === 0;
  const found = arrange(wanted({ keeps, isWhole: (layer) => layer === 1 }));
  const [attention, other] = found.lines.map(({ spots }) => spots.map((_, col) => breadthAt(spots, col)));
  assert.deepEqual(
    [attention, other],
    [
      [1, 1, 1],
      [3, 0, 0],
    ],
  );
  assert.equal(found.shown, 4);
});

test("by layer, every head keeps its place, even a filtered one", () => {
  const found = arrange(wanted({ keeps: ({ head }) => head !== 1 }));
  assert.deepEqual(read(found), ["L0 0.0 - 0.2", "L1 1.0 - 1.2"]);
  assert.equal(found.shown, 4);
});

test("within layers heads are sorted, those without a value last", () => {
  assert.deepEqual(read(arrange(wanted({ order: "within" }))), ["L0 0.0 0.2 0.1", "L1 1.2 1.0 1.1"]);
  const lowest = arrange(wanted({ order: "within", lowest: true }));
  assert.deepEqual(read(lowest), ["L0 0.1 0.2 0.0", "L1 1.0 1.2 1.1"]);
});

test("ranked over all, lines are labelled with their first value", () => {
  const found = arrange(wanted({ order: "all", room: 200, largest: 60 }));
  assert.deepEqual(read(found), ["0.9 0.0 1.2 0.2", "0.3 1.0 0.1 1.1"]);
});

test("groups lie between round numbers and start on a line of their own", () => {
  const found = arrange(wanted({ order: "groups" }));
  assert.deepEqual(read(found), ["0.8–1 0.0", "0.6–0.8 1.2", "0.4–0.6 0.2", "0.2–0.4 1.0", "0–0.2 0.1", "– 1.1"]);
});

test("equal values are one group, in the order of layer and head", () => {
  const found = arrange(wanted({ order: "groups", value: () => 0.25 }));
  assert.deepEqual(read(found), ["0.25 0.0 0.1 0.2 1.0", " 1.1 1.2"]);
});

test("without a statistic, heads are ordered by layer, whatever the order asked for", () => {
  assert.deepEqual(read(arrange(wanted({ order: "all", value: null }))), ["L0 0.0 0.1 0.2", "L1 1.0 1.1 1.2"]);
});

test("thousands of heads fit, each once, in any order", () => {
  for (const order of ["layers", "within", "all", "groups"] as const) {
    const value = ({ layer, head }: Spot): number => ((layer * 64 + head) * 7919) % 1009;
    const found = arrange(wanted({ layers: 48, heads: 64, order, value, room: 1000, tallest: 640 }));
    const all = found.lines.flatMap(({ spots }) => spots.map((spot) => `${spot?.layer}.${spot?.head}`));
    assert.equal(new Set(all).size, 3072);
    assert.ok(found.lines.every(({ spots }) => spots.length <= found.cols));
    const side = Math.floor(Math.min(1000 / found.cols, 640 / found.lines.length));
    assert.ok(side >= 10, `${order}: ${side} px`);
  }
});

test("with all heads filtered there are no lines and no error", () => {
  assert.deepEqual(read(arrange(wanted({ order: "groups", keeps: () => false }))), []);
});

test("heads can be named as in papers", () => {
  const named = (text: string, layer: string, head: string): boolean | undefined => headFilter(text)?.(layer, head);
  assert.equal(named("", "3", "7"), true);
  assert.equal(named("3", "3", "7"), true);
  assert.equal(named("3", "4", "7"), false);
  assert.equal(named("2.1, 3.7", "3", "7"), true);
  assert.equal(named("4-8", "4", "8"), true);
  assert.equal(named("L3H7", "3", "7"), true);
  assert.equal(named("*.7", "9", "7"), true);
  assert.equal(named("*.7", "9", "8"), false);
  assert.equal(headFilter("three"), null);
  assert.equal(headFilter("3.7.1"), null);
});

test("a thumbnail's colours are those of its own scale, or of one for all", () => {
  const meta = { source: "s", rows: 1, cols: 2, gamma: 0.5, signed: false, scale: [[0.5, 0.25]], special: false };
  const atlas: Atlas = {
    source: SOURCE,
    sheet: { meta, codes: Uint8Array.from([0, 255, 255, 0]) },
    map: "viridis",
    common: null,
    mode: "sqrt",
  };
  const table = (range: number, scale: number): Uint32Array =>
    lut("viridis", { gamma: 0.5, scale, range: [0, range], mode: "sqrt", signed: false });
  assert.deepEqual(tableOf(atlas, { layer: 0, head: 1 }), table(0.25, 0.25));
  assert.deepEqual(tableOf({ ...atlas, common: 0.5 }, { layer: 0, head: 1 }), table(0.5, 0.25));
});
