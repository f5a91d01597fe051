import assert from "node:assert/strict";
import { test } from "node:test";
import { localClient } from "../src/engine/client.ts";
import { type Engine, engineOver } from "../src/engine/engine.ts";
import { plainBackend } from "../src/engine/plain.ts";
import { type PackedModel, type Pass, type Shape, UNCHANGED } from "../src/engine/types.ts";
import { editsOf } from "../src/live/changes.ts";
import { METHODS } from "../src/live/maps.ts";
import type { LiveModel } from "../src/live/model.ts";
import { continued, type Predicts, probabilities } from "../src/live/predictions.ts";
import { type PackedReader, read, Unreadable } from "../src/live/reader.ts";
import { explain, offering } from "../src/live/relevance.ts";
import { thumbsOf, tileOf } from "../src/live/tiles.ts";
import { axisIn } from "../src/live/units.ts";
import { decodeThumbs, decodeTile } from "../src/wire/codec.ts";
import { inUnit } from "../src/wire/matrices.ts";
import type { Axis, Header, Spec } from "../src/wire/wire.ts";
import { fileOf, type Recipe } from "./engineModels.ts";
import { HEADER } from "./fake.ts";

/** A small Llama: two layers, two heads over one key. */
const SHAPE: Shape = {
  ...{ width: 4, heads: 2, sources: 1, size: 2, causal: true, after: false, rms: true, eps: 1e-6, rotary: 100 },
  ...{ scales: [Math.SQRT1_2, Math.SQRT1_2], activation: "silu", reads: "all", steps: [], padding: -1 },
};
function llama(): Engine {
  const matrices = { q: [4, 4], k: [2, 4], v: [2, 4], o: [4, 4], up: [6, 4], gate: [6, 4], down: [4, 6] };
  const layer = Object.entries({ n1: [1, 4], n2: [1, 4], ...matrices });
  const tensors = [
    ["token", "f32", 5, 4],
    ...[0, 1].flatMap((at) => layer.map(([name, [to, from]]) => [`${at}.${name}`, "f32", to, from])),
    ["end", "f32", 1, 4],
  ] as PackedModel["tensors"];
  const engine = engineOver({ shape: SHAPE, layers: 2, tensors }, plainBackend());
  const recipes = tensors.map(([, , to], i): Recipe => (to === 1 ? [i, 1, 0] : [i, 0, 1.6]));
  engine.load(0, fileOf({ shape: SHAPE, layers: 2, tensors }, recipes));
  return engine;
}
const whole = { logits: "all", heads: false } as const;

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

test("rows of attention and of rollout are shares of what a token may read", () => {
  const pass = llama().pass([1, 4, 2, 0], UNCHANGED, whole);
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
  const engine = llama();
  const pass = engine.pass([1, 4, 2, 0], UNCHANGED, whole);
  const after = (specs: Partial<Spec>[]): Pass => {
    const all = specs.map((spec) => ({ stack: "self", layer: 1, head: 0, ...spec })) as Spec[];
    return engine.pass(pass.tokens, editsOf(SHAPE, pass, all), whole);
  };
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

test("a continuation repeats with its seed, keeps to top k, and ends where the model is full", async () => {
  const engine = localClient(llama());
  const predicts: Predicts = {
    ...{ kind: "next token", numbers: false, several: false, outcomes: 5, labels: null, mask: null, ends: [] },
    ...{ label: (id) => "abcde"[id] ?? "", written: (ids) => ids.map((id) => "abcde"[id]).join("") },
  };
  const write = (longest: number, more = {}) =>
    continued({ engine, predicts, longest }, [1, 4], { ...how, ...more }).then(([text]) => text);
  const how = { how: "sample", n: 1, length: 6, temperature: 1, top_k: 0, top_p: 1, seed: 7 };
  const sampled = await write(20);
  assert.deepEqual(await write(20), sampled);
  assert.equal(sampled?.text.length, 6);
  assert.deepEqual(await write(20, { top_k: 1 }), await write(20, { how: "greedy" }));
  await assert.rejects(write(7), /reads 7 tokens, and the text has 2/);
  const logits = Float32Array.from([0, 1, -2, 3, 0.5]);
  near([probabilities(predicts, logits).reduce((sum, share) => sum + share, 0)], [1], 1e-9);
});

test("an outcome is explained in words and numbers, rather than another", async () => {
  const engine = localClient(llama());
  const predicts: Predicts = {
    ...{ kind: "next token", numbers: false, several: false, outcomes: 5, labels: null, mask: null, ends: [] },
    ...{ label: (id) => "abcde"[id] ?? "", written: () => "" },
  };
  const offer = {
    method: "lrp",
    title: "lrp",
    targets: true,
    refusal: "needs a running kernel",
    question: "",
    gist: "",
  };
  const token = { unit: "token", labels: [..."bec"], spans: null, special: [0, 0, 0] } as unknown as Axis;
  const written = { ...HEADER, axes: { token }, sources: [], methods: [offer] } as unknown as Header;
  const header = offering(written);
  assert.deepEqual(
    [header.methods[0]?.refusal, header.predictions.method, header.predictions.explained],
    ["", "lrp", null],
  );
  const live = { engine, predicts, pass: (ids: readonly number[]) => engine.pass(ids, UNCHANGED, whole) };
  const ids = [1, 4, 2];
  const { sources, values } = await explain(live as unknown as LiveModel, ids, header, "lrp@3-1");
  const [source] = sources;
  assert.equal(source?.title, "AttnLRP for 'd' rather than 'b'");
  const { logits } = await engine.pass(ids, UNCHANGED, whole);
  const [target, foil] = [13, 11].map((at) => logits[at] as number) as [number, number];
  const [balance] = source?.balance ?? [];
  near(balance ?? [], [values.reduce((sum, value) => sum + value, 0), target - foil - (balance?.[0] ?? 0)], 1e-4);
  const strongest = "bec"[values.indexOf(Math.max(...values))];
  assert.match(source?.findings[0] ?? "", new RegExp(`“${strongest}”.* speaks? for “d” rather than “b”`));
  const complete = await explain(live as unknown as LiveModel, ids, header, "cp_lrp@3-1");
  // Without biases nothing is lost.
  assert.match(complete.sources[0]?.accounts[0] ?? "", /^Tokens account for all of/);
  await assert.rejects(explain(live as unknown as LiveModel, ids, header, "saliency"), Unreadable);
});
