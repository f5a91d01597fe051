import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import type { AnyModel } from "@anywidget/types";
import { engineOver } from "../src/engine/engine.ts";
import { plainBackend } from "../src/engine/plain.ts";
import { UNCHANGED } from "../src/engine/types.ts";
import { PageModel } from "../src/host/pageModel.ts";
import type { PackedReader } from "../src/live/reader.ts";
import type { PackedLive } from "../src/live/session.ts";
import { createStandIn } from "../src/live/standIn.ts";
import { asDeclared, type Declared } from "../src/wire/binary.ts";
import { joinStandIn, type Relieved, type StandInHolder, type StateOf } from "../src/wire/standIn.ts";
import { createTiles, type TileClient } from "../src/wire/tiles.ts";
import type { ViewState } from "../src/wire/viewState.ts";
import type { Header, Request, StoreState } from "../src/wire/wire.ts";
import { HEADER, SOURCE, START } from "./fake.ts";

const LETTERS: PackedReader = {
  ...{
    kind: "characters",
    tokens: [..."abc"],
    labels: [..."abc"],
    special: [],
    added: [],
    replaced: [],
    before: [],
    after: [],
    longest: 6,
  },
  ...{ bare: false, lower: false, dropsBlanks: true },
};
const IDS = [0, 1, 2, 0];
const SIZES = Object.entries({ token: 12, "0.n1": 4, "0.q": 16, "0.k": 16, "0.v": 16, "0.o": 16, "0.n2": 4 });
const REST = Object.entries({ "0.up": 16, "0.gate": 16, "0.down": 16, end: 4 });
/** Weights between -0.5 and 0.5 in float16, which looks random. */
const BYTES = new Uint8Array([...SIZES, ...REST].reduce((sum, [, count]) => sum + Math.ceil(count / 8) * 16, 0));
for (let i = 0; i < BYTES.length; i += 2) {
  BYTES[i] = (i * 37) % 256;
  BYTES[i + 1] = 0x34 + (i % 4) + (i % 3 ? 0x80 : 0);
}
const MODEL: PackedLive["model"] = {
  shape: {
    ...{ width: 4, heads: 2, sources: 2, size: 2, causal: true, after: false, rms: true, eps: 1e-6, rotary: 100 },
    ...{ scales: [Math.SQRT1_2], activation: "silu", reads: "all", steps: [], padding: -1 },
  },
  layers: 1,
  tensors: [...SIZES, ...REST].map(([name, count]) => [name, "f16", count / 4, 4]),
};
const ENGINE = engineOver(MODEL, plainBackend());
ENGINE.load(0, BYTES);
const RECORDED = ENGINE.pass(IDS, UNCHANGED, { logits: "last", heads: false });
const PACKED = {
  ...{ name: "Small", parameters: 140, model: MODEL, reader: LETTERS, longest: 6, files: null, rounding: "" },
  predicts: {
    what: "next token",
    numbers: false,
    several: false,
    outcomes: 3,
    labels: [..."abc"],
    mask: null,
    ends: [],
  },
  check: { text: "abca", ids: IDS, logits: [...RECORDED.logits], relevance: null },
};
const AXIS = {
  ...{ unit: "token", labels: [..."abca"], spans: null, special: [0, 0, 0, 0], segment: [0, 0, 0, 0] },
  ...{ boundary: null, grid: null, cells: null, times: null },
};
const TEXT: Header = {
  ...HEADER,
  text: "abca",
  axes: { token: AXIS },
  sources: [{ ...SOURCE, id: "attention/token/self", query: "token", key: "token", layers: [0], causal: true }],
};

/** A notebook with one view, whose kernel may be gone. */
function notebook() {
  const kernel = { isGone: false, heard: [] as Request[] };
  const refs = { store: "anywidget:s", selection: "anywidget:c" };
  const stand_in = { model: "anywidget:m", code: "anywidget:p", ids: IDS };
  const models = new Map(
    Object.entries({
      s: new PageModel({ header: TEXT, eager: new DataView(new ArrayBuffer(0)), stand_in }),
      c: new PageModel({ ...START }),
      m: new PageModel({ packed: PACKED, weights: new DataView(deflateSync(BYTES).buffer.slice(0)) }),
      v: new PageModel({ ...refs, options: { filters: {}, texts: { items: [], shown: 0 } } }),
    }),
  );
  const packed = deflateSync(BYTES);
  models.get("m")?.set("weights", new Uint8Array(packed));
  for (const name of ["s", "v"]) {
    const model = models.get(name) as PageModel;
    model.onSend = (request) => {
      if (kernel.isGone) return;
      kernel.heard.push(request as Request);
      if (request.kind === "ping") model.emit("msg:custom", { kind: "pong", id: request.id }, []);
    };
  }
  const end = new AbortController();
  const place: StandInHolder = {};
  const host = {
    getModel: async (ref: string) => models.get(ref.slice(10))?.proxy(end.signal),
    getWidget: async () => ({ exports: { code: () => ({ standIn: createStandIn }) } }),
  };
  const made = { host, model: models.get("v")?.proxy(end.signal), signal: end.signal };
  /** The view as `createContext` connects it, again for every text. */
  const draw = async () => {
    const ref = String(models.get("v")?.get("store"));
    const given = (place.standIn?.modelOf(ref, end.signal) ?? (await host.getModel(ref))) as AnyModel<
      StateOf<StoreState>
    >;
    const model = asDeclared(made.model as never) as Declared<StateOf<ViewState>>;
    const [store, tiles] = [asDeclared(given), createTiles()];
    tiles.attach(store, end.signal);
    const selection = models.get("c")?.proxy(end.signal);
    const view = { props: made, model, given, store, selection, tiles } as unknown as Relieved;
    const answers: unknown[] = [];
    model.on("msg:custom", ((message: unknown) => answers.push(message)) as never);
    await joinStandIn(view, place, []);
    return { ...view, answers };
  };
  return { kernel, models, place, draw, end };
}

