import assert from "node:assert/strict";
import { test } from "node:test";
import { carriedOver, indexIn } from "../src/host/carrying.ts";
import { typedItem } from "../src/views/base/menu.ts";
import type { Axis, Header, SelectionState } from "../src/wire/wire.ts";
import { HEADER, SOURCE } from "./fake.ts";

const header = (labels: string[], more: Partial<typeof SOURCE> = {}): Header => {
  const axis = { ...(Object.values(HEADER.axes)[0] as Axis), unit: "token", labels };
  return {
    ...HEADER,
    axes: { text: axis },
    sources: [{ ...SOURCE, query: "text", key: "text", layers: [0, 1, 2], heads: [0, 1], ...more }],
  };
};

const selection = (values: Partial<SelectionState>): { get(key: string): unknown } => {
  const state = { layer: 0, head: 0, unit: "token", method: "attention", stack: "self", pins: [], opening: null };
  return { get: (key) => ({ ...state, ...values })[key as keyof SelectionState] };
};
const pin = (query: number, key: number) => ({ unit: "token", query, key });

test("an element has its place in another text where both share a beginning or an end", () => {
  const [before, after] = [[..."abcde"], [..."abXYde"]];
  assert.deepEqual(
    before.map((_, at) => indexIn(before, after, at)),
    [0, 1, null, 4, 5],
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((at) => indexIn([..."abcd"], [..."xbyd"], at)),
    [null, 1, null, 3],
  );
});

test("layer, head and method are carried over, and pins whose tokens are in both texts", () => {
  const left = selection({ layer: 2, head: 1, pins: [pin(2, 3), pin(0, 1), pin(-1, 2)] });
  const values = carriedOver(left, header([..."abcd"]), selection({ layer: 1 }), header([..."xbcd"]));
  assert.deepEqual([values.layer, values.head, values.method], [2, 1, "attention"]);
  assert.deepEqual(values.pins, [pin(2, 3), pin(-1, 2)]);
  assert.deepEqual(values.pinned, pin(-1, 2));
});

test("what the other text or model lacks stays as it was there, and so do its own pins", () => {
  const left = selection({ layer: 2, head: 1, method: "lrp@1", pins: [pin(1, 1)] });
  const small = header([..."ab"], { layers: [0, 1], heads: [0] });
  const values = carriedOver(left, header([..."ab"]), selection({ pins: [pin(0, 0)] }), small);
  assert.deepEqual(Object.keys(values), ["stack", "unit"]);
});

test("letters find an item by its beginning, or by what it contains", () => {
  const items = ["The cat sat", "A cat", "The dog"].map((label) => ({ value: label, label }));
  assert.equal(typedItem(items, 0, "a"), 1);
  assert.equal(typedItem(items, 0, "dog"), 2);
  assert.equal(typedItem(items, 1, "cat"), 1);
  assert.equal(typedItem(items, 1, "xx"), 1);
});
