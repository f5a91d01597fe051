/**
 * The kernels of js/src/engine/kernels.ts in AssemblyScript, which says what each computes. Compiled twice by
 * js/scripts/assembly.mjs: with plain SIMD, and with fused multiply-add (relaxed SIMD). Any sizes are allowed: what is left over
 * when a row is cut in fours is computed number by number.
 */

/** The first address that the caller may use. */
export function start(): usize {
  return __heap_base;
}

// -- parts of a vector ----------------------------------------------------------------------------

// @ts-ignore: decorator
@inline
function fma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

// @ts-ignore: decorator
@inline
function sum4(a: v128): f32 {
  const b = f32x4.add(a, i32x4.shuffle(a, a, 2, 3, 0, 1));
  return f32x4.extract_lane(b, 0) + f32x4.extract_lane(b, 1);
}

/** Up to four numbers; zeros behind them. */
// @ts-ignore: decorator
@inline
function load(at: usize, count: i32): v128 {
  return count >= 4 ? v128.load(at) : loadTail(at, count);
}

function loadTail(at: usize, count: i32): v128 {
  let v = f32x4.splat(0);
  if (count > 0) v = f32x4.replace_lane(v, 0, f32.load(at));
  if (count > 1) v = f32x4.replace_lane(v, 1, f32.load(at, 4));
  if (count > 2) v = f32x4.replace_lane(v, 2, f32.load(at, 8));
  return v;
}

// @ts-ignore: decorator
@inline
function store(at: usize, v: v128, count: i32): void {
  if (count >= 4) v128.store(at, v);
  else storeTail(at, v, count);
}

function storeTail(at: usize, v: v128, count: i32): void {
  if (count > 0) f32.store(at, f32x4.extract_lane(v, 0));
  if (count > 1) f32.store(at, f32x4.extract_lane(v, 1), 4);
  if (count > 2) f32.store(at, f32x4.extract_lane(v, 2), 8);
}

// @ts-ignore: decorator
@inline
function dot(a: usize, b: usize, count: i32): f32 {
  let sum = f32x4.splat(0);
  let i = 0;
  for (; i + 4 <= count; i += 4) sum = fma(v128.load(a + (i << 2)), v128.load(b + (i << 2)), sum);
  let out = sum4(sum);
  for (; i < count; i++) out += f32.load(a + (i << 2)) * f32.load(b + (i << 2));
  return out;
}

/** y += by x */
// @ts-ignore: decorator
@inline
function add(y: usize, by: f32, x: usize, count: i32): void {
  const factor = f32x4.splat(by);
  let i = 0;
  for (; i + 4 <= count; i += 4)
    v128.store(y + (i << 2), fma(factor, v128.load(x + (i << 2)), v128.load(y + (i << 2))));
  for (; i < count; i++) f32.store(y + (i << 2), f32.load(y + (i << 2)) + by * f32.load(x + (i << 2)));
}

// -- matrices -------------------------------------------------------------------------------------

/** 16 whole numbers of 8 bits, times a scale, plus a least number. */
// @ts-ignore: decorator
@inline
function widen(q: v128, scale: v128, least: v128, out: usize): void {
  const low = i16x8.extend_low_i8x16_s(q);
  const high = i16x8.extend_high_i8x16_s(q);
  v128.store(out, f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low)), scale), least));
  v128.store(out, f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low)), scale), least), 16);
  v128.store(out, f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high)), scale), least), 32);
  v128.store(out, f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high)), scale), least), 48);
}

/** Numbers [at, at + count) of a tensor, whole groups. */
function unpack(packing: i32, w: usize, s: usize, at: i32, count: i32, out: usize): void {
  const end = out + (count << 2);
  let group = at >> 5;
  if (packing == 1) {
    const none = f32x4.splat(0);
    for (; out < end; group++, out += 128) {
      const scale = v128.load32_splat(s + (group << 2));
      widen(v128.load(w + (group << 5)), scale, none, out);
      widen(v128.load(w + (group << 5), 16), scale, none, out + 64);
    }
  } else {
    const half = i8x16.splat(15);
    for (; out < end; group++, out += 128) {
      const q = v128.load(w + (group << 4));
      const scale = v128.load32_splat(s + (group << 3));
      const least = v128.load32_splat(s + (group << 3), 4);
      widen(v128.and(q, half), scale, least, out);
      widen(i8x16.shr_u(q, 4), scale, least, out + 64);
    }
  }
}

