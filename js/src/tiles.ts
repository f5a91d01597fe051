/**
 * Tiles in the browser: what came eagerly, what was asked for, and what happens when nobody answers.
 *
 * One request is in flight at a time and the latest wish wins, so holding an arrow key down never builds a
 * queue in the kernel. Late, duplicate and missing replies do no harm: a tile says itself what it is.
 */
import { decodeTile } from "./codec.ts";
import type { Status, ThumbSheet, Tile, TileClient } from "./context.ts";
import { type Address, EagerTiles, keyOf, type StoreModel } from "./eager.ts";
import { ByteLru } from "./lru.ts";
import type { HeadKey, Reply, Request } from "./wire.ts";

/** Bytes of decoded tiles kept. */
export const CACHE_BYTES = 64 * 2 ** 20;
export const WAITING_AFTER = 1500;
export const GONE_AFTER = 8000;
const IDLE_AFTER = 60;
const PING_EVERY = 5000;
const PINGS = 24;
const PING_GAP = 2000;
const ROWS_KEPT = 256;
const ROWS_QUEUED = 4;
const TRIES = 2;

interface InFlight {
  id: number;
  key: string;
  request: Request;
  slot: string | null;
  tries: number;
  alive: boolean;
}

export class TileStore implements TileClient {
  #models: StoreModel[] = [];
  readonly #bound = new WeakSet<StoreModel>();
  readonly #listeners = new Set<() => void>();
  readonly #lru = new ByteLru<Tile>(CACHE_BYTES);
  readonly #rows = new Map<string, Float32Array>();
  readonly #failures = new Map<string, string>();
  readonly #noRow = new Set<string>();
  readonly #wanted = new Map<string, Address>();
  readonly #rowsWanted = new Map<
    string,
    { at: Address & { row: number }; done: ((v: Float32Array | null) => void)[] }
  >();
  readonly #rowsRefused = new Set<string>();
  #eager = new EagerTiles();
  #prefetch: Address[] = [];
  #flight: InFlight | null = null;
  #nextId = 1;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idle: ReturnType<typeof setTimeout> | undefined;
  #pings = 0;
  #pinged = 0;
  #status: Status = { state: "ok", message: "" };

