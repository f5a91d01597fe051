/** Functions of single numbers: exponentials, activations and their slopes, sums and products. */
import { load, store, add } from "./vectors";

/** e^x to about 1e-7, and 0 below e^-87: 2^n times a polynomial (Cephes, expf). */
export function exp4(x: v128): v128 {
  const small = f32x4.lt(x, f32x4.splat(-87));
  x = f32x4.max(f32x4.splat(-87), f32x4.min(f32x4.splat(88), x));
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(1.44269504088896341)));
  x = f32x4.sub(x, f32x4.mul(n, f32x4.splat(0.693359375)));
  x = f32x4.sub(x, f32x4.mul(n, f32x4.splat(-2.1219444e-4)));
  let p = f32x4.splat(1.98756915e-4);
  p = f32x4.add(f32x4.mul(p, x), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, x), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, x), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, x), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, x), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(x, x)), x), f32x4.splat(1));
  const power = i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23);
  return v128.andnot(f32x4.mul(p, power), small);
}

function sigmoid(x: v128): v128 {
  return f32x4.div(f32x4.splat(1), f32x4.add(f32x4.splat(1), exp4(f32x4.neg(x))));
}

/** tanh(x) / x; a series near 0. */
function tanhShare(x: v128): v128 {
  const square = f32x4.mul(x, x);
  let p = f32x4.splat(62.0 / 2835);
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(-17.0 / 315));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(2.0 / 15));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(-1.0 / 3));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(1));
  const far = f32x4.sub(f32x4.mul(f32x4.splat(2), sigmoid(f32x4.mul(f32x4.splat(2), x))), f32x4.splat(1));
  return v128.bitselect(p, f32x4.div(far, x), f32x4.lt(f32x4.abs(x), f32x4.splat(0.3)));
}

/** Half of 1 + erf(x / sqrt 2), to 1e-7 (Abramowitz and Stegun 1964, 7.1.26). */
function normal(x: v128): v128 {
  const z = f32x4.mul(f32x4.abs(x), f32x4.splat(0.70710678118654752));
  const t = f32x4.div(f32x4.splat(1), f32x4.add(f32x4.mul(f32x4.splat(0.3275911), z), f32x4.splat(1)));
  let p = f32x4.splat(1.061405429);
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-1.453152027));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(1.421413741));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-0.284496736));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(0.254829592));
  const tail = f32x4.mul(f32x4.mul(f32x4.mul(p, t), exp4(f32x4.neg(f32x4.mul(z, z)))), f32x4.splat(0.5));
  return v128.bitselect(tail, f32x4.sub(f32x4.splat(1), tail), f32x4.lt(x, f32x4.splat(0)));
}

/** Twice the argument of the hyperbolic tangent of gelu_new. */
function bent(x: v128): v128 {
  const cubic = f32x4.mul(f32x4.mul(x, x), x);
  const inner = f32x4.add(f32x4.mul(cubic, f32x4.splat(0.044715)), x);
  return f32x4.mul(inner, f32x4.splat(1.5957691216057308));
}

/** f(x) / x; see `ACTIVATIONS` for the numbers. */
function share(kind: i32, x: v128): v128 {
  if (kind == 0) return v128.and(f32x4.gt(x, f32x4.splat(0)), f32x4.splat(1));
  if (kind == 1) return tanhShare(x);
  if (kind == 2) return sigmoid(x);
  if (kind == 3) return normal(x);
  return sigmoid(bent(x));
}

export function act(kind: i32, x: usize, u: usize, count: i32, r: usize, y: usize): void {
  for (let i = 0; i < count; i += 4) {
    const left = count - i;
    const at = i << 2;
    const value = load(x + at, left);
    const ratio = v128.and(share(kind, value), f32x4.ne(value, f32x4.splat(0)));
    let out = f32x4.mul(value, ratio);
    if (u) out = f32x4.mul(out, load(u + at, left));
    store(r + at, ratio, left);
    store(y + at, out, left);
  }
}

function slopeOf(kind: i32, x: v128): v128 {
  const one = f32x4.splat(1);
  const s = share(kind, x);
  if (kind == 0) return s;
  if (kind == 1) {
    const y = f32x4.mul(x, s);
    return f32x4.sub(one, f32x4.mul(y, y));
  }
  if (kind == 2) return f32x4.mul(s, f32x4.add(f32x4.mul(x, f32x4.sub(one, s)), one));
  if (kind == 3) {
    const density = exp4(f32x4.mul(f32x4.splat(-0.5), f32x4.mul(x, x)));
    return f32x4.add(f32x4.mul(f32x4.mul(x, f32x4.splat(0.3989422804014327)), density), s);
  }
  const inner = f32x4.add(f32x4.mul(f32x4.mul(x, x), f32x4.splat(0.134145)), one);
  const rise = f32x4.mul(inner, f32x4.splat(1.5957691216057308));
  return f32x4.add(f32x4.mul(f32x4.mul(x, f32x4.mul(s, f32x4.sub(one, s))), rise), s);
}

export function slope(kind: i32, x: usize, count: i32, y: usize): void {
  for (let i = 0; i < count; i += 4) store(y + (i << 2), slopeOf(kind, load(x + (i << 2), count - i)), count - i);
}

export function plus(y: usize, x: usize, count: i32): void {
  add(y, 1, x, count);
}

export function times(a: usize, b: usize, by: f32, count: i32, y: usize): void {
  const factor = f32x4.splat(by);
  for (let i = 0; i < count; i += 4) {
    const left = count - i;
    const product = f32x4.mul(load(a + (i << 2), left), load(b + (i << 2), left));
    store(y + (i << 2), f32x4.mul(product, factor), left);
  }
}
