/**
 * Tiles in the browser: what came eagerly, what was asked for, and what happens when nobody answers.
 *
 * One request is in flight at a time and the latest wish wins, so holding an arrow key down never builds a
 * queue in the kernel. Late, duplicate and missing replies do no harm: a tile says itself what it is.
 */
import { createCache, type DataReply } from "./cache.ts";
import type { Status, TileClient } from "./context.ts";
import { atEnd } from "./dom.ts";
import { keyOf, type StoreModel } from "./eager.ts";
import type { HeadKey, Reply, Request } from "./wire.ts";

export const WAITING_AFTER = 1500;
export const GONE_AFTER = 8000;
const IDLE_AFTER = 60;
const PING_EVERY = 5000;
const PINGS = 24;
const PING_GAP = 2000;
const ROWS_QUEUED = 4;
const TRIES = 2;

type TileAsk = { kind: "tile"; source: string; layer: number; head: HeadKey };
type RowAsk = { kind: "row"; source: string; layer: number; head: HeadKey; row: number };
type Ask = TileAsk | RowAsk | { kind: "thumbs"; source: string };
type Timer = ReturnType<typeof setTimeout> | undefined;

interface Flight {
  id: number;
  key: string;
  ask: Ask;
  slot: string | null;
  tries: number;
  alive: boolean;
}

export interface TileStore extends TileClient {
  /** Lend a view's model proxy. Requests go through the oldest proxy that is alive. */
  attach(model: StoreModel, signal: AbortSignal): void;
  /** Whether no view is left. */
  empty(): boolean;
}