  /** Lend a view's model proxy. Requests go through the oldest proxy that is alive. */
  attach(model: StoreModel, signal: AbortSignal): void {
    this.#models.push(model);
    this.#listen();
    signal.addEventListener("abort", () => {
      this.#models = this.#models.filter((m) => m !== model);
      if (this.#models.length === 0) this.#rest();
      else this.#listen();
    });
  }

  get empty(): boolean {
    return this.#models.length === 0;
  }

  #listen(): void {
    const model = this.#models[0];
    // Only the first proxy listens, or each reply would be decoded once for every view.
    if (!model || this.#bound.has(model)) return;
    this.#bound.add(model);
    model.on("msg:custom", (msg: Reply, buffers: DataView[]) => {
      if (this.#models[0] === model) this.#receive(msg, buffers);
    });
    model.on("change:header", () => this.#reread());
    model.on("change:eager", () => this.#reread());
    this.#reread();
  }

  #reread(): void {
    this.#eager = new EagerTiles();
    this.#failures.clear();
    this.#noRow.clear();
    this.#tell();
  }

  #tell(): void {
    for (const cb of [...this.#listeners]) cb();
  }

  subscribe(cb: () => void, signal: AbortSignal): void {
    this.#listeners.add(cb);
    signal.addEventListener("abort", () => this.#listeners.delete(cb));
  }

  status(): Status {
    return this.#status;
  }

  failure(source: string, layer: number, head: HeadKey): string | undefined {
    return this.#failures.get(keyOf({ source, layer, head }));
  }

  get(source: string, layer: number, head: HeadKey): Tile | undefined {
    const key = keyOf({ source, layer, head });
    const kept = this.#lru.get(key);
    if (kept) return kept;
    const tile = this.#eager.tile(key, this.#models[0]);
    if (!tile) return undefined;
    this.#lru.set(key, tile, tile.codes.byteLength);
    return tile;
  }

  thumbs(source: string): ThumbSheet | undefined {
    return this.#eager.thumbs(source, this.#models[0]);
  }

  request(source: string, layer: number, head: HeadKey, slot?: string): void {
    const at: Address = { source, layer, head };
    const place = slot ?? `${source} ${typeof head}`;
    this.#planPrefetch(at);
    if (this.get(source, layer, head)) {
      this.#wanted.delete(place);
      this.#pump();
      return;
    }
    const key = keyOf(at);
    if (this.#failures.has(key)) return;
    // Set anew, so that the order of the map is the order of the wishes.
    this.#wanted.delete(place);
    if (this.#flight?.key !== key) this.#wanted.set(place, at);
    else this.#flight.slot ??= place;
    this.#pump();
  }

  row(source: string, layer: number, head: HeadKey, row: number): Promise<Float32Array | null> {
    const at = { source, layer, head, row };
    const key = `${keyOf(at)}\n${row}`;
    const kept = this.#rows.get(key);
    if (kept) return Promise.resolve(kept);
    if (this.#noRow.has(key)) return Promise.resolve(null);
    // A refusal is announced, and views then ask again: without this they would do so for ever.
    if (this.#rowsRefused.has(key)) return Promise.resolve(null);
    if (this.#status.state === "no-kernel") {
      this.#ping();
      return Promise.resolve(null);
    }
    return new Promise((done) => {
      const waiting = this.#rowsWanted.get(key);
      if (waiting) {
        waiting.done.push(done);
        return;
      }
      this.#rowsWanted.set(key, { at, done: [done] });
      const queued = [...this.#rowsWanted.keys()].filter((k) => k !== this.#flight?.key);
      if (queued.length > ROWS_QUEUED && queued[0] !== undefined) this.#finishRow(queued[0], null);
      this.#pump();
    });
  }

  #finishRow(key: string, values: Float32Array | null): void {
    const waiting = this.#rowsWanted.get(key);
    this.#rowsWanted.delete(key);
    if (values) {
      this.#rows.set(key, values);
      const oldest = this.#rows.keys().next();
      if (this.#rows.size > ROWS_KEPT && !oldest.done) this.#rows.delete(oldest.value);
    }
    for (const done of waiting?.done ?? []) done(values);
  }

  /** The layers before and after the one that was wanted last are likely to be wanted next. */
  #planPrefetch({ source, layer, head }: Address): void {
    const layers = this.#models[0]?.get("header")?.sources.find((s) => s.id === source)?.layers ?? [];
    const at = layers.indexOf(layer);
    this.#prefetch = [layers[at + 1], layers[at - 1]]
      .filter((l): l is number => at >= 0 && l !== undefined)
      .map((l) => ({ source, layer: l, head }));
  }

  #send(request: Request): boolean {
    try {
      this.#models[0]?.send(request, undefined, []);
      return this.#models.length > 0;
    } catch {
      return false; // the comm is closed: the same as no answer
    }
  }

  /** Send the next thing wanted, if nothing is in flight and somebody answers. */
  #pump(): void {
    if (this.#flight || this.#models.length === 0) return;
    if (this.#status.state === "no-kernel") {
      if (this.#wanted.size > 0) this.#ping();
      return;
    }
    for (const [key, { at }] of this.#rowsWanted) {
      this.#launch({ kind: "row", id: this.#nextId++, ...at }, key, null);
      return;
    }
    for (const [slot, at] of this.#wanted) {
      this.#wanted.delete(slot);
      if (this.get(at.source, at.layer, at.head)) continue;
      this.#launch({ kind: "tile", id: this.#nextId++, ...at }, keyOf(at), slot);
      return;
    }
    clearTimeout(this.#idle);
    if (this.#prefetch.length > 0) this.#idle = setTimeout(() => this.#fetchAhead(), IDLE_AFTER);
  }

  #fetchAhead(): void {
    if (this.#flight || this.#status.state !== "ok") return;
    let at = this.#prefetch.shift();
    while (at && (this.#failures.has(keyOf(at)) || this.get(at.source, at.layer, at.head))) at = this.#prefetch.shift();
    if (at) this.#launch({ kind: "tile", id: this.#nextId++, ...at }, keyOf(at), null);
  }

  #launch(request: Request, key: string, slot: string | null): void {
    clearTimeout(this.#idle);
    this.#flight = { id: request.id, key, request, slot, tries: 1, alive: false };
    if (this.#send(request)) this.#watch();
    else this.#giveUp();
  }

  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#setStatus("waiting", "Waiting for the kernel: it is busy. What is loaded keeps working.");
      this.#send({ kind: "ping", id: this.#nextId++ });
      this.#timer = setTimeout(() => this.#overdue(), GONE_AFTER - WAITING_AFTER);
    }, WAITING_AFTER);
  }

  #overdue(): void {
    const flight = this.#flight;
    if (!flight) return;
    if (!flight.alive) {
      this.#giveUp();
    } else if (flight.tries < TRIES) {
      // It answers pings, so the request or its reply was lost on the way.
      flight.tries += 1;
      flight.alive = false;
      this.#send(flight.request);
      this.#watch();
    } else {
      this.#settle(flight, "the kernel is alive but does not answer for this matrix");
    }
  }

  #giveUp(): void {
    clearTimeout(this.#timer);
    const flight = this.#flight;
    this.#flight = null;
    if (flight?.request.kind === "tile" && flight.slot !== null && !this.#wanted.has(flight.slot)) {
      this.#wanted.set(flight.slot, flight.request);
    }
    for (const key of [...this.#rowsWanted.keys()]) this.#finishRow(key, null);
    this.#setStatus(
      "no-kernel",
      "No answer from the kernel: it is busy or gone. Everything already loaded still works; rerun the cell for the rest.",
    );
    this.#pings = 0;
    this.#timer = setTimeout(() => this.#knock(), PING_EVERY);
  }

  #knock(): void {
    if (this.#status.state !== "no-kernel" || this.#pings >= PINGS) return;
    this.#ping();
    this.#timer = setTimeout(() => this.#knock(), PING_EVERY);
  }

  #ping(): void {
    const now = Date.now();
    if (now - this.#pinged < PING_GAP) return;
    this.#pinged = now;
    this.#pings += 1;
    this.#send({ kind: "ping", id: this.#nextId++ });
  }

  /** End the request in flight, with a reason if it failed. */
  #settle(flight: InFlight, why: string | null): void {
    clearTimeout(this.#timer);
    this.#flight = null;
    if (why !== null) {
      if (flight.request.kind === "row") {
        this.#rowsRefused.add(flight.key);
        this.#finishRow(flight.key, null);
      } else this.#failures.set(flight.key, why);
    }
    this.#setStatus("ok", "");
    this.#tell();
    this.#pump();
  }

  #setStatus(state: Status["state"], message: string): void {
    if (this.#status.state === state) return;
    this.#status = { state, message };
    this.#tell();
  }

  #receive(msg: Reply, buffers: DataView[]): void {
    if (!msg || typeof msg !== "object" || typeof msg.id !== "number") return;
    const flight = this.#flight?.id === msg.id ? this.#flight : null;
    if (msg.kind === "pong") {
      if (this.#flight) this.#flight.alive = true;
      else this.#recover();
      return;
    }
    if (msg.kind === "error") {
      if (flight) this.#settle(flight, String(msg.message));
      else this.#recover();
      return;
    }
    const buffer = buffers?.[0];
    const problem = buffer ? this.#keep(msg, buffer) : "the reply had no data";
    if (flight) this.#settle(flight, problem);
    else if (problem === null) {
      this.#recover();
      this.#tell();
    }
  }

  /** Put a reply's data where it belongs; says what was wrong with it otherwise. */
  #keep(msg: Extract<Reply, { kind: "tile" | "row" }>, buffer: DataView): string | null {
    if (msg.kind === "row") {
      if (buffer.byteLength % 4 !== 0) return "the reply was cut";
      const values = new Float32Array(buffer.byteLength / 4);
      for (let i = 0; i < values.length; i += 1) values[i] = buffer.getFloat32(4 * i, true);
      this.#finishRow(`${keyOf(msg)}\n${msg.row}`, values);
      return null;
    }
    const tile = decodeTile(msg, buffer);
    if (!tile) return "the reply was cut";
    this.#failures.delete(keyOf(msg));
    this.#lru.set(keyOf(msg), tile, tile.codes.byteLength);
    return null;
  }

  #recover(): void {
    if (this.#flight || this.#status.state === "ok") return;
    clearTimeout(this.#timer);
    this.#rowsRefused.clear();
    this.#setStatus("ok", "");
    this.#pump();
  }

  /** Nobody looks any more: no timer may go on. */
  #rest(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#idle);
    this.#flight = null;
    this.#wanted.clear();
    for (const key of [...this.#rowsWanted.keys()]) this.#finishRow(key, null);
  }
}

/** One tile client for each store, for all views of one runtime. */
export class TilePool {
  readonly #stores = new Map<string, TileStore>();

  acquire(ref: string, model: StoreModel, signal: AbortSignal): TileStore {
    const store = this.#stores.get(ref) ?? new TileStore();
    this.#stores.set(ref, store);
    store.attach(model, signal);
    signal.addEventListener("abort", () => {
      if (store.empty && this.#stores.get(ref) === store) this.#stores.delete(ref);
    });
    return store;
  }
}
