/** Attention of heads, forwards and backwards. */
import { exp4 } from "./numbers";
import { load, store, dot, add } from "./vectors";

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
