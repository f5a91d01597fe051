import assert from "node:assert/strict";
import { test } from "node:test";
import { headColour, headInk } from "../src/views/heads/colours.ts";
import { aligned, productWords, type Row, vectorOf, wordsOf } from "../src/views/heads/neuron/row.ts";
import { along, givenApart, limited, pairsOf, relations, strongestOfEach } from "../src/views/heads/pairs.ts";
import { rowsOf } from "../src/views/heads/rows.ts";
import { decodeTile } from "../src/wire/codec.ts";
import type { Tile } from "../src/wire/tile.ts";
import type { Axis } from "../src/wire/wire.ts";

const N = 6;
const axis = (segment: number[]): Axis => ({
  unit: "token",
  labels: segment.map((_, i) => `t${i}`),
  spans: null,
  special: segment.map(() => 0),
  segment,
  boundary: null,
  grid: null,
  cells: null,
  times: null,
});
const ONE = axis([0, 0, 0, 0, 0, 0]);
const PAIR = axis([0, 0, 0, 1, 1, 1]);

/** A tile whose codes are determined by `seed`. */
function tile(seed: number, codec: "u8" | "i8" = "u8"): Tile {
  const codes = Uint8Array.from({ length: N * N }, (_, i) => (i * 37 + seed * 101) % 256);
  const meta = { source: "s", layer: 0, head: seed, rows: N, cols: N, codec, gamma: 0.5, scale: 1 };
  const made = decodeTile(meta, new DataView(codes.buffer));
  assert.ok(made);
  return made;
}

test("a token's values are those of the tile along a row or a column, including negative ones", () => {
  const pairs = pairsOf(ONE, ONE, "all", false);
  for (const one of [tile(1), tile(2, "i8")]) {
    const wanted = [...Array(N).keys()];
    assert.deepEqual(
      [...along(one, pairs, "query", 2)],
      wanted.map((col) => one.value(2, col)),
    );
    assert.deepEqual(
      [...along(one, pairs, "key", 3)],
      wanted.map((row) => one.value(row, 3)),
    );
  }
});

