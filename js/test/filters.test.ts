import assert from "node:assert/strict";
import { test } from "node:test";
import { lut, PALETTES } from "../src/colour.ts";
import { filterWords } from "../src/views/base/filterForm.ts";
import { filteredRow, filteredTile, hidesValues } from "../src/views/base/filters.ts";
import { maxPool, paintCells } from "../src/views/maps/paint.ts";
import { findHits } from "../src/views/text/find.ts";
import { type Logits, type SamplingOptions, samplingDistribution } from "../src/views/text/predictions/decoding.ts";
import { meanReceived } from "../src/views/text/rowValues.ts";
import { decodeTile, HIDDEN } from "../src/wire/codec.ts";
import type { Filters } from "../src/wire/viewState.ts";
import type { TileMeta } from "../src/wire/wire.ts";
import { SOURCE } from "./fake.ts";

const NONE: Filters = { special: "show", mass: 1, least: 0, scale: "", extent: "", palette: "" };
const round = (values: Iterable<number>): number[] => [...values].map((v) => Number(v.toFixed(4)));
const out = Number.NaN;

test("special tokens are left out of a row, and only shares are rescaled", () => {
  const row = Float32Array.of(0.5, 0.2, 0.3, 0);
  const special = [1, 0, 0, 0];
  assert.deepEqual(round(filteredRow(row, special, { ...NONE, special: "hide" }, true)), [out, 0.2, 0.3, 0]);
  assert.deepEqual(round(filteredRow(row, special, { ...NONE, special: "renormalise" }, true)), [out, 0.4, 0.6, 0]);
  assert.deepEqual(round(filteredRow(row, special, { ...NONE, special: "renormalise" }, false)), [out, 0.2, 0.3, 0]);
  assert.deepEqual(round(row), [0.5, 0.2, 0.3, 0], "the tile's own numbers stay");
  const nothing = filteredRow(Float32Array.of(1, 0), [1, 0], { ...NONE, special: "renormalise" }, true);
  assert.deepEqual(round(nothing), [out, out], "a row that is all special has no rest");
});

test("the largest values that hold a share of a row are kept, whatever their sign", () => {
  const row = Float32Array.of(0.1, -0.6, 0.1, 0.2);
  assert.deepEqual(round(filteredRow(row, [], { ...NONE, mass: 0.6 }, false)), [out, -0.6, out, out]);
  assert.deepEqual(round(filteredRow(row, [], { ...NONE, mass: 0.61 }, false)), [out, -0.6, out, 0.2]);
  assert.deepEqual(
    round(filteredRow(row, [], { ...NONE, mass: 0.85 }, false)),
    [0.1, -0.6, 0.1, 0.2],
    "ties stay together",
  );
  assert.deepEqual(round(filteredRow(row, [], { ...NONE, least: 0.15 }, false)), [out, -0.6, out, 0.2]);
  // 0.9 of the rest without the special token: 0.5 and 0.4 of 0.1 + 0.4 + 0.5.
  const shares = filteredRow(
    Float32Array.of(0.5, 0.05, 0.2, 0.25),
    [1],
    { ...NONE, special: "renormalise", mass: 0.9 },
    true,
  );
  assert.deepEqual(round(shares), [out, out, 0.4, 0.5]);
});

function tileOf(rows: number[][]): NonNullable<ReturnType<typeof decodeTile>> {
  const cols = rows[0]?.length ?? 0;
  const meta: TileMeta = { source: "s", layer: 0, head: 0, rows: rows.length, cols, codec: "u8", gamma: 0.5, scale: 1 };
  const bytes = Uint8Array.from(rows.flat(), (value) => Math.round(255 * Math.sqrt(value)));
  return decodeTile(meta, new DataView(bytes.buffer)) as NonNullable<ReturnType<typeof decodeTile>>;
}

test("hidden cells of a filtered tile are not painted and not part of means", () => {
  const tile = tileOf([
    [1, 0, 0],
    [0.5, 0.25, 0.25],
    [0.2, 0.4, 0.4],
  ]);
  const found = filteredTile(tile, [1, 0, 0], (row) => row === 0, { ...NONE, special: "renormalise" }, true);
  assert.deepEqual([...found.codes].slice(0, 4), [HIDDEN, HIDDEN, HIDDEN, HIDDEN]);
  assert.ok(Math.abs(found.value(1, 1) - 0.5) < 0.01);
  assert.equal(found.text(0, 1), "left out");
  assert.ok(Math.abs(found.peak() - 0.5) < 0.01);
  const pixels = new Uint32Array(9);
  const table = lut("viridis", { gamma: 0.5, scale: found.meta.scale, range: [0, 1], mode: "sqrt" });
  paintCells(pixels, { codes: found.codes, start: 0, rows: 3, cols: 3, causal: false }, table);
  assert.deepEqual([...pixels].map(Boolean), [false, false, false, false, true, true, false, true, true]);
  const mean = meanReceived(found);
  assert.ok(Number.isNaN(mean[0]));
  assert.ok(Math.abs((mean[1] as number) - 0.5) < 0.01, "of the two rows that are left");
  const pooled = maxPool({ codes: found.codes, start: 0, rows: 3, cols: 3, causal: false }, 2);
  assert.equal(pooled.codes[0], found.codes[4], "left out only where nothing else is");
  assert.equal(pooled.codes[1], found.codes[5]);
});

