/** A model's weights in the memory of a backend, and room for a pass behind them. */

import { type Backend, type Kernels, PACKINGS } from "./kernels.ts";
import { type Stored, storedTensors, widen } from "./kinds.ts";
import { ACTIVATIONS, type PackedModel, type Shape } from "./types.ts";

/** A matrix [to, from] or vector [1, from] in memory: addresses of its numbers and of its scales. */
export interface Tensor {
  packing: number;
  to: number;
  from: number;
  w: number;
  s: number;
}

export type Tensors = Record<string, Tensor>;

/** A part of the file, and its address. float16 is widened to float32 once the whole part has arrived. */
interface Stretch {
  at: number;
  bytes: number;
  left: number;
  to: number;
  widens: boolean;
}

/** Bytes that a tensor takes in memory. */
const roomFor = ({ kind, bytes, scalesBytes }: Stored): number =>
  (kind === "f16" ? 2 * bytes : bytes) + 2 * scalesBytes + 32;

/** Numbers in a panel of `back`. */
const PANEL = 4096;

export class Machine {
  readonly shape: Shape;
  readonly kernels: Kernels;
  readonly weights: Tensors = {};
  readonly layers: Tensors[];
  /** Bytes of the file. */
  readonly bytes: number;
  private readonly stretches: Stretch[] = [];
  private readonly panel: number;
  private top: number;
  /** The number of the last pass. */
  turn = 0;
  /** Where passes begin. */
  private readonly base: number;

  constructor(
    packed: PackedModel,
    readonly backend: Backend,
  ) {
    const { tensors, bytes } = storedTensors(packed.tensors);
    this.shape = packed.shape;
    this.kernels = backend.kernels;
    this.bytes = bytes;
    this.layers = Array.from({ length: packed.layers }, () => ({}));
    this.top = Math.ceil(backend.start / 16) * 16;
    // In a single step, as memory may be copied when it grows.
    backend.memory.reach(this.top + tensors.reduce((sum, stored) => sum + roomFor(stored), 0));
    for (const { name, kind, to, from, at, bytes: length, scalesAt, scalesBytes } of tensors) {
      const tensor = { packing: PACKINGS[kind], to, from, w: 0, s: 0 };
      tensor.w = this.stretch(at, length, kind === "f16");
      if (scalesBytes) tensor.s = this.stretch(scalesAt, scalesBytes, true);
      const [layer, part] = name.split(".");
      if (part) this.layers[Number(layer)]![part] = tensor;
      else this.weights[name] = tensor;
    }
    this.panel = this.floats(Math.max(PANEL, ...tensors.map(({ from }) => 4 * from)));
    this.base = this.top;
  }

  private stretch(at: number, bytes: number, widens: boolean): number {
    const to = this.take(widens ? 2 * bytes : bytes);
    this.stretches.push({ at, bytes, left: bytes, to, widens });
    return to;
  }

  /** Copy bytes of the file that begin at `at` to their addresses; every byte arrives once. */
  load(at: number, part: Uint8Array): void {
    const end = at + part.length;
    if (at < 0 || end > this.bytes + 15)
      throw new RangeError(`The file of weights has ${this.bytes} bytes, and a part reaches to ${end}.`);
    const { buffer } = this.backend.memory;
    const all = new Uint8Array(buffer);
    for (const stretch of this.stretches) {
      const [from, to] = [Math.max(stretch.at, at), Math.min(stretch.at + stretch.bytes, end)];
      if (from >= to) continue;
      // float16 waits in the second half of its room.
      const into = stretch.to + (stretch.widens ? stretch.bytes : 0);
      if (to - from > stretch.left) throw new RangeError(`A part of the weights at ${at} is loaded twice.`);
      all.set(part.subarray(from - at, to - at), into + from - stretch.at);
      stretch.left -= to - from;
      if (stretch.left === 0 && stretch.widens)
        widen(all.subarray(into, into + stretch.bytes), new Float32Array(buffer, stretch.to, stretch.bytes / 2));
    }
  }

  /** Begin a pass: discard the records of the last pass. Returns the number of the pass. */
  begin(): number {
    const left = this.stretches.reduce((sum, stretch) => sum + stretch.left, 0);
    if (left) throw new Error(`The weights are not loaded: ${left} of ${this.bytes} bytes are missing.`);
    this.top = this.base;
    this.turn += 1;
    return this.turn;
  }

  /** Room that is free again after `release`. */
  mark(): number {
    return this.top;
  }

  release(mark: number): void {
    this.top = mark;
  }

  private take(bytes: number): number {
    const at = this.top;
    this.top = Math.ceil((at + bytes) / 16) * 16;
    this.backend.memory.reach(this.top);
    return at;
  }

  /** Room for numbers, as they are. */
  floats(count: number): number {
    return this.take(count * 4);
  }

  zeros(count: number): number {
    const at = this.floats(count);
    this.view(at, count).fill(0);
    return at;
  }

  /** Bytes of zeros. */
  flags(count: number): Uint8Array {
    const flags = new Uint8Array(this.backend.memory.buffer, this.take(count), count);
    return flags.fill(0);
  }

  /** Numbers in memory. Do not keep it: it is detached when memory grows. */
  view(at: number, count: number): Float32Array {
    return new Float32Array(this.backend.memory.buffer, at, count);
  }

  /** Numbers, copied out of memory. */
  copy(at: number, count: number): Float32Array {
    return this.view(at, count).slice();
  }

  /** Another address with the same numbers. */
  twin(at: number, count: number): number {
    const to = this.floats(count);
    this.view(to, count).set(this.view(at, count));
    return to;
  }

  linear(x: number, n: number, W: Tensor, b: Tensor | undefined, y = this.floats(n * W.to)): number {
    this.kernels.linear(W.packing, x, n, W.from, W.w, W.s, W.to, b?.w ?? 0, y, this.panel);
    return y;
  }

  /** Add to dx the gradient of the input, given the gradient dy of the output of W. */
  back(dy: number, n: number, W: Tensor, dx: number): number {
    this.kernels.back(W.packing, dy, n, W.to, W.w, W.s, W.from, dx, this.panel);
    return dx;
  }

  /** A row of a matrix, unpacked. */
  row(W: Tensor, row: number, y = this.floats(W.from)): number {
    this.kernels.row(W.packing, W.w, W.s, row, W.from, y);
    return y;
  }

  /** A norm over rows of `width` numbers, and the reciprocal of the size of each row. */
  norm(x: number, n: number, of: Tensors, name: string): { y: number; r: number } {
    const { eps, rms } = this.shape;
    const { w, from } = of[name]!;
    const [y, r] = [this.floats(n * from), this.floats(n)];
    this.kernels.norm(x, n, from, w, of[`${name}b`]?.w ?? 0, eps, Number(rms), y, r);
    return { y, r };
  }

  /**
   * Add to dx the gradient of the input of a norm, given the gradient dy of its output; `constant`: the size counts as
   * a constant.
   */
  unnorm(x: number, r: number, dy: number, n: number, gain: Tensor, constant: boolean, dx: number): number {
    this.kernels.unnorm(x, dy, n, gain.from, gain.w, r, Number(this.shape.rms), Number(constant), dx);
    return dx;
  }

  /** r = f(x) / x and y = f(x), times u if given. */
  act(name: keyof typeof ACTIVATIONS, x: number, u: number, count: number): { r: number; y: number } {
    const [r, y] = [this.floats(count), this.floats(count)];
    this.kernels.act(ACTIVATIONS[name], x, u, count, r, y);
    return { r, y };
  }
}
