/** What the bundles call so often that short names for it save a kilobyte: `build.mjs` has `Math.max` read as `Math_max`. */
export const {
  abs: Math_abs,
  ceil: Math_ceil,
  floor: Math_floor,
  log10: Math_log10,
  max: Math_max,
  min: Math_min,
  round: Math_round,
  sign: Math_sign,
} = Math;
export const { entries: Object_entries } = Object;
export const { clearTimeout: clearTimeout_, Number: Number_, setTimeout: setTimeout_, String: String_ } = globalThis;
