import assert from "node:assert/strict";
import { test } from "node:test";
import { heatMap, luminance, lut, mapTable, place, valueAt } from "../src/colour.ts";
import { createWatch, quoted, safeText, shortLabel, thinned } from "../src/dom.ts";
import { base64Slice } from "../src/host/standalone.ts";
import { roundUp, tickText } from "../src/numbers.ts";
import { thumbSide } from "../src/views/heads/grid/arrange.ts";
import { thumbOffsets } from "../src/views/heads/grid/atlas.ts";
import { maxPool, paintCells, paintFrame } from "../src/views/maps/paint.ts";
import { fit } from "../src/views/maps/size.ts";
import { HIDDEN } from "../src/wire/codec.ts";

const channel = (pixel: number): [number, number, number] => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];

test("viridis runs from matplotlib's dark violet to its yellow, ever lighter", () => {
  const table = mapTable("viridis");
  assert.deepEqual([...table.subarray(0, 3)], [68, 1, 84]);
  assert.deepEqual([...table.subarray(768)], [253, 231, 37]);
  let last = -1;
  for (let i = 0; i < 256; i += 8) {
    const light = luminance([table[3 * i] ?? 0, table[3 * i + 1] ?? 0, table[3 * i + 2] ?? 0]);
    assert.ok(light > last, `step ${i}`);
    last = light;
  }
});

test("signed maps: positive is orange and negative violet in both themes, zero is the page", () => {
  for (const theme of ["light", "dark"] as const) {
    const table = lut(heatMap(true, theme), { gamma: 0.5, scale: 1, range: [-1, 1], mode: "linear", signed: true });
    const [plus, zero, minus] = [table[100], table[0], table[156]].map((p) => channel(p ?? 0));
    assert.ok((plus?.[0] ?? 0) > (plus?.[2] ?? 0), `${theme}: ${plus}`);
    assert.ok((minus?.[2] ?? 0) > (minus?.[0] ?? 0), `${theme}: ${minus}`);
    const page = theme === "light" ? 255 : 17;
    assert.deepEqual(zero, [page, page, page]);
  }
});

test("positions on the scale and values are inverse to each other, also for signed ranges", () => {
  for (const mode of ["linear", "sqrt", "log"] as const) {
    for (const range of [
      [0, 0.3],
      [-2, 2],
    ] as const) {
      for (const t of [0.1, 0.4, 0.9, 1]) {
        assert.ok(Math.abs(place(valueAt(t, range, mode), range, mode) - t) < 1e-9, `${mode} ${range} ${t}`);
      }
    }
  }
  assert.equal(place(5, [0, 1], "linear"), 1);
  assert.equal(place(0.5, [0, 0], "sqrt"), 0);
});

test("masked cells of a causal map stay unpainted, visible zeros are painted", () => {
  const pixels = new Uint32Array(4).fill(1);
  const table = new Uint32Array(256).fill(7);
  paintCells(pixels, { codes: new Uint8Array(4), start: 0, rows: 2, cols: 2, causal: true }, table);
  assert.deepEqual([...pixels], [7, 0, 7, 7]);
});

test("pooling keeps the largest value of either sign and never drops a peak", () => {
  const codes = new Int8Array(25);
  codes[24] = -100;
  codes[6] = 90;
  const pooled = maxPool({ codes, start: 0, rows: 5, cols: 5, causal: false }, 2);
  assert.deepEqual([pooled.rows, pooled.cols], [3, 3]);
  assert.deepEqual([pooled.codes[0], pooled.codes[8]], [90, -100]);
});

test("pooled cells are the largest of their block, for every kind of code, factor and mask", () => {
  const [rows, cols] = [7, 7];
  const draw = (i: number): number => (i * 7919) % 251;
  const kinds = [
    Uint8Array.from({ length: 49 }, (_, i) => draw(i)),
    Int8Array.from({ length: 49 }, (_, i) => draw(i) - 125),
    Int16Array.from({ length: 49 }, (_, i) => (i % 3 ? HIDDEN : draw(i) - 125)),
  ];
  for (const codes of kinds) {
    for (const causal of [false, true]) {
      for (const factor of [2, 3, 5]) {
        const found = maxPool({ codes: codes.slice(), start: 0, rows, cols, causal }, factor);
        const side = Math.ceil(rows / factor);
        assert.deepEqual([found.rows, found.cols], [side, side]);
        for (let at = 0; at < side * side; at += 1) {
          const block = [...codes.keys()].filter((i) => {
            const [row, col] = [Math.floor(i / cols), i % cols];
            const isHere = Math.floor(row / factor) * side + Math.floor(col / factor) === at;
            return isHere && !(causal && col > row) && codes[i] !== HIDDEN;
          });
          const most = Math.max(...block.map((i) => Math.abs(codes[i] as number)), -1);
          const none = codes instanceof Int16Array ? HIDDEN : 0;
          assert.equal(Math.abs(found.codes[at] as number), most < 0 ? none : most, `${factor} ${causal} ${at}`);
        }
      }
    }
  }
});