export function row(packing: i32, w: usize, s: usize, at: i32, from: i32, y: usize): void {
  if (packing) unpack(packing, w, s, at * from, from, y);
  else memory.copy(y, w + at * from * 4, from << 2);
}

/** Four rows of W by one of x. */
// @ts-ignore: decorator
@inline
function four(x: usize, p: usize, from: i32, b: usize, y: usize): void {
  const step = from << 2;
  const full = x + ((from & ~3) << 2);
  const end = x + step;
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  for (; x < full; x += 16, p += 16) {
    const u = v128.load(x);
    a0 = fma(u, v128.load(p), a0);
    a1 = fma(u, v128.load(p + step), a1);
    a2 = fma(u, v128.load(p + 2 * step), a2);
    a3 = fma(u, v128.load(p + 3 * step), a3);
  }
  let s0 = sum4(a0);
  let s1 = sum4(a1);
  let s2 = sum4(a2);
  let s3 = sum4(a3);
  for (; x < end; x += 4, p += 4) {
    const u = f32.load(x);
    s0 += u * f32.load(p);
    s1 += u * f32.load(p + step);
    s2 += u * f32.load(p + 2 * step);
    s3 += u * f32.load(p + 3 * step);
  }
  if (b) {
    s0 += f32.load(b);
    s1 += f32.load(b, 4);
    s2 += f32.load(b, 8);
    s3 += f32.load(b, 12);
  }
  f32.store(y, s0);
  f32.store(y, s1, 4);
  f32.store(y, s2, 8);
  f32.store(y, s3, 12);
}

/** Four rows of W by two of x, which follow each other; `from` is a multiple of 4. */
// @ts-ignore: decorator
@inline
function eight(x: usize, p: usize, from: i32, b: usize, y: usize, to: i32): void {
  const step = from << 2;
  const end = x + step;
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  let b0 = a0;
  let b1 = a0;
  let b2 = a0;
  let b3 = a0;
  for (; x < end; x += 16, p += 16) {
    const u = v128.load(x);
    const v = v128.load(x + step);
    let w = v128.load(p);
    a0 = fma(u, w, a0);
    b0 = fma(v, w, b0);
    w = v128.load(p + step);
    a1 = fma(u, w, a1);
    b1 = fma(v, w, b1);
    w = v128.load(p + 2 * step);
    a2 = fma(u, w, a2);
    b2 = fma(v, w, b2);
    w = v128.load(p + 3 * step);
    a3 = fma(u, w, a3);
    b3 = fma(v, w, b3);
  }
  const bias = b ? v128.load(b) : f32x4.splat(0);
  const z = y + (to << 2);
  v128.store(y, f32x4.add(f32x4(sum4(a0), sum4(a1), sum4(a2), sum4(a3)), bias));
  v128.store(z, f32x4.add(f32x4(sum4(b0), sum4(b1), sum4(b2), sum4(b3)), bias));
}

export function linear(
  packing: i32,
  x: usize,
  n: i32,
  from: i32,
  w: usize,
  s: usize,
  to: i32,
  b: usize,
  y: usize,
  panel: usize,
): void {
  const step = from << 2;
  for (let k = 0; k < to; k += 4) {
    const high = min(4, to - k);
    let p = panel;
    if (packing) unpack(packing, w, s, k * from, high * from, panel);
    else p = w + k * step;
    const bias = b ? b + (k << 2) : 0;
    let t = 0;
    if (high == 4) {
      // The fastest shape of a tile differs with and without fused multiply-add.
      if (ASC_FEATURE_RELAXED_SIMD)
        if (!(from & 3)) for (; t + 2 <= n; t += 2) eight(x + t * step, p, from, bias, y + ((t * to + k) << 2), to);
      for (; t < n; t++) four(x + t * step, p, from, bias, y + ((t * to + k) << 2));
    } else {
      for (; t < n; t++)
        for (let r = 0; r < high; r++)
          f32.store(
            y + ((t * to + k + r) << 2),
            dot(x + t * step, p + r * step, from) + (bias ? f32.load(bias + (r << 2)) : 0),
          );
    }
  }
}

