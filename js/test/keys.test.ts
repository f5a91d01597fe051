import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewContext } from "../src/context.ts";
import { layered } from "../src/selection.ts";
import { chooseMethod, shownTargets } from "../src/views/base/methodChoice.ts";
import { baseKey, keyWithTargets, methodWithTargets, targetsOfKey } from "../src/wire/keys.ts";
import type { Header, Offer, Outcome, Source } from "../src/wire/wire.ts";
import { HEADER, SOURCE } from "./fake.ts";

const PARIS: Outcome = { id: 7, label: "Paris" };
const ROME: Outcome = { id: 12, label: "Rome" };
const LRP: Source = { ...SOURCE, id: "lrp/token/self", method: "lrp", kind: "attributions", layers: [0], heads: null };
const OFFER: Offer = {
  method: "ig",
  title: "ig",
  summary: "",
  question: "For this prediction",
  gist: "",
  cost: "",
  speed: "seconds",
  refusal: "",
  mark: "",
  targets: true,
};
const ITEMS = [PARIS, ROME].map((outcome) => ({ ...outcome, probability: 0.5 }));

function header(...sources: Source[]): Header {
  return {
    ...HEADER,
    sources,
    methods: [OFFER],
    predictions: { title: "next token", items: ITEMS, method: "", explained: null },
  };
}

/** A context with only what choosing a method reads; `made` lists computed methods, `set` the selections. */
function context(shown: Source, chosen: [Outcome | null, Outcome | null], ...more: Source[]) {
  const made: string[] = [];
  const set: unknown[] = [];
  const [target, foil] = chosen;
  const ctx = {
    header: () => header(shown, ...more),
    source: () => shown,
    resolved: () => ({ source: shown, layer: 0, head: "-", notes: [] }),
    signal: new AbortController().signal,
    selection: {
      get: (key: "target" | "foil") => ({ target, foil })[key],
      set: (values: unknown) => set.push(values),
    },
    tiles: {
      make: (method: string, _: number, done: () => void) => {
        made.push(method);
        done();
      },
    },
  } as unknown as ViewContext;
  return { ctx, made, set };
}

test("keys name target and foil of a method, and can be parsed", () => {
  assert.equal(keyWithTargets("lrp", PARIS, null), "lrp@7");
  assert.equal(keyWithTargets("lrp@7:layers", ROME, PARIS), "lrp@12-7");
  assert.equal(keyWithTargets("lrp@7-12", null, null), "lrp");
  assert.equal(baseKey("lrp@12-7:layers"), "lrp:layers");
  const [target, foil] = targetsOfKey(header(LRP), "lrp@12-7") ?? [];
  assert.deepEqual([target?.label, foil?.label], ["Rome", "Paris"]);
  assert.equal(targetsOfKey(header(LRP), "lrp"), null);
  assert.equal(targetsOfKey(header(LRP), "lrp@99")?.[0]?.id, 99, "not among the predictions shown");
});

test("only methods that declare it take targets", () => {
  assert.equal(methodWithTargets(header(LRP), "lrp"), undefined);
  const able = { ...LRP, targets: true };
  assert.equal(methodWithTargets(header(able), "lrp@7:layers")?.title, able.title);
  assert.equal(methodWithTargets(header(SOURCE))?.title, "ig", "any");
});

test("the shown method determines target and foil; otherwise the chosen ones wait", () => {
  const { ctx } = context({ ...LRP, method: "lrp@7" }, [ROME, null]);
  assert.equal(shownTargets(ctx)[0]?.label, "Paris");
  assert.equal(shownTargets(context(LRP, [ROME, null]).ctx)[0]?.label, "Rome");
});

test("a method of the menu is computed for the chosen target; a computed one is shown unchanged", () => {
  const waiting = context(SOURCE, [PARIS, ROME]);
  chooseMethod(waiting.ctx, "ig");
  assert.deepEqual(waiting.made, ["ig@7-12"]);
  assert.deepEqual(waiting.set, [{ method: "ig@7-12", target: PARIS, foil: ROME, inside: false }]);
  const made = context(SOURCE, [PARIS, null], { ...LRP, targets: true });
  chooseMethod(made.ctx, "lrp");
  assert.deepEqual(made.set, [{ method: "lrp", target: null, foil: null, inside: false }]);
  const plain = context(LRP, [PARIS, null], SOURCE);
  chooseMethod(plain.ctx, "attention");
  assert.deepEqual(plain.set, [{ method: "attention", target: PARIS, foil: null, inside: false }]);
});

test("the layers of attributions are those of their by-layer values", () => {
  const byLayer = { ...LRP, id: "lrp:layers/token/self", method: "lrp:layers", layers: [0, 2, 4] };
  const at = { get: (key: string) => ({ layer: 3, head: "mean" })[key] } as never;
  const shown = { source: LRP, layer: 0, head: "-" as const, notes: [] };
  assert.deepEqual(layered(header(LRP, byLayer), shown, at), { ...shown, source: byLayer, layer: 2 });
  assert.equal(layered(header(LRP), shown, at), shown);
});