test("pooling is cached by factor", () => {
  const matrix = { codes: Uint8Array.from({ length: 16 }, (_, i) => i), start: 0, rows: 4, cols: 4, causal: false };
  const first = maxPool(matrix, 2);
  assert.deepEqual([...maxPool(matrix, 3).codes], [10, 11, 14, 15]);
  assert.deepEqual([...maxPool(matrix, 2).codes], [...first.codes]);
});

test("equal values are not a change", () => {
  const differs = createWatch();
  const list = [1];
  assert.ok(differs("a", list, 1));
  assert.ok(!differs("a", list, 1));
  assert.ok(differs("a", [1], 1), "another list");
  assert.ok(differs("a"), "fewer values");
});

test("a thumbnail of any size shows its peak", () => {
  const codes = new Uint8Array(64 * 64);
  codes[64 * 37 + 41] = 200;
  const table = Uint32Array.from({ length: 256 }, (_, i) => i);
  for (const side of [3, 20, 64, 70]) {
    const pixels = new Uint32Array(side * side);
    const frame = { x: 0, y: 0, width: side, height: side };
    paintFrame(pixels, side, frame, { codes, start: 0, rows: 64, cols: 64, causal: false }, table);
    assert.ok(pixels.includes(200), `side ${side}`);
  }
});

test("a heatmap never exceeds its room or 640 px, and pools once cells outnumber pixels", () => {
  for (const n of [1, 2, 8, 57, 200, 512, 1024]) {
    for (const room of [120, 400, 900]) {
      const size = fit(n, n, room);
      assert.ok(size.width <= room && size.height <= 640, `${n} in ${room}: ${size.width} x ${size.height}`);
      assert.ok(size.pool * size.cellWidth >= 0.99, `${n} in ${room}`);
    }
  }
  assert.ok(fit(1, 512, 600).height >= 20);
  assert.ok(fit(300, 1, 600).width >= 20);
});

test("labels that fit are shown, others thinned to round steps and never closer than they need", () => {
  assert.deepEqual(thinned(4, 20, 14), [0, 1, 2, 3]);
  assert.deepEqual(thinned(25, 3, 14), [0, 5, 10, 15, 20]);
  for (const size of [0.3, 1.2, 5, 13]) {
    const [a, b] = thinned(5000, size, 14);
    assert.ok(((b ?? 0) - (a ?? 0)) * size >= 14);
  }
  assert.deepEqual(thinned(0, 3, 14), []);
});

test("deceptive characters are made visible, scripts and emoji stay intact", () => {
  assert.equal(safeText("a\u202eb"), "a⟨U+202E⟩b");
  assert.equal(safeText("a\u0000\n\u007f"), "a␀␊␡");
  assert.equal(safeText("x\ud800"), "x\ufffd");
  const family = "👩‍👩‍👧 क्‍ष";
  assert.equal(safeText(family), family);
  assert.equal(safeText("<b>&amp;"), "<b>&amp;");
});

test("a label is never invisible and never long", () => {
  assert.equal(shortLabel(""), "∅");
  assert.equal(shortLabel("  "), "␣␣");
  assert.equal([...shortLabel("x".repeat(10_000_000))].length, 32);
  assert.equal(quoted(["a", "b", "a"], 2, 0), "\u2068“a”\u2069₂");
  assert.equal(quoted(["a", "b"], 1, 0), "\u2068“b”\u2069");
});

test("legends round up to a readable end that no value exceeds", () => {
  for (const value of [0.0123, 0.3, 0.99, 1, 7.2, 123]) {
    assert.ok(roundUp(value) >= value && roundUp(value) <= 2 * value, `${value}: ${roundUp(value)}`);
  }
  assert.equal(roundUp(0), 0);
  assert.deepEqual([0, 0.25, -1, 0.0004].map(tickText), ["0", "0.25", "−1", "4e-4"]);
});

test("thumbnails are consecutive, also if layers differ in their heads", () => {
  const meta = { source: "", rows: 2, cols: 3, gamma: 0.5, signed: false };
  assert.deepEqual(thumbOffsets({ ...meta, scale: [[1, 1], [1]] }), [[0, 6], [12]]);
  assert.ok(thumbSide(12, 12, 600, 640, 72) * 12 <= 600);
  assert.ok(thumbSide(48, 12, 2000, 640, 72) * 48 <= 640);
});

test("bytes can be cut out of base64 text at any offset", () => {
  const bytes = Uint8Array.from({ length: 50 }, (_, i) => (i * 37) % 256);
  const text = Buffer.from(bytes).toString("base64");
  for (const [offset, length] of [
    [0, 50],
    [1, 1],
    [2, 7],
    [47, 3],
    [49, 1],
    [5, 0],
  ] as const) {
    assert.deepEqual([...base64Slice(text, offset, length)], [...bytes.subarray(offset, offset + length)]);
  }
});
