import assert from "node:assert/strict";
import { test } from "node:test";
import { createSelection, resolve, translateCell } from "../src/selection.ts";
import type { Cell, Header, SelectionState, Source, ViewOptions } from "../src/wire/wire.ts";
import { HEADER, SOURCE } from "./fake.ts";

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
};
const START: SelectionState = {
  layer: 0,
  head: 0,
  unit: "token",
  method: "attention",
  stack: "self",
  pinned: null,
  target: null,
  foil: null,
  inside: false,
  feature: null,
  interventions: [],
  hover: null,
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
      saved.push(Object.fromEntries([...unsaved].map((key) => [key, state[key as keyof SelectionState]])));
      unsaved.clear();
    },
    on: () => undefined,
  };
  return { store: createSelection(model as never), saved, state };
}
const word = HEADER.sources[1] as Source;
const cell = (unit: string, query: number, key: number): Cell => ({ unit, query, key });

test("hovering is never saved; pinning saves the pin and no hovered cell", () => {
  const { store, saved, state } = selection();
  store.hover(cell("token", 1, 2));
  assert.equal(saved.length, 0);
  store.pin(cell("token", 1, 2));
  assert.deepEqual(saved, [{ hover: null, pinned: cell("token", 1, 2) }]);
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