test("masked cells and pairs of other texts are NaN, never zero", () => {
  const causal = pairsOf(ONE, ONE, "all", true);
  assert.deepEqual([...along(tile(1), causal, "query", 2)].map(Number.isNaN), [false, false, false, true, true, true]);
  assert.deepEqual([...along(tile(1), causal, "key", 4)].map(Number.isNaN), [true, true, true, true, false, false]);
  const crossing = pairsOf(PAIR, PAIR, "A-B", false);
  assert.deepEqual([...along(tile(1), crossing, "query", 1)].map(Number.isNaN), [
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
  assert.ok([...along(tile(1), crossing, "query", 4)].every(Number.isNaN)); // a token of B reads for nobody here
  const told = limited(Float32Array.from([1, 2, 3, 4, 5, 6]), causal, "key", 4);
  assert.deepEqual([...told].map(Number.isNaN), [true, true, true, true, false, false]);
});

test("each query has the pairs that sorting all of its own would give, over the loaded heads", () => {
  const tiles = [tile(1), undefined, tile(5)];
  const pairs = pairsOf(PAIR, PAIR, "A-B", false);
  const shown = strongestOfEach(tiles, pairs, [0, 2, 4], 2, 0);
  const wanted = [0, 2].flatMap((query) =>
    [3, 4, 5]
      .flatMap((key) => [0, 2].map((head) => tiles[head]?.value(query, key) as number))
      .sort((a, b) => b - a)
      .slice(0, 2),
  );
  assert.deepEqual(
    shown.map((edge) => edge.value),
    wanted,
  );
  assert.deepEqual([...new Set(shown.map(({ query }) => query))], [0, 2]); // 4 is of the other text
  assert.ok(shown.every(({ query, key, head, value }) => tiles[head]?.value(query, key) === value));
});

test("weak pairs, masked ones and zeros have no line", () => {
  const meta = { source: "s", layer: 0, head: 0, rows: N, cols: N, codec: "u8" as const, gamma: 0.5, scale: 1 };
  const equal = decodeTile(meta, new DataView(new Uint8Array(N * N).fill(100).buffer)) as Tile;
  const nothing = decodeTile(meta, new DataView(new Uint8Array(N * N).buffer)) as Tile;
  const pairs = pairsOf(ONE, ONE, "all", true);
  const value = equal.value(0, 0);
  assert.equal(strongestOfEach([equal], pairs, [0, 1, 5], 3, value).length, 1 + 2 + 3);
  assert.equal(strongestOfEach([equal], pairs, [0, 1, 5], 3, 1.01 * value).length, 0);
  assert.deepEqual(strongestOfEach([nothing], pairs, [5], 3, 0), []);
});

test("special tokens apart have neither row nor line, and what they get is summed", () => {
  const special = [1, 0, 0, 0, 0, 1];
  const axisOf = { ...ONE, special };
  const pairs = pairsOf(axisOf, axisOf, "all", false, { special: "apart" });
  assert.deepEqual([...pairs.query.shown], [1, 2, 3, 4]);
  assert.equal(pairs.query.rowOf[5], -1);
  const tiles = [tile(1), tile(2)];
  assert.ok(strongestOfEach(tiles, pairs, pairs.query.shown, 3, 0).every(({ key }) => !special[key]));
  const given = givenApart(tiles, pairs, pairs.query.shown);
  assert.deepEqual([...given.keys()], [1, 2, 3, 4]);
  const mean = tiles.reduce((sum, one) => sum + (one.value(2, 0) + one.value(2, 5)) / 2, 0);
  assert.ok(Math.abs((given.get(2) as number) - mean) < 1e-6);
  assert.deepEqual([...rowsOf({ ...ONE, special: [1, 1, 1, 1, 1, 1] }, { special: "apart" }).shown].length, N); // nothing else is there
});

test("a column of numbers has one number of decimals, and hides no small number as a zero", () => {
  assert.deepEqual(
    [152.93, -3.2, 0.01, 0, -152.93].map((value) => aligned(value, 152.93)),
    ["152.9", "−3.2", "< 0.1", "0.0", "−152.9"],
  );
  assert.equal(aligned(0.99971, 0.99971), "0.9997");
});

test("relations name each token once, with its strongest head", () => {
  const values = [Float32Array.from([0.1, 0.5, 0, 0.2]), undefined, Float32Array.from([0.3, 0.4, 0, -0.6])];
  assert.deepEqual(
    relations(values, 3).map(({ index, head }) => [index, head]),
    [
      [3, 2],
      [1, 0],
      [0, 2],
    ],
  );
});

test("sixteen heads have colours of their own on either page, with a legible number", () => {
  for (const theme of ["light", "dark"] as const) {
    const colours = [...Array(16).keys()].map((place) => headColour(place, theme));
    assert.equal(new Set(colours).size, 16);
    assert.equal(headColour(16, theme), colours[0]);
    assert.match(colours.join(), /^(#[0-9a-f]{6},?)+$/);
  }
  assert.deepEqual(["#ffffff", "#000000"].map(headInk), ["#000", "#fff"]);
});

test("an additive score is told as v times tanh(q + k)", () => {
  const row: Row = {
    kernel: null,
    dim: 2,
    kvHead: 0,
    scaling: 1,
    softcap: null,
    series: ["dot"],
    dtype: "float64",
    additive: true,
    sink: null,
    q: Float32Array.of(1, 0),
    v: Float32Array.of(2, -1),
    k: Float32Array.of(0, 0, -1, 0.5),
    count: 2,
    by: { dot: Float32Array.of(2 * Math.tanh(1), -Math.tanh(0.5)) },
    steps: ["vectors", "product", "dot"],
  };
  const [first, second] = vectorOf(row, "product", 1);
  assert.equal(first, 0);
  assert.ok(Math.abs((second as number) + Math.tanh(0.5)) < 1e-6);
  assert.match(wordsOf(row, "product", 1), /^v × tanh\(q \+ k\), number by number: 0 of 2 products speak/);
  assert.match(wordsOf(row, "dot", 0), /^v · tanh\(q \+ k\) = the sum of the 2 products = 1\.523/);
  assert.match(wordsOf(row, "scaled", 0), /additive scores are not scaled/);
  assert.equal(productWords(row, 1, 0), "v 2 × tanh(q 1 + k −1) = 0");
  assert.match(productWords({ ...row, additive: false }, 1, 0), /^q 1 × k −1 = −1$/);
});
