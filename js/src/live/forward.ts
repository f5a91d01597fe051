/**
 * A transformer in the page: blocks of GPT-2, Llama and BERT over typed arrays, without a library. Its twin in numpy is
 * attnwidgets/views/page/live/forward.py; both read what attnwidgets/views/page/live/weights.py packs.
 */

/** What is not a weight; see `Layout` of attnwidgets/views/page/live/weights.py. */
export interface Shape {
  width: number;
  heads: number;
  /** Heads with keys and values of their own. */
  sources: number;
  /** Numbers of a head. */
  size: number;
  causal: boolean;
  /** Whether norms stand behind the residual connection, as in BERT. */
  after: boolean;
  /** Whether norms leave the mean in, as in Llama. */
  rms: boolean;
  eps: number;
  /** Base of the rotary embedding; 0: none. */
  rotary: number;
  /** What products of queries and keys are multiplied by, by layer. */
  scales: number[];
  activation: keyof typeof ACTIVATIONS;
  /** Which rows the head of the model reads, and its steps before the last. */
  reads: "all" | "first" | "last" | "none";
  steps: (keyof typeof ACTIVATIONS | "norm")[];
  /** For "last": a token that does not count as the last; -1: none. */
  padding: number;
}

type Tensors = Record<string, Float32Array>;

/** A model: weights by name, and those of each layer. Matrices are [to, from]. */
export interface Model extends Shape {
  weights: Tensors;
  layers: Tensors[];
}

/** What is changed in a pass, by layer and head. */
export interface Edits {
  /** What a head writes at every token instead of its own output: nothing (null), or [size]. */
  outputs: ReadonlyMap<string, Float32Array | null>;
  /** A row of attention [key], by layer, head and query. */
  rows: ReadonlyMap<string, Float32Array>;
}

/** A pass: everything by layer; `attention` [head, query, key], the others [token, head, number]. */
export interface Pass {
  tokens: readonly number[];
  attention: Float32Array[];
  queries: Float32Array[];
  keys: Float32Array[];
  values: Float32Array[];
  /** Outputs of heads before any edit. */
  mixed: Float32Array[];
  /** The last states [token, width]. */
  states: Float32Array;
  /** [row, outcome]; of the new tokens only, after `past`. */
  logits: Float32Array;
}

/** y [n, to] = x [n, from] W + b; four rows of x and two of W at a time, so that each number is read once for several. */
export function linear(x: Float32Array, n: number, W: Float32Array, b: Float32Array | undefined): Float32Array {
  const from = x.length / n;
  const to = W.length / from;
  const y = new Float32Array(n * to);
  for (let t = 0; t < n; t += 4) {
    // At the ends, the last row is computed again.
    const rows = [t, t + 1, t + 2, t + 3].map((row) => Math.min(row, n - 1));
    const [o, p, q, r] = rows.map((row) => row * from) as [number, number, number, number];
    const [oy, py, qy, ry] = rows.map((row) => row * to) as [number, number, number, number];
    for (let k = 0; k < to; k += 2) {
      const l = Math.min(k + 1, to - 1);
      const w = k * from;
      const v = l * from;
      let c = b ? b[k]! : 0;
      let g = b ? b[l]! : 0;
      let [d, e, f, h, i, m] = [c, c, c, g, g, g];
      for (let j = 0; j < from; j += 1) {
        // No destructuring here: it would take half of the time.
        const first = W[w + j]!;
        const second = W[v + j]!;
        const s = x[o + j]!;
        const u = x[p + j]!;
        const z = x[q + j]!;
        const a = x[r + j]!;
        c += s * first;
        d += u * first;
        e += z * first;
        f += a * first;
        g += s * second;
        h += u * second;
        i += z * second;
        m += a * second;
      }
      y[ry + k] = f;
      y[qy + k] = e;
      y[py + k] = d;
      y[oy + k] = c;
      y[ry + l] = m;
      y[qy + l] = i;
      y[py + l] = h;
      y[oy + l] = g;
    }
  }
  return y;
}

