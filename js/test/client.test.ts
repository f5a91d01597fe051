import assert from "node:assert/strict";
import { test } from "node:test";
import { type EngineClient, localClient, portClient } from "../src/engine/client.ts";
import { createEngine } from "../src/engine/engine.ts";
import { listen, type Port } from "../src/engine/serve.ts";
import { type PackedModel, type Sampling, UNCHANGED } from "../src/engine/types.ts";
import references from "./engine.json";
import { MODULES, near } from "./engineBackends.ts";
import { fileOf, type Recipe } from "./engineModels.ts";

const { ids } = references;
const packed = references.models.llama.packed as unknown as PackedModel;
const file = (): Uint8Array => fileOf(packed, references.models.llama.recipes as Recipe[]);
const GREEDY: Sampling = { how: "greedy", length: 2, temperature: 1, top_k: 0, top_p: 1, seed: 0, ends: [] };
const LAST = { logits: "last", heads: false } as const;

/** The same requests go to an engine here and to one behind a channel, as in a worker. */
async function clients(): Promise<[string, EngineClient, () => void][]> {
  const { port1, port2 } = new MessageChannel();
  listen(port2 as unknown as Port, MODULES);
  const end = (): void => port1.close();
  const remote = await portClient(port1 as unknown as Port, packed, end);
  return [
    ["local", localClient(await createEngine(packed, "plain")), () => {}],
    ["remote", remote, end],
  ];
}

test("requests are answered in order, here and behind a channel", async () => {
  for (const [name, client, end] of await clients()) {
    const bytes = file();
    assert.equal(client.about().bytes, bytes.length, name);
    assert.equal(client.about().slow, "");
    const done: string[] = [];
    const asked = [
      client.load(0, bytes).then(() => done.push("load")),
      client.pass(ids, UNCHANGED, LAST).then((pass) => {
        done.push("pass");
        near(pass.logits, references.models.llama.plain.logits.slice(-13), name);
      }),
      client.relevance(ids, UNCHANGED, { row: -1, plus: 1, minus: 0 }, "lrp").then(({ tokens }) => {
        done.push("relevance");
        near(tokens, references.models.llama.plain.lrp.tokens, name, 2e-5);
      }),
      client
        .continued(ids, GREEDY, () => {})
        .then((out) => {
          done.push("continued");
          assert.equal(out.ids.length, 2, name);
        }),
    ];
    await Promise.all(asked);
    assert.deepEqual(done, ["load", "pass", "relevance", "continued"], name);
    end();
  }
});

test("a request that fails says why, and the next is answered", async () => {
  for (const [name, client, end] of await clients()) {
    await assert.rejects(client.pass(ids, UNCHANGED, LAST), /weights are not loaded: \d+ of \d+ bytes/, name);
    await client.load(0, file());
    await assert.rejects(client.pass([99], UNCHANGED, LAST), /token 99 is not among the model's 13/, name);
    assert.equal((await client.pass(ids, UNCHANGED, LAST)).tokens.length, ids.length, name);
    end();
  }
});

test("a continuation stops at the token at which it is stopped", async () => {
  for (const [name, client, end] of await clients()) {
    await client.load(0, file());
    const seen: number[] = [];
    const out = await client.continued(ids, { ...GREEDY, length: 6 }, async (id) => {
      seen.push(id);
      return seen.length < 3;
    });
    assert.deepEqual(out.ids, seen, name);
    assert.equal(seen.length, 3, name);
    assert.equal(out.ended, false);
    end();
  }
});

test("a client that is closed refuses what waits", async () => {
  for (const [name, client] of await clients()) {
    const waiting = client.pass(ids, UNCHANGED, LAST);
    client.close();
    await assert.rejects(waiting, /closed/, name);
    await assert.rejects(client.load(0, file()), /closed/, name);
  }
});
