/** Products with packed matrices, forwards and backwards. */
import { fma, sum4, load, store, dot, add } from "./vectors";

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
