import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { ByteLru } from "../src/wire/lru.ts";
import { createPool } from "../src/wire/tilePool.ts";
import { createTiles, GONE_AFTER, type TileStore, WAITING_AFTER } from "../src/wire/tiles.ts";
import type { Axis, Request, Source } from "../src/wire/wire.ts";
import { FakeKernel, HEADER, SOURCE } from "./fake.ts";

const ID = SOURCE.id;
let kernel: FakeKernel;
let store: TileStore;
let life: AbortController;

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  kernel = new FakeKernel();
  life = new AbortController();
  store = createTiles();
  store.attach(kernel.model(), life.signal);
});

test("holding an arrow key sends one request, then only the last one", () => {
  for (const layer of [1, 2, 3, 4]) store.request(ID, layer, 0);
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [1],
  );
  kernel.answer(kernel.last);
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [1, 4],
  );
});

test("two views that want different things both get them", () => {
  store.request(ID, 1, 0);
  store.request(ID, 2, 0, "big");
  store.request(ID, 3, 0, "small");
  while (kernel.tiles().length < 3) kernel.answer(kernel.last);
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [1, 2, 3],
  );
});

test("a tile in the browser costs no message", () => {
  store.request(ID, 1, 0);
  kernel.answer(kernel.last);
  store.request(ID, 1, 0);
  assert.equal(kernel.sent.length, 1);
  assert.equal(store.get(ID, 1, 0)?.value(1, 1), 1);
});

test("when idle, the neighbouring layers are fetched one after the other", () => {
  store.request(ID, 2, 0);
  kernel.answer(kernel.last);
  for (let i = 0; i < 4; i += 1) {
    mock.timers.tick(100);
    if (kernel.tiles().length === i + 2) kernel.answer(kernel.last);
  }
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [2, 3, 1],
  );
});

test("late, duplicate, truncated and foreign replies are harmless", () => {
  let told = 0;
  store.subscribe(life.signal, () => (told += 1));
  store.request(ID, 1, 0);
  const first = kernel.last;
  store.request(ID, 2, 0);
  kernel.answer(first);
  kernel.answer(first, 128);
  assert.equal(kernel.last.kind === "tile" && kernel.last.layer, 2);
  kernel.reply({ kind: "pong", id: 999 });
  kernel.emit("msg:custom", null, undefined);
  kernel.emit("msg:custom", { kind: "tile" }, []);
  assert.equal(store.get(ID, 2, 0), undefined);
  kernel.answer(kernel.last);
  assert.ok(store.get(ID, 2, 0));
  assert.ok(told > 0);
});

test("a silent kernel is waited for, then given up, and back with any answer", () => {
  store.request(ID, 1, 0);
  const lost = kernel.last;
  mock.timers.tick(WAITING_AFTER + 1);
  assert.equal(store.status().state, "waiting");
  assert.equal(kernel.last.kind, "ping");
  mock.timers.tick(GONE_AFTER);
  assert.equal(store.status().state, "no-kernel");
  assert.match(store.status().message, /What is loaded still works/);
  kernel.answer(lost); // hours later
  assert.equal(store.status().state, "ok");
  assert.ok(store.get(ID, 1, 0));
});

test("only a kernel that has answered is waited for by name", () => {
  store.request(ID, 1, 0);
  mock.timers.tick(WAITING_AFTER + 1);
  assert.match(store.status().message, /^No answer yet: .*or this page has none/);
  kernel.answer(kernel.tiles()[0] as Request);
  store.request(ID, 3, 0);
  mock.timers.tick(WAITING_AFTER + 1);
  assert.match(store.status().message, /^Waiting for the kernel/);
});

test("requests pending when the kernel went away are sent when it answers a ping", () => {
  store.request(ID, 1, 0);
  mock.timers.tick(WAITING_AFTER);
  mock.timers.tick(GONE_AFTER);
  const before = kernel.tiles().length;
  const ping = kernel.last;
  kernel.reply({ kind: "pong", id: ping.id });
  assert.equal(store.status().state, "ok");
  assert.equal(kernel.tiles().length, before + 1);
});

