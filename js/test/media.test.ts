/** Rows of a picture, the colours of a map over it, and the elements that are patches. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { elementName, elementsOf, openingElement } from "../src/views/media/elements.ts";
import { colourOver, opacityAt, outline, overMap, shades, topPatches } from "../src/views/media/heat.ts";
import { median, tickStep } from "../src/views/media/norms.ts";
import { dim } from "../src/views/media/picture.ts";
import { type PatchRowsMeta, readRows } from "../src/views/media/rows.ts";
import type { Axis } from "../src/wire/wire.ts";

const bytes = (...values: number[]): DataView => new DataView(new Uint8Array(values).buffer);
const floats = (...values: number[]): DataView => new DataView(new Float32Array(values).buffer);

const META: PatchRowsMeta = {
  layers: [3],
  heads: 3,
  grid: [1, 2],
  patches: [1, 2],
  others: [0, 1],
  signed: false,
  exact: true,
};

test("codes become values on the scale of their map, and the peak is exact", () => {
  const rows = readRows({
    meta: META,
    buffers: [bytes(255, 51, 0, 255, 0, 0), floats(0.5, 0.3, Number.NaN), floats(0.52, 0.3, 0), floats(0.48, 0.7, 0)],
  });
  assert.deepEqual(rows.patches, [1, 2]);
  assert.deepEqual([...rows.map(0, 0)], [0.5, Math.fround(0.5 * 0.2 ** 2)].map(Math.fround));
  assert.equal(rows.peak(0, 1), Math.fround(0.3));
  assert.ok(Number.isNaN(rows.peak(0, 2)), "a head that was pruned has no peak");
  // Reductions leave it out.
  assert.ok(Math.abs((rows.map(0, "mean")[0] as number) - 0.25) < 1e-6);
  assert.ok(Math.abs(rows.sum(0, "mean") - (0.52 + 0.3) / 2) < 1e-6);
  assert.equal(rows.map(0, "max")[1], Math.fround(0.3));
  assert.ok(Math.abs((rows.rest(0, 0)[0] as number) + rows.sum(0, 0) - 1) < 1e-6);
});

test("many other elements come as codes", () => {
  const meta: PatchRowsMeta = { ...META, heads: 1, others: [[0, 3]], patches: [[2, 1]], signed: true, exact: false };
  const rows = readRows({
    meta,
    buffers: [bytes(127, 129), floats(2), floats(0), bytes(127, 0), floats(4)],
  });
  assert.deepEqual(rows.patches, [2, 1]);
  assert.deepEqual([...rows.map(0, "-")], [2, -2]);
  assert.deepEqual([...rows.rest(0, "-")], [4, 0]);
});

test("the picture shows through where the map is zero or not a number", () => {
  const shade = { map: overMap(true, ""), mode: "linear", range: [-1, 1] } as const;
  const painted = shades([0, 1, -1, Number.NaN], shade);
  assert.deepEqual(
    [3, 7, 11, 15].map((i) => painted[i]),
    [0, 240, 240, 0],
  );
  const [positive, negative] = [painted.subarray(4, 7), painted.subarray(8, 11)];
  assert.ok((positive[0] as number) > (positive[2] as number), "orange is for");
  assert.ok((negative[2] as number) > (negative[1] as number), "violet against");
});

test("a value has the same colour whatever its sign is called, and a larger one covers more", () => {
  assert.deepEqual(colourOver("beam", 0, false), [12, 84, 190]);
  assert.deepEqual(colourOver("beam", 1, false), [228, 245, 255]);
  assert.ok(opacityAt(0.5) > opacityAt(0.2));
  assert.equal(overMap(false, "viridis"), "viridis");
});

test("the outline is around the fewest patches that hold a share", () => {
  const values = [0.4, 0.1, 0.3, 0.2];
  assert.deepEqual(topPatches(values, 0.7), [true, false, true, false]);
  assert.deepEqual(topPatches(values, 1), [true, true, true, true]);
  assert.deepEqual(topPatches([0, 0], 0.5), [false, false]);
  // One patch of 2 x 2: its four sides.
  assert.equal(outline([true, false, false, false], [2, 2]).match(/M/g)?.length, 4);
  // Two beside each other have no line between them.
  assert.equal(outline([true, true, false, false], [2, 2]).match(/M/g)?.length, 6);
});

const axis = (labels: string[], special: number[], grid: [number, number] | null, cells: number[] | null): Axis => ({
  unit: "patch",
  labels,
  special,
  grid,
  cells,
  spans: null,
  segment: labels.map(() => 0),
  boundary: null,
  times: null,
});
const ctx = { options: { indexBase: 0 } } as ViewContext;

test("patches are found in order, in windows and inside a text", () => {
  const plain = axis(["[CLS]", "0,0", "0,1"], [1, 0, 0], [1, 2], null);
  assert.deepEqual(elementsOf(plain).patches, [1, 2]);
  assert.equal(openingElement(plain), 0);
  const windows = axis(["0,1", "0,0"], [0, 0], [1, 2], [1, 0]);
  assert.deepEqual(elementsOf(windows).patches, [1, 0]);
  const text = axis(["<s>", "0,0", "cat", "</s>"], [1, 0, 0, 1], [1, 1], [-1, 0, -1, -1]);
  assert.deepEqual(elementsOf(text).others, [0, 2, 3]);
  assert.equal(openingElement(text), 2, "the last word");
  assert.deepEqual(
    [0, 1, 2].map((i) => elementName(ctx, text, i)),
    ["<s>", "patch 0,0", "\u2068“cat”\u2069"],
  );
});

test("without a class token a picture opens in its middle", () => {
  const labels = ["0,0", "0,1", "1,0", "1,1"];
  assert.equal(openingElement(axis(labels, [0, 0, 0, 0], [2, 2], null)), 3);
});

test("a picture beneath a map is nearly grey, and darker", () => {
  const pixels = new Uint8ClampedArray([255, 0, 0, 255, 100, 100, 100, 255]);
  dim(pixels);
  assert.deepEqual([...pixels.subarray(4, 7)], [74, 74, 74]);
  assert.ok((pixels[0] as number) - (pixels[1] as number) < 25);
});

test("norms have a median and round ticks", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(tickStep(37, 5), 10);
});
