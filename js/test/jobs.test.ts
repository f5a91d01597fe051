import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { methodsOf } from "../src/views/base/navigation.ts";
import { ANNOUNCED_AFTER } from "../src/wire/jobs.ts";
import { createTiles, GONE_AFTER, type TileStore, WAITING_AFTER } from "../src/wire/tiles.ts";
import type { Header, Offer, Request } from "../src/wire/wire.ts";
import { FakeKernel, HEADER, SOURCE } from "./fake.ts";

const ID = "zeroing/token/self";
const LAZY = { ...SOURCE, id: ID, method: "zeroing", heads: null, computed: [5] };
const OFFER: Offer = {
  method: "alti",
  title: "ALTI",
  summary: "",
  question: "What goes into a token",
  gist: "what is in it",
  speed: "seconds",
  cost: "a pass",
  refusal: "",
  mark: "",
  targets: false,
};
let kernel: FakeKernel;
let store: TileStore;

/** The kernel accepted a request: it waits (`done` is null), or is at a step. */
function news(request: Request, done: number | null, total: number | null = null): void {
  kernel.reply({ kind: "progress", id: request.id, text: "zeroing, layer 3", done, total });
}

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  kernel = new FakeKernel();
  kernel.header = { ...HEADER, sources: [...HEADER.sources, LAZY], methods: [OFFER] };
  store = createTiles();
  store.attach(kernel.model(), new AbortController().signal);
});

test("short jobs are not announced; longer ones report waiting, then progress", () => {
  store.request(ID, 3, "-");
  news(kernel.last, null);
  assert.equal(store.job(), null);
  mock.timers.tick(ANNOUNCED_AFTER);
  assert.equal(store.job()?.done, null);
  news(kernel.last, 1, 4);
  assert.deepEqual([store.job()?.text, store.job()?.done, store.job()?.total], ["zeroing, layer 3", 1, 4]);
  kernel.answer(kernel.last);
  assert.equal(store.job(), null);
  assert.ok(store.get(ID, 3, "-"));
});

test("during a job other requests are sent, but the same one is not repeated", () => {
  store.request(ID, 3, "-");
  news(kernel.last, null);
  store.request(SOURCE.id, 1, 0);
  assert.equal(kernel.tiles().at(-1)?.source, SOURCE.id);
  kernel.answer(kernel.last);
  store.request(ID, 3, "-");
  assert.equal(kernel.tiles().length, 2);
});

test("computing a layer does not trigger its neighbours", () => {
  store.request(ID, 4, "-");
  kernel.answer(kernel.last);
  mock.timers.tick(1000);
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [4, 5], // which is computed already
  );
});

test("a cancelled layer is computed when the reader returns to it", () => {
  store.request(ID, 3, "-");
  const asked = kernel.last;
  news(asked, 1, 4);
  mock.timers.tick(ANNOUNCED_AFTER);
  store.cancel();
  assert.deepEqual(kernel.last, { kind: "cancel", id: 0, job: asked.id });
  kernel.reply({ kind: "cancelled", id: asked.id, superseded: false });
  assert.equal(store.job(), null);
  assert.match(store.failure(ID, 3, "-") ?? "", /^stopped/);
  store.request(ID, 3, "-");
  kernel.emit("change:header"); // something else was computed
  store.request(ID, 3, "-");
  assert.equal(kernel.tiles().length, 1);
  store.request(ID, 2, "-");
  kernel.answer(kernel.last);
  store.request(ID, 3, "-");
  assert.deepEqual(
    kernel.tiles().map((r) => r.layer),
    [3, 2, 3],
  );
});

test("a superseded request is sent again if it is still needed", () => {
  store.request(ID, 3, "-");
  const asked = kernel.last;
  news(asked, null);
  kernel.reply({ kind: "cancelled", id: asked.id, superseded: true });
  assert.equal(store.failure(ID, 3, "-"), undefined);
  store.request(ID, 3, "-");
  assert.equal(kernel.tiles().length, 2);
});

test("a method is computed once, and the latest choice is shown", () => {
  const shown: string[] = [];
  store.make("alti", 3, () => shown.push("alti"));
  const asked = kernel.last;
  assert.deepEqual([asked.kind, asked.kind === "method" && asked.source], ["method", "alti"]);
  news(asked, 0, 4);
  store.make("alti", 3, () => shown.push("alti"));
  assert.equal(kernel.sent.filter((r) => r.kind === "method").length, 1);
  store.make("zeroing", 3, () => shown.push("zeroing")); // is here: nothing is asked
  assert.deepEqual(shown, ["zeroing"]);
  kernel.reply({ kind: "made", id: asked.id, source: "alti" });
  assert.deepEqual(shown, ["zeroing"]);
  assert.equal(store.job(), null);
});