test("a dead kernel is not flooded", () => {
  store.request(ID, 1, 0);
  mock.timers.tick(WAITING_AFTER);
  mock.timers.tick(GONE_AFTER);
  const before = kernel.sent.length;
  for (let i = 0; i < 200; i += 1) store.request(ID, i % 6, 1);
  for (let i = 0; i < 600; i += 1) mock.timers.tick(1000);
  assert.ok(kernel.sent.length - before <= 26, `${kernel.sent.length - before} messages in ten minutes`);
});

test("a lost tile is requested once more while pings are answered, then reported as failed", () => {
  store.request(ID, 1, 0);
  for (let i = 0; i < 3; i += 1) {
    mock.timers.tick(WAITING_AFTER);
    if (kernel.last.kind === "ping") kernel.reply({ kind: "pong", id: kernel.last.id });
    mock.timers.tick(GONE_AFTER);
  }
  assert.equal(kernel.tiles().filter((r) => r.layer === 1).length, 2);
  assert.match(store.failure(ID, 1, 0) ?? "", /does not answer/);
});

test("a refused tile has a reason and is not requested again", () => {
  store.request(ID, 1, 0);
  kernel.reply({ kind: "error", id: kernel.last.id, message: "not in this file", needsKernel: true });
  assert.equal(store.failure(ID, 1, 0), "not in this file");
  store.request(ID, 1, 0);
  assert.equal(kernel.tiles().length, 1);
});

test("an exact row is float32 and cached; a refused one is requested once", async () => {
  const asked = store.row(ID, 0, 0, 1);
  const request = kernel.last;
  assert.equal(request.kind, "row");
  const bytes = new Uint8Array(new Float32Array([0.25, 0.75]).buffer);
  if (request.kind === "row") kernel.reply({ ...request }, bytes);
  assert.deepEqual([...((await asked) ?? [])], [0.25, 0.75]);
  assert.deepEqual([...((await store.row(ID, 0, 0, 1)) ?? [])], [0.25, 0.75]);
  const refused = store.row(ID, 0, 0, 0);
  kernel.reply({ kind: "error", id: kernel.last.id, message: "no" });
  assert.equal(await refused, null);
  assert.equal(await store.row(ID, 0, 0, 0), null);
  assert.equal(kernel.sent.length, 2);
});

const SHEET = { source: ID, rows: 1, cols: 2, gamma: 0.5, signed: false, scale: [[1], [1]], special: false };

test("missing thumbnails are requested once, and cached", () => {
  let told = 0;
  store.subscribe(life.signal, () => (told += 1));
  assert.equal(store.thumbs(ID, false), undefined);
  assert.equal(store.thumbs(ID, false), undefined);
  const asked = kernel.last;
  assert.deepEqual([kernel.sent.length, asked.kind], [1, "thumbs"]);
  store.request(ID, 1, 0);
  assert.equal(kernel.sent.length, 1, "one request is in flight");
  kernel.reply({ kind: "thumbs", id: asked.id, ...SHEET }, Uint8Array.from([1, 2, 3, 4]));
  assert.deepEqual([...(store.thumbs(ID, false)?.codes ?? [])], [1, 2, 3, 4]);
  assert.ok(told > 0);
  assert.deepEqual([kernel.sent.length, kernel.last.kind], [2, "tile"]);
});

test("refused or truncated thumbnails have a reason and are not requested again", () => {
  store.thumbs(ID, false);
  kernel.reply({ kind: "error", id: kernel.last.id, message: "too many heads" });
  assert.equal(store.failure(ID), "too many heads");
  assert.equal(store.thumbs(ID, false), undefined);
  assert.equal(kernel.sent.length, 1);
  const other = "attention/word/self";
  store.thumbs(other, false);
  kernel.reply({ kind: "thumbs", id: kernel.last.id, ...SHEET, source: other }, Uint8Array.from([1]));
  assert.match(store.failure(other) ?? "", /was not transferred/);
});

test("thumbnails among the eager bytes cost no message", () => {
  kernel.eager = new DataView(Uint8Array.from([9, 1, 2, 3, 4]).buffer);
  kernel.header = { ...HEADER, thumbs: [{ ...SHEET, offset: 1, length: 4 }] };
  kernel.emit("change:header");
  assert.deepEqual([...(store.thumbs(ID, false)?.codes ?? [])], [1, 2, 3, 4]);
  assert.equal(kernel.sent.length, 0);
});

