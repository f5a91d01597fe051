import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { percent } from "../src/numbers.ts";
import { resolveHead } from "../src/selection.ts";
import { fitting } from "../src/views/base/foldRow.ts";
import { typedItem } from "../src/views/base/menu.ts";
import { attends, fixedWords, meaningOf } from "../src/views/base/mixers.ts";
import {
  addressWords,
  headAt,
  headChoices,
  methodsOf,
  moveLayer,
  nextHead,
  stacksOf,
  unitsOf,
  whereWords,
} from "../src/views/base/navigation.ts";
import { createPlayer } from "../src/views/base/player.ts";
import { besideIn } from "../src/views/base/popover.ts";
import type { Tile } from "../src/wire/tile.ts";
import type { Header, HeadKey, Offer, Source } from "../src/wire/wire.ts";
import { SOURCE } from "./fake.ts";

function source(method: string, unit: string, stack = "self", heads: number[] | null = [0, 1, 2]): Source {
  const id = `${method}/${unit}/${stack}`;
  return { ...SOURCE, id, method, title: method, unit, stack, query: unit, key: unit, layers: [0, 1, 2], heads };
}

/** A context with only what the controls read: the position, and the loaded tiles. */
function context(shown: Source, layer: number, head: HeadKey, tiles: Set<number>) {
  const at = { layer, head };
  const asked: number[] = [];
  let state = "ok";
  const ctx = {
    source: () => shown,
    resolved: () => ({ source: shown, layer: at.layer, head: at.head, notes: [] }),
    layered: () => ctx.resolved(),
    options: { indexBase: 0 },
    layerName: (l: number) => String(l),
    headName: (h: HeadKey) => String(h),
    selection: { set: (values: Partial<typeof at>) => Object.assign(at, values) },
    tiles: {
      get: (_: string, l: number) => (tiles.has(l) ? ({} as Tile) : undefined),
      request: (_: string, l: number) => asked.push(l),
      failure: () => undefined,
      status: () => ({ state, message: "" }),
    },
  } as unknown as ViewContext;
  return { ctx, at, asked, lose: () => (state = "no-kernel") };
}

test("play goes through the layers, waits for a tile, and ends at the last layer", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const tiles = new Set([0, 1]);
    const { ctx, at, asked } = context(source("attention", "token"), 0, 1, tiles);
    const player = createPlayer(ctx, new AbortController().signal, () => {});
    player.toggle(false);
    assert.equal(at.layer, 1);
    mock.timers.tick(500);
    assert.equal(at.layer, 1, "layer 2 is not there yet");
    assert.deepEqual(asked, [2]);
    tiles.add(2);
    player.arrived();
    assert.equal(at.layer, 2);
    mock.timers.tick(500);
    assert.equal(player.playing(), false);
    player.toggle(false);
    assert.equal(at.layer, 0, "from the end it begins again");
    player.toggle(false);
    mock.timers.tick(5000);
    assert.equal(at.layer, 0, "paused");
  } finally {
    mock.timers.reset();
  }
});

test("play ends when there is no kernel, and with reduced motion it takes one step", () => {
  const shown = context(source("attention", "token"), 0, 1, new Set([0]));
  const player = createPlayer(shown.ctx, new AbortController().signal, () => {});
  shown.lose();
  player.toggle(false);
  assert.equal(player.playing(), false);
  player.toggle(true);
  assert.equal(player.playing(), false);
  assert.equal(shown.at.layer, 1);
});

test("in a model of several mixers, layers carry their kind, and what has no heads is not called one", () => {
  const attention = { name: "attention", heads: 3, meaning: 0, attends: true, fixed: "" };
  const states = { name: "state space", heads: 0, meaning: 1, attends: false, fixed: "it has channels" };
  const convolution = { ...states, name: "convolution, reaches back 2 tokens", meaning: 2 };
  const mixers = {
    layers: { 0: [attention], 1: [states], 2: [convolution] },
    meanings: ["", "share; forgetting", "share"],
  };
  const shown = { ...source("mixing", "token"), mixers };
  const { ctx } = context(shown, 0, 2, new Set());
  assert.equal(whereWords(ctx), "layer 0 · head 0.2 · attention");
  assert.equal(addressWords(ctx, 0, 2), "layer 0, head 2 (0.2) · attention");
  assert.equal(addressWords(ctx, 1, 0), "layer 1, all channels · state space");
  assert.equal(addressWords(ctx, 2, "mean"), "layer 2, all channels · convolution, reaches back 2 tokens");
  assert.equal(headAt(ctx, 1, 0), "layer 1");
  assert.deepEqual(headChoices(shown, 0), ["mean", "max", 0, 1, 2]);
  assert.deepEqual(headChoices(shown, 1), [0]);
  assert.deepEqual(
    [0, 1, 2].map((layer) => meaningOf(shown, layer, 0)),
    ["", "share; forgetting", "share"],
  );
  assert.equal(resolveHead(shown, 1, 2), 0);
  assert.equal(resolveHead(shown, 0, 2), 2);
});

