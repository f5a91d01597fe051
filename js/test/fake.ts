/** A store and its kernel as views see them, for tests without a browser. */
import type { StoreModel } from "../src/wire/eager.ts";
import type { Header, Reply, Request, SelectionState, Source, TileMeta } from "../src/wire/wire.ts";

export const SOURCE: Source = {
  id: "attention/token/self",
  method: "attention",
  title: "attention",
  question: "Attention",
  gist: "which words each head reads",
  unit: "token",
  stack: "self",
  query: "t",
  key: "t",
  words: ["query", "key", "reads", "is read by", "Where does {} look?", "Who looks at {}?"],
  layers: [0, 1, 2, 3, 4, 5],
  states: null,
  computed: null,
  heads: [0, 1],
  coarse: false,
  parts: false,
  causal: false,
  signed: false,
  stochastic: true,
  sink: false,
  kind: "map",
  note: "",
  warning: "",
  targets: false,
  accounts: [],
  sums: [],
  balance: [],
  findings: [],
  verdict: "",
};

export const HEADER: Header = {
  version: 1,
  model: "m",
  text: "",
  axes: {
    t: {
      unit: "token",
      labels: ["un", "like", "ly", "cat"],
      spans: null,
      special: [0, 0, 0, 0],
      segment: [0, 0, 0, 0],
      boundary: null,
      grid: null,
      cells: null,
      times: null,
    },
    w: {
      unit: "word",
      labels: ["unlikely", "cat"],
      spans: [[0, 1, 2], [3]],
      special: [0, 0],
      segment: [0, 0],
      boundary: null,
      grid: null,
      cells: null,
      times: null,
    },
  },
  sources: [SOURCE, { ...SOURCE, id: "attention/word/self", unit: "word", query: "w", key: "w" }],
  methods: [],
  thumbs: [],
  tiles: [],
  predictions: { title: "", items: [], method: "", explained: null },
};

type Callback = (...args: never[]) => void;

export class FakeKernel {
  readonly sent: Request[] = [];
  readonly #listeners = new Map<string, Set<Callback>>();
  header = HEADER;
  eager = new DataView(new ArrayBuffer(0));

  /** One view's proxy of the store's model. */
  model(): StoreModel {
    return {
      get: (key: "header" | "eager") => this[key],
      send: (request: Request) => this.sent.push(request),
      on: (name: string, cb: Callback) => {
        const known = this.#listeners.get(name) ?? new Set();
        this.#listeners.set(name, known.add(cb));
      },
      off: (name: string, cb: Callback) => this.#listeners.get(name)?.delete(cb),
    } as unknown as StoreModel;
  }

  emit(name: string, ...args: unknown[]): void {
    for (const cb of this.#listeners.get(name) ?? []) cb(...(args as never[]));
  }

  tiles(): Extract<Request, { kind: "tile" }>[] {
    return this.sent.filter((r) => r.kind === "tile");
  }

  get last(): Request {
    const request = this.sent[this.sent.length - 1];
    if (!request) throw new Error("nothing was sent");
    return request;
  }

  /** Answer a request for a tile with 4 cells of `code`. */
  answer(request: Request, code = 255): void {
    if (request.kind !== "tile") throw new Error(`cannot answer ${request.kind} with a tile`);
    const { id, source, layer, head } = request;
    const meta: TileMeta = { source, layer, head, rows: 2, cols: 2, codec: "u8", gamma: 0.5, scale: 1 };
    this.reply({ kind: "tile", id, ...meta }, new Uint8Array(4).fill(code));
  }

  reply(reply: Reply, bytes?: Uint8Array): void {
    const copy = bytes && new DataView(bytes.slice().buffer);
    this.emit("msg:custom", reply, copy ? [copy] : []);
  }
}

/** A selection of which nothing was moved. */
export const START: SelectionState = {
  layer: 0,
  head: 0,
  unit: "token",
  method: "attention",
  stack: "self",
  pinned: null,
  pins: [],
  heads: [],
  span: null,
  target: null,
  foil: null,
  inside: false,
  feature: null,
  interventions: [],
  opening: null,
  hover: null,
  writer: null,
};
