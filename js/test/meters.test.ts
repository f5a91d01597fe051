import assert from "node:assert/strict";
import { test } from "node:test";
import { amountText } from "../src/views/base/meters.ts";

test("amounts have the decimals that the largest of their list needs", () => {
  assert.equal(amountText(0.299, 0.65), "0.30");
  assert.equal(amountText(1, 1), "1.00");
  assert.equal(amountText(0, 1), "0.00");
  assert.equal(amountText(0.0042, 0.0042), "0.0042");
  assert.equal(amountText(-0.39, 0.85), "−0.39");
  assert.equal(amountText(12.3, 12.3), "12");
});

test("what would round to zero says that it is not", () => {
  assert.equal(amountText(0.001, 0.65), "< 0.01");
  assert.equal(amountText(-0.001, 0.65), "> −0.01");
  assert.equal(amountText(Number.NaN, 1), "–");
});
