import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { activationsOf } from "../src/views/features/activations.ts";
import { nameOfFeature, percentage, type Sae, shownSae, tokenAt } from "../src/views/features/features.ts";
import { relativeChange } from "../src/views/features/SteerView.ts";
import { HEADER, SOURCE } from "./fake.ts";

const SAE: Sae = {
  layer: 2,
  features: 9,
  site: "blocks.2.hook_resid_post",
  stack: "self",
  onText: true,
  skipsFirst: false,
  counted: false,
  names: { 7: "cats" },
};

function context(selection: Record<string, unknown>, saes: Sae[] = [SAE], source = SOURCE): ViewContext {
  return {
    options: { saes },
    header: () => HEADER,
    source: () => source,
    selection: { get: (key: string) => selection[key] ?? null },
  } as unknown as ViewContext;
}

const packed = (values: number[], write: "setUint32" | "setFloat32"): DataView => {
  const view = new DataView(new ArrayBuffer(4 * values.length));
  values.forEach((value, i) => {
    view[write](4 * i, value, true);
  });
  return view;
};

test("among several SAEs, the one nearest to the selected layer is shown", () => {
  const saes = [2, 5, 9].map((layer) => ({ ...SAE, layer }));
  for (const [layer, index] of [
    [0, 0],
    [4, 1],
    [8, 2],
    [30, 2],
  ]) {
    assert.equal(shownSae(context({ layer }, saes)), index);
  }
  assert.equal(shownSae(context({ layer: 9 }, [{ ...SAE, layer: null }])), 0);
});

test("activations are decoded token by token", () => {
  const answer = {
    meta: { unit: "token" },
    buffers: [
      packed([2, 2, 3, 4], "setUint32"),
      packed([7, 1, 7, 3], "setUint32"),
      packed([2, 0.5, 4, 1], "setFloat32"),
    ],
  };
  const asked: unknown[] = [];
  const answers = {
    get: (...args: unknown[]) => {
      asked.push(args);
      return answer;
    },
  };
  const found = activationsOf(context({ layer: 2 }), answers as never);
  assert.deepEqual(asked, [["activations", { of: 0, unit: "token" }]]);
  assert.deepEqual(found?.fired, [
    [
      { feature: 7, activation: 2 },
      { feature: 1, activation: 0.5 },
    ],
    [],
    [{ feature: 7, activation: 4 }],
    [{ feature: 3, activation: 1 }],
  ]);
  assert.deepEqual(found?.of(7), [2, 0, 4, 0]);
  assert.deepEqual(
    [...(found?.largest ?? [])],
    [
      [7, 4],
      [1, 0.5],
      [3, 1],
    ],
  );
});

test("a cell of any linked view points at its token, also in another unit", () => {
  const at = (hover: unknown, source = SOURCE): number => tokenAt(context({ hover }, [SAE], source), "hover", SAE);
  assert.equal(at(null), -1);
  assert.equal(at({ unit: "token", query: 3, key: -1 }), 3);
  assert.equal(at({ unit: "token", query: 3, key: 1 }), 1);
  assert.equal(at({ unit: "token", query: 9, key: -1 }), -1);
  assert.equal(at({ unit: "word", query: 1, key: -1 }), 3);
  const words = { ...SOURCE, id: "attention/word/self", unit: "word", query: "w", key: "w" };
  assert.equal(at({ unit: "token", query: 2, key: -1 }, words), 0);
});

test("features are labelled by number and name, shares with their significant digits", () => {
  assert.equal(nameOfFeature(SAE, 7), "#7 cats");
  assert.equal(nameOfFeature(SAE, 8), "#8");
  assert.equal(nameOfFeature({ ...SAE, names: { 8: "a\u202eb" } }, 8), "#8 a⟨U+202E⟩b");
  assert.deepEqual([0, 0.00013, 0.0412, 0.5].map(percentage), ["0 %", "0.013 %", "4.1 %", "50 %"]);
});

test("how far states move is the mean over tokens of the change in activation, in their own length", () => {
  assert.equal(relativeChange(2, 3, [0, 5, 9], [0.1, 0.2, 0.5]), (0.6 + 0.2 + 1.5) / 3);
  assert.equal(relativeChange(1, 3, [], []), 0);
});