test("a method that was stopped or failed can be chosen again", () => {
  for (const end of [
    { kind: "cancelled", superseded: false },
    { kind: "error", message: "too long" },
  ] as const) {
    store.make("alti", 3, () => {});
    news(kernel.last, 0, 4);
    kernel.reply({ ...end, id: kernel.last.id });
  }
  store.make("alti", 3, () => {});
  assert.equal(kernel.sent.filter((r) => r.kind === "method").length, 3);
});

test("the error of a method is shown until the next choice", () => {
  store.make("alti", 3, () => {});
  news(kernel.last, 0, 4);
  kernel.reply({ kind: "error", id: kernel.last.id, message: "too long" });
  assert.deepEqual(store.status(), { state: "ok", message: "alti: too long" });
  store.make("zeroing", 3, () => {});
  assert.equal(store.status().message, "");
});

test("a kernel that dies while it computes is noticed, and one that is only slow is not given up", () => {
  store.request(ID, 3, "-");
  const asked = kernel.last;
  news(asked, 1, 4);
  for (let i = 0; i < 5; i += 1) {
    mock.timers.tick(GONE_AFTER);
    assert.equal(kernel.last.kind, "ping");
    kernel.reply({ kind: "pong", id: kernel.last.id });
  }
  assert.equal(store.status().state, "ok");
  mock.timers.tick(GONE_AFTER);
  mock.timers.tick(GONE_AFTER);
  assert.equal(store.status().state, "no-kernel");
  assert.equal(store.job(), null);
  kernel.answer(asked); // it was only slow after all
  assert.ok(store.get(ID, 3, "-"));
  assert.equal(store.status().state, "ok");
});

test("a late answer of a kernel that was given up is still used", () => {
  store.make("alti", 3, () => {});
  const asked = kernel.last;
  mock.timers.tick(WAITING_AFTER);
  assert.match(store.status().message, /busy/);
  mock.timers.tick(GONE_AFTER);
  assert.equal(store.status().state, "no-kernel");
  news(asked, 0, 4);
  mock.timers.tick(ANNOUNCED_AFTER);
  assert.equal(store.status().state, "ok");
  assert.equal(store.job()?.total, 4);
  assert.equal(kernel.sent.filter((r) => r.kind === "method").length, 1);
});

test("a menu lists methods by question: what is available with its cost, then the rest with the reason", () => {
  const header = {
    ...HEADER,
    methods: [
      { ...OFFER, method: "shapley", question: "By perturbing", refusal: "no model" },
      { ...OFFER, method: "lrp", question: "For this prediction", speed: "minutes" },
      { ...OFFER, method: "x", refusal: "no head" },
      OFFER,
      { ...OFFER, method: "mine", mark: "fails: causal" },
      { ...OFFER, method: "raw", question: "Attention", refusal: "no weights" },
    ],
  } as Header;
  assert.deepEqual(
    methodsOf(header, []).map(({ group, value, note, badge, off }) => [group, value, note, badge, off]),
    [
      ["Attention", "attention", "which words each head reads", "instant", undefined],
      ["Attention", "raw", "no weights", undefined, true],
      ["What goes into a token", "alti", "what is in it", "seconds", false],
      ["What goes into a token", "mine", "fails: causal · what is in it", "seconds", false],
      ["What goes into a token", "x", "no head", undefined, true],
      ["For this prediction", "lrp", "what is in it", "minutes", false],
      ["By perturbing", "shapley", "no model", undefined, true],
    ],
  );
  const lost = methodsOf(header, ["attention", "alti"], true);
  assert.deepEqual(
    lost.map(({ note, badge }) => [note, badge]),
    [
      ["which words each head reads", "instant"],
      ["needs a running kernel", undefined],
    ],
  );
});

test("a question that nothing available answers comes last", () => {
  const methods = [
    { ...OFFER, method: "raw", question: "Attention", refusal: "no weights" },
    { ...OFFER, method: "shapley", question: "By perturbing" },
  ];
  const items = methodsOf({ ...HEADER, sources: [], methods }, []);
  assert.deepEqual(
    items.map(({ value }) => value),
    ["shapley", "raw"],
  );
});
