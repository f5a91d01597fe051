import assert from "node:assert/strict";
import { test } from "node:test";
import { type HeardMap, peakOf, rowsOf, type SpokenWord, wordAt } from "../src/views/media/audio/heard.ts";
import { moved, ticksOf, zoomed } from "../src/views/media/audio/stretch.ts";
import { extent, pyramidOf } from "../src/views/media/audio/wave.ts";

const word = (name: string, start: number, end: number): SpokenWord => ({
  word: name,
  start,
  end,
  p: null,
  written: 0,
  spoken: 0,
});

test("the extent of any stretch of a wave holds every sample in it, and few beside", () => {
  const samples = Int16Array.from({ length: 5000 }, (_, i) =>
    Math.round(20_000 * Math.sin(i / 37) * Math.cos(i / 900)),
  );
  const wave = pyramidOf(samples);
  for (const [from, to] of [
    [0, 5000],
    [10, 11],
    [100, 140],
    [777, 3333],
    [4990, 5000],
    [31.5, 64.2],
  ] as const) {
    const [low, high] = extent(wave, from, to);
    const inside = samples.subarray(Math.floor(from), Math.ceil(to));
    assert.ok(low <= Math.min(...inside) && high >= Math.max(...inside));
    const near = samples.subarray(Math.max(0, Math.floor(from) - (to - from)), Math.ceil(to) + (to - from));
    assert.ok(low >= Math.min(...near) && high <= Math.max(...near));
  }
  assert.deepEqual(extent(pyramidOf(new Int16Array()), 0, 10), [0, 0]);
});

test("zooming keeps its second in place, and stays within the sound", () => {
  const near = zoomed({ from: 0, to: 4 }, 0.5, 1, 4);
  assert.deepEqual(near, { from: 0.5, to: 2.5 });
  assert.deepEqual(zoomed(near, 100, 1, 4), { from: 0, to: 4 });
  assert.deepEqual(zoomed({ from: 0, to: 4 }, 0.5, 4, 4), { from: 2, to: 4 });
  assert.ok(zoomed(near, 1e-9, 1, 4).to - zoomed(near, 1e-9, 1, 4).from >= 0.049);
  assert.deepEqual(zoomed(near, Number.POSITIVE_INFINITY, 1, 4), { from: 0, to: 4 });
  assert.deepEqual(moved({ from: 1, to: 2 }, 9, 4), { from: 3, to: 4 });
  assert.deepEqual(moved({ from: 1, to: 2 }, -9, 4), { from: 0, to: 1 });
});

test("ticks are round, and as far apart as they need", () => {
  assert.deepEqual(ticksOf({ from: 0, to: 3.65 }, 800, 90), [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]);
  assert.deepEqual(ticksOf({ from: 1.25, to: 1.3 }, 800, 90), [1.25, 1.26, 1.27, 1.28, 1.29, 1.3]);
});

test("a word is a row, or the rows in its span; silence is no word", () => {
  const words = [word("a", 0, 0.5), word("b", 0.5, 1)];
  const map = (labels: string[], spans: [number, number][]): HeardMap => ({
    rows: "words",
    labels,
    spans,
    step: 0.1,
    columns: 3,
    what: "",
    outside: null,
    path: [],
  });
  assert.deepEqual(
    rowsOf(
      map(
        ["a", "b"],
        [
          [0, 0.5],
          [0.5, 1],
        ],
      ),
      words[1] as SpokenWord,
    ),
    [1, 1],
  );
  const parts: [number, number][] = [
    [0, 0.25],
    [0.25, 0.5],
    [0.5, 0.75],
    [0.75, 1],
  ];
  assert.deepEqual(rowsOf(map(["", "", "", ""], parts), words[1] as SpokenWord), [2, 3]);
  assert.equal(rowsOf(map(["x"], [[2, 3]]), words[0] as SpokenWord), null);
  assert.equal(wordAt(words, 0.5), 1);
  assert.equal(wordAt(words, 1), -1);
  assert.deepEqual(peakOf(Float32Array.of(9, 1, 2, 3, 8, 7), 1, 3), [1, 8]);
});
