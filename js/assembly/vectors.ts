/** Parts of a vector: four numbers at a time, and the rest of a row that is cut in fours. */
// @ts-ignore: decorator
@inline
export function fma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

// @ts-ignore: decorator
@inline
export function sum4(a: v128): f32 {
  const b = f32x4.add(a, i32x4.shuffle(a, a, 2, 3, 0, 1));
  return f32x4.extract_lane(b, 0) + f32x4.extract_lane(b, 1);
}

/** Up to four numbers; zeros behind them. */
// @ts-ignore: decorator
@inline
export function load(at: usize, count: i32): v128 {
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
export function store(at: usize, v: v128, count: i32): void {
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
export function dot(a: usize, b: usize, count: i32): f32 {
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
export function add(y: usize, by: f32, x: usize, count: i32): void {
  const factor = f32x4.splat(by);
  let i = 0;
  for (; i + 4 <= count; i += 4)
    v128.store(y + (i << 2), fma(factor, v128.load(x + (i << 2)), v128.load(y + (i << 2))));
  for (; i < count; i++) f32.store(y + (i << 2), f32.load(y + (i << 2)) + by * f32.load(x + (i << 2)));
}