test("thumbnails with special tokens also serve those who leave them out, if nothing is pooled", () => {
  const axis = { labels: ["[CLS]", "a", "b"], special: [1, 0, 0], spans: null };
  const codes = [9, 1, 2, 8, 3, 4, 7, 5, 6];
  const whole = { ...SHEET, rows: 3, cols: 3, scale: [[1]], special: true, offset: 0, length: 9 };
  const source = { ...HEADER.sources[0], id: ID, query: "x", key: "x" } as Source;
  kernel.eager = new DataView(Uint8Array.from(codes).buffer);
  const header = { ...HEADER, axes: { x: axis as unknown as Axis }, sources: [source] };
  kernel.header = { ...header, thumbs: [whole] };
  kernel.emit("change:header");
  const some = store.thumbs(ID, false);
  assert.deepEqual([some?.meta.rows, some?.meta.cols, some?.meta.special], [2, 2, false]);
  assert.deepEqual([...(some?.codes ?? [])], [3, 4, 5, 6]);
  assert.deepEqual([...(store.thumbs(ID, true)?.codes ?? [])], codes);
  assert.equal(kernel.sent.length, 0);
  kernel.header = {
    ...header,
    axes: { x: { ...axis, labels: [], special: [1, 0, 0, 0, 0, 0] } as unknown as Axis },
    thumbs: [whole],
  };
  kernel.emit("change:header");
  assert.equal(store.thumbs(ID, false), undefined, "blocks of several tokens cannot be taken apart");
  assert.equal(kernel.last.kind === "thumbs" && kernel.last.special, false);
});