/** Waits until something is so: what a stand-in computes takes as long as the processor needs. */
const until = async (isSo: () => unknown): Promise<void> => {
  for (let tries = 0; tries < 1000 && !isSo(); tries += 1) await new Promise((done) => setTimeout(done, 10));
};
const isComputedHere = (tiles: TileClient) => (): boolean => tiles.status().message.includes("computed here");

test("what a lost kernel did not answer is computed, and the kernel is asked again when it is back", async () => {
  const { kernel, models, draw, end } = notebook();
  const { tiles, store, model, answers } = await draw();
  kernel.isGone = true;
  tiles.lose();
  await until(isComputedHere(tiles));
  assert.match(tiles.status().message, /computed here/);
  tiles.request(SOURCE.id, 0, 1);
  await until(() => tiles.get(SOURCE.id, 0, 1));
  const tile = tiles.get(SOURCE.id, 0, 1);
  assert.ok(tile, "the tile is computed");
  assert.ok(Math.abs(tile.value(3, 1) - (RECORDED.attention[0]?.[16 + 13] as number)) < 0.01);
  model.send({ kind: "ask", id: 7, topic: "outcomes", args: { position: null } } as never);
  await until(() => answers.length);
  assert.deepEqual(
    answers.map((answer) => (answer as { kind: string; id: number }).id),
    [7],
  );
  kernel.isGone = false;
  models.get("s")?.emit("msg:custom", { kind: "pong", id: 1 }, []);
  assert.equal(tiles.status().message, "");
  assert.equal(store.answer, null);
  tiles.request(SOURCE.id, 0, 0);
  assert.deepEqual(
    kernel.heard.map(({ kind }) => kind),
    ["tile"],
  );
  end.abort();
});

test("a text that is typed without a kernel has models of its own, and the recorded one comes back", async () => {
  const { kernel, models, draw, end } = notebook();
  const first = await draw();
  kernel.isGone = true;
  first.tiles.lose();
  await until(isComputedHere(first.tiles));
  first.model.send({ kind: "ask", id: 1, topic: "text", args: { text: "ba" } } as never);
  await until(() => first.answers.length);
  assert.equal((first.answers[0] as { kind: string }).kind, "answer", JSON.stringify(first.answers));
  const ref = models.get("v")?.get("store");
  assert.notEqual(ref, "anywidget:s");
  const second = await draw();
  assert.equal(second.store.get("header").text, "ba");
  second.tiles.request("attention/token/self", 0, 0);
  await until(() => second.tiles.get("attention/token/self", 0, 0));
  assert.equal(second.tiles.get("attention/token/self", 0, 0)?.value(0, 0), 1);
  // The kernel is back, and knows nothing of this text: it goes on being computed here.
  models.get("s")?.emit("msg:custom", { kind: "pong", id: 1 }, []);
  second.model.send({ kind: "ask", id: 2, topic: "surprisal", args: {} } as never);
  second.model.save_changes();
  await until(() => second.answers.length);
  assert.deepEqual([kernel.heard.length, second.answers.length], [0, 1]);
  second.model.send({ kind: "ask", id: 3, topic: "text", args: { index: 0 } } as never);
  await until(() => models.get("v")?.get("store") === "anywidget:s");
  assert.equal(models.get("v")?.get("store"), "anywidget:s");
  end.abort();
});

test("a model that was not asked for yet is asked for once, after the views", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { kernel, models, draw, end } = notebook();
  models.get("s")?.set("stand_in", {});
  await draw();
  assert.equal(kernel.heard.length, 0);
  t.mock.timers.tick(2000);
  assert.deepEqual(
    kernel.heard.map((request) => (request as unknown as { topic: string }).topic),
    ["stand_in"],
  );
  end.abort();
  models.get("s")?.set("stand_in", null);
  await notebook().draw();
});
