/**
 * The reverse of a pass for a single target: gradients, AttnLRP (Achtibat et al. 2024) or CP-LRP (Ali et al. 2022), by
 * the rules of attnwidgets/relevance. The size of a norm is a constant under both rules; an activation passes relevance
 * on as f(x) / x; AttnLRP halves products, and CP-LRP gives everything to values and gated numbers, with attention and
 * gates as constants.
 */
import { type Block, record, rowsOf, runHead, type Tape } from "./forward.ts";
import type { Machine } from "./machine.ts";
import { ACTIVATIONS, type Activation, type Edits, type Relevance, type Rule, type Target } from "./types.ts";

/** Multiply a gradient in place by the factor that an activation passes on. */
function throughActivation(
  machine: Machine,
  name: Activation,
  rule: Rule,
  g: number,
  x: number,
  ratio: number,
  count: number,
) {
  const { kernels } = machine;
  let factor = ratio;
  if (rule === "gradient") {
    factor = machine.floats(count);
    kernels.slope(ACTIVATIONS[name], x, count, factor);
  }
  kernels.times(g, factor, 1, count, g);
}

/** The target, and its gradient at the last states [token, width]. */
function seed(machine: Machine, tape: Tape, target: Target, rule: Rule): { value: number; g: number } {
  const { weights, shape, kernels } = machine;
  const rows = rowsOf(machine, tape.ids);
  if (!rows.length) throw new RangeError("This model returns states without outcomes: there is nothing to explain.");
  const token = rows.at(target.row);
  if (token === undefined || target.row < -1) throw new RangeError(`The model returns no row ${target.row} of logits.`);
  const { steps, logits, outcomes } = runHead(machine, tape.states + token * shape.width * 4, 1);
  const out = weights.out ?? weights.token!;
  const signed = [[target.plus, 1] as const, ...(target.minus === null ? [] : [[target.minus, -1] as const])];
  let [value, g] = [0, machine.zeros(out.from)];
  for (const [outcome, sign] of signed) {
    if (!(outcome >= 0 && outcome < outcomes))
      throw new RangeError(`The outcome ${outcome} is not among the model's ${outcomes}.`);
    value += sign * machine.view(logits + outcome * 4, 1)[0]!;
    const row = machine.view(machine.row(out, outcome), out.from);
    const sum = machine.view(g, out.from);
    row.forEach((w, i) => {
      sum[i] = sum[i]! + sign * w;
    });
  }
  for (const [i, { x, pre, r }] of [...steps.entries()].reverse()) {
    const [step, W] = [shape.steps[i]!, weights[`s${i}`]!];
    const before = machine.zeros(W.from);
    if (step === "norm") machine.unnorm(x, r, g, 1, W, rule !== "gradient", before);
    else {
      throughActivation(machine, step, rule, g, pre, r, W.to);
      machine.back(g, 1, W, before);
    }
    g = before;
  }
  const all = machine.zeros(tape.ids.length * shape.width);
  kernels.plus(all + token * shape.width * 4, g, shape.width);
  return { value, g: all };
}

/** Add to `into` the gradient of the network's input, given the gradient of its output. */
function backNetwork(
  machine: Machine,
  layer: number,
  block: Block,
  n: number,
  rule: Rule,
  g: number,
  into: number,
): void {
  const { kernels, shape } = machine;
  const of = machine.layers[layer]!;
  const count = n * of.up!.to;
  const inner = machine.back(g, n, of.down!, machine.zeros(count));
  if (!block.gate) {
    throughActivation(machine, shape.activation, rule, inner, block.up, block.ratio, count);
    machine.back(inner, n, of.up!, into);
    return;
  }
  const share = rule === "lrp" ? 0.5 : 1;
  const dUp = machine.floats(count);
  kernels.times(block.gate, block.ratio, share, count, dUp);
  kernels.times(dUp, inner, 1, count, dUp);
  machine.back(dUp, n, of.up!, into);
  if (rule === "cp_lrp") return;
  kernels.times(inner, block.up, share, count, inner);
  throughActivation(machine, shape.activation, rule, inner, block.gate, block.ratio, count);
  machine.back(inner, n, of.gate!, into);
}

/** Add to `into` the gradient of the states that queries or keys are computed from. */
function backProjection(
  machine: Machine,
  { layer, n, rule, tape }: { layer: number; n: number; rule: Rule; tape: Tape },
  name: "q" | "k",
  raw: number,
  r: number,
  g: number,
  into: number,
): void {
  const { kernels, shape } = machine;
  const of = machine.layers[layer]!;
  const [W, gain] = [of[name]!, of[`${name}n`]];
  if (shape.rotary) kernels.rotate(g, n, W.to, shape.size, tape.angles.cos, tape.angles.sin, -1);
  const rows = (n * W.to) / shape.size;
  const before = gain ? machine.unnorm(raw, r, g, rows, gain, rule !== "gradient", machine.zeros(n * W.to)) : g;
  machine.back(before, n, W, into);
}

/**
 * Add to `into` the gradient of the attention's input, given the gradient of its output; returns the relevance of heads
 * [head, token].
 */
