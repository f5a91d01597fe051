/** The pass of a transformer over the kernels: blocks of GPT-2, Llama, Qwen and BERT, with edits. */
import type { Machine } from "./machine.ts";
import type { Edits } from "./types.ts";

/** The edits of one layer. */
interface LayerEdits {
  outputs: [head: number, output: Float32Array | null][];
  rows: [head: number, query: number, row: Float32Array][];
}

/** Angles of the rotary embedding [token, size / 2]; 0 where there is none. */
export interface Angles {
  cos: number;
  sin: number;
}

/** Keys and values of a layer that later tokens read, with room for more tokens: addresses. */
export interface KeyValueCache {
  keys: number;
  values: number;
}

/** The numbers of a block: addresses. */
export interface Block {
  x: number;
  /** Inputs of queries, keys and values, and of the network. */
  seen: number;
  read: number;
  /** Queries and keys before their norms, and the reciprocals of their sizes; 0 without norms. */
  rawQ: number;
  rawK: number;
  rq: number;
  rk: number;
  q: number;
  k: number;
  v: number;
  a: number;
  /** Outputs of heads before and after edits. */
  mixed: number;
  z: number;
  /** Residual states after the attention: their sum, and the input to which the network is added. */
  sum: number;
  middle: number;
  up: number;
  gate: number;
  /** f(x) / x of the activation, for x = gate or up. */
  ratio: number;
  /** Residual states after the network: their sum, and the input of the next block. */
  total: number;
  out: number;
  /** The reciprocals of the sizes in both norms. */
  r1: number;
  r2: number;
}

/** A recorded pass, for its reverse. */
export interface Tape {
  ids: readonly number[];
  /** Word embeddings [token, width], and with positions; the reciprocals of the sizes in the norms at both ends. */
  token: number;
  embedded: number;
  startR: number;
  blocks: Block[];
  last: number;
  endR: number;
  states: number;
  angles: Angles;
  edits: LayerEdits[];
}

/** Rows of the model's head: addresses of each step's input, output and ratios, and of the logits. */
export interface Head {
  steps: { x: number; y: number; r: number; pre: number }[];
  read: number;
  logits: number;
  outcomes: number;
}

/** Edits by layer; refuses those of layers, heads and tokens that do not exist. */
export function editsByLayer({ shape, layers }: Machine, edits: Edits, n: number): LayerEdits[] {
  const all = layers.map((): LayerEdits => ({ outputs: [], rows: [] }));
  const layerOf = (key: string, layer = -1, head = -1, query = 0): LayerEdits => {
    const of = all[layer];
    if (!of || !(head >= 0 && head < shape.heads && query >= 0 && query < n))
      throw new RangeError(`The edit ${key} names a layer, head or token that does not exist.`);
    return of;
  };
  const checked = (key: string, values: Float32Array, count: number): Float32Array => {
    if (values.length !== count)
      throw new RangeError(`The edit ${key} has ${values.length} numbers instead of ${count}.`);
    return values;
  };
  for (const [key, output] of edits.outputs) {
    const [layer, head] = key.split(".").map(Number);
    layerOf(key, layer, head).outputs.push([head!, output && checked(key, output, shape.size)]);
  }
  for (const [key, row] of edits.rows) {
    const [layer, head, query] = key.split(".").map(Number);
    layerOf(key, layer, head, query).rows.push([head!, query!, checked(key, row, n)]);
  }
  return all;
}

/** Angles of tokens `first` and later. */
export function anglesOf(machine: Machine, n: number, first: number): Angles {
  const { rotary, size } = machine.shape;
  if (!rotary) return { cos: 0, sin: 0 };
  const half = size / 2;
  const angles = { cos: machine.floats(n * half), sin: machine.floats(n * half) };
  const [cos, sin] = [machine.view(angles.cos, n * half), machine.view(angles.sin, n * half)];
  for (let t = 0; t < n; t += 1) {
    for (let j = 0; j < half; j += 1) {
      const angle = (first + t) * rotary ** (-j / half);
      cos[t * half + j] = Math.cos(angle);
      sin[t * half + j] = Math.sin(angle);
    }
  }
  return angles;
}