test("parts of thumbnails are joined in any order", () => {
  const part = (layer: number, head: number, scale: number[][], ...codes: number[]): void => {
    assert.ok(store.thumbs(ID, false, [layer, head]) === store.thumbs(ID, false, null), "what is here is returned");
    const asked = kernel.last;
    assert.deepEqual(asked.kind === "thumbs" && asked.from, [layer, head]);
    kernel.reply({ kind: "thumbs", id: asked.id, ...SHEET, scale, part: [layer, head] }, Uint8Array.from(codes));
  };
  assert.equal(store.thumbs(ID, false, null), undefined);
  assert.equal(kernel.sent.length, 0, "nothing is asked for that is not on the page");
  part(1, 0, [[], [3]], 5, 6);
  part(0, 0, [[1], []], 1, 2);
  part(1, 1, [[], [4]], 7, 8);
  part(0, 1, [[2], []], 3, 4);
  const sheet = store.thumbs(ID, false, null);
  assert.deepEqual(sheet?.meta.scale, [
    [1, 2],
    [3, 4],
  ]);
  assert.deepEqual([...(sheet?.codes ?? [])], [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(kernel.sent.length, 4);
});

test("a part that adds nothing ends the requests", () => {
  store.thumbs(ID, false, [0, 0]);
  kernel.reply(
    { kind: "thumbs", id: kernel.last.id, ...SHEET, scale: [[1], []], part: [0, 0] },
    Uint8Array.from([1, 2]),
  );
  store.thumbs(ID, false, [1, 0]);
  kernel.reply(
    { kind: "thumbs", id: kernel.last.id, ...SHEET, scale: [[1], []], part: [0, 0] },
    Uint8Array.from([1, 2]),
  );
  assert.match(store.failure(ID) ?? "", /no more/);
  store.thumbs(ID, false, [1, 0]);
  assert.equal(kernel.sent.length, 2);
  assert.deepEqual([...(store.thumbs(ID, false, null)?.codes ?? [])], [1, 2]);
});

test("no row request waits forever", async () => {
  const asked = store.row(ID, 0, 0, 1);
  mock.timers.tick(WAITING_AFTER);
  mock.timers.tick(GONE_AFTER);
  assert.equal(await asked, null);
});

test("eager tiles need no message and follow a new header", () => {
  const meta = { source: ID, layer: 0, head: 0, rows: 2, cols: 2, codec: "u8", gamma: 0.5, scale: 1 } as const;
  kernel.eager = new DataView(Uint8Array.from([7, 255, 0, 0, 0]).buffer);
  kernel.header = { ...HEADER, tiles: [{ ...meta, offset: 1, length: 4 }] };
  kernel.emit("change:header");
  assert.equal(store.get(ID, 0, 0)?.value(0, 0), 1);
  kernel.header = { ...HEADER, tiles: [{ ...meta, layer: 1, offset: 4, length: 4 }] };
  kernel.emit("change:header");
  assert.equal(store.get(ID, 1, 0), undefined); // beyond the bytes
  assert.equal(kernel.sent.length, 0);
});

test("views of one store share its tiles, and the survivor carries on when the first view is closed", () => {
  const pool = createPool();
  const [one, two] = [new AbortController(), new AbortController()];
  const first = pool("anywidget:s", kernel.model(), one.signal);
  const second = pool("anywidget:s", kernel.model(), two.signal);
  assert.equal(first, second);
  first.request(ID, 1, 0);
  one.abort();
  kernel.answer(kernel.last);
  assert.ok(second.get(ID, 1, 0));
  two.abort();
  const sent = kernel.sent.length;
  mock.timers.tick(60_000);
  assert.equal(kernel.sent.length, sent);
  assert.notEqual(pool("anywidget:s", kernel.model(), life.signal), first);
});

test("the cache drops the least recently used entries and stays within its budget", () => {
  const lru = new ByteLru<string>(100);
  lru.set("a", "a", 40);
  lru.set("b", "b", 40);
  lru.get("a");
  lru.set("c", "c", 40);
  assert.deepEqual([lru.get("a"), lru.get("b"), lru.get("c"), lru.bytes], ["a", undefined, "c", 80]);
  lru.set("big", "big", 500);
  assert.deepEqual([lru.get("big"), lru.get("a")], ["big", undefined]);
});

test("several heads of a layer arrive in one message, and those that do not fit are requested again", () => {
  store.requestHeads(ID, 1, [0, 1, 2, 3]);
  const request = kernel.last;
  assert.deepEqual([request.kind, "heads" in request && request.heads], ["layer", [0, 1, 2, 3]]);
  const meta = { source: ID, layer: 1, rows: 2, cols: 2, codec: "u8" as const, gamma: 0.5, scale: 1, length: 4 };
  const tiles = [0, 1].map((head) => ({ ...meta, head, offset: 4 * head }));
  const refused = [{ head: 3, message: "no head 3" }];
  kernel.reply({ kind: "layer", id: request.id, source: ID, layer: 1, tiles, refused }, new Uint8Array(8).fill(255));
  assert.deepEqual(
    [0, 1, 2].map((head) => store.get(ID, 1, head)?.value(1, 1)),
    [1, 1, undefined],
  );
  assert.equal(store.failure(ID, 1, 3), "no head 3");
  const before = kernel.sent.length;
  store.requestHeads(ID, 1, [0, 1, 3]); // here, or refused: nothing is asked
  assert.equal(kernel.sent.length, before);
  store.requestHeads(ID, 1, [2]);
  assert.equal(kernel.sent.length, before + 1);
});

test("a truncated message of several heads is an error, not a picture", () => {
  store.requestHeads(ID, 1, [0]);
  const tiles = [
    {
      source: ID,
      layer: 1,
      head: 0,
      rows: 2,
      cols: 2,
      codec: "u8" as const,
      gamma: 0.5,
      scale: 1,
      offset: 4,
      length: 4,
    },
  ];
  kernel.reply({ kind: "layer", id: kernel.last.id, source: ID, layer: 1, tiles, refused: [] }, new Uint8Array(6));
  assert.equal(store.get(ID, 1, 0), undefined);
  assert.match(store.failure(ID, 1) ?? "", /was not transferred/);
});

test("a quiet request fails silently, until something missing is needed", async () => {
  const row = store.row(ID, 0, 0, 1, true);
  mock.timers.tick(WAITING_AFTER + 1);
  assert.deepEqual([store.status().state, store.status().message], ["ok", ""]);
  mock.timers.tick(GONE_AFTER);
  assert.equal(await row, null);
  assert.deepEqual([store.status().state, store.status().message], ["no-kernel", ""]);
  assert.equal(await store.row(ID, 0, 0, 2), null);
  assert.match(store.status().message, /No answer from a kernel/);
});
