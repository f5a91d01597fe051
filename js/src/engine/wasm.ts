/** The kernels in WebAssembly: with fused multiply-add where the browser has it, else with plain SIMD. */
import type { Backend, Kernels, Memory } from "./kernels.ts";
import { plainBackend } from "./plain.ts";
import type { PackedModel } from "./types.ts";

/** js/assembly, compiled twice. */
export interface Modules {
  fused: Uint8Array<ArrayBuffer>;
  simd: Uint8Array<ArrayBuffer>;
}

const PAGE = 1 << 16;
/** Pages that memory grows by at least. */
const STEP = 64;
/** Parameters up to which plain JavaScript takes less than a second. */
const PLAIN_MOST = 50_000_000;

const NO_SIMD = "This browser lacks WebAssembly SIMD (Chrome 91, Firefox 89 and Safari 16.4 have it)";
const FORBIDDEN =
  "This site forbids WebAssembly (its Content-Security-Policy lacks 'wasm-unsafe-eval'). Save the folder and open index.html.";

/** Memory of a module. It is not reserved ahead: a phone would refuse. */
class WasmMemory implements Memory {
  readonly memory = new WebAssembly.Memory({ initial: STEP });

  get buffer(): ArrayBuffer {
    return this.memory.buffer as ArrayBuffer;
  }

  reach(bytes: number): void {
    const missing = Math.ceil((bytes - this.memory.buffer.byteLength) / PAGE);
    if (missing <= 0) return;
    try {
      this.memory.grow(Math.max(missing, STEP));
    } catch {
      throw new RangeError(`Not enough memory for this model (needs about ${Math.ceil(bytes / 1e6)} MB).`);
    }
  }
}

/** The backend of a compiled module. */
export async function wasmBackend(name: "fused" | "simd", code: Uint8Array<ArrayBuffer>): Promise<Backend> {
  const memory = new WasmMemory();
  const { instance } = await WebAssembly.instantiate(code, { env: { memory: memory.memory, abort } });
  const { start, ...kernels } = instance.exports as unknown as Kernels & { start(): number };
  return { name, kernels, memory, start: start(), slow: "" };
}

function abort(): never {
  throw new Error("A kernel stopped.");
}

/** The fastest backend that this browser has and this site allows. */
export async function chooseBackend({ tensors }: PackedModel, { fused, simd }: Modules): Promise<Backend> {
  const name = WebAssembly.validate(fused) ? "fused" : "simd";
  const hasSimd = name === "fused" || WebAssembly.validate(simd);
  try {
    if (hasSimd) return await wasmBackend(name, { fused, simd }[name]);
  } catch (error) {
    // Valid code that does not compile is forbidden, which only compiling reveals.
    if (!(error instanceof WebAssembly.CompileError)) throw error;
  }
  const parameters = tensors.reduce((sum, [, , to, from]) => sum + to * from, 0);
  if (parameters <= PLAIN_MOST) return plainBackend(hasSimd ? FORBIDDEN : `${NO_SIMD}: computed slowly.`);
  throw new Error(hasSimd ? FORBIDDEN : `${NO_SIMD} and cannot compute a model of this size.`);
}
