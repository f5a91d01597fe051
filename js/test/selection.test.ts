import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createSelection,
  joined,
  rectangle,
  resolve,
  toggled,
  translateCell,
  translateSpan,
} from "../src/selection.ts";
import type { ViewOptions } from "../src/wire/viewState.ts";
import type { Cell, Header, SelectionState, Source } from "../src/wire/wire.ts";
import { HEADER, SOURCE, START } from "./fake.ts";

const OPTIONS: ViewOptions = {
  method: null,
  unit: null,
  stack: null,
  indexBase: 0,
  title: "",
  marks: [],
  methods: [],
  units: [],
  filters: {},
  height: null,
  makesClaims: false,
  below: "",
};

function selection(values: Partial<SelectionState> = {}) {
  const state: SelectionState = { ...START, ...values };
  const unsaved = new Set<string>();
  const saved: Record<string, unknown>[] = [];
  const model = {
    get: (key: keyof SelectionState) => state[key],
    set: (key: string, value: unknown) => {
      Object.assign(state, { [key]: value });
      unsaved.add(key);
    },
    save_changes: () => {
      unsaved.delete("writer");
      saved.push(Object.fromEntries([...unsaved].map((key) => [key, state[key as keyof SelectionState]])));
      unsaved.clear();
    },
    on: () => undefined,
  };
  return { store: createSelection(model as never, 1), saved, state };
}
const word = HEADER.sources[1] as Source;
const cell = (unit: string, query: number, key: number): Cell => ({ unit, query, key });

test("hovering is never saved; pinning names the pin and no hovered cell", () => {
  const { store, saved, state } = selection();
  store.hover(cell("token", 1, 2));
  assert.equal(saved.length, 0);
  store.pin(cell("token", 1, 2));
  assert.deepEqual(state.writer?.names, ["pinned", "pins"]);
  assert.deepEqual(state.hover, cell("token", 1, 2));
  store.pin(cell("token", 1, 2));
  assert.equal(state.pinned, null);
});

test("a cell of tokens is found in the words that hold them, and back", () => {
  assert.deepEqual(translateCell(cell("token", 2, 3), HEADER, word), cell("word", 0, 1));
  assert.deepEqual(translateCell(cell("word", 1, 0), HEADER, SOURCE), cell("token", 3, 0));
  assert.deepEqual(translateCell(cell("token", 3, -1), HEADER, word), cell("word", 1, -1));
});

test("a cell outside the map is null", () => {
  assert.equal(translateCell(cell("token", 9, 9), HEADER, SOURCE), null);
  assert.equal(translateCell(cell("sentence", 0, 0), HEADER, SOURCE), null);
});

test("a missing layer is replaced by the nearest, named in the shown index base", () => {
  const header: Header = { ...HEADER, sources: [{ ...SOURCE, layers: [1, 5] }] };
  const { layer, notes } = resolve(header, { ...OPTIONS, indexBase: 1 }, selection({ layer: 4 }).store);
  assert.equal(layer, 5);
  assert.deepEqual(notes, ["layer 5 is not in attention: showing 6"]);
});

test("a view follows the selection's unit unless its own is fixed", () => {
  const { store } = selection({ unit: "word" });
  assert.equal(resolve(HEADER, OPTIONS, store).source.unit, "word");
  assert.equal(resolve(HEADER, { ...OPTIONS, unit: "token" }, store).source.unit, "token");
  const missing = resolve(HEADER, OPTIONS, selection({ unit: "sentence" }).store);
  assert.equal(missing.source.unit, "token");
  assert.equal(missing.notes.length, 1);
});

test("heads: a reduction stays, a map without heads has none", () => {
  assert.equal(resolve(HEADER, OPTIONS, selection({ head: "max" }).store).head, "max");
  assert.equal(resolve(HEADER, OPTIONS, selection({ head: 7 }).store).head, 1);
  const flat: Header = { ...HEADER, sources: [{ ...SOURCE, heads: null }] };
  assert.equal(resolve(flat, OPTIONS, selection({ head: 1 }).store).head, "-");
  assert.throws(() => resolve({ ...HEADER, sources: [] }, OPTIONS, selection().store), /store is empty/);
});

