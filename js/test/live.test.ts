import assert from "node:assert/strict";
import { test } from "node:test";
import { changed } from "../src/live/changes.ts";
import { forward, type Model, type Pass } from "../src/live/forward.ts";
import { inUnit, METHODS } from "../src/live/maps.ts";
import { continued, type Predicts, probabilities } from "../src/live/predictions.ts";
import { type PackedReader, read, Unreadable } from "../src/live/reader.ts";
import { thumbsOf, tileOf } from "../src/live/tiles.ts";
import { axisIn } from "../src/live/units.ts";
import { unpackModel } from "../src/live/weights.ts";
import { decodeThumbs, decodeTile } from "../src/wire/codec.ts";
import type { Axis, Spec } from "../src/wire/wire.ts";

/** Numbers that look random, and are the same in every run. */
function numbers(count: number, seed: number): Float32Array {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (state * 16807) % 2147483647;
    return (state / 2147483647 - 0.5) * 1.6;
  });
}

/** A small Llama: two layers, two heads over one key. */
function llama(): Model {
  const layer = (seed: number) => ({
    n1: new Float32Array(4).fill(1),
    q: numbers(16, seed),
    k: numbers(8, seed + 1),
    v: numbers(8, seed + 2),
    o: numbers(16, seed + 3),
    n2: new Float32Array(4).fill(1),
    up: numbers(24, seed + 4),
    gate: numbers(24, seed + 5),
    down: numbers(24, seed + 6),
  });
  return {
    ...{ width: 4, heads: 2, sources: 1, size: 2, causal: true, after: false, rms: true, eps: 1e-6, rotary: 100 },
    ...{ scales: [Math.SQRT1_2, Math.SQRT1_2], activation: "silu", reads: "all", steps: [], padding: -1 },
    weights: { token: numbers(20, 3), end: new Float32Array(4).fill(1) },
    layers: [layer(11), layer(29)],
  };
}

const LETTERS: Extract<PackedReader, { kind: "characters" }> = {
  kind: "characters",
  tokens: [..."abc", "<s>"],
  labels: [..."abc", "<s>"],
  special: [3],
  added: [3],
  replaced: [],
  bare: false,
  lower: false,
  dropsBlanks: true,
  before: [3],
  after: [],
  longest: 6,
};
const near = (found: ArrayLike<number>, known: ArrayLike<number>, most = 1e-5): void => {
  assert.equal(found.length, known.length);
  for (let i = 0; i < known.length; i += 1)
    assert.ok(Math.abs((found[i] as number) - (known[i] as number)) <= most, `${i}: ${found[i]} is not ${known[i]}`);
};

test("a pass over later tokens is that over all of them", () => {
  const [model, ids] = [llama(), [1, 4, 2, 0, 3]];
  const whole = forward(model, ids);
  const first = forward(model, ids.slice(0, 2));
  const rest = forward(model, ids.slice(2), undefined, first);
  near(rest.logits, whole.logits.subarray(2 * 5));
  assert.deepEqual(rest.tokens, ids);
});

test("rows of attention and of rollout are shares of what a token may read", () => {
  const pass = forward(llama(), [1, 4, 2, 0]);
  for (const method of Object.values(METHODS)) {
    for (const matrix of method(pass, 1)) {
      for (let query = 0; query < 4; query += 1) {
        const row = matrix.subarray(query * 4, (query + 1) * 4);
        near([row.reduce((sum, value) => sum + value, 0)], [1], 1e-6);
        assert.ok(row.subarray(query + 1).every((value) => value === 0));
      }
    }
  }
});

test("a row that is set is read, and a head that is ablated leaves attention as it is", () => {
  const model = llama();
  const pass = forward(model, [1, 4, 2, 0]);
  const after = (specs: Partial<Spec>[]): Pass =>
    changed(model, pass, specs.map((spec) => ({ stack: "self", layer: 1, head: 0, ...spec })) as Spec[]);
  near(METHODS.attention?.(after([{ kind: "row", query: 2, to: "uniform" }]), 1)[0]?.subarray(8, 12) ?? [], [
    1 / 3,
    1 / 3,
    1 / 3,
    0,
  ]);
  near(
    METHODS.attention?.(after([{ kind: "row", query: 2, to: "one_hot", key: 1 }]), 1)[0]?.subarray(8, 12) ?? [],
    [0, 1, 0, 0],
  );
  const own = METHODS.attention?.(pass, 1)[0]?.subarray(8, 12) ?? [];
  // A later token cannot be read.
  near(
    METHODS.attention?.(after([{ kind: "row", query: 2, to: "one_hot", key: 3 }]), 1)[0]?.subarray(8, 12) ?? [],
    own,
  );
  const ablated = after([{ kind: "ablate", how: "zero" }]);
  near(ablated.attention[1] as Float32Array, pass.attention[1] as Float32Array);
  assert.notDeepEqual(ablated.logits, pass.logits);
  assert.throws(() => after([{ kind: "ablate", how: "zero", layer: 7 }]), Unreadable);
});

