import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { type AddressValues, noteOf, readAddress, valuesOf } from "../src/host/address.ts";
import { codeOf, fragmentOf, NAMES } from "../src/link.ts";
import type { Header, SelectionState } from "../src/wire/wire.ts";
import { HEADER, SOURCE, START } from "./fake.ts";

const LRP = { ...SOURCE, kind: "attributions", method: "lrp", heads: null, targets: true } as const;
const MANY: Header = {
  ...HEADER,
  sources: [
    ...HEADER.sources,
    { ...LRP, id: "lrp/token/self" },
    { ...LRP, id: "lrp@1/token/self", method: "lrp@1" },
    { ...LRP, id: "lrp:layers/token/self", method: "lrp:layers", kind: "map" },
  ],
  predictions: {
    title: "",
    items: ["bad", "good"].map((label, id) => ({ label, id, probability: 0.5 })),
    method: "",
    explained: null,
  },
};

const asked = (hash: string, header = MANY): AddressValues => {
  const said = readAddress(hash);
  assert.ok(said, hash);
  return valuesOf(said, header, START);
};

function shown(state: Partial<SelectionState>, header = MANY): ViewContext {
  const all = { ...START, ...state };
  const options = { method: null, unit: null, stack: null };
  return {
    options,
    header: () => header,
    selection: { get: (key: keyof SelectionState) => all[key] },
  } as unknown as ViewContext;
}

const STATES: Partial<SelectionState>[] = [
  {},
  { layer: 3, head: "mean", unit: "word" },
  {
    head: 1,
    pins: [{ unit: "token", query: 3, key: 1 }],
    heads: [
      [3, 1],
      [0, 0],
    ],
  },
  {
    unit: "word",
    pins: [
      { unit: "token", query: 2, key: -1 },
      { unit: "token", query: 0, key: 3, layer: 5 },
    ],
  },
  { span: { start: 1, stop: 3, unit: "token", side: "query" } },
  { span: { start: 0, stop: 2, unit: "word", side: "key" } },
  { method: "lrp@1", target: { id: 1, label: "good" }, inside: true },
];

test("what is written is read again", () => {
  for (const state of STATES) {
    const { values, lacks, ofAnother } = asked(`#${fragmentOf(shown(state), 1)}`);
    assert.deepEqual([lacks, ofAnother], [[], false]);
    const whole = { ...START, ...state };
    for (const [name, value] of Object.entries(values)) {
      if (name === "pinned") assert.deepEqual(value, whole.pins.at(-1) ?? null);
      else assert.deepEqual(value, whole[name as keyof SelectionState], name);
    }
  }
});

test("an address names what a view shows, counted from 0", () => {
  const state = { layer: 3, head: 1, pins: [{ unit: "token", query: 3, key: 1 }] } as const;
  const written = fragmentOf(shown(state), 2);
  assert.match(written, /^view=2&method=attention&unit=token&layer=3&head=1&pin=3,1&of=[0-9a-f]{8}$/);
  assert.equal(codeOf(shown(state)), 'view.at(method="attention", unit="token", layer=3, head=1, pins=[(3, 1)])');
});

test("a label that is no plain text comes back", () => {
  const header = { ...HEADER, sources: [{ ...SOURCE, method: "a b&c=ü#%", unit: "tok,en+" }] };
  const written = fragmentOf(shown({ method: "a b&c=ü#%", unit: "tok,en+" }, header), 1);
  const { values, lacks } = asked(`#${written}`, header);
  assert.deepEqual([values.method, values.unit, lacks], ["a b&c=ü#%", "tok,en+", []]);
});

test("what the page lacks is said, and the rest is taken", () => {
  const hash = "#method=ig&layer=2&head=9&pin=1,2&pin=99,0&unit=line&target=7&colour=2";
  const { values, lacks } = asked(hash);
  assert.deepEqual([values.layer, values.method, values.head, values.target], [2, "attention", undefined, null]);
  assert.deepEqual(values.pins, [{ unit: "token", query: 1, key: 2 }]);
  assert.deepEqual(lacks.sort(), ["colour=2", "head=9", "method=ig", "pin=99,0", "target=7", "unit=line"]);
  assert.match(noteOf({ lacks, ofAnother: false }), /lacks: colour=2, .*, and 1 more\.$/);
});

test("an explanation of another target is never shown in its place", () => {
  const { values, lacks } = asked("#method=lrp&target=0");
  assert.deepEqual([values.method, values.target, lacks], ["lrp", null, ["target=0"]]);
  assert.equal(asked("#method=lrp&target=1").values.method, "lrp@1");
});

test("pins of another text are not pinned", () => {
  const written = fragmentOf(shown({ pins: [{ unit: "token", query: 3, key: 1 }] }), 1);
  const axes = { ...MANY.axes, t: { ...(MANY.axes.t as Header["axes"][string]), labels: ["un", "like", "ly", "dog"] } };
  const { values, ofAnother } = asked(`#${written}`, { ...MANY, axes });
  assert.deepEqual([values.pins, values.pinned, ofAnother], [[], null, true]);
});

test("an anchor is no link", () => {
  for (const hash of ["", "#", "#view1", "#layer", "#%E0%A4%A", "#a=b"]) assert.equal(readAddress(hash), null, hash);
});

/** A small generator of numbers, the same at every run. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

test("garbage is left out, whatever it is", () => {
  const next = random(15);
  const some = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)] as T;
  const pieces = [
    "1",
    "-1",
    "0",
    "3",
    ",",
    ".",
    "99999999999",
    "NaN",
    "e9",
    "%",
    "%00",
    "<b>",
    "mean",
    "token",
    "word",
    " ",
    "é",
    "__proto__",
    "constructor",
  ];
  for (let run = 0; run < 5000; run += 1) {
    const value = (): string => Array.from({ length: Math.floor(next() * 6) }, () => some(pieces)).join("");
    const hash = `#${Array.from({ length: 1 + Math.floor(next() * 8) }, () => `${some([...NAMES, "x"])}=${value()}`).join(some(["&", "&&"]))}`;
    const said = readAddress(hash);
    if (!said) continue;
    const { values, lacks } = valuesOf(said, MANY, START);
    const sources = MANY.sources;
    assert.ok(values.method === undefined || sources.some((s) => s.method === values.method), hash);
    assert.ok(values.layer === undefined || (values.layer >= 0 && values.layer <= 5), hash);
    assert.ok(
      values.head === undefined || values.head === "mean" || values.head === "max" || Number(values.head) <= 1,
      hash,
    );
    for (const { unit, query, key } of values.pins ?? []) {
      const size = unit === "token" ? 4 : 2;
      assert.ok(query >= -1 && query < size && key >= -1 && key < size && Math.max(query, key) >= 0, hash);
    }
    for (const [layer, head] of values.heads ?? []) assert.ok(layer <= 5 && head <= 1, hash);
    if (values.span) assert.ok(values.span.start < values.span.stop && values.span.stop <= 4, hash);
    assert.ok(noteOf({ lacks, ofAnother: false }).length < 400, hash);
  }
});
