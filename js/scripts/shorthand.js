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
export const {
  AbortController: AbortController_,
  clearTimeout: clearTimeout_,
  document: document_,
  Float32Array: Float32Array_,
  getComputedStyle: getComputedStyle_,
  ImageData: ImageData_,
  Int8Array: Int8Array_,
  Number: Number_,
  setTimeout: setTimeout_,
  String: String_,
  Uint32Array: Uint32Array_,
  Uint8Array: Uint8Array_,
} = globalThis;