/** States before the first block. */
export function embed(
  machine: Machine,
  ids: readonly number[],
  first: number,
): Pick<Tape, "token" | "embedded" | "startR"> & { x: number } {
  const { weights, shape, kernels } = machine;
  const { token, position, type, start } = weights;
  const [n, { width }] = [ids.length, shape];
  if (!n) throw new RangeError("The text is empty.");
  const outside = ids.find((id) => !(id >= 0 && id < token!.to));
  if (outside !== undefined) throw new RangeError(`The token ${outside} is not among the model's ${token!.to}.`);
  if (position && first + n > position.to)
    throw new RangeError(`The text has ${first + n} tokens, and the model reads at most ${position.to}.`);
  const words = machine.floats(n * width);
  for (const [t, id] of ids.entries()) machine.row(token!, id, words + t * width * 4);
  const x = machine.twin(words, n * width);
  const mark = machine.mark();
  const added = machine.floats(width);
  for (let t = 0; t < n; t += 1) {
    if (position) kernels.plus(x + t * width * 4, machine.row(position, first + t, added), width);
    if (type) kernels.plus(x + t * width * 4, machine.row(type, 0, added), width);
  }
  machine.release(mark);
  const normed = start ? machine.norm(x, n, weights, "start") : { y: x, r: 0 };
  return { token: words, embedded: x, startR: normed.r, x: normed.y };
}

/** Queries, keys and values; `cache` holds those of `first` tokens before. */
function projected(
  machine: Machine,
  layer: number,
  seen: number,
  n: number,
  angles: Angles,
  first: number,
  cache: KeyValueCache | undefined,
): Pick<Block, "rawQ" | "rawK" | "rq" | "rk" | "q" | "k" | "v"> {
  const { shape, kernels } = machine;
  const { heads, sources, size } = shape;
  const of = machine.layers[layer]!;
  const skipped = first * sources * size * 4;
  const out = { rawQ: 0, rawK: 0, rq: 0, rk: 0, q: machine.linear(seen, n, of.q!, of.qb), k: 0, v: 0 };
  out.k = machine.linear(seen, n, of.k!, of.kb, cache && !of.kn ? cache.keys + skipped : undefined);
  out.v = machine.linear(seen, n, of.v!, of.vb, cache && cache.values + skipped);
  if (of.qn) {
    const normed = machine.norm(out.q, n * heads, of, "qn");
    Object.assign(out, { rawQ: out.q, q: normed.y, rq: normed.r });
  }
  if (of.kn) {
    const normed = machine.norm(out.k, n * sources, of, "kn");
    Object.assign(out, { rawK: out.k, k: normed.y, rk: normed.r });
  }
  if (shape.rotary) {
    kernels.rotate(out.q, n, heads * size, size, angles.cos, angles.sin, 1);
    kernels.rotate(out.k, n, sources * size, size, angles.cos, angles.sin, 1);
  }
  if (!cache) return out;
  if (of.kn) machine.view(cache.keys + skipped, n * sources * size).set(machine.view(out.k, n * sources * size));
  return { ...out, k: cache.keys, v: cache.values };
}

/** Outputs of heads as edits have them. */
function edited(machine: Machine, mixed: number, n: number, { outputs }: LayerEdits): number {
  const { heads, size } = machine.shape;
  if (!outputs.length) return mixed;
  const z = machine.twin(mixed, n * heads * size);
  const all = machine.view(z, n * heads * size);
  for (const [head, output] of outputs) {
    for (let at = head * size; at < all.length; at += heads * size) {
      if (output) all.set(output, at);
      else all.fill(0, at, at + size);
    }
  }
  return z;
}

function network(
  machine: Machine,
  layer: number,
  x: number,
  n: number,
): Pick<Block, "up" | "gate" | "ratio" | "total"> {
  const of = machine.layers[layer]!;
  const up = machine.linear(x, n, of.up!, of.upb);
  const gate = of.gate ? machine.linear(x, n, of.gate, undefined) : 0;
  const { r, y } = machine.act(machine.shape.activation, gate || up, gate ? up : 0, n * of.up!.to);
  return { up, gate, ratio: r, total: machine.linear(y, n, of.down!, of.downb) };
}

