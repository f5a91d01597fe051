/**
 * The kernels of js/src/engine/kernels.ts in AssemblyScript; that interface documents each of them. Compiled twice by
 * js/scripts/assembly.mjs: with plain SIMD, and with fused multiply-add (relaxed SIMD). Any sizes are allowed: rows are
 * computed four numbers at a time, and the rest number by number. This entry has the kernels of whole rows.
 */
import { fma, sum4, load, store, dot, add } from "./vectors";

export { attend, mix, unattend } from "./attention";
export { row, linear, back } from "./matrices";
export { act, slope, plus, times } from "./numbers";

/** The first address that the caller may use. */
export function start(): usize {
  return __heap_base;
}

export function norm(
  x: usize,
  n: i32,
  width: i32,
  gain: usize,
  bias: usize,
  eps: f32,
  rms: i32,
  y: usize,
  r: usize,
): void {
  for (let t = 0; t < n; t++, x += width << 2, y += width << 2) {
    const mean: f32 = rms ? 0 : meanOf(x, width);
    let squares: f32 = 0;
    let j = 0;
    const middle = f32x4.splat(mean);
    let sum = f32x4.splat(0);
    for (; j + 4 <= width; j += 4) {
      const d = f32x4.sub(v128.load(x + (j << 2)), middle);
      sum = fma(d, d, sum);
    }
    squares = sum4(sum);
    for (; j < width; j++) squares += (f32.load(x + (j << 2)) - mean) * (f32.load(x + (j << 2)) - mean);
    const scale: f32 = 1 / sqrt<f32>(squares / <f32>width + eps);
    f32.store(r + (t << 2), scale);
    const factor = f32x4.splat(scale);
    for (j = 0; j < width; j += 4) {
      const left = width - j;
      let v = f32x4.mul(f32x4.sub(load(x + (j << 2), left), middle), factor);
      v = f32x4.mul(v, load(gain + (j << 2), left));
      if (bias) v = f32x4.add(v, load(bias + (j << 2), left));
      store(y + (j << 2), v, left);
    }
  }
}

// @ts-ignore: decorator
@inline
function meanOf(x: usize, width: i32): f32 {
  let sum = f32x4.splat(0);
  for (let j = 0; j < width; j += 4) sum = f32x4.add(sum, load(x + (j << 2), width - j));
  return sum4(sum) / <f32>width;
}

export function unnorm(
  x: usize,
  dy: usize,
  n: i32,
  width: i32,
  gain: usize,
  r: usize,
  rms: i32,
  constant: i32,
  dx: usize,
): void {
  const step = width << 2;
  for (let t = 0; t < n; t++, x += step, dy += step, dx += step) {
    const scale = f32.load(r + (t << 2));
    const mean: f32 = rms ? 0 : meanOf(x, width);
    const shift: f32 = rms ? 0 : dot(gain, dy, width) / <f32>width;
    const middle = f32x4.splat(mean);
    let along: f32 = 0;
    if (!constant) {
      let sum = f32x4.splat(0);
      for (let j = 0; j < width; j += 4) {
        const left = width - j;
        const u = f32x4.mul(load(gain + (j << 2), left), load(dy + (j << 2), left));
        sum = fma(u, f32x4.sub(load(x + (j << 2), left), middle), sum);
      }
      along = (sum4(sum) * scale * scale) / <f32>width;
    }
    for (let j = 0; j < width; j += 4) {
      const left = width - j;
      const u = f32x4.mul(load(gain + (j << 2), left), load(dy + (j << 2), left));
      const d = f32x4.mul(f32x4.sub(load(x + (j << 2), left), middle), f32x4.splat(along));
      const v = f32x4.mul(f32x4.sub(f32x4.sub(u, f32x4.splat(shift)), d), f32x4.splat(scale));
      store(dx + (j << 2), f32x4.add(load(dx + (j << 2), left), v), left);
    }
  }
}

export function rotate(x: usize, n: i32, wide: i32, size: i32, cos: usize, sin: usize, sign: f32): void {
  const half = (size >> 1) << 2;
  for (let t = 0; t < n; t++, cos += half, sin += half) {
    for (const end = x + (wide << 2); x < end; x += size << 2) {
      for (let j = 0; j < half; j += 4) {
        const u = f32.load(x + j);
        const v = f32.load(x + half + j);
        const c = f32.load(cos + j);
        const s = sign * f32.load(sin + j);
        f32.store(x + j, u * c - v * s);
        f32.store(x + half + j, v * c + u * s);
      }
    }
  }
}
