/** The backends that this Node has, for tests of the engine. */

import fused from "assembly:fused";
import simd from "assembly:simd";
import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import type { Backend } from "../src/engine/kernels.ts";
import { plainBackend } from "../src/engine/plain.ts";
import { wasmBackend } from "../src/engine/wasm.ts";

// Node 20 has fused multiply-add behind a flag; later ones have it, and no flag.
if (!WebAssembly.validate(fused)) setFlagsFromString("--experimental-wasm-relaxed-simd");

export const MODULES = { fused, simd };
export const BACKENDS: Record<Backend["name"], () => Promise<Backend>> = {
  plain: async () => plainBackend(),
  simd: () => wasmBackend("simd", simd),
  fused: () => wasmBackend("fused", fused),
};

/** Compare numbers, with a share of the largest as tolerance. */
export function near(values: ArrayLike<number>, expected: ArrayLike<number>, what: string, most = 3e-6): void {
  assert.equal(values.length, expected.length, what);
  const top = Math.max(1e-3, ...Array.from(expected, Math.abs));
  for (let i = 0; i < expected.length; i += 1)
    assert.ok(
      Math.abs(values[i]! - expected[i]!) <= most * top,
      `${what} ${i}: ${values[i]} instead of ${expected[i]}`,
    );
}
