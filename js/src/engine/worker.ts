/** The worker's script, built into attnwidgets/static/engine.js. */
import fused from "assembly:fused";
import simd from "assembly:simd";
import { listen, type Port } from "./serve.ts";

listen(globalThis as unknown as Port, { fused, simd });
