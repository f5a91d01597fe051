/** Printed numbers claim no more precision than their source has. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { approximately, inColumn, withinError } from "../src/numbers.ts";
import { createExactRows } from "../src/views/base/cellValues.ts";
import type { Cell } from "../src/wire/wire.ts";
import { HEADER, SOURCE } from "./fake.ts";

test("of a number that may as well be zero, only a true bound is said", () => {
  assert.equal(withinError(1.5e-5, 1.9e-5), "< 0.0001");
  assert.equal(withinError(-1.5e-5, 1.9e-5), "> −0.0001");
  assert.equal(withinError(0, 3.8e-6), "< 0.00001");
  assert.equal(withinError(4e-5, 1e-5), "4e-5"); // a step above zero: its digit is certain
  assert.equal(withinError(2, 3), "< 10");
  assert.equal(withinError(0, 1e-12), "< 1e-12");
  assert.equal(withinError(0, 0), "0");
  for (const [value, error] of [
    [1e-5, 9e-5],
    [0, 1e-4],
    [3e-9, 8e-9],
    [0.04, 0.05],
  ] as const) {
    const bound = Number(withinError(value, error).slice(2));
    assert.ok(value + error <= bound * (1 + 1e-9), `${value + error} is not below ${bound}`);
  }
});

test("a bound needs no sign for “about”", () => {
  assert.equal(approximately("0.12"), "≈ 0.12");
  assert.equal(approximately("< 0.0001"), "< 0.0001");
});

test("the numbers of a column have as many decimals, whatever their size", () => {
  const error = 0.03;
  const decimals = (text: string): number => text.replace(/^[<>] /, "").split(".")[1]?.length ?? 0;
  const texts = [1.234, 0.56, -0.05, 0.04, 0.001, 0].map((value) => inColumn(value, error));
  assert.deepEqual(texts, ["1.2", "0.6", "−0.1", "< 0.1", "< 0.1", "< 0.1"]);
  assert.equal(new Set(texts.map(decimals)).size, 1);
  assert.equal(inColumn(Number.NaN, error), "");
  assert.equal(inColumn(0.25, 0), withinError(0.25, 0));
});

/** A context with one drawn map, whose requests for rows are answered by hand. */
function pointing() {
  const asked: { row: number; answer: (values: Float32Array | null) => void }[] = [];
  const end = new AbortController();
  const ctx = {
    signal: end.signal,
    options: { filters: {} },
    model: { get: () => ({}) },
    header: () => HEADER,
    source: () => SOURCE,
    resolved: () => ({ source: SOURCE, layer: 0, head: 0, notes: [] }),
    axisOf: () => HEADER.axes.t,
    cell: () => null,
    tiles: {
      get: () => ({}),
      row: (_s: string, _l: number, _h: number, row: number) => new Promise((answer) => asked.push({ row, answer })),
    },
  } as unknown as ViewContext;
  let arrived = 0;
  const rows = createExactRows(ctx, () => {
    arrived += 1;
  });
  const at = (query: number, key: number): Cell => ({ unit: "token", query, key });
  return { asked, rows, at, arrived: () => arrived, end };
}

const later = async (t: { mock: { timers: { tick(ms: number): void } } }, ms: number): Promise<void> => {
  t.mock.timers.tick(ms);
  for (let i = 0; i < 8; i += 1) await Promise.resolve();
};

test("an exact row is requested when the pointer rests, one at a time, and never while it moves", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { asked, rows, at, arrived, end } = pointing();
  for (let key = 0; key < 4; key += 1) {
    rows.rest(at(0, key));
    await later(t, 200);
  }
  assert.equal(asked.length, 0);
  await later(t, 150);
  assert.deepEqual(
    asked.map(({ row }) => row),
    [0],
  );
  rows.rest(at(2, 1));
  await later(t, 1000); // the first is still in flight
  assert.equal(asked.length, 1);
  asked[0]?.answer(Float32Array.of(0.25, 0.25, 0.25, 0.25));
  await later(t, 0);
  assert.equal(arrived(), 1);
  assert.equal(rows(0, false)?.[1], 0.25);
  await later(t, 400);
  assert.deepEqual(
    asked.map(({ row }) => row),
    [0, 2],
  );
  rows.rest(null);
  asked[1]?.answer(null);
  await later(t, 1000);
  assert.equal(asked.length, 2);
  rows.rest(at(0, 3)); // its row is here already
  await later(t, 1000);
  assert.equal(asked.length, 2);
  end.abort();
});