/** One block over n tokens, the last of `first + n`. */
export function runBlock(
  machine: Machine,
  layer: number,
  x: number,
  n: number,
  angles: Angles,
  edits: LayerEdits,
  first = 0,
  cache?: KeyValueCache,
): Block {
  const { shape, kernels } = machine;
  const { heads, sources, size, width, after, causal } = shape;
  const of = machine.layers[layer]!;
  const normed = (at: number, name: string, here: boolean): { y: number; r: number } =>
    here ? machine.norm(at, n, of, name) : { y: at, r: 0 };
  const before = normed(x, "n1", !after);
  const projections = projected(machine, layer, before.y, n, angles, first, cache);
  const { q, k, v } = projections;
  const [all, a, mixed] = [first + n, machine.floats(heads * n * (first + n)), machine.floats(n * heads * size)];
  kernels.attend(q, k, n, all, heads, sources, size, shape.scales[layer]!, Number(causal), a);
  for (const [head, query, row] of edits.rows) machine.view(a + (head * n + query) * all * 4, all).set(row);
  kernels.mix(a, v, n, all, heads, sources, size, mixed);
  const z = edited(machine, mixed, n, edits);
  const sum = machine.linear(z, n, of.o!, of.ob);
  kernels.plus(sum, x, n * width);
  const middle = normed(sum, "n1", after);
  const block = {
    ...{ x, seen: before.y, ...projections, a, mixed, z, sum, middle: middle.y, read: middle.y },
    ...{ up: 0, gate: 0, ratio: 0, total: middle.y, out: middle.y, r1: after ? middle.r : before.r, r2: 0 },
  };
  if (of.up) {
    const read = normed(middle.y, "n2", !after);
    Object.assign(block, { read: read.y, r2: read.r }, network(machine, layer, read.y, n));
    kernels.plus(block.total, middle.y, n * width);
  }
  const end = normed(block.total, "n2", after && Boolean(of.n2));
  return { ...block, out: end.y, r2: end.r || block.r2 };
}

/** Run a pass and record it. */
export function record(machine: Machine, ids: readonly number[], edits: Edits): Tape {
  const n = ids.length;
  machine.begin();
  const layers = editsByLayer(machine, edits, n);
  const { x, ...start } = embed(machine, ids, 0);
  const angles = anglesOf(machine, n, 0);
  const blocks: Block[] = [];
  let last = x;
  machine.layers.forEach((_, layer) => {
    blocks.push(runBlock(machine, layer, last, n, angles, layers[layer]!));
    last = blocks[layer]!.out;
  });
  return { ids, ...start, blocks, last, ...ended(machine, last, n), angles, edits: layers };
}

/** The last states. */
export function ended(machine: Machine, last: number, n: number): Pick<Tape, "states" | "endR"> {
  const { y, r } = machine.weights.end ? machine.norm(last, n, machine.weights, "end") : { y: last, r: 0 };
  return { states: y, endR: r };
}

/** Tokens whose rows the model's head reads. */
export function rowsOf({ shape }: Machine, ids: readonly number[]): number[] {
  const { reads, padding } = shape;
  if (reads === "none") return [];
  if (reads === "first") return [0];
  if (reads === "all") return ids.map((_, t) => t);
  let last = ids.length - 1;
  while (last > 0 && ids[last] === padding) last -= 1;
  return [last];
}

/** The model's head over n rows of states. */
export function runHead(machine: Machine, states: number, n: number): Head {
  const { weights, shape } = machine;
  const steps: Head["steps"] = [];
  let x = states;
  shape.steps.forEach((step, i) => {
    if (step === "norm") {
      steps.push({ x, pre: x, ...machine.norm(x, n, weights, `s${i}`) });
    } else {
      const W = weights[`s${i}`]!;
      const pre = machine.linear(x, n, W, weights[`s${i}b`]);
      steps.push({ x, pre, ...machine.act(step, pre, 0, n * W.to) });
    }
    x = steps[i]!.y;
  });
  const out = weights.out ?? weights.token!;
  return { steps, read: x, logits: machine.linear(x, n, out, weights.outb), outcomes: out.to };
}
