import assert from "node:assert/strict";
import { test } from "node:test";
import { weightsOf } from "../src/host/scoreFactors.ts";

test("factors that end too early are refused instead of read forever", () => {
  const onlyTheHead = new Uint8Array(12);
  assert.throws(() => weightsOf(onlyTheHead, { rows: 1, cols: 1, rank: 1, causal: false }), /damaged/);
});