const HIGH = 16;
const WIDE = 256;

export function back(
  packing: i32,
  dy: usize,
  n: i32,
  to: i32,
  w: usize,
  s: usize,
  from: i32,
  dx: usize,
  panel: usize,
): void {
  for (let k = 0; k < to; k += HIGH) {
    const high = min(HIGH, to - k);
    for (let j = 0; j < from; j += WIDE) {
      const wide = min(WIDE, from - j);
      let p = panel;
      let step = wide << 2;
      if (packing) {
        for (let r = 0; r < high; r++) unpack(packing, w, s, (k + r) * from + j, wide, panel + r * step);
      } else {
        p = w + ((k * from + j) << 2);
        step = from << 2;
      }
      let t = 0;
      if (!(wide & 15))
        for (; t + 2 <= n; t += 2) {
          const g = dy + ((t * to + k) << 2);
          const d = dx + ((t * from + j) << 2);
          for (let c = 0; c < wide << 2; c += 64) twice(g, to << 2, p + c, step, high, d + c, from << 2);
        }
      for (; t < n; t++) {
        const g = dy + ((t * to + k) << 2);
        const d = dx + ((t * from + j) << 2);
        let c = 0;
        for (; c + 16 <= wide; c += 16) sixteen(g, p + (c << 2), step, high, d + (c << 2));
        for (; c < wide; c += 4) {
          const left = min(4, wide - c);
          let a = load(d + (c << 2), left);
          for (let r = 0; r < high; r++) a = fma(v128.load32_splat(g + (r << 2)), load(p + r * step + (c << 2), left), a);
          store(d + (c << 2), a, left);
        }
      }
    }
  }
}

/** Sixteen columns of d += g p for two rows of g and d, which are `to` and `from` bytes apart. */
// @ts-ignore: decorator
@inline
function twice(g: usize, to: i32, p: usize, step: i32, high: i32, d: usize, from: i32): void {
  let a0 = v128.load(d);
  let a1 = v128.load(d, 16);
  let a2 = v128.load(d, 32);
  let a3 = v128.load(d, 48);
  let b0 = v128.load(d + from);
  let b1 = v128.load(d + from, 16);
  let b2 = v128.load(d + from, 32);
  let b3 = v128.load(d + from, 48);
  const end = g + (high << 2);
  for (; g < end; g += 4, p += step) {
    const e = v128.load32_splat(g);
    const f = v128.load32_splat(g + to);
    let w = v128.load(p);
    a0 = fma(e, w, a0);
    b0 = fma(f, w, b0);
    w = v128.load(p, 16);
    a1 = fma(e, w, a1);
    b1 = fma(f, w, b1);
    w = v128.load(p, 32);
    a2 = fma(e, w, a2);
    b2 = fma(f, w, b2);
    w = v128.load(p, 48);
    a3 = fma(e, w, a3);
    b3 = fma(f, w, b3);
  }
  v128.store(d, a0);
  v128.store(d, a1, 16);
  v128.store(d, a2, 32);
  v128.store(d, a3, 48);
  v128.store(d + from, b0);
  v128.store(d + from, b1, 16);
  v128.store(d + from, b2, 32);
  v128.store(d + from, b3, 48);
}

/** Sixteen columns of d += g p, for `high` rows. */
// @ts-ignore: decorator
@inline
function sixteen(g: usize, p: usize, step: i32, high: i32, d: usize): void {
  let a0 = v128.load(d);
  let a1 = v128.load(d, 16);
  let a2 = v128.load(d, 32);
  let a3 = v128.load(d, 48);
  const end = g + (high << 2);
  for (; g < end; g += 4, p += step) {
    const e = v128.load32_splat(g);
    a0 = fma(e, v128.load(p), a0);
    a1 = fma(e, v128.load(p, 16), a1);
    a2 = fma(e, v128.load(p, 32), a2);
    a3 = fma(e, v128.load(p, 48), a3);
  }
  v128.store(d, a0);
  v128.store(d, a1, 16);
  v128.store(d, a2, 32);
  v128.store(d, a3, 48);
}

