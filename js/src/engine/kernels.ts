/**
 * The operations of a pass and of its reverse over a shared memory. Arguments are addresses in bytes (of float32
 * numbers unless stated otherwise), sizes, and flags (0 or 1); an address of 0 stands for a tensor that does not exist.
 * Arrays with different names do not overlap, except where stated.
 */
export interface Kernels {
  /** y [n, to] = x [n, from] W + b. `panel` has room for 4 rows of W. */
  linear(
    packing: number,
    x: number,
    n: number,
    from: number,
    w: number,
    s: number,
    to: number,
    b: number,
    y: number,
    panel: number,
  ): void;
  /** dx [n, from] += dy [n, to] W^T. `panel` has room for 4,096 numbers. */
  back(
    packing: number,
    dy: number,
    n: number,
    to: number,
    w: number,
    s: number,
    from: number,
    dx: number,
    panel: number,
  ): void;
  /** One row of W [to, from], unpacked. */
  row(packing: number, w: number, s: number, row: number, from: number, y: number): void;
  /** y = r (x - mean) gain + bias by row, with r [n] the reciprocal of the size; `rms`: without the mean. */
  norm(
    x: number,
    n: number,
    width: number,
    gain: number,
    bias: number,
    eps: number,
    rms: number,
    y: number,
    r: number,
  ): void;
  /** dx += the gradient of a norm; `constant`: with r as a constant. */
  unnorm(
    x: number,
    dy: number,
    n: number,
    width: number,
    gain: number,
    r: number,
    rms: number,
    constant: number,
    dx: number,
  ): void;
  /**
   * Rotate in place the pairs of numbers of every head of x [n, wide] by angles [n, size / 2]; `sign` -1: backwards.
   */
  rotate(x: number, n: number, wide: number, size: number, cos: number, sin: number, sign: number): void;
  /** a [head, n, all] = softmax(scale q k): q [n, head, size] are the last n of `all` tokens, k [all, source, size]. */
  attend(
    q: number,
    k: number,
    n: number,
    all: number,
    heads: number,
    sources: number,
    size: number,
    scale: number,
    causal: number,
    a: number,
  ): void;
  /** z [n, head, size] = a v. */
  mix(a: number, v: number, n: number, all: number, heads: number, sources: number, size: number, z: number): void;
  /**
   * Add the gradients that dz gives to dq, dk and dv. `share`: the share of a product that each of its two factors
   * receives. `soft` 0: attention is a constant, and dv receives everything. `fixed` [head, n] bytes: 1 where a row was
   * set. `da` [n] is scratch.
   */
  unattend(
    dz: number,
    a: number,
    q: number,
    k: number,
    v: number,
    n: number,
    heads: number,
    sources: number,
    size: number,
    scale: number,
    share: number,
    soft: number,
    fixed: number,
    da: number,
    dq: number,
    dk: number,
    dv: number,
  ): void;
  /** r = f(x) / x (0 at 0) and y = f(x), times u unless its address is 0. */
  act(kind: number, x: number, u: number, count: number, r: number, y: number): void;
  /** y = f'(x) */
  slope(kind: number, x: number, count: number, y: number): void;
  /** y += x */
  plus(y: number, x: number, count: number): void;
  /** y = by a b; y may be a or b. */
  times(a: number, b: number, by: number, count: number, y: number): void;
}

/** Memory that grows; its buffer changes then. */
export interface Memory {
  readonly buffer: ArrayBuffer;
  /** Grow the memory to at least this many bytes. */
  reach(bytes: number): void;
}

/** The numbers of packings in the kernels. float16 is widened when it is loaded. */
export const PACKINGS = { f32: 0, f16: 0, q8: 1, q4m: 2 } as const;

export interface Backend {
  name: "fused" | "simd" | "plain";
  kernels: Kernels;
  memory: Memory;
  /** The first address that may be used. */
  start: number;
  /** Why the computation is slow; "" where it is not. */
  slow: string;
}