function normed(x: Float32Array, { width, eps, rms }: Shape, of: Tensors, name: string): Float32Array {
  const [gain, bias] = [of[name]!, of[`${name}b`]];
  const y = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += width) {
    let [mean, squares] = [0, 0];
    for (let j = 0; j < width && !rms; j += 1) mean += x[at + j]! / width;
    for (let j = 0; j < width; j += 1) squares += (x[at + j]! - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + eps);
    for (let j = 0; j < width; j += 1) y[at + j] = (x[at + j]! - mean) * scale * gain[j]! + (bias ? bias[j]! : 0);
  }
  return y;
}

/** The error function, to 1.2e-7: Abramowitz and Stegun 1964, 7.1.26. */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

const ACTIVATIONS = {
  relu: (v: number) => Math.max(0, v),
  tanh: Math.tanh,
  silu: (v: number) => v / (1 + Math.exp(-v)),
  gelu: (v: number) => 0.5 * v * (1 + erf(v * Math.SQRT1_2)),
  gelu_new: (v: number) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))),
};

/** Turn pairs of numbers of every head by angles that grow with the position, in place. */
function rotate(x: Float32Array, { size, rotary }: Shape, n: number, first: number): void {
  const half = size / 2;
  const wide = x.length / n;
  for (let t = 0; t < n; t += 1) {
    for (let j = 0; j < half; j += 1) {
      const angle = (first + t) * rotary ** (-j / half);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let at = t * wide + j; at < (t + 1) * wide; at += size) {
        const [u, v] = [x[at]!, x[at + half]!];
        x[at] = u * cos - v * sin;
        x[at + half] = v * cos + u * sin;
      }
    }
  }
}

/** One row of attention into `row`: the softmax of its scores. */
function attend(
  row: Float32Array,
  q: Float32Array,
  i: number,
  k: Float32Array,
  from: number,
  wide: number,
  by: Shape,
  scale: number,
  last: number,
): void {
  let top = Number.NEGATIVE_INFINITY;
  for (let j = 0; j < last; j += 1) {
    let score = 0;
    const key = j * wide + from;
    for (let e = 0; e < by.size; e += 1) score += q[i + e]! * k[key + e]!;
    row[j] = score * scale;
    top = Math.max(top, row[j]!);
  }
  let sum = 0;
  for (let j = 0; j < last; j += 1) {
    row[j] = Math.exp(row[j]! - top);
    sum += row[j]!;
  }
  for (let j = 0; j < last; j += 1) row[j] = row[j]! / sum;
}

/** The attention of one layer [head, query, key], and what heads return [query, head, number]. */
function attended(
  model: Model,
  layer: number,
  q: Float32Array,
  k: Float32Array,
  v: Float32Array,
  n: number,
  first: number,
  rows: Edits["rows"],
): [Float32Array, Float32Array] {
  const { heads, sources, size, causal } = model;
  const all = first + n;
  const [attention, mixed] = [new Float32Array(heads * n * all), new Float32Array(n * heads * size)];
  for (let head = 0; head < heads; head += 1) {
    const from = Math.floor((head * sources) / heads) * size;
    for (let i = 0; i < n; i += 1) {
      const row = attention.subarray((head * n + i) * all, (head * n + i + 1) * all);
      const [last, out] = [causal ? first + i + 1 : all, (i * heads + head) * size];
      const given = rows.get(`${layer}.${head}.${first + i}`);
      if (given) row.set(given.subarray(0, all));
      else attend(row, q, out, k, from, sources * size, model, model.scales[layer]!, last);
      for (let j = 0; j < last; j += 1) {
        const [weight, at] = [row[j]!, j * sources * size + from];
        if (weight) for (let e = 0; e < size; e += 1) mixed[out + e] = mixed[out + e]! + weight * v[at + e]!;
      }
    }
  }
  return [attention, mixed];
}

/** Outputs of heads as edits have them. */
function edited(mixed: Float32Array, { heads, size }: Shape, layer: number, outputs: Edits["outputs"]): Float32Array {
  let out = mixed;
  for (let head = 0; head < heads; head += 1) {
    const given = outputs.get(`${layer}.${head}`);
    if (given === undefined) continue;
    if (out === mixed) out = mixed.slice();
    for (let at = head * size; at < out.length; at += heads * size) {
      if (given) out.set(given, at);
      else out.fill(0, at, at + size);
    }
  }
  return out;
}

