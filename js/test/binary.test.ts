import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { createAnswers } from "../src/wire/answers.ts";
import { asDeclared, viewOf } from "../src/wire/binary.ts";
import { floatsOf } from "../src/wire/buffers.ts";
import { headerOf } from "../src/wire/eager.ts";
import { unpackAnswers } from "../src/wire/embeddedAnswers.ts";
import { createTiles } from "../src/wire/tiles.ts";
import { FakeKernel, HEADER, SOURCE } from "./fake.ts";

/** The same bytes as front ends may hand them over: most of them stand behind others in one message. */
const KINDS: Record<string, (bytes: number[]) => unknown> = {
  DataView: (bytes) => new DataView(Uint8Array.from([9, 9, 9, ...bytes]).buffer, 3),
  Uint8Array: (bytes) => Uint8Array.from([9, 9, 9, 9, ...bytes, 9]).subarray(4, -1),
  Int8Array: (bytes) => new Int8Array(Uint8Array.from([9, ...bytes]).buffer, 1),
  Float32Array: (bytes) => new Float32Array(Uint8Array.from([9, 9, 9, 9, ...bytes]).buffer, 4),
  ArrayBuffer: (bytes) => Uint8Array.from(bytes).buffer,
  SharedArrayBuffer: (bytes) => {
    const shared = new SharedArrayBuffer(bytes.length);
    new Uint8Array(shared).set(bytes);
    return shared;
  },
};
const FLOATS = [...new Uint8Array(Float32Array.from([0.25, 0.75, 0.5, 0.5]).buffer)];
const CODES = [255, 128, 64, 0];
const TILE = { source: SOURCE.id, layer: 0, head: 0, rows: 2, cols: 2, codec: "u8", gamma: 1, scale: 1 } as const;

let kernel: FakeKernel;
let life: AbortController;
beforeEach(() => {
  kernel = new FakeKernel();
  life = new AbortController();
});

afterEach(() => life.abort());

/** A store whose front end hands over buffers as they are. */
function tiles() {
  const store = createTiles();
  store.attach(asDeclared(kernel.model()), life.signal);
  return store;
}

function answers() {
  const model = asDeclared(kernel.model() as never);
  const context = { model, opening: [], tiles: { status: () => ({ state: "ok" }), patience: () => 8000 } };
  return createAnswers(
    { ...context, onChange: () => undefined } as unknown as ViewContext,
    life.signal,
    () => undefined,
  );
}

for (const [kind, bytesOf] of Object.entries(KINDS)) {
  test(`numbers in a message are read from ${kind}`, async () => {
    const store = tiles();
    const row = store.row(SOURCE.id, 0, 0, 0);
    kernel.emit("msg:custom", { ...TILE, kind: "row", id: kernel.last.id, row: 0 }, [bytesOf(FLOATS)]);
    assert.deepEqual([...((await row) ?? [])], [0.25, 0.75, 0.5, 0.5]);
    store.request(SOURCE.id, 0, 0);
    kernel.emit("msg:custom", { ...TILE, kind: "tile", id: kernel.last.id }, [bytesOf(CODES)]);
    assert.equal(store.get(SOURCE.id, 0, 0)?.text(0, 0), "1.00");
  });

  test(`an answer of a view is read from ${kind}`, () => {
    const view = answers();
    view.get("floats");
    kernel.emit("msg:custom", { kind: "answer", id: kernel.last.id, meta: 1, lengths: [16] }, [bytesOf(FLOATS)]);
    const [buffer] = view.get("floats")?.buffers ?? [];
    assert.deepEqual(buffer && floatsOf(buffer), [0.25, 0.75, 0.5, 0.5]);
  });

  test(`state is read from ${kind}`, () => {
    kernel.header = { ...HEADER, tiles: [{ ...TILE, offset: 0, length: 4 }] };
    kernel.eager = bytesOf(CODES) as DataView<ArrayBuffer>;
    assert.equal(tiles().get(SOURCE.id, 0, 0)?.text(0, 0), "1.00");
    const text = [...new TextEncoder().encode('[{"topic":"t","args":{},"meta":1,"lengths":[16]}]    ')].slice(0, 52);
    const opening = viewOf(bytesOf([52, 0, 0, 0, ...text, ...FLOATS]));
    assert.deepEqual(unpackAnswers(opening)[0]?.answer.buffers.map(floatsOf), [[0.25, 0.75, 0.5, 0.5]]);
  });
}

const MISSING = {
  "no list": undefined,
  "no buffer": [],
  "something else": [{}],
  "a part": [Uint8Array.from([1])],
};
for (const [what, buffers] of Object.entries(MISSING)) {
  test(`${what} in place of the numbers: the reader is told what to do, and nothing waits`, async () => {
    const store = tiles();
    store.request(SOURCE.id, 0, 0);
    kernel.emit("msg:custom", { ...TILE, kind: "tile", id: kernel.last.id }, buffers);
    assert.match(store.failure(SOURCE.id, 0, 0) ?? "", /Run the cell again.*view\.frame\(\)/);
    const row = store.row(SOURCE.id, 0, 0, 0);
    kernel.emit("msg:custom", { ...TILE, kind: "row", id: kernel.last.id, row: 0 }, buffers);
    assert.equal(await row, null);
  });

  test(`${what} in place of the numbers of an answer: the same`, () => {
    const view = answers();
    view.get("floats");
    kernel.emit("msg:custom", { kind: "answer", id: kernel.last.id, meta: 1, lengths: [16] }, buffers);
    assert.equal(view.get("floats"), undefined);
    assert.match(view.failure("floats") ?? "", /Run the cell again.*view\.frame\(\)/);
  });
}

test("Python's None is null where a kernel in the browser leaves it out", () => {
  const axis = { labels: ["a"], special: [0] };
  const header = { axes: { one: axis, two: { ...axis, spans: [[0]] } }, sources: [{ id: "rollout", layers: [0] }] };
  const state: Record<string, unknown> = { header, hover: { query: 0 } };
  const model = asDeclared({ get: (name: string) => state[name] } as never);
  const nulls = { spans: null, boundary: null, grid: null, cells: null, times: null };
  assert.deepEqual(model.get("header"), {
    axes: { one: { ...axis, ...nulls }, two: { ...axis, ...nulls, spans: [[0]] } },
    sources: [{ id: "rollout", layers: [0], heads: null, computed: null }],
  });
  assert.equal(model.get("header"), model.get("header"));
  assert.equal(model.get("pinned"), null);
  assert.equal(model.get("hover"), state.hover);
  state.header = HEADER;
  assert.equal(model.get("header"), HEADER);
});

test("a view whose store was not saved says so instead of a fault of the code", () => {
  assert.equal(headerOf(kernel.model()), HEADER);
  for (const header of [null, undefined, {}]) {
    const store = asDeclared({ ...kernel.model(), get: () => header } as never);
    assert.throws(() => headerOf(store as never), /not saved in the notebook/);
  }
});