function backAttention(machine: Machine, layer: number, tape: Tape, rule: Rule, g: number, into: number): Float32Array {
  const { kernels, shape, layers } = machine;
  const { heads, sources, size } = shape;
  const [of, block, n] = [layers[layer]!, tape.blocks[layer]!, tape.ids.length];
  const { outputs, rows } = tape.edits[layer]!;
  const dz = machine.back(g, n, of.o!, machine.zeros(n * heads * size));
  const relevance = products(machine, dz, block.z, n, heads, size);
  const [dq, dk, dv] = [heads, sources, sources].map((count) => machine.zeros(n * count * size)) as [
    number,
    number,
    number,
  ];
  const scratch = machine.floats(n);
  const all = machine.view(dz, n * heads * size);
  for (const [head] of outputs)
    for (let at = head * size; at < all.length; at += heads * size) all.fill(0, at, at + size);
  const fixed = rows.length ? machine.flags(heads * n) : null;
  for (const [head, query] of rows) fixed![head * n + query] = 1;
  const soft = rule !== "cp_lrp";
  kernels.unattend(
    ...([dz, block.a, block.q, block.k, block.v, n, heads, sources, size, shape.scales[layer]!] as const),
    ...([rule === "lrp" ? 0.5 : 1, Number(soft), fixed?.byteOffset ?? 0, scratch, dq, dk, dv] as const),
  );
  machine.back(dv, n, of.v!, into);
  if (soft) {
    const at = { layer, n, rule, tape };
    backProjection(machine, at, "q", block.rawQ, block.rq, dq, into);
    backProjection(machine, at, "k", block.rawK, block.rk, dk, into);
  }
  return relevance;
}

/** Sums of x y over the numbers of each part [part, token], of x and y [token, part, size]. */
function products(machine: Machine, x: number, y: number, n: number, parts: number, size: number): Float32Array {
  const [a, b] = [machine.view(x, n * parts * size), machine.view(y, n * parts * size)];
  const out = new Float32Array(parts * n);
  for (let t = 0, i = 0; t < n; t += 1) {
    for (let part = 0; part < parts; part += 1) {
      let sum = 0;
      for (let e = 0; e < size; e += 1, i += 1) sum += a[i]! * b[i]!;
      out[part * n + t] = sum;
    }
  }
  return out;
}

/** The gradient at a block's input from that at its output; and the relevance of its heads [head, token]. */
function backBlock(machine: Machine, layer: number, tape: Tape, rule: Rule, output: number): [number, Float32Array] {
  const { shape, kernels } = machine;
  const [of, block, n] = [machine.layers[layer]!, tape.blocks[layer]!, tape.ids.length];
  const { after, width } = shape;
  const constant = rule !== "gradient";
  const zeros = (): number => machine.zeros(n * width);
  let g = output;
  if (after && of.n2) g = machine.unnorm(block.total, block.r2, g, n, of.n2, constant, zeros());
  if (of.up) {
    const read = zeros();
    backNetwork(machine, layer, block, n, rule, g, read);
    if (after) kernels.plus(g, read, n * width);
    else machine.unnorm(block.middle, block.r2, read, n, of.n2!, constant, g);
  }
  if (after) g = machine.unnorm(block.sum, block.r1, g, n, of.n1!, constant, zeros());
  const seen = zeros();
  const heads = backAttention(machine, layer, tape, rule, g, seen);
  if (after) kernels.plus(g, seen, n * width);
  else machine.unnorm(block.x, block.r1, seen, n, of.n1!, constant, g);
  return [g, heads];
}

/** The relevance of a target. */
export function relevanceOf(
  machine: Machine,
  ids: readonly number[],
  edits: Edits,
  target: Target,
  rule: Rule,
): Relevance {
  const tape = record(machine, ids, edits);
  const { value, g } = seed(machine, tape, target, rule);
  return { value, ...backFrom(machine, tape, g, rule) };
}

/** Relevance from a gradient at the last states [token, width]. */
export function backFrom(machine: Machine, tape: Tape, g: number, rule: Rule): Omit<Relevance, "value"> {
  const { weights, shape } = machine;
  const n = tape.ids.length;
  const count = n * shape.width;
  const constant = rule !== "gradient";
  const { start, end } = weights;
  // The gradient between blocks; the memory of a block is free again after the block.
  const between = end ? machine.unnorm(tape.last, tape.endR, g, n, end, constant, machine.zeros(count)) : g;
  const heads: Float32Array[] = [];
  for (let layer = machine.layers.length - 1; layer >= 0; layer -= 1) {
    const mark = machine.mark();
    const [input, relevance] = backBlock(machine, layer, tape, rule, between);
    heads[layer] = relevance;
    if (input !== between) machine.view(between, count).set(machine.view(input, count));
    machine.release(mark);
  }
  const embedded = start
    ? machine.unnorm(tape.embedded, tape.startR, between, n, start, constant, machine.zeros(count))
    : between;
  return { tokens: products(machine, embedded, tape.token, n, 1, shape.width), heads };
}
