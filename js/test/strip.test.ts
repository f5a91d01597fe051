import assert from "node:assert/strict";
import { test } from "node:test";
import { heatMap, luminance, mapTable } from "../src/colour.ts";
import { printed } from "../src/numbers.ts";
import { largestOf, meanReceived, peak, rowOf, step, topOfScale } from "../src/views/text/rowValues.ts";
import { end, gradient, INK, opacity, shade } from "../src/views/text/stripColour.ts";
import { isRightToLeft, parts, spoken } from "../src/views/text/tokens.ts";
import type { Axis } from "../src/wire/wire.ts";

type Rgb = readonly [number, number, number];

function cells(rows: number[][]): { rows: number; cols: number; value(r: number, c: number): number } {
  return { rows: rows.length, cols: rows[0]?.length ?? 0, value: (r, c) => rows[r]?.[c] ?? Number.NaN };
}

function axis(labels: string[], special: number[] = labels.map(() => 0)): Axis {
  return { unit: "token", labels, spans: null, special, segment: labels.map(() => 0), boundary: null, grid: null };
}

function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

test("text on the strip keeps a contrast of 4.5 on every shade, in both themes", () => {
  const pages: Record<"light" | "dark", Rgb[]> = {
    light: [
      [255, 255, 255],
      [253, 246, 227],
    ],
    dark: [
      [0, 0, 0],
      [17, 17, 17],
      [40, 44, 52],
    ],
  };
  for (const theme of ["light", "dark"] as const) {
    for (const page of pages[theme]) {
      for (const hue of [end(theme, 0), end(theme, 1), end(theme, -1)]) {
        for (let t = 0; t <= 1; t += 0.05) {
          const alpha = opacity(t);
          const shown = page.map((p, i) => p * (1 - alpha) + (hue[i] ?? 0) * alpha) as unknown as Rgb;
          assert.ok(contrast(INK[theme], shown) >= 4.5, `${theme} ${page} t=${t}: ${contrast(INK[theme], shown)}`);
        }
      }
    }
  }
});

test("signed values take two hues, centred on nothing at zero", () => {
  assert.equal(shade(0, "light", true), "");
  assert.equal(shade(Number.NaN, "light", true), shade(Number.NaN, "light", false));
  assert.notEqual(shade(Number.NaN, "light", true), "", "what is no number is no zero");
  const alpha = (css: string): string | undefined => css.match(/\/ ([\d.]+)\)/)?.[1];
  assert.notEqual(shade(0.5, "light", true), shade(-0.5, "light", true));
  assert.equal(alpha(shade(0.5, "light", true)), alpha(shade(-0.5, "light", true)));
  assert.ok(shade(2, "dark", true).endsWith("/ 1.000)"), "values beyond the scale keep the full colour");
  const stops = gradient("light", true);
  assert.ok(stops.indexOf(end("light", -1).join(" ")) < stops.indexOf("transparent"));
  assert.ok(stops.indexOf("transparent") < stops.indexOf(end("light", 1).join(" ")));
});

test("strips and heatmaps show signs in the same colours, which unsigned weights do not use", () => {
  for (const theme of ["light", "dark"] as const) {
    const table = mapTable(heatMap(true, theme));
    const colours = Array.from({ length: 256 }, (_, i) => [...table.subarray(3 * i, 3 * i + 3)].join(" "));
    assert.ok(colours.slice(0, 100).includes(end(theme, -0.2).join(" ")), `${theme}: negative`);
    assert.ok(colours.slice(156).includes(end(theme, 0.2).join(" ")), `${theme}: positive`);
    assert.ok(!colours.includes(end(theme, 0).join(" ")), `${theme}: a weight`);
  }
});

test("a row, and the mean that every key receives", () => {
  const map = cells([
    [1, 0, 0],
    [0.5, 0.5, 0],
    [0.1, 0.2, 0.7],
  ]);
  assert.deepEqual([...rowOf(map, 1)], [0.5, 0.5, 0]);
  const mean = [...meanReceived(map)].map((v) => Number(v.toFixed(4)));
  assert.deepEqual(mean, [0.5333, 0.2333, 0.2333]);
  const holed = meanReceived(cells([[Number.NaN], [0.5]]));
  assert.equal(holed[0], 0.5, "cells that are not a number do not count");
});

test("the largest magnitudes come first, ties in order, and NaN last", () => {
  const values = [0.2, -0.9, Number.NaN, 0.9, 0, 0.2, -0.5];
  assert.deepEqual(largestOf(values, 3), [1, 3, 6]);
  const size = (i: number): number => Math.abs(values[i] as number) || 0;
  const sorted = [...values.keys()].sort((a, b) => size(b) - size(a));
  for (let most = 1; most <= 9; most += 1) assert.deepEqual(largestOf(values, most), sorted.slice(0, most));
});

test("sensitivity halves the top of the scale, whatever the sign of the peak", () => {
  assert.equal(peak([0.1, -0.8, Number.NaN, Number.POSITIVE_INFINITY]), 0.8);
  assert.equal(topOfScale([0.1, -0.8], 0), 0.8);
  assert.equal(topOfScale([0.1, -0.8], 2), 0.2);
  assert.equal(topOfScale([0, 0], 3), 0);
});

test("numbers are printed with the digits they have", () => {
  assert.equal(printed(0.123456, true), "0.1235");
  assert.equal(printed(0.123456, false), "0.12");
  assert.equal(printed(-0.5, true), "−0.5");
  assert.equal(printed(0, false), "0");
  assert.equal(printed(Number.NaN, true), "not a number");
  assert.equal(printed(0.0000123, true), "1.230e-5");
  assert.equal(printed(1, true), "1");
  assert.equal(printed(Number.NEGATIVE_INFINITY, true), "−∞");
});

test("arrows follow the direction of the text and stop at its ends", () => {
  assert.equal(step("ArrowRight", 0, 3, false), 1);
  assert.equal(step("ArrowRight", 2, 3, false), 2);
  assert.equal(step("ArrowRight", 1, 3, true), 0);
  assert.equal(step("End", 0, 3, false), 2);
  assert.equal(step("a", 0, 3, false), null);
});

test("the whitespace of a token is separated from its text", () => {
  assert.deepEqual(parts(" fox"), [
    { text: " ", white: true },
    { text: "fox", white: false },
  ]);
  assert.deepEqual(parts("<b>"), [{ text: "<b>", white: false }]);
  assert.equal(spoken("\n"), "newline");
  assert.equal(spoken("␣"), "space");
  assert.equal(spoken(""), "empty token");
  assert.equal(spoken(" ".repeat(9)), "9 whitespace characters");
});

test("the direction of a text does not depend on its special tokens", () => {
  assert.equal(isRightToLeft(axis(["[CLS]", "שלום", "עולם", "[SEP]"], [1, 0, 0, 1])), true);
  assert.equal(isRightToLeft(axis(["[CLS]", "the", "word", "שלום", "[SEP]"], [1, 0, 0, 0, 1])), false);
  assert.equal(isRightToLeft(axis([".", "!"])), false);
});
