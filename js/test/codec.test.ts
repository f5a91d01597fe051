import assert from "node:assert/strict";
import { test } from "node:test";
import { withinError } from "../src/numbers.ts";
import { codeError, decodeCode, decodeThumbs, decodeTile, encodedLength } from "../src/wire/codec.ts";
import type { TileMeta } from "../src/wire/wire.ts";

const META: TileMeta = {
  source: "a/token/self",
  layer: 0,
  head: 0,
  rows: 3,
  cols: 3,
  codec: "u8",
  gamma: 0.5,
  scale: 1,
};
const view = (bytes: ArrayLike<number>): DataView => new DataView(Uint8Array.from(bytes).buffer);

test("every value in [0, 1] survives within the stated error, which is below 0.004", () => {
  for (let i = 0; i <= 1000; i += 1) {
    const value = i / 1000;
    const code = Math.round(255 * Math.sqrt(value));
    const error = codeError(code, 255, 0.5, 1);
    assert.ok(Math.abs(decodeCode(code, 255, 0.5, 1) - value) <= error + 1e-12, `value ${value}`);
    assert.ok(error < 0.004);
  }
});

test("a causal triangle unpacks row by row with zeros above the diagonal", () => {
  const tile = decodeTile({ ...META, codec: "u8tri" }, view([1, 2, 3, 4, 5, 6]));
  assert.deepEqual([...(tile?.codes ?? [])], [1, 0, 0, 2, 3, 0, 4, 5, 6]);
  assert.equal(encodedLength({ ...META, codec: "u8tri", rows: 512, cols: 512 }), 131_328);
});

test("signed codes keep their sign", () => {
  const tile = decodeTile({ ...META, codec: "i8", scale: 2, rows: 1, cols: 2 }, view([127, 129]));
  assert.equal(tile?.value(0, 0), 2);
  assert.equal(tile?.value(0, 1), -2);
});

test("truncated or extra bytes are not a tile", () => {
  assert.equal(decodeTile(META, view([1, 2, 3])), null);
  assert.equal(decodeTile(META, view(new Array(10).fill(0))), null);
});

test("a tile inside a larger buffer is read at its offset and copied", () => {
  const buffer = Uint8Array.from([9, 9, 255, 0, 9]).buffer;
  const tile = decodeTile({ ...META, rows: 1, cols: 2 }, new DataView(buffer, 2, 2));
  assert.deepEqual([tile?.value(0, 0), tile?.value(0, 1)], [1, 0]);
  assert.equal(tile?.codes.buffer.byteLength, 2);
});

test("approximate numbers print only the digits the code supports", () => {
  const tile = decodeTile({ ...META, rows: 1, cols: 4 }, view([180, 25, 0, 3]));
  assert.deepEqual(
    [0, 1, 2, 3].map((c) => tile?.text(0, c)),
    ["0.50", "0.010", "< 0.00001", "0.0001"],
  );
  assert.equal(withinError(-0.123, 0.002), "−0.12");
});

test("thumbnails with an unexpected number of bytes are rejected", () => {
  const meta = { source: "a", rows: 1, cols: 2, gamma: 0.5, signed: true, scale: [[1, 1], [1]], special: false };
  assert.deepEqual([...(decodeThumbs(meta, view([1, 2, 3, 4, 5, 255]))?.codes ?? [])], [1, 2, 3, 4, 5, -1]);
  assert.equal(decodeThumbs(meta, view([1, 2])), null);
});

test("a coarse tile gives every cell the code of its block, marks it as a bound, and has exact means", () => {
  const bytes = new Uint8Array(3 + 5 * 4);
  bytes.set([0, 128, 255]);
  const means = new DataView(bytes.buffer);
  for (let i = 0; i < 5; i += 1) means.setFloat32(3 + 4 * i, i / 8, true);
  const meta = { ...META, codec: "u8tri", rows: 2, cols: 2, whole: [5, 5] } as const;
  const tile = decodeTile({ ...meta, whole: [5, 5] }, new DataView(bytes.buffer));
  assert.ok(tile);
  assert.deepEqual([tile.rows, tile.cols, tile.codes.length], [5, 5, 4]);
  assert.equal(tile.value(4, 4), 1);
  assert.equal(tile.value(3, 2), tile.value(4, 0));
  assert.equal(tile.value(2, 2), 0);
  assert.equal(tile.text(3, 3), "1.00 or less");
  assert.equal(tile.text(0, 0), "< 0.00001");
  assert.deepEqual([...tile.received()], [0, 0.125, 0.25, 0.375, 0.5]);
  assert.equal(decodeTile({ ...meta, whole: [5, 5] }, view([0, 128, 255])), null, "the means are missing");
});