test("what stands apart keeps its values, and other filters do not count it", () => {
  const apart: Filters = { ...NONE, special: "apart" };
  const row = Float32Array.of(0.6, 0.05, 0.15, 0.2);
  assert.deepEqual(round(filteredRow(row, [1, 0, 0, 0], apart, true)), [0.6, 0.05, 0.15, 0.2]);
  assert.deepEqual(round(filteredRow(row, [1, 0, 0, 0], { ...apart, mass: 0.8 }, true)), [0.6, out, 0.15, 0.2]);
  assert.deepEqual(round(filteredRow(row, [1, 1, 1, 1], { ...apart, mass: 0.5 }, true)), [0.6, out, out, out]);
  assert.equal(hidesValues(apart), false);
  const tile = tileOf([[0.6, 0.04, 0.16, 0.2]]);
  const found = filteredTile(tile, [1, 0, 0, 0], () => false, { ...apart, mass: 0.8 }, true);
  assert.deepEqual(
    [...found.codes].map((code) => code === HIDDEN),
    [false, true, false, false],
  );
  assert.equal(found.value(0, 0), tile.value(0, 0));
  assert.ok(found.peak() < 0.25, "outside the scale");
});

test("active filters are described, and only those", () => {
  assert.equal(filterWords(NONE, SOURCE), "");
  assert.equal(hidesValues({ ...NONE, scale: "log", palette: "greys" }), false);
  assert.match(filterWords({ ...NONE, special: "hide" }, SOURCE), /rows sum to less than 1/);
  assert.match(filterWords({ ...NONE, special: "renormalise", mass: 0.9, least: 0.05 }, SOURCE), /sum · .*90 %.*0\.05/);
  assert.match(filterWords({ ...NONE, special: "renormalise" }, { ...SOURCE, stochastic: false }), /nothing rescaled/);
});

test("every palette has a map for light and for dark pages", () => {
  for (const palettes of PALETTES) {
    for (const maps of Object.values(palettes)) {
      for (const name of maps) assert.ok(lut(name, { gamma: 1, scale: 1, range: [0, 1], mode: "linear" }).length > 255);
    }
  }
});

test("text is found across elements, ignoring case, and where labels mark their spaces", () => {
  assert.deepEqual(findHits(["[CLS]", "The", "electro", "##ence", "##pha", "the"], "electroEnceph"), [[2, 4]]);
  assert.deepEqual(findHits(["[CLS]", "The", "electro", "##ence", "##pha", "the"], "the"), [
    [1, 1],
    [5, 5],
  ]);
  assert.deepEqual(findHits(["The", "␣quick", "␣fox", "⏎", "The"], "quick fox"), [[1, 2]]);
  assert.deepEqual(findHits(["The", "␣quick"], " quick"), [[1, 1]]);
  assert.deepEqual(findHits(["aaaa"], "aa"), [
    [0, 0],
    [0, 0],
  ]);
  assert.deepEqual(findHits(["a", "b"], " "), []);
  assert.deepEqual(findHits(["a", "b"], "c"), []);
});

/** The logits warpers of transformers, applied in order to all logits. */
function warped(all: number[], { temperature, topK, topP }: SamplingOptions): number[] {
  const softmax = (values: number[]): number[] => {
    const sum = values.reduce((total, value) => total + Math.exp(value), 0);
    return values.map((value) => Math.exp(value) / sum);
  };
  let values = all.map((value) => value / temperature);
  const order = [...values.keys()].sort((a, b) => (values[b] as number) - (values[a] as number));
  if (topK) values = values.map((value, i) => (order.indexOf(i) < topK ? value : -Infinity));
  if (topP < 1) {
    const shares = softmax(values);
    let before = 0;
    const kept = new Set<number>();
    for (const i of order) {
      if (before < topP) kept.add(i);
      before += shares[i] as number;
    }
    values = values.map((value, i) => (kept.has(i) ? value : -Infinity));
  }
  return softmax(values);
}

test("the sliders give the sampling probabilities, though only the largest logits are loaded", () => {
  const all = Array.from({ length: 60 }, (_, i) => 6 * Math.sin(i * 7.3) - i / 20).sort((a, b) => b - a);
  const temperatures = [0.5, 1, 2];
  const rest = temperatures.map((t) => Math.log(all.slice(20).reduce((sum, value) => sum + Math.exp(value / t), 0)));
  const known: Logits = { largest: all.slice(0, 20), rest, temperatures, count: 60 };
  for (const temperature of temperatures) {
    for (const topK of [0, 1, 7, 20]) {
      for (const topP of [1, 0.3, 0.7]) {
        const chosen = { temperature, topK, topP };
        const found = samplingDistribution(known, chosen);
        if (found.remaining === null) continue;
        const expected = warped(all, chosen);
        found.probabilities.forEach((p, i) => {
          assert.ok(Math.abs(p - (expected[i] as number)) < 1e-9, `${JSON.stringify(chosen)} ${i}`);
        });
        assert.equal(found.remaining, expected.filter((p) => p > 0).length, JSON.stringify(chosen));
        assert.ok(found.exact);
      }
    }
  }
  assert.deepEqual(
    [...samplingDistribution(known, { temperature: 0, topK: 0, topP: 1 }).probabilities].slice(0, 2),
    [1, 0],
  );
  const wide = samplingDistribution(known, { temperature: 2, topK: 0, topP: 0.999 });
  assert.equal(wide.remaining, null, "it goes on beyond what is here");
  assert.equal(wide.exact, false);
  const near = warped(all, { temperature: 2, topK: 0, topP: 0.999 });
  assert.ok(Math.abs((wide.probabilities[0] as number) - (near[0] as number)) < (near.at(-1) ?? 1) + 0.01);
});