test("several cells are saved with the last as the pinned one, in one message", () => {
  const { store, saved } = selection();
  const pins = [cell("token", 0, 1), cell("token", 2, 3)];
  store.pinAll(pins);
  assert.deepEqual(saved, [{ pins, pinned: pins[1] }]);
  store.set({ pinned: null, layer: 2 });
  assert.deepEqual(saved[1], { layer: 2, pinned: null, pins: [] });
});

test("a cell is added as the last, or removed; a token alone becomes its pair", () => {
  const [a, b] = [cell("token", 0, 1), cell("token", 2, 3)];
  assert.deepEqual(toggled([a], b), [a, b]);
  assert.deepEqual(toggled([a, b], a), [b]);
  assert.deepEqual(toggled([cell("token", 2, -1)], b), [b]);
  assert.deepEqual(toggled([a, { ...a, layer: 1 }], a), [{ ...a, layer: 1 }]);
  assert.deepEqual(joined([a, b], [a]), [b, a]);
});

test("a drag covers the same cells from any of its corners", () => {
  const cells = [
    [1, 2],
    [1, 3],
    [2, 2],
    [2, 3],
  ];
  assert.deepEqual(rectangle([1, 2], [2, 3]), cells);
  assert.deepEqual(rectangle([2, 2], [1, 3]), cells);
  assert.deepEqual(rectangle([1, 1], [1, 1]), [[1, 1]]);
});

test("the shown head is the first of several, and the last one removed leaves none", () => {
  const { store, state } = selection({ layer: 1, head: 0 });
  store.toggleHeads([[2, 1]]);
  assert.deepEqual(state.heads, [[1, 0], [2, 1]]); // biome-ignore format: pairs
  store.set({ layer: 4 });
  store.toggleHeads([[1, 0]]);
  assert.deepEqual(state.heads, [[2, 1]]);
  store.toggleHeads([[2, 1]]);
  assert.deepEqual(state.heads, []);
  const { store: mean, state: ofMean } = selection({ head: "mean" });
  mean.addHeads([[2, 1]]);
  assert.deepEqual(ofMean.heads, [[2, 1]]);
});

test("another stack has other heads", () => {
  const { store, state } = selection({ heads: [[0, 1]] });
  store.set({ stack: "self" });
  assert.deepEqual(state.heads, [[0, 1]]);
  store.set({ stack: "cross" });
  assert.deepEqual(state.heads, []);
});

test("clearing saves once, and only if something is chosen", () => {
  const { store, saved, state } = selection({
    heads: [[0, 1]],
    span: { start: 0, stop: 2, unit: "token", side: "key" },
  });
  store.pin(cell("token", 1, 1));
  store.clear();
  assert.equal(saved.length, 2);
  assert.deepEqual([state.pins, state.pinned, state.heads, state.span], [[], null, [], null]);
  store.clear();
  assert.equal(saved.length, 2);
});

test("pins of several tokens in one word are one pin of the word", () => {
  const { store } = selection({ pins: [cell("token", 0, 3), cell("token", 3, 0), cell("token", 2, 3)] });
  assert.deepEqual(store.pinsIn(HEADER, word), [cell("word", 1, 0), cell("word", 0, 1)]);
  assert.equal(store.pinsIn(HEADER, SOURCE).length, 3);
});

test("a span is translated between units, and belongs to both sides only where these are one text", () => {
  const span = { start: 1, stop: 4, unit: "token", side: "query" } as const;
  assert.deepEqual(translateSpan(span, "query", HEADER, SOURCE), [1, 4]);
  assert.deepEqual(translateSpan(span, "key", HEADER, word), [0, 2]);
  assert.deepEqual(translateSpan({ ...span, unit: "word", start: 0, stop: 1 }, "query", HEADER, SOURCE), [0, 3]);
  const cross: Source = { ...SOURCE, stack: "cross", key: "w" };
  const header: Header = { ...HEADER, sources: [cross] };
  assert.deepEqual(translateSpan(span, "query", header, cross), [1, 4]);
  assert.equal(translateSpan(span, "key", header, cross), null);
  const compared: Source = { ...SOURCE, method: "comparison", query: "w" };
  const comparison: Header = { ...HEADER, sources: [compared] };
  assert.deepEqual(translateSpan(span, "key", comparison, compared), [1, 4], "its rows are explanations");
  assert.equal(translateSpan({ ...span, unit: "sentence" }, "query", HEADER, SOURCE), null);
});
