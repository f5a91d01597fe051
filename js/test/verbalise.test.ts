import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULTS, filteredTile } from "../src/views/base/filters.ts";
import { absence, isUnread, readsSentence, rowWords } from "../src/views/base/rowFacts.ts";
import { describeMatrix, describeRow, spansOf } from "../src/views/base/verbalise.ts";
import { gather } from "../src/views/maps/paint.ts";
import { comparedIn, decodeTile, HIDDEN } from "../src/wire/codec.ts";
import type { Tile } from "../src/wire/tile.ts";
import { SOURCE } from "./fake.ts";

test("the fewest elements with half of the sum are named, neighbours as one span", () => {
  assert.deepEqual(spansOf([0, 1, 0, 2, 6, -1]), [{ first: 4, stop: 5, share: 6 / 9 }]);
  assert.deepEqual(spansOf([0, 2, 2, 1, 1]), [{ first: 1, stop: 3, share: 4 / 6 }]);
  assert.deepEqual(spansOf([0, -1, Number.NaN]), []);
});

test("attributions are described as in Python", () => {
  const labels = ["The", "␣sou", "p", "␣tasted", "␣delicious", "␣today"];
  assert.equal(
    describeRow("Lrp", [0, 1, 0, 2, 6, -1], labels, " for “positive”", "word"),
    "Lrp: “delicious” speaks most for “positive” (67% of what speaks for “positive”). " +
      "Against it speaks 10% of all weight, most of it “today” (100% of that).",
  );
  assert.match(describeRow("Lrp", [0, 3, 3, 1, 1, 1], labels, "", "word"), /“soup” matters most \(67% of the whole\)/);
  assert.match(describeRow("Lrp", [0, 0], ["a", "b"], "", "token"), /no token has any part/);
});

test("a matrix is described by its three strongest relations, without hidden cells", () => {
  const rows = [
    [0.1, 0.6, 0.3, 0],
    [0.05, 0.15, 0.4, 0.4],
    [0.2, 0.5, 0.3, 0],
    [0, 0.8, 0.1, 0.1],
  ].map((row) => Float32Array.from(row));
  const labels = ["a", "b", "c", "d"];
  assert.equal(
    describeMatrix("Attention in layer 2", rows, labels, labels, true, SOURCE.words),
    "Attention in layer 2: “b” is read most, 51% of a row on average. Apart from that, “b” reads “c” most, " +
      "40% of its row; then “b” reads “d” (40%) and “a” reads “c” (30%).",
  );
  const left = rows.map((row) => row.map((value, k) => (k === 1 ? Number.NaN : value)));
  assert.match(
    describeMatrix("It", left, labels, labels, true, SOURCE.words),
    /^It: “c” is read most, 28% of a row on average/,
  );
  // With a sink, rows are shares of a whole that no key has; rows apart do not count.
  const [halves, sinks] = [
    rows.map((row, q) => (q ? row.map((value) => value / 2) : new Float32Array())),
    [1, 0.5, 0.5, 0.5],
  ];
  assert.match(
    describeMatrix("It", halves, labels, labels, true, SOURCE.words, sinks),
    /^It: “b” is read most, 24% of a row .* 50% of a row goes to no token \(sink\) on average\.$/,
  );
  const none = rows.map((row) => row.map(() => Number.NaN));
  assert.equal(describeMatrix("It", none, labels, labels, true, SOURCE.words), "It: nothing is shown.");
});

test("a row is told by what it gives to no token, and by which keys it is compared with", () => {
  // The first row reads key 0, the second keys 0, 3 and 4 of five: bits from the lowest of a byte on.
  const compared = btoa(String.fromCharCode(0b00100001, 0b00000011));
  const packed = { rows: 2, cols: 5, codec: "u8", gamma: 0.5, scale: 1 } as Tile["meta"];
  const bytes = new DataView(Uint8Array.from([255, 0, 0, 0, 0, 128, 0, 0, 0, 64]).buffer);
  const decoded = (meta: Tile["meta"]): Tile => decodeTile(meta, bytes) as Tile;
  const tile = decoded({ ...packed, sink: [0.84, 0], compared });
  assert.deepEqual([...(comparedIn(tile.meta) ?? [])], [1, 0, 0, 0, 0, 1, 0, 0, 1, 1]);
  assert.equal(rowWords(tile, 0), "no token (sink) = 0.84 · reads 1 of 5 keys");
  assert.equal(rowWords(tile, 1), "no token (sink) < 0.0001 · reads 3 of 5 keys");
  assert.equal(readsSentence(tile), " A row reads at most 3 of 5 keys.");
  // A key that was not compared has no weight, which is neither zero nor left out.
  const source = { ...SOURCE, causal: false };
  assert.ok(Number.isNaN(tile.value(1, 1)));
  assert.equal(tile.value(1, 3), 0);
  assert.equal(absence(source, tile, 1, 1), "not compared");
  assert.equal(absence(source, tile, 1, 3), "");
  assert.equal(absence({ ...SOURCE, causal: true }, tile, 1, 3), "masked, comes later");
  assert.deepEqual([isUnread(source, tile, 0, 1), isUnread(source, tile, 1, 4)], [true, false]);
  assert.deepEqual([...gather(tile.codes, 5, [1], [0, 1, 3], false)], [128, HIDDEN, 0]);
  // To a mean over queries it counts as nothing, whatever else is left out.
  const plain = decoded(packed);
  assert.deepEqual([...tile.received()], [...plain.received()]);
  const left = filteredTile(tile, [0, 1, 0, 0, 0], (row) => row === 1, { ...DEFAULTS, special: "hide" }, false);
  const whole = filteredTile(plain, [0, 1, 0, 0, 0], (row) => row === 1, { ...DEFAULTS, special: "hide" }, false);
  assert.deepEqual([...left.received()], [...whole.received()]);
  assert.equal(left.text(0, 2), "not compared");
  assert.equal(left.text(0, 1), "not compared");
  assert.equal(rowWords(plain, 0), "");
  assert.ok(!isUnread(source, plain, 0, 1));
});
