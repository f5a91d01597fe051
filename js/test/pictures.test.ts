import assert from "node:assert/strict";
import { test } from "node:test";
import { heatMap, luminance, lut, mapTable, scalePosition, valueAt } from "../src/colour.ts";
import { createWatch, quoted, safeText, shortLabel, thinned } from "../src/dom.ts";
import { base64Slice } from "../src/host/base64.ts";
import { roundUp, tickText } from "../src/numbers.ts";
import { standApart } from "../src/views/base/filters.ts";
import { thumbSide } from "../src/views/heads/grid/arrange.ts";
import { createAxisPart } from "../src/views/maps/axisPart.ts";
import { cellText, inkOn } from "../src/views/maps/ink.ts";
import { gather, maxPool, paintCells, paintFrame } from "../src/views/maps/paint.ts";
import { rowShare } from "../src/views/maps/shares.ts";
import { fit } from "../src/views/maps/size.ts";
import { HIDDEN } from "../src/wire/codec.ts";
import { thumbOffsets } from "../src/wire/sheets.ts";

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
        assert.ok(Math.abs(scalePosition(valueAt(t, range, mode), range, mode) - t) < 1e-9, `${mode} ${range} ${t}`);
      }
    }
  }
  assert.equal(scalePosition(5, [0, 1], "linear"), 1);
  assert.equal(scalePosition(0.5, [0, 0], "sqrt"), 0);
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

const box = (width: number, height = 400): { width: number; height: number } => ({ width, height });

test("a map never exceeds its box, and its whole is pooled once cells outnumber pixels", () => {
  for (const n of [1, 2, 8, 14, 57, 200, 512, 1024]) {
    for (const room of [100, 400, 900]) {
      for (const whole of [false, true]) {
        const size = fit(n, n, box(room), whole);
        assert.ok(size.width <= room && size.height <= 400, `${n} in ${room}: ${size.width} x ${size.height}`);
        assert.ok(size.pool * size.cellWidth >= 0.99, `${n} in ${room}`);
      }
    }
  }
  assert.ok(fit(1, 512, box(600), true).height >= 20);
  assert.ok(fit(300, 1, box(600), true).width >= 20);
});

test("short texts have cells of 24 to 28 px, very short ones wider cells", () => {
  for (const n of [10, 12, 14]) {
    const { cellWidth, cellHeight } = fit(n, n, box(620));
    assert.ok(cellWidth === cellHeight && cellWidth >= 24 && cellWidth <= 28, `${n}: ${cellWidth}`);
  }
  const { cellWidth, cellHeight } = fit(5, 5, box(620));
  assert.deepEqual([cellWidth, cellHeight], [78, 43]);
});

test("cells too small to read are replaced by a window, the whole map is kept", () => {
  const part = fit(256, 256, box(620));
  assert.ok(part.rows < 256 && part.cols < 256 && part.cellHeight >= 16 && part.pool === 1);
  assert.equal(fit(256, 256, box(620), true).rows, 256);
  const row = fit(1, 1000, box(620));
  assert.ok(row.rows === 1 && row.cols < 40 && row.height <= 43);
  assert.equal(fit(40, 40, box(620)).rows, 40);
});

const axisOf = (n: number, special: number[] = []): { labels: string[]; special: number[] } => ({
  labels: Array.from({ length: n }, (_, i) => `t${i}`),
  special: Array.from({ length: n }, (_, i) => Number(special.includes(i))),
});

test("an axis without what stands apart has no gaps, and its places lead back to the whole axis", () => {
  const axis = axisOf(6, [0, 3, 5]);
  const part = createAxisPart(axis, standApart(axis.special, { special: "apart" }));
  assert.deepEqual(
    [part.inside, part.apart, part.names],
    [
      [1, 2, 4],
      [0, 3, 5],
      ["t1", "t2", "t4"],
    ],
  );
  assert.deepEqual([0, 1, 4, 5, -1].map(part.positionOf), [-1, 0, 2, -1, -1]);
  assert.deepEqual(createAxisPart(axis, standApart(axis.special, { special: "show" })).inside.length, 6);
  const all = createAxisPart(axisOf(2, [0, 1]), standApart([1, 1], { special: "apart" }));
  assert.deepEqual([all.inside, all.apart], [[0, 1], []], "if everything is special, nothing is apart");
});

test("a window opens at the start, moves to what is revealed, and stays where that is in sight", () => {
  const axis = axisOf(100, [0]);
  const part = createAxisPart(axis, standApart(axis.special, { special: "apart" }));
  part.open(10);
  assert.deepEqual([part.start, part.drawn()[0]], [0, 1]);
  assert.equal(part.reveal(5), false);
  assert.equal(part.reveal(50), true);
  assert.ok(part.positionOf(50) === 4 || part.positionOf(50) === 5);
  assert.equal(part.reveal(0), false, "what stands apart is not in the map");
  part.reveal(99);
  assert.equal(part.start + part.count, 99);
  assert.equal(part.move(5), false, "it ends with the text");
  assert.equal(part.move(-200), true);
  assert.equal(part.start, 0);
});

test("the drawn cells of a row and its bar account for all of the row", () => {
  const row = [0.5, 0.1, 0.05, 0.15, 0.2];
  const { part, all } = rowShare(row, [0, 4], 1, 255);
  const drawn = 0.1 + 0.05 + 0.15;
  assert.ok(Math.abs(drawn + part - 1) < 1e-9 && Math.abs(all - 1) < 1e-9);
  assert.equal(rowShare([Number.NaN, 1, Number.NaN], [0], 1, 255).part, 0, "a NaN cell is nothing");
  const [a, b] = [gather(Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8, 9]), 3, [0, 2], [0, 2], true), HIDDEN];
  assert.deepEqual([...a], [1, b, 7, 9], "later cells are hidden");
});

test("numbers in cells are short, and their ink has the higher contrast", () => {
  assert.deepEqual(
    [0.57, 1, 0.996, 0.051].map((value) => cellText(value, true)),
    [".57", "1.0", "1.0", ".05"],
  );
  assert.deepEqual([cellText(-0.39, false), cellText(12.34, false)], ["−0.39", "12"]);
  assert.equal(cellText(1.643, false, 0.014), "1.6", "no digit that its byte does not support");
  assert.notEqual(inkOn(0xffffffff), inkOn(0xff000000));
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
  const meta = { source: "", rows: 2, cols: 3, gamma: 0.5, signed: false, special: false };
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
