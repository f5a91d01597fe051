import assert from "node:assert/strict";
import { test } from "node:test";
import { createSelection } from "../src/selection.ts";
import type { Moved, SelectionState, Writer } from "../src/wire/wire.ts";
import { START } from "./fake.ts";

type State = SelectionState & Record<string, unknown>;
type Callback = (message: unknown) => void;

/** Python's Selection, in a front end that tells no page what another one saved. */
class Kernel {
  readonly state: State = { ...START };
  readonly pages: Page[] = [];
  readonly inbox: Partial<State>[] = [];
  readonly asked: Page[] = [];
  taken = 0;

  /** Take one message, or all. */
  run(count = 1000): void {
    for (const sent of this.inbox.splice(0, count)) {
      this.taken += 1;
      const { names } = sent.writer as Writer;
      for (const name of names) if (name in sent && sent[name] !== 99) this.state[name] = sent[name];
      const values = Object.fromEntries(names.map((name) => [name, this.state[name]]));
      for (const page of this.pages) page.hear({ kind: "moved", writer: sent.writer ?? null, values });
    }
  }

  /** Python sets a trait. */
  set(name: string, value: unknown): void {
    this.state[name] = value;
    for (const page of this.pages) page.state[name] = value;
  }
}

/** A widget manager's model: what was set is sent with the next save, whoever set it. Two views share it. */
class Page {
  readonly state: State;
  readonly seen: unknown[] = [];
  readonly views;
  #unsaved: Partial<State> = {};
  #listeners: Callback[] = [];

  constructor(kernel: Kernel, number: number) {
    this.state = { ...kernel.state };
    kernel.pages.push(this);
    const model = {
      get: (name: string) => this.state[name],
      set: (name: string, value: unknown) => {
        if (JSON.stringify(this.state[name]) === JSON.stringify(value)) return;
        this.state[name] = value;
        this.#unsaved[name] = value;
        if (name === "layer") this.seen.push(value);
      },
      save_changes: () => {
        kernel.inbox.push(structuredClone(this.#unsaved));
        this.#unsaved = {};
      },
      send: () => kernel.asked.push(this),
      on: (name: string, cb: Callback) => name === "msg:custom" && this.#listeners.push(cb),
    };
    this.views = [createSelection(model as never, number), createSelection(model as never, number)] as const;
    for (const view of this.views) view.subscribe(new AbortController().signal, () => undefined);
  }

  hear(message: Moved): void {
    for (const cb of this.#listeners) cb(structuredClone(message));
  }
}

function notebook(): [Kernel, Page, Page] {
  const kernel = new Kernel();
  return [kernel, new Page(kernel, 1), new Page(kernel, 2)];
}

const PIN = { unit: "token", query: 1, key: 2 };

test("what one page moves is seen in the other, and sent by nobody else", () => {
  const [kernel, one, two] = notebook();
  one.views[0].pin(PIN);
  one.views[1].set({ layer: 3 });
  kernel.run();
  assert.deepEqual([two.state.pinned, two.state.pins, two.state.layer], [PIN, [PIN], 3]);
  assert.deepEqual([kernel.inbox.length, kernel.taken], [0, 2]);
  two.views[0].pin(null);
  kernel.run();
  assert.deepEqual([one.state.pinned, one.state.layer], [null, 3]);
});

test("nothing jumps back while the reader drags, and the last value counts", () => {
  const [kernel, one, two] = notebook();
  for (const layer of [1, 2, 3, 4, 5]) {
    one.views[layer % 2 ? 0 : 1].set({ layer });
    if (layer > 2) kernel.run(1); // two steps behind
  }
  kernel.run();
  assert.deepEqual(one.seen, [1, 2, 3, 4, 5]);
  assert.deepEqual([two.state.layer, kernel.state.layer], [5, 5]);
});

test("two pages that move the same end with what came last", () => {
  const [kernel, one, two] = notebook();
  one.views[0].set({ layer: 1 });
  two.views[0].set({ layer: 2 });
  one.views[0].set({ head: 1 });
  kernel.run();
  for (const { state } of [kernel, one, two]) assert.deepEqual([state.layer, state.head], [2, 1]);
});

test("a value that Python refuses goes back to what it was", () => {
  const [kernel, one] = notebook();
  one.views[0].set({ layer: 99 });
  kernel.run();
  assert.equal(one.state.layer, 0);
});

test("a page sends what its reader moved, and not what others moved before", () => {
  const [kernel, one, two] = notebook();
  one.views[0].set({ layer: 5 });
  kernel.run();
  kernel.set("layer", 2);
  two.views[0].pin(PIN); // with this, the front end sends layer 5 again
  assert.equal(kernel.inbox[0]?.layer, 5);
  kernel.run();
  for (const { state } of [kernel, one, two]) assert.deepEqual([state.layer, state.pinned], [2, PIN]);
});

test("saves that a front end sends as one are taken as a whole", () => {
  const [kernel, one, two] = notebook();
  one.views[0].set({ layer: 1 });
  one.views[0].set({ head: 1 });
  kernel.inbox.splice(0, 2, Object.assign({}, ...kernel.inbox));
  kernel.run();
  assert.deepEqual([two.state.layer, two.state.head], [1, 1]);
});

test("a page that opens with the state of long ago goes where the reader is", () => {
  const [kernel, one] = notebook();
  one.views[0].set({ layer: 4 });
  const late = new Page(kernel, 3);
  late.state.layer = 0;
  kernel.run();
  late.state.layer = 0;
  assert.deepEqual(kernel.asked.filter((page) => page === late).length, 1, "asked once, for both of its views");
  late.views[0].set({ head: 1 });
  late.hear({ kind: "moved", writer: null, values: { layer: 4, head: 0 } });
  assert.deepEqual([late.state.layer, late.state.head], [4, 1], "what it moved since counts");
});

test("what is already so is not sent", () => {
  const [kernel, one] = notebook();
  one.views[0].set({ layer: 0 });
  assert.equal(kernel.inbox.length, 0);
});