// -- rows -----------------------------------------------------------------------------------------

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

// -- attention ------------------------------------------------------------------------------------

export function attend(
  q: usize,
  k: usize,
  n: i32,
  all: i32,
  heads: i32,
  sources: i32,
  size: i32,
  scale: f32,
  causal: i32,
  a: usize,
): void {
  const step = (sources * size) << 2;
  for (let h = 0; h < heads; h++) {
    const keys = k + (((h * sources) / heads) * size << 2);
    for (let i = 0; i < n; i++, a += all << 2) {
      const query = q + (((i * heads + h) * size) << 2);
      const last = causal ? all - n + i + 1 : all;
      let top: f32 = -f32.MAX_VALUE;
      for (let j = 0; j < last; j++) {
        const score = dot(query, keys + j * step, size) * scale;
        f32.store(a + (j << 2), score);
        top = max<f32>(top, score);
      }
      let sum: f32 = 0;
      for (let j = 0; j < last; j += 4) store(a + (j << 2), exp4(f32x4.sub(load(a + (j << 2), last - j), f32x4.splat(top))), last - j);
      for (let j = 0; j < last; j++) sum += f32.load(a + (j << 2));
      for (let j = 0; j < last; j++) f32.store(a + (j << 2), f32.load(a + (j << 2)) / sum);
      memory.fill(a + (last << 2), 0, (all - last) << 2);
    }
  }
}

export function mix(
  a: usize,
  v: usize,
  n: i32,
  all: i32,
  heads: i32,
  sources: i32,
  size: i32,
  z: usize,
): void {
  const step = (sources * size) << 2;
  for (let h = 0; h < heads; h++) {
    const values = v + (((h * sources) / heads) * size << 2);
    for (let i = 0; i < n; i++, a += all << 2) {
      const out = z + (((i * heads + h) * size) << 2);
      memory.fill(out, 0, size << 2);
      for (let j = 0; j < all; j++) {
        const weight = f32.load(a + (j << 2));
        if (weight != 0) add(out, weight, values + j * step, size);
      }
    }
  }
}

export function unattend(
  dz: usize,
  a: usize,
  q: usize,
  k: usize,
  v: usize,
  n: i32,
  heads: i32,
  sources: i32,
  size: i32,
  scale: f32,
  share: f32,
  soft: i32,
  fixed: usize,
  da: usize,
  dq: usize,
  dk: usize,
  dv: usize,
): void {
  const step = (sources * size) << 2;
  const toValues: f32 = soft ? share : 1;
  for (let h = 0; h < heads; h++) {
    const its = ((h * sources) / heads) * size << 2;
    for (let i = 0; i < n; i++, a += n << 2) {
      const mine = ((i * heads + h) * size) << 2;
      let along: f32 = 0;
      for (let j = 0; j < n; j++) {
        const at = its + j * step;
        const weight = f32.load(a + (j << 2));
        const score = share * dot(dz + mine, v + at, size);
        f32.store(da + (j << 2), score);
        along += score * weight;
        if (weight != 0) add(dv + at, weight * toValues, dz + mine, size);
      }
      if (!soft || (fixed && <bool>i32.load8_u(fixed + h * n + i))) continue;
      for (let j = 0; j < n; j++) {
        const score = f32.load(a + (j << 2)) * (f32.load(da + (j << 2)) - along) * scale * share;
        if (score == 0) continue;
        const at = its + j * step;
        add(dq + mine, score, k + at, size);
        add(dk + at, score, q + mine, size);
      }
    }
  }
}

// -- numbers --------------------------------------------------------------------------------------

/** e^x to about 1e-7, and 0 below e^-87: 2^n times a polynomial (Cephes, expf). */
function exp4(x: v128): v128 {
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