/** Add `x` to `y`, in place. */
function plus(y: Float32Array, x: Float32Array): Float32Array {
  for (let i = 0; i < y.length; i += 1) y[i] = y[i]! + x[i]!;
  return y;
}

function network(x: Float32Array, n: number, model: Model, of: Tensors): Float32Array {
  const act = ACTIVATIONS[model.activation];
  const [inner, gate] = [linear(x, n, of.up!, of.upb), of.gate && linear(x, n, of.gate, undefined)];
  for (let i = 0; i < inner.length; i += 1) inner[i] = gate ? inner[i]! * act(gate[i]!) : act(inner[i]!);
  return linear(inner, n, of.down!, of.downb);
}

function embedded({ weights, width, ...model }: Model, ids: readonly number[], first: number): Float32Array {
  const { token, position, type } = weights;
  const x = new Float32Array(ids.length * width);
  ids.forEach((id, t) => {
    for (let j = 0; j < width; j += 1)
      x[t * width + j] =
        token![id * width + j]! + (position ? position[(first + t) * width + j]! : 0) + (type ? type[j]! : 0);
  });
  return weights.start ? normed(x, { ...model, width }, weights, "start") : x;
}

/** What the model's head reads from the last states: [row, outcome]. */
function outcomes(model: Model, states: Float32Array, ids: readonly number[]): Float32Array {
  const { weights, width, reads, padding } = model;
  if (reads === "none") return new Float32Array(0);
  let last = ids.length - 1;
  while (reads === "last" && last > 0 && ids[last] === padding) last -= 1;
  const at = reads === "last" ? last : 0;
  let x = reads === "all" ? states : states.subarray(at * width, (at + 1) * width);
  const n = x.length / width;
  model.steps.forEach((step, i) => {
    if (step === "norm") x = normed(x, model, weights, `s${i}`);
    else x = linear(x, n, weights[`s${i}`]!, weights[`s${i}b`]).map(ACTIVATIONS[step]);
  });
  return linear(x, n, weights.out ?? weights.token!, weights.outb);
}

const joined = (past: Float32Array | undefined, now: Float32Array): Float32Array => {
  if (!past) return now;
  const all = new Float32Array(past.length + now.length);
  all.set(past);
  all.set(now, past.length);
  return all;
};

export const UNCHANGED: Edits = { outputs: new Map(), rows: new Map() };

/** Run a model on tokens; after `past`, on those that follow it (queries, attention and logits are of these alone). */
export function forward(model: Model, ids: readonly number[], edits: Edits = UNCHANGED, past?: Pass): Pass {
  const n = ids.length;
  const first = past?.tokens.length ?? 0;
  const pass: Omit<Pass, "states" | "logits"> = {
    tokens: [...(past?.tokens ?? []), ...ids],
    ...{ attention: [], queries: [], keys: [], values: [], mixed: [] },
  };
  let x = embedded(model, ids, first);
  model.layers.forEach((of, layer) => {
    const seen = model.after ? x : normed(x, model, of, "n1");
    const [q, k, v] = (["q", "k", "v"] as const).map((name) => linear(seen, n, of[name]!, of[`${name}b`]));
    if (model.rotary) for (const turned of [q!, k!]) rotate(turned, model, n, first);
    const [keys, values] = [joined(past?.keys[layer], k!), joined(past?.values[layer], v!)];
    const [attention, mixed] = attended(model, layer, q!, keys, values, n, first, edits.rows);
    const written = edited(mixed, model, layer, edits.outputs);
    x = plus(linear(written, n, of.o!, of.ob), x);
    if (model.after) x = normed(x, model, of, "n1");
    if (of.up) {
      x = plus(network(model.after ? x : normed(x, model, of, "n2"), n, model, of), x);
    }
    if (model.after) x = normed(x, model, of, "n2");
    for (const [name, of] of Object.entries({ attention, queries: q!, keys, values, mixed }))
      pass[name as "mixed"].push(of);
  });
  const states = model.weights.end ? normed(x, model, model.weights, "end") : x;
  return { ...pass, states, logits: outcomes(model, states, ids) };
}
