/** WebAssembly that js/scripts/assembly.mjs compiles: "assembly:simd", "assembly:fused". */
declare module "assembly:*" {
  const code: Uint8Array<ArrayBuffer>;
  export default code;
}