test("numbers are unpacked from each kind, each tensor at a multiple of 16 bytes", () => {
  const { layers, weights, ...shape } = llama();
  assert.equal(layers.length + Object.keys(weights).length, 4);
  const bytes = new Uint8Array(160);
  const halves = (at: number, ...bits: number[]): void => bytes.set(new Uint8Array(Uint16Array.from(bits).buffer), at);
  halves(0, 0x3c00, 0xc000, 0x7bff, 0x0001); // 1, -2, the largest and the smallest number
  bytes.set(new Uint8Array(Float32Array.of(0.1, -3).buffer), 16);
  bytes.set([127, 0xff], 32); // 8 bits: 127 and -1
  halves(64, 0x3800); // in halves
  bytes[80] = 0xf1; // 4 bits: 1, and 15 as number 16
  halves(96, 0x3800, 0xbc00); // in halves, from -1
  const tensors: [string, "f16" | "f32" | "q8" | "q4m", number, number][] = [
    ["token", "f16", 2, 2],
    ["end", "f32", 1, 2],
    ["0.q", "q8", 1, 32],
    ["1.q", "q4m", 1, 32],
  ];
  const model = unpackModel({ shape, layers: 2, tensors }, bytes);
  assert.deepEqual([...(model.weights.token as Float32Array)], [1, -2, 65504, 2 ** -24]);
  near(model.weights.end as Float32Array, Float32Array.of(0.1, -3), 0);
  near(model.layers[0]?.q ?? [], [63.5, -0.5, ...new Array(30).fill(0)], 0);
  near(model.layers[1]?.q ?? [], [-0.5, ...new Array(15).fill(-1), 6.5, ...new Array(15).fill(-1)], 0);
});

test("a text is read by letters; what the model does not know is named", () => {
  assert.deepEqual(read(LETTERS, " a b\nc").ids, [3, 0, 1, 2]);
  assert.deepEqual(read(LETTERS, "a b").spans, [
    [0, 0],
    [0, 1],
    [2, 3],
  ]);
  assert.deepEqual(read(LETTERS, "a<s>b").special, [true, false, true, false]);
  assert.throws(() => read(LETTERS, "abd"), /does not know “d”: it reads “abc”/);
  assert.throws(() => read(LETTERS, "aaaaaa"), /has 6 characters, and this model reads at most 5/);
  assert.throws(() => read(LETTERS, " "), /empty/);
});

test("accents, capitals and signs are read as the tokenizer does, and spans count in the text as typed", () => {
  const reader = { ...LETTERS, tokens: [..."abc.", "<s>"], special: [4], added: [4], before: [], dropsBlanks: false };
  const found = read({ ...reader, bare: true, lower: true, replaced: [["…", "..."]], longest: 9 }, "Áb…C");
  assert.deepEqual(found.ids, [0, 1, 3, 3, 3, 2]);
  assert.deepEqual(found.spans.slice(2), [
    [2, 3],
    [2, 3],
    [2, 3],
    [3, 4],
  ]);
});

test("words hold their tokens, and a map in words sums keys and averages queries", () => {
  const text = "ab c";
  const found = read(LETTERS, text);
  const axis = axisIn("word", text, found, ["<s>", "a", "b", "c"]) as Axis;
  assert.deepEqual(
    [axis.labels, axis.spans, axis.special],
    [
      ["<s>", "ab", "c"],
      [[0], [1, 2], [3]],
      [1, 0, 0],
    ],
  );
  const matrix = Float32Array.from({ length: 16 }, (_, i) => i);
  near(inUnit(matrix, axis), [0, 3, 3, 6, (5 + 6 + 9 + 10) / 2, (7 + 11) / 2, 12, 27, 15]);
  assert.equal(axisIn("paragraph", text, found, []), null);
});

test("tiles and thumbnails are read back by the views", () => {
  const matrix = Float32Array.from([1, 0, 0, 0.5, 0.5, 0, 0.2, 0.3, 0.5]);
  const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [meta, data] = tileOf({ source: "attention/token/self", layer: 0, head: 1 }, matrix);
  const tile = decodeTile(meta, view(data));
  near(
    Float32Array.from(tile?.codes ?? [], (code) => (code / 255) ** 2),
    matrix,
    0.004,
  );
  const axis = { special: [1, 0, 0] } as Axis;
  const [thumbs, codes] = thumbsOf("s", [[matrix, matrix]], axis, false);
  assert.deepEqual([thumbs.rows, thumbs.special, thumbs.scale], [2, false, [[0.5, 0.5]]]);
  assert.ok(decodeThumbs(thumbs, view(codes)));
  assert.equal(thumbsOf("s", [[matrix]], axis, true)[0].rows, 3);
});

test("a continuation repeats with its seed, keeps to top k, and ends where the model is full", () => {
  const model = llama();
  const predicts: Predicts = {
    ...{
      what: "next token",
      numbers: false,
      several: false,
      labels: [..."abcde"],
      mask: null,
      written: [..."abcde"],
      ends: [],
    },
  };
  const pass = forward(model, [1, 4]);
  const how = { how: "sample", n: 1, length: 6, temperature: 1, top_k: 0, top_p: 1, seed: 7 };
  const [one, again] = [0, 0].map(() => continued(model, predicts, pass, 20, how)[0]);
  assert.deepEqual(one, again);
  assert.equal(one?.text.length, 6);
  const [greedy] = continued(model, predicts, pass, 20, { ...how, how: "greedy" });
  assert.deepEqual(continued(model, predicts, pass, 20, { ...how, top_k: 1 })[0], greedy);
  assert.throws(() => continued(model, predicts, pass, 7, how), /reads 7 tokens, and the text has 2/);
  near([probabilities(predicts, pass.logits.subarray(0, 5)).reduce((sum, share) => sum + share, 0)], [1], 1e-9);
});
