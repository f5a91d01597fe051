import assert from "node:assert/strict";
import { test } from "node:test";
import { fileOf, lineOf, payloadOf, type Row, whole } from "../src/views/people/payload.ts";
import { assignmentOf, checkPositions, digest, hashed, randomCode, turnsOf } from "../src/views/people/schedule.ts";
import { checkWords, choicesOf, instruction, rowOf, stepsOf } from "../src/views/people/steps.ts";
import type { AskedItem, AskedStudy } from "../src/wire/studies.ts";

const HASH = "2d2751fa4a56b271";
const item = (id: string, more: Partial<AskedItem> = {}): AskedItem => ({
  id,
  words: ["a", "b"],
  gaps: [false, true],
  shown: [],
  prediction: [],
  changed: "",
  truth: null,
  ...more,
});
const STUDY: AskedStudy = {
  hash: HASH,
  kind: "forward",
  heading: "A study",
  question: "What?",
  consent: "Yes?",
  labels: ["nein", "ja"],
  between: false,
  conditions: ["none", "lrp", "random"],
  cells: [[0], [1], [2]],
  items: ["0", "1", "2", "3", "4", "5"].map((id) => item(id)),
  practice: [item("practice 0", { truth: "ja" })],
  checks: ["ja", "nein"],
  checkWords: ["mark", "this"],
  code: null,
  package: "0.1.0",
};

// The same numbers stand in tests/people/test_study.py.
test("hashes, places and turns are those of Python", () => {
  assert.equal(hashed(""), 2872998923);
  assert.deepEqual([digest("aw"), digest("שלום 🙂")], ["f6a0999204a52403", "dbdacc6deb01b9e1"]);
  const place = assignmentOf("k7m2p9qa", HASH, 6, 3);
  assert.deepEqual(place, { shift: 1, side: 1, mirrored: 1, row: 4 });
  const turns = turnsOf(place, 6, 3, false).map(({ item, cell, side }) => [item, cell, side]);
  const expected = [
    [1, 2, 1],
    [2, 0, 1],
    [0, 1, 1],
    [3, 1, 0],
    [5, 0, 0],
    [4, 2, 0],
  ];
  assert.deepEqual(turns, expected);
  assert.deepEqual(checkPositions(8, 2), [3, 5]);
  assert.deepEqual(checkPositions(24, 3), [6, 12, 18]);
  assert.ok(turnsOf(place, 6, 3, true).every(({ cell }) => cell === 1));
});

test("codes are random, and nothing in them is read as something else", () => {
  const codes = new Set(Array.from({ length: 200 }, randomCode));
  assert.equal(codes.size, 200);
  for (const code of codes) assert.match(code, /^[a-hjkmnp-z2-9]{8}$/);
});

test("practice comes first, and checks are spread among the items", () => {
  const roles = stepsOf(STUDY, "k7m2p9qa").map(({ role }) => role);
  assert.deepEqual(roles, ["practice", "item", "item", "check", "item", "item", "check", "item", "item"]);
});

test("a line is Python's, and a file holds the same", () => {
  const rows: Row[] = [["item", "ü \u202e", "a", "", 0, 0, "ja\n", null, 1234]];
  const payload = payloadOf(STUDY, "k7m2p9qa", rows, true);
  assert.equal(
    lineOf(payload),
    "awp1.eyJjb2RlIjoiazdtMnA5cWEiLCJmaW5pc2hlZCI6dHJ1ZSwia2luZCI6ImZvcndhcmQiLCJwYWNrYWdlIjoiMC4xLjAiLCJyb3dzIjpbWyJpdGVtIiwiw7wg4oCuIiwiYSIsIiIsMCwwLCJqYVxuIixudWxsLDEyMzRdXSwic3R1ZHkiOiIyZDI3NTFmYTRhNTZiMjcxIiwidiI6MX0.abb62e62c5fd111f",
  );
  assert.deepEqual(JSON.parse(fileOf(payload)), whole(payload));
  assert.equal(
    fileOf(payload)
      .split("\n")
      .filter((line) => line.startsWith("  [")).length,
    1,
  );
});

test("choices, attention checks, and the feedback on practice items", () => {
  assert.deepEqual(
    choicesOf(STUDY).map(({ value }) => value),
    ["nein", "ja"],
  );
  assert.match(checkWords(STUDY, 1), /choose “nein”/);
  const [practice, first] = stepsOf(STUDY, "k7m2p9qa");
  assert.equal(practice && instruction(STUDY, practice), "The model answers “ja”.");
  assert.equal(first && instruction(STUDY, first), "");
  const trust: AskedStudy = { ...STUDY, kind: "trust", labels: [], checks: [2] };
  assert.deepEqual(
    choicesOf(trust).map(({ value }) => value),
    [1, 2, 3, 4, 5],
  );
  assert.match(checkWords(trust, 0), /“a little”/);
  const models: AskedStudy = { ...STUDY, kind: "which_model", labels: [], practice: [item("p", { truth: 1 })] };
  const step = { role: "practice", at: 0, cell: 0, position: 0 } as const;
  assert.match(instruction(models, { ...step, side: 0 }), /second/);
  assert.match(instruction(models, { ...step, side: 1 }), /first/);
  const words: AskedStudy = { ...STUDY, kind: "remove_words", labels: [], practice: [item("p", { truth: [1] })] };
  assert.match(instruction(words, { ...step, side: 0 }), /“b”/);
  assert.deepEqual(choicesOf(words), []);
  assert.match(checkWords(words, 0), /follow the instructions in the text/);
});

test("a row has the names of its conditions, and times in whole milliseconds", () => {
  const pair: AskedStudy = { ...STUDY, kind: "forced_choice", cells: [[1, 2]] };
  const step = { role: "item", at: 3, cell: 0, side: 1, position: 2 } as const;
  assert.deepEqual(rowOf(pair, step, "first", 12.6, 2e9), ["item", "3", "lrp", "random", 2, 1, "first", 13, 999_999]);
  assert.deepEqual(rowOf(pair, { ...step, role: "check", at: 1 }, "ja", null, 5), [
    "check",
    "check 1",
    "",
    "",
    2,
    1,
    "ja",
    null,
    5,
  ]);
});
