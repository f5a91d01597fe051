import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  barColours,
  colourAt,
  heatMap,
  inkOn,
  luminance,
  type MapName,
  PALETTES,
  type Rgb,
  scalePosition,
} from "../src/colour.ts";
import { directionOf } from "../src/dom.ts";
import { printed } from "../src/numbers.ts";
import { largestOf, meanReceived, peak, rowOf, step, topOfScale } from "../src/views/text/rowValues.ts";
import { fillOf, gradient } from "../src/views/text/stripColour.ts";
import { parts, spoken } from "../src/views/text/tokens.ts";

function cells(rows: number[][]): { rows: number; cols: number; value(r: number, c: number): number } {
  return { rows: rows.length, cols: rows[0]?.length ?? 0, value: (r, c) => rows[r]?.[c] ?? Number.NaN };
}

const THEMES = ["light", "dark"] as const;
const PAGE = { light: [255, 255, 255], dark: [17, 17, 17] } as const;
const INK = { light: [0, 0, 0], dark: [255, 255, 255] } as const;
const MODES = ["linear", "sqrt", "log"] as const;

function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

/** What is seen of a fill on a page. */
function seen({ css }: { css: string }, page: Rgb): Rgb {
  const [r = 0, g = 0, b = 0, alpha = 0] = (css.match(/[\d.]+/g) ?? []).map(Number);
  return [r, g, b].map((c, i) => c * alpha + (page[i] ?? 0) * (1 - alpha)) as unknown as Rgb;
}

test("text keeps a contrast of 4.5 on every fill, in both themes and every palette", () => {
  for (const theme of THEMES) {
    const other = theme === "light" ? "dark" : "light";
    for (const signed of [false, true]) {
      for (const palette of Object.keys(PALETTES[signed ? 1 : 0])) {
        for (let t = -1; t <= 1; t += 0.02) {
          const fill = fillOf(t, theme, signed, palette);
          const found = contrast(INK[fill.flips ? other : theme], seen(fill, PAGE[theme]));
          assert.ok(found >= 4.45, `${theme} ${palette} t=${t}: ${found}`);
        }
      }
    }
  }
});

test("a value has the same colour in text and map, on every scale", () => {
  for (const theme of THEMES) {
    for (const signed of [false, true]) {
      for (const scale of MODES) {
        for (const t of [0.04, 0.3, 0.96, 1, 7, ...(signed ? [-0.3, -1] : [])]) {
          const map = colourAt(heatMap(signed, theme), scalePosition(Math.min(1, t), signed ? [-1, 1] : [0, 1], scale));
          const text = seen(fillOf(t, theme, signed, "", scale), PAGE[theme]);
          text.forEach((c, i) => {
            assert.ok(Math.abs(c - (map[i] ?? 0)) <= 1.5, `${theme} ${scale} ${t}: ${text} is not ${map}`);
          });
        }
      }
    }
  }
});

test("zero vanishes into any page, and NaN is not drawn as zero", () => {
  for (const theme of THEMES) {
    for (const signed of [false, true]) assert.deepEqual(fillOf(0, theme, signed), { css: "", pixel: 0, flips: false });
    const grey: Rgb = [56, 56, 56];
    const faint = seen(fillOf(0.01, theme, false), grey);
    assert.ok(
      faint.every((c) => Math.abs(c - 56) < 6),
      `${theme}: ${faint}`,
    );
  }
  assert.notEqual(fillOf(Number.NaN, "light", true).css, "");
  const stops = gradient("light", true).split(/, (?=rgb|transparent)/);
  assert.equal(stops[9], "transparent");
});

test("the tables have their page at zero, and evenly ever darker or paler colours", () => {
  for (const [i, theme] of THEMES.entries()) {
    const maps = PALETTES.map((palettes) => Object.values(palettes)[0]?.[i] as MapName) as [MapName, MapName];
    const along = (map: MapName, from: number, to: number): number[] =>
      Array.from({ length: 33 }, (_, k) => luminance(colourAt(map, from + ((to - from) * k) / 32)));
    for (const light of [along(maps[0], 0, 1), along(maps[1], 0.5, 1), along(maps[1], 0.5, 0)]) {
      assert.equal(light[0], luminance(PAGE[theme]));
      for (let k = 1; k < light.length; k += 1) {
        const [before = 0, now = 0] = light.slice(k - 1, k + 1);
        assert.ok(theme === "light" ? now < before : now > before, `${theme}: step ${k}`);
      }
    }
    for (let t = 0; t <= 0.5; t += 0.05) {
      const [one, other] = [colourAt(maps[1], 0.5 - t), colourAt(maps[1], 0.5 + t)].map(luminance) as [number, number];
      assert.ok(Math.abs(Math.cbrt(one) - Math.cbrt(other)) < 0.01, `${theme} ${t}: ${one} and ${other}`);
    }
    const bars = barColours(theme);
    for (const css of Object.values(bars)) assert.ok(contrast(seen({ css: `${css} 1` }, [0, 0, 0]), PAGE[theme]) >= 3);
    assert.equal(new Set(Object.values(bars)).size, 3);
    const css = readFileSync(`${process.cwd()}/src/styles/tokens.css`, "utf8").split('[data-aw-theme="dark"]')[i] ?? "";
    for (const [name, bar] of Object.entries(bars)) {
      const hex = css.match(new RegExp(`--aw-${name}: #(\\w{6})`))?.[1] ?? "";
      const rgb = [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
      const off = [...bar.matchAll(/\d+/g)].map((c, at) => Math.abs(Number(c) - (rgb[at] ?? 0)));
      assert.ok(Math.max(...off) <= 2, `--aw-${name} in ${theme}: ${bar}, not #${hex}`);
    }
  }
});

test("ink is whichever of black and white has more contrast", () => {
  for (let level = 0; level < 256; level += 5) {
    for (const rgb of [
      [level, level, level],
      [level, 0, 255 - level],
      [255, level, 0],
    ] as Rgb[]) {
      const [dark, light] = [contrast(rgb, INK.light), contrast(rgb, INK.dark)];
      assert.equal(inkOn(rgb), dark > light ? "#000" : "#fff", `${rgb}`);
    }
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

test("the direction of a text is that of most of its letters", () => {
  assert.equal(directionOf(["שלום", "עולם", "ok"]), "rtl");
  assert.equal(directionOf(["the", "word", "שלום"]), "ltr");
  assert.equal(directionOf([".", "!"]), "ltr");
});
