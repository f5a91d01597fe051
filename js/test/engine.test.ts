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
  made: Recipe[];
  edits: { outputs: [string, number[] | null][]; rows: [string, number[]][] };
  target: Target;
  plain: Computed;
  edited: Computed;
}

const { ids } = references;
const MODELS = Object.entries(references.models as unknown as Record<string, Reference>);
const WANTED = { logits: "all", heads: false } as const;

function loaded({ packed, made }: Reference, backend: Backend): Engine {
  const engine = engineOver(packed, backend);
  engine.load(0, fileOf(packed, made));
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