test("a head of a block with two mixers is of the group that it is counted in", () => {
  const attention = { name: "attention", heads: 2, meaning: 0, attends: true, fixed: "" };
  const delta = { name: "gated delta rule", heads: 2, meaning: 1, attends: false, fixed: "" };
  const states = { name: "state space", heads: 0, meaning: 1, attends: false, fixed: "it has channels" };
  const mixers = { layers: { 0: [attention, delta, states] }, meanings: ["", "share"] };
  const shown = { ...source("mixing", "token"), mixers };
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((head) => attends(shown, 0, head)),
    [true, true, false, false, false],
  );
  assert.deepEqual(
    [1, 2, 4].map((head) => fixedWords(shown, 0, head)),
    ["", "", "it has channels"],
  );
  assert.equal(fixedWords(source("attention", "token"), 0, 0), "");
});

test("layers and heads stop at both ends; a reduction leads to the nearest head", () => {
  const { ctx, at } = context(source("attention", "token"), 2, "mean", new Set());
  moveLayer(ctx, 1);
  assert.equal(at.layer, 2);
  moveLayer(ctx, -1);
  assert.equal(at.layer, 1);
  assert.equal(whereWords(ctx), "layer 1 · mean of heads");
  const shown = source("attention", "token");
  assert.deepEqual(headChoices(shown, 1), ["mean", "max", 0, 1, 2]);
  assert.equal(nextHead(shown, 1, "mean", 1), 0);
  assert.equal(nextHead(shown, 1, "max", -1), 2);
  assert.equal(nextHead(shown, 1, 2, 1), 2);
  assert.deepEqual(headChoices(source("rollout", "token", "self", null), 1), []);
});

test("a view's position is named, with the layers that are there if some are missing, in the user's index base", () => {
  const { ctx } = context(source("attention", "token"), 0, "-", new Set());
  assert.equal(whereWords(ctx), "layer 0");
  const fromOne = { ...ctx, layerName: (l: number) => String(l + 1) } as ViewContext;
  assert.equal(whereWords(fromOne), "layer 1");
  const kept = context({ ...source("attention", "token"), layers: [1, 7, 9] }, 7, "-", new Set());
  assert.equal(whereWords(kept.ctx), "layer 7 (1, 7, 9)");
});

test("a head is named as in papers, in the user's index base", () => {
  const { ctx } = context(source("attention", "token"), 1, 2, new Set());
  assert.equal(whereWords(ctx), "layer 1 · head 1.2");
  assert.equal(addressWords(ctx, 1, 2), "layer 1, head 2 (1.2)");
  assert.equal(addressWords(ctx, 1, "max"), "layer 1, max of heads");
  const fromOne = { ...ctx, options: { indexBase: 1 }, layerName: (l: number) => String(l + 1) };
  const named = { ...fromOne, headName: (h: HeadKey) => String(Number(h) + 1) } as ViewContext;
  assert.equal(whereWords(named), "layer 2 · head 2-3");
});

test("an explorer offers what the store has, within its restrictions", () => {
  const sources = [source("attention", "token"), source("attention", "word"), source("rollout", "token")];
  const header = { sources: [...sources, source("attention", "token", "cross")], methods: [] as Offer[] } as Header;
  assert.deepEqual(unitsOf(header, sources[0] as Source, []), ["token", "word"]);
  assert.deepEqual(unitsOf(header, sources[0] as Source, ["word"]), ["word"]);
  assert.deepEqual(unitsOf(header, sources[2] as Source, []), ["token"]);
  assert.deepEqual(
    methodsOf(header, ["rollout"]).map((m) => m.value),
    ["rollout"],
  );
  assert.deepEqual(stacksOf(header, "attention"), ["self", "cross"]);
});

test("a probability never rounds to impossible or certain", () => {
  assert.equal(percent(0.4231), "42.3\u00a0%");
  assert.equal(percent(0.0004), "< 0.1\u00a0%");
  assert.equal(percent(0.99996), "> 99.9\u00a0%");
  assert.equal(percent(1), "100.0\u00a0%");
  assert.equal(percent(0), "0.0\u00a0%");
});

test("letters find the next item that begins with them, whatever their case, and go round", () => {
  const items = ["attention", "ALTI", "rollout"].map((label) => ({ value: label, label }));
  assert.equal(typedItem(items, 1, "a"), 1);
  assert.equal(typedItem(items, 2, "a"), 0);
  assert.equal(typedItem(items, 0, "RO"), 2);
  assert.equal(typedItem(items, 1, "x"), 1);
});

test("a panel opens below, above where below is no room, and inside the page where neither is", () => {
  assert.equal(besideIn(600, 100, 128, 300), 132);
  assert.equal(besideIn(600, 500, 528, 300), 196);
  assert.equal(besideIn(600, 280, 308, 400), 200);
  assert.equal(besideIn(600, 280, 308, 700), 0);
});

test("of a row those are in sight that fit, pressed ones first, and always one", () => {
  const none = [false, false, false, false];
  assert.deepEqual(fitting([40, 40, 40], none, 140, 10, 30), [true, true, true]);
  assert.deepEqual(fitting([40, 40, 40, 40], none, 140, 10, 30), [true, true, false, false]);
  assert.deepEqual(fitting([40, 40, 40, 40], [false, false, false, true], 140, 10, 30), [true, false, false, true]);
  assert.deepEqual(fitting([400, 40], none, 140, 10, 30), [true, false]);
});