export function createTiles(): TileStore {
  let models: StoreModel[] = [];
  const bound = new WeakSet<StoreModel>();
  const listeners = new Set<() => void>();
  const cache = createCache();
  /** Why something was refused. Refusals are announced and views then ask again: this ends it. */
  const failures = new Map<string, string>();
  /** Wishes by slot, in the order they were made. */
  const wanted = new Map<string, Ask>();
  const rowsWanted = new Map<string, { ask: RowAsk; done: ((values: Float32Array | null) => void)[] }>();
  let ahead: TileAsk[] = [];
  let flight: Flight | null = null;
  let nextId = 1;
  let timer: Timer;
  let idle: Timer;
  let pings = 0;
  let pinged = 0;
  let status: Status = { state: "ok", message: "" };

  const tell = (): void => {
    for (const cb of listeners) cb();
  };

  const setStatus = (state: Status["state"], message = ""): void => {
    if (status.state === state) return;
    status = { state, message };
    tell();
  };

  // ---- what is here ----

  const reread = (): void => {
    cache.read(models[0]);
    failures.clear();
    tell();
  };

  const isHere = (ask: Ask): boolean =>
    Boolean(ask.kind === "thumbs" ? cache.thumbs(keyOf(ask)) : cache.tile(keyOf(ask)));

  const finishRow = (key: string, values: Float32Array | null): void => {
    const waiting = rowsWanted.get(key);
    rowsWanted.delete(key);
    for (const done of waiting?.done ?? []) done(values);
  };

  const finishRows = (): void => {
    for (const key of [...rowsWanted.keys()]) finishRow(key, null);
  };

  /** Take a reply in; says what was wrong with it. */
  const keep = (msg: DataReply, buffer: DataView): string | null => {
    const key = keyOf(msg);
    const problem = cache.keep(msg, buffer);
    if (problem !== null) return problem;
    if (msg.kind === "row") finishRow(key, cache.row(key) ?? null);
    failures.delete(key);
    return null;
  };

  // ---- asking ----

  const send = (request: Request): boolean => {
    try {
      models[0]?.send(request, undefined, []);
      return models.length > 0;
    } catch {
      return false; // the comm is closed: the same as no answer
    }
  };

  const ping = (): void => {
    if (Date.now() - pinged < PING_GAP) return;
    pinged = Date.now();
    pings += 1;
    send({ kind: "ping", id: nextId++ });
  };

  const knock = (): void => {
    timer = setTimeout(() => {
      if (status.state !== "no-kernel" || pings >= PINGS) return;
      ping();
      knock();
    }, PING_EVERY);
  };

  const giveUp = (): void => {
    clearTimeout(timer);
    const lost = flight;
    flight = null;
    if (lost && lost.slot !== null && !wanted.has(lost.slot)) wanted.set(lost.slot, lost.ask);
    finishRows();
    setStatus(
      "no-kernel",
      "No answer from the kernel: it is busy or gone. Everything already loaded still works; rerun the cell for the rest.",
    );
    pings = 0;
    knock();
  };

  /** End the request in flight, with a reason if it failed. */
  const settle = (ended: Flight, why: string | null): void => {
    clearTimeout(timer);
    flight = null;
    if (why !== null) {
      failures.set(ended.key, why);
      finishRow(ended.key, null);
    }
    setStatus("ok");
    tell();
    pump();
  };

  const overdue = (): void => {
    if (!flight?.alive) {
      giveUp();
    } else if (flight.tries < TRIES) {
      // It answers pings, so the request or its reply was lost on the way.
      flight.tries += 1;
      transmit(flight);
    } else {
      settle(flight, "the kernel is alive but does not answer for this matrix");
    }
  };

  const transmit = (sent: Flight): void => {
    sent.alive = false;
    if (!send({ ...sent.ask, id: sent.id })) {
      giveUp();
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(() => {
      setStatus("waiting", "Waiting for the kernel: it is busy. What is loaded keeps working.");
      send({ kind: "ping", id: nextId++ });
      timer = setTimeout(overdue, GONE_AFTER - WAITING_AFTER);
    }, WAITING_AFTER);
  };

  const launch = (ask: Ask, slot: string | null): void => {
    clearTimeout(idle);
    flight = { id: nextId++, key: keyOf(ask), ask, slot, tries: 1, alive: false };
    transmit(flight);
  };

  /** Send the next thing wanted, if nothing is in flight and somebody answers. */
  const pump = (): void => {
    if (flight || models.length === 0) return;
    if (status.state === "no-kernel") {
      if (wanted.size > 0) ping();
      return;
    }
    const [row] = rowsWanted.values();
    if (row) {
      launch(row.ask, null);
      return;
    }
    for (const [slot, ask] of wanted) {
      wanted.delete(slot);
      if (isHere(ask)) continue;
      launch(ask, slot);
      return;
    }
    clearTimeout(idle);
    if (ahead.length > 0) idle = setTimeout(fetchAhead, IDLE_AFTER);
  };

  const fetchAhead = (): void => {
    if (flight || status.state !== "ok") return;
    const next = ahead.find((ask) => !failures.has(keyOf(ask)) && !isHere(ask));
    ahead = ahead.filter((ask) => ask !== next);
    if (next) launch(next, null);
  };

  /** Want something within a slot. Set anew, so that the order of the map is the order of the wishes. */
  const want = (ask: Ask, slot: string): void => {
    wanted.delete(slot);
    const key = keyOf(ask);
    if (flight?.key === key) flight.slot ??= slot;
    else if (!isHere(ask) && !failures.has(key)) wanted.set(slot, ask);
    pump();
  };

  /** The layers before and after the one that was wanted last are likely to be wanted next. */
  const planAhead = (ask: TileAsk): void => {
    const layers = models[0]?.get("header")?.sources.find((s) => s.id === ask.source)?.layers ?? [];
    const at = layers.indexOf(ask.layer);
    const near = at < 0 ? [] : [layers[at + 1], layers[at - 1]];
    ahead = near.flatMap((layer) => (layer === undefined ? [] : [{ ...ask, layer }]));
  };

  // ---- answers ----

  /** Somebody answered after all. */
  const recover = (): void => {
    if (flight || status.state === "ok") return;
    clearTimeout(timer);
    failures.clear();
    setStatus("ok");
    pump();
  };

  const receive = (msg: Reply, buffers: DataView[]): void => {
    if (!msg || typeof msg !== "object" || typeof msg.id !== "number") return;
    const mine = flight?.id === msg.id ? flight : null;
    let problem: string | null = null;
    if (msg.kind === "pong") {
      if (flight) flight.alive = true;
      else recover();
      return;
    }
    if (msg.kind === "error") problem = String(msg.message);
    else problem = buffers?.[0] ? keep(msg, buffers[0]) : "the reply had no data";
    if (mine) {
      settle(mine, problem);
    } else {
      recover();
      if (problem === null) tell();
    }
  };

  const listen = (): void => {
    const model = models[0];
    // Only the first proxy listens, or each reply would be decoded once for every view.
    if (!model || bound.has(model)) return;
    bound.add(model);
    model.on("msg:custom", (msg: Reply, buffers: DataView[]) => {
      if (models[0] === model) receive(msg, buffers);
    });
    model.on("change:header", reread);
    model.on("change:eager", reread);
    reread();
  };

  return {
    attach(model, signal) {
      models.push(model);
      listen();
      atEnd(signal, () => {
        models = models.filter((m) => m !== model);
        if (models.length > 0) {
          listen();
          return;
        }
        // Nobody looks any more: no timer may go on.
        clearTimeout(timer);
        clearTimeout(idle);
        flight = null;
        wanted.clear();
        finishRows();
      });
    },
    empty: () => models.length === 0,
    subscribe(cb, signal) {
      listeners.add(cb);
      atEnd(signal, () => listeners.delete(cb));
    },
    status: () => status,
    failure: (source, layer, head) => failures.get(keyOf({ source, layer, head })),
    get: (source, layer, head) => cache.tile(keyOf({ source, layer, head })),
    thumbs(source) {
      const sheet = cache.thumbs(keyOf({ source }));
      if (!sheet) want({ kind: "thumbs", source }, "thumbs");
      return sheet;
    },
    request(source, layer, head, slot = `${source} ${typeof head}`) {
      const ask: TileAsk = { kind: "tile", source, layer, head };
      planAhead(ask);
      want(ask, slot);
    },
    row(source, layer, head, row) {
      const ask: RowAsk = { kind: "row", source, layer, head, row };
      const key = keyOf(ask);
      const kept = cache.row(key);
      if (kept) return Promise.resolve(kept);
      const lost = status.state === "no-kernel";
      if (lost) ping();
      if (lost || failures.has(key)) return Promise.resolve(null);
      return new Promise((done) => {
        const waiting = rowsWanted.get(key);
        if (waiting) {
          waiting.done.push(done);
          return;
        }
        rowsWanted.set(key, { ask, done: [done] });
        const [oldest, ...newer] = [...rowsWanted.keys()].filter((k) => k !== flight?.key);
        if (oldest !== undefined && newer.length >= ROWS_QUEUED) finishRow(oldest, null);
        pump();
      });
    },
  };
}

/** The tile client of a store, shared by all views of one runtime. */
export type TilePool = (ref: string, model: StoreModel, signal: AbortSignal) => TileStore;

export function createPool(): TilePool {
  const stores = new Map<string, TileStore>();
  return (ref, model, signal) => {
    const store = stores.get(ref) ?? createTiles();
    stores.set(ref, store);
    store.attach(model, signal);
    atEnd(signal, () => {
      if (store.empty() && stores.get(ref) === store) stores.delete(ref);
    });
    return store;
  };
}
