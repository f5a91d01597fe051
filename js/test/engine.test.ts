import assert from "node:assert/strict";
import { test } from "node:test";
import { type Engine, engineOver } from "../src/engine/engine.ts";
import type { Backend } from "../src/engine/kernels.ts";
import { type Edits, type PackedModel, type Rule, type Target, UNCHANGED } from "../src/engine/types.ts";
import references from "./engine.json";
import { BACKENDS, near } from "./engineBackends.ts";
import { fileOf, type Recipe } from "./engineModels.ts";

interface Computed extends Record<Rule, { tokens: number[]; heads: number[][] }> {
  value: number[];
  logits: number[];
  attention: number[][];
  states: number[];
}

interface Reference {
  packed: PackedModel;
  recipes: Recipe[];
  edits: { outputs: [string, number[] | null][]; rows: [string, number[]][] };
  target: Target;
  plain: Computed;
  edited: Computed;
}

const { ids } = references;
const MODELS = Object.entries(references.models as unknown as Record<string, Reference>);
const WANTED = { logits: "all", heads: false } as const;

function loaded({ packed, recipes }: Reference, backend: Backend): Engine {
  const engine = engineOver(packed, backend);
  engine.load(0, fileOf(packed, recipes));
  return engine;
}

const editsOf = ({ edits }: Reference): Edits => ({
  outputs: new Map(edits.outputs.map(([at, output]) => [at, output && Float32Array.from(output)])),
  rows: new Map(edits.rows.map(([at, row]) => [at, Float32Array.from(row)])),
});

for (const [backend, make] of Object.entries(BACKENDS)) {
  for (const [name, reference] of MODELS) {
    for (const [kind, edits] of [["plain", UNCHANGED] as const, ["edited", editsOf(reference)] as const]) {
      test(`${backend}, ${name}, ${kind}: attention, states and logits are those of torch`, async () => {
        const engine = loaded(reference, await make());
        const pass = engine.pass(ids, edits, WANTED);
        const expected = reference[kind];
        expected.attention.forEach((layer, i) => {
          near(pass.attention[i]!, layer, `attention of layer ${i}`);
        });
        near(pass.states, expected.states, "states");
        near(pass.logits, expected.logits, "logits");
        const last = engine.pass(ids, edits, { logits: "last", heads: true });
        near(last.logits, expected.logits.slice(-last.logits.length), "last logits");
        assert.equal(last.queries.length, 2);
      });

      test(`${backend}, ${name}, ${kind}: relevance is that of attnwidgets`, async () => {
        const engine = loaded(reference, await make());
        for (const rule of ["gradient", "lrp", "cp_lrp"] as const) {
          const expected = reference[kind][rule];
          const { value, tokens, heads } = engine.relevance(ids, edits, reference.target, rule);
          const most = Math.max(...reference[kind].logits.map(Math.abs));
          assert.ok(Math.abs(value - reference[kind].value[0]!) < 3e-6 * most, `${rule}: ${value}`);
          near(tokens, expected.tokens, `${rule}: tokens`, 2e-5);
          expected.heads.forEach((layer, i) => {
            near(heads[i]!, layer, `${rule}: heads of layer ${i}`, 2e-5);
          });
        }
      });
    }
  }
}

const [, LLAMA] = MODELS.find(([name]) => name === "llama")!;

for (const [backend, make] of Object.entries(BACKENDS)) {
  test(`${backend}: a file arrives in parts of any length and order`, async () => {
    const file = fileOf(LLAMA.packed, LLAMA.recipes);
    const engine = engineOver(LLAMA.packed, await make());
    const cuts = [0, 1, 40, 333, 3_001, 9_999, file.length];
    const parts = cuts.slice(1).map((end, i): [number, Uint8Array] => [cuts[i]!, file.slice(cuts[i], end)]);
    for (const [at, bytes] of parts.reverse()) {
      assert.throws(() => engine.pass(ids, UNCHANGED, WANTED), /not loaded/);
      engine.load(at, bytes);
    }
    near(engine.pass(ids, UNCHANGED, WANTED).logits, LLAMA.plain.logits, "logits");
    assert.throws(() => engine.load(0, file.slice(0, 20)), /loaded twice/);
    assert.throws(() => engine.load(file.length, file.slice(0, 20)), /a part reaches to/);
  });

  test(`${backend}: a continuation takes the tokens that whole passes give`, async () => {
    for (const [name, reference] of MODELS) {
      if (!["gpt2", "llama", "qwen2", "qwen3"].includes(name)) continue;
      const engine = loaded(reference, await make());
      const start = ids.slice(0, 3);
      const sampling = { how: "greedy", length: 6, temperature: 1, top_k: 0, top_p: 1, seed: 0, ends: [] } as const;
      const { ids: found, logs } = engine.continued(start, { ...sampling, ends: [] }, () => {});
      const text = [...start];
      found.forEach((id, i) => {
        const { logits } = engine.pass(text, UNCHANGED, { logits: "last", heads: false });
        const top = logits.reduce((best, logit, at) => (logit > logits[best]! ? at : best), 0);
        assert.equal(id, top, name);
        const sum = Math.log(logits.reduce((all, logit) => all + Math.exp(logit), 0));
        assert.ok(Math.abs(logs[i]! - (logits[id]! - sum)) < 1e-5, name);
        text.push(id);
      });
      const ended = engine.continued(start, { ...sampling, ends: [found[0]!] }, () => {});
      assert.deepEqual([ended.ids, ended.ended], [[found[0]], true], name);
    }
  });

  test(`${backend}: what a model does not have is refused`, async () => {
    const engine = loaded(LLAMA, await make());
    const target = { row: -1, plus: 1, minus: null };
    const output = new Map([["0.9", null]]);
    assert.throws(
      () => engine.pass(ids, { ...UNCHANGED, outputs: output }, WANTED),
      /0\.9 names a layer, head or token/,
    );
    const rows = new Map([["0.1.2", new Float32Array(3)]]);
    assert.throws(() => engine.pass(ids, { ...UNCHANGED, rows }, WANTED), /has 3 numbers instead of 7/);
    assert.throws(() => engine.pass([], UNCHANGED, WANTED), /text is empty/);
    assert.throws(() => engine.relevance(ids, UNCHANGED, { ...target, plus: 13 }, "lrp"), /outcome 13 is not among/);
    assert.throws(() => engine.relevance(ids, UNCHANGED, { ...target, row: 7 }, "lrp"), /no row 7/);
    const [, bert] = MODELS.find(([name]) => name === "bert")!;
    const other = loaded(bert, await make());
    assert.throws(() => other.continued(ids, {} as never, () => {}), /does not generate text/);
    assert.throws(() => other.pass([...ids, ...ids], UNCHANGED, WANTED), /14 tokens, and the model reads at most 9/);
  });
}

test("CP-LRP of a model without biases adds up to the target", async () => {
  const engine = loaded(LLAMA, await BACKENDS.plain());
  const { value, tokens } = engine.relevance(ids, UNCHANGED, { row: -1, plus: 4, minus: null }, "cp_lrp");
  near([tokens.reduce((sum, relevance) => sum + relevance, 0)], [value], "sum", 1e-4);
});
