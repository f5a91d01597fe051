/**
 * A transformer in the page: passes with all attention, edits, and relevance, over packed weights. It runs in a worker, in
 * the page itself (small models) and in Node. Its twin in numpy is attnwidgets/views/page/live/forward.py.
 */
import { continuation } from "./continued.ts";
import { anglesOf, editsByLayer, embed, ended, rowsOf, runBlock, runHead } from "./forward.ts";
import type { Backend } from "./kernels.ts";
import { Machine } from "./machine.ts";
import { plainBackend } from "./plain.ts";
import { relevanceOf } from "./reverse.ts";
import type { Continuation, Edits, Outputs, PackedModel, Pass, Relevance, Rule, Sampling, Target } from "./types.ts";
import { chooseBackend, type Modules } from "./wasm.ts";

export interface Engine {
  /** Bytes of the file of weights. */
  readonly bytes: number;
  readonly backend: Backend["name"];
  /** Why it is slow, as a sentence; "" where it is not. */
  readonly slow: string;
  /** Load a part of the file that begins at a byte; parts may arrive in any order. */
  load(at: number, bytes: Uint8Array): void;
  pass(ids: readonly number[], edits: Edits, outputs: Outputs): Pass;
  relevance(ids: readonly number[], edits: Edits, target: Target, rule: Rule): Relevance;
  /** Generate tokens; no other pass may run until the generator ends. */
  tokens(
    ids: readonly number[],
    sampling: Sampling,
  ): Generator<{ id: number; log: number }, Continuation, boolean | void>;
  /** The same without pauses; `onToken` returning false stops. */
  continued(
    ids: readonly number[],
    sampling: Sampling,
    onToken: (id: number, log: number) => boolean | void,
  ): Continuation;
}

/** An engine with the fastest supported kernels, of compiled modules; or in plain JavaScript, for a small model. */
export async function createEngine(packed: PackedModel, modules: Modules | "plain"): Promise<Engine> {
  return engineOver(packed, modules === "plain" ? plainBackend() : await chooseBackend(packed, modules));
}

/** An engine over a backend. */
export function engineOver(packed: PackedModel, backend: Backend): Engine {
  const machine = new Machine(packed, backend);
  const engine: Engine = {
    bytes: machine.bytes,
    backend: backend.name,
    slow: backend.slow,
    load: (at, bytes) => machine.load(at, bytes),
    pass: (ids, edits, outputs) => passOf(machine, ids, edits, outputs),
    relevance: (ids, edits, target, rule) => relevanceOf(machine, ids, edits, target, rule),
    tokens: (ids, sampling) => continuation(machine, ids, sampling),
    continued(ids, sampling, onToken) {
      const steps = engine.tokens(ids, sampling);
      for (let step = steps.next(); ; step = steps.next(onToken(step.value.id, step.value.log)))
        if (step.done) return step.value;
    },
  };
  return engine;
}

/** A pass; the room of each block is used again by the next. */
function passOf(machine: Machine, ids: readonly number[], edits: Edits, outputs: Outputs): Pass {
  const { heads, sources, size, width } = machine.shape;
  const n = ids.length;
  machine.begin();
  const layers = editsByLayer(machine, edits, n);
  const { x } = embed(machine, ids, 0);
  const angles = anglesOf(machine, n, 0);
  const pass: Pass = {
    tokens: [...ids],
    ...{ attention: [], queries: [], keys: [], values: [], mixed: [] },
    ...{ states: new Float32Array(), logits: new Float32Array() },
  };
  const mark = machine.mark();
  machine.layers.forEach((_, layer) => {
    const { a, q, k, v, mixed, out } = runBlock(machine, layer, x, n, angles, layers[layer]!);
    pass.attention.push(machine.copy(a, heads * n * n));
    pass.mixed.push(machine.copy(mixed, n * heads * size));
    if (outputs.heads) {
      pass.queries.push(machine.copy(q, n * heads * size));
      pass.keys.push(machine.copy(k, n * sources * size));
      pass.values.push(machine.copy(v, n * sources * size));
    }
    machine.view(x, n * width).set(machine.view(out, n * width));
    machine.release(mark);
  });
  const { states } = ended(machine, x, n);
  pass.states = machine.copy(states, n * width);
  const rows = rowsOf(machine, ids).slice(outputs.logits === "last" ? -1 : 0);
  if (rows.length) {
    const { logits, outcomes } = runHead(machine, states + rows[0]! * width * 4, rows.length);
    pass.logits = machine.copy(logits, rows.length * outcomes);
  }
  return pass;
}
