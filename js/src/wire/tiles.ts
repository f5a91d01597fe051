/**
 * Tiles in the browser: sent with the view or requested later, and the fallback without a kernel.
 *
 * A single request is in flight at a time and the latest wins, so holding an arrow key down never builds a queue in the
 * kernel. Late, duplicate and missing replies do no harm: every tile names its address.
 */

import { atEnd } from "../dom.ts";
import { NO_BYTES } from "./binary.ts";
import { createCache, type DataReply } from "./cache.ts";
import { keyOf, type StoreModel } from "./eager.ts";
import { createRowQueue } from "./exactRows.ts";
import type { Job } from "./jobs.ts";
import { createJobs } from "./jobs.ts";
import { baseKey } from "./keys.ts";
import {
  type DataRequest,
  keyOfRequest,
  type LayerRequest,
  neighbours,
  type RowRequest,
  type TileRequest,
} from "./requests.ts";
import type { ThumbSheet, Tile } from "./tile.ts";
import type { HeadKey, Reply, Request } from "./wire.ts";

/**
 * "ok": answers arrive. "waiting": a request is unanswered. "no-kernel": given up for now; any answer restores "ok".
 */
export interface Status {
  state: "ok" | "waiting" | "no-kernel";
  /** A message for the user about the parts that still work, empty if all is well. */
  message: string;
}

/** The matrices of a store, shared by all its views. Sources are named by `Source.id`. */
export interface TileClient {
  /** The tile if it is loaded. Synchronous; never sends anything. */
  get(source: string, layer: number, head: HeadKey): Tile | undefined;
  /**
   * Request a tile; returns at once, and "tiles" is announced when it arrives. Within a `slot` the latest request
   * replaces those not sent yet. Views that need several tiles at a time use a slot for each.
   */
  request(source: string, layer: number, head: HeadKey, slot?: string): void;
  /**
   * Request several heads of a layer in a single message. Heads that do not fit are requested again on "tiles", until
   * every head is loaded or `failure` gives the reason.
   */
  requestHeads(source: string, layer: number, heads: HeadKey[]): void;
  /**
   * Exact float32 values of a row, or null if unavailable (no kernel, not in the file). A `quiet` request fails without
   * a message.
   */
  row(source: string, layer: number, head: HeadKey, row: number, quiet?: boolean): Promise<Float32Array | null>;
  /** Why the store refused this tile or method, if it did. */
  failure(source: string, layer?: number, head?: HeadKey): string | undefined;
  /** Why it refused these thumbnails. */
  thumbsFailure(source: string, special: boolean): string | undefined;
  /**
   * Max-pooled thumbnails, with or without the `special` tokens that stand apart. Missing thumbnails are requested, and
   * "tiles" is announced when they arrive. For a source sent in parts, those from the layer and head indices `from` on
   * are requested; null: none.
   */
  thumbs(source: string, special: boolean, from?: readonly [number, number] | null): ThumbSheet | undefined;
  /**
   * Request a method, computed with the current layer, unless it is loaded; then `done` is called. The latest request
   * wins.
   */
  make(method: string, layer: number, done: () => void): void;
  /** The running job, once it takes longer than a moment. */
  job(): Job | null;
  /** Cancel that job. */
  cancel(): void;
  /** Called when a tile arrives or is refused, and when the status changes. */
  subscribe(signal: AbortSignal, cb: () => void): void;
  status(): Status;
  /** A request of a view to its twin was not answered: look for the kernel. */
  lose(): void;
  /** Set the message about the source of answers while all is well; "": none. */
  say(message: string): void;
  /** Milliseconds without news after which a request is given up: fewer where a model stands in for the kernel. */
  patience(): number;
}

export const WAITING_AFTER = 1500;
export const GONE_AFTER = 8000;
const GONE_SOON = 3000;
const IDLE_AFTER = 60;
const PING_EVERY = 5000;
const BUSY = "Waiting for the kernel: it is busy. What is loaded keeps working.";
/** For a kernel that never answered: there may be none. */
const SILENT = "No answer yet: the kernel is busy, or this page has none. What is loaded keeps working.";
const UNANSWERED =
  "No answer from a kernel: it is busy or gone, or this page has none. What is loaded still works; rerun the cell for the rest.";
const PINGS = 24;
const PING_GAP = 2000;
const TRIES = 2;

/** Call after the pending frames, where the browser reports when it is idle. */
const whenIdle = (run: () => void): unknown =>
  typeof requestIdleCallback === "undefined" ? run() : requestIdleCallback(run);

type Timer = ReturnType<typeof setTimeout> | undefined;

interface Flight {
  id: number;
  key: string;
  ask: DataRequest;
  slot: string | null;
  tries: number;
  alive: boolean;
}

export interface TileStore extends TileClient {
  /** Add a view's model proxy. Requests go through the oldest proxy that is alive. */
  attach(model: StoreModel, signal: AbortSignal): void;
  /** Whether no view is left. */
  empty(): boolean;
}

export function createTiles(): TileStore {
  let models: StoreModel[] = [];
  const bound = new WeakSet<StoreModel>();
  /** Keys of quiet requests for rows. */
  const quietRows = new Set<string>();
  const listeners = new Set<() => void>();
  const cache = createCache();
  /** Why a request was refused. Refusals are announced, and views then request again: this ends the loop. */
  const failures = new Map<string, string>();
  /** Unsent requests by slot, in order. */
  const unsent = new Map<string, DataRequest>();
  const rows = createRowQueue();
  let ahead: (TileRequest | LayerRequest)[] = [];
  let flight: Flight | null = null;
  /** The last request that was given up: a busy kernel may still answer it. */
  let abandoned: Flight | null = null;
  /** Requests that the reader cancelled; sent again when the reader returns to them. */
  const stopped = new Set<string>();
  const lastLayer = new Map<string, number>();
  /** The method that is being computed, and the function to call then. */
  let awaitedMethod: { source: string; done: () => void } | null = null;
  // Starts at random, since other pages of the same kernel number their requests too.
  let nextId = Math.floor(Math.random() * 2 ** 40);
  let timer: Timer;
  let idle: Timer;
  let pings = 0;
  let pinged = 0;
  /** Whether a kernel ever answered this page. */
  let isHeard = false;
  let status: Status = { state: "ok", message: "" };

  const notify = (): void => {
    for (const cb of listeners) cb();
  };

  const patience = (): number => (models[0]?.get("stand_in")?.code ? GONE_SOON : GONE_AFTER);

  const setStatus = (state: Status["state"], message = ""): void => {
    if (status.state === state && (!message || message === status.message)) return;
    status = { state, message };
    notify();
  };

  // ---- loaded data ----

  const readHeader = (): void => {
    cache.read(models[0]);
    failures.clear();
    notify();
  };

  const isLoaded = (ask: DataRequest): boolean => {
    const settled = (head: HeadKey): boolean => {
      const key = keyOf({ ...ask, head });
      return Boolean(cache.tile(key)) || failures.has(key);
    };
    if (ask.kind === "layer") return ask.heads.every(settled);
    if (ask.kind === "thumbs") return !ask.from && Boolean(cache.thumbs(keyOfRequest(ask)));
    return ask.kind !== "method" && Boolean(cache.tile(keyOf(ask)));
  };

  /** Store a reply; returns an error message if it is malformed. */
  const store = (msg: DataReply, buffer: DataView): string | null => {
    const key = keyOf(msg);
    const problem = cache.keep(msg, buffer);
    if (problem !== null) return problem;
    if (msg.kind === "row") rows.finish(key, cache.row(key) ?? null);
    failures.delete(key);
    if (msg.kind === "layer")
      for (const { head, message } of msg.refused) failures.set(keyOf({ ...msg, head }), message);
    return null;
  };

  // ---- requests ----

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

  const pingLater = (): void => {
    timer = setTimeout(() => {
      if (status.state !== "no-kernel" || pings >= PINGS) return;
      ping();
      pingLater();
    }, PING_EVERY);
  };

  /** Whether to report that it is missing. A page that may have no kernel draws its rows without their exact values. */
  const isAwaited = ({ ask, slot, key }: Flight): boolean =>
    slot !== null || (isHeard && ask.kind === "row" && !quietRows.has(key));

  const giveUp = (): void => {
    clearTimeout(timer);
    const ended = [...jobs.all.values(), ...(flight ? [flight] : [])];
    for (const gone of ended) {
      if (gone.slot !== null && !unsent.has(gone.slot)) unsent.set(gone.slot, gone.ask);
      abandoned = gone;
    }
    flight = null;
    jobs.all.clear();
    rows.finishAll();
    // Data that is not visible (a neighbour, an exact row in addition to drawn values) needs no warning.
    setStatus("no-kernel", unsent.size > 0 || ended.some(isAwaited) ? UNANSWERED : "");
    pings = 0;
    pingLater();
  };

  const jobs = createJobs<Flight>(
    () => notify(),
    () => void send({ kind: "ping", id: nextId++ }),
    () => giveUp(),
  );

  /** End a request, with a reason if it failed. */
  const finish = (ended: Flight, why: string | null): void => {
    if (ended === flight) {
      clearTimeout(timer);
      flight = null;
    }
    jobs.all.delete(ended.id);
    if (why !== null) {
      failures.set(ended.key, why);
      rows.finish(ended.key, null);
    }
    setStatus("ok");
    notify();
    sendNext();
  };

  const overdue = (): void => {
    if (!flight?.alive) {
      giveUp();
    } else if (flight.tries < TRIES) {
      // The kernel answers pings, so the request or its reply was lost.
      flight.tries += 1;
      transmit(flight);
    } else {
      finish(flight, "the kernel is running but does not answer requests for this matrix");
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
      if (isAwaited(sent)) setStatus("waiting", isHeard ? BUSY : SILENT);
      send({ kind: "ping", id: nextId++ });
      timer = setTimeout(overdue, patience() - WAITING_AFTER);
    }, WAITING_AFTER);
  };

  const launch = (ask: DataRequest, slot: string | null): void => {
    clearTimeout(idle);
    flight = { id: nextId++, key: keyOfRequest(ask), ask, slot, tries: 1, alive: false };
    transmit(flight);
  };

  /** Send the next request, if nothing is in flight and the kernel answers. */
  const sendNext = (): void => {
    if (flight || models.length === 0) return;
    if (status.state === "no-kernel") {
      if (unsent.size > 0) {
        setStatus("no-kernel", UNANSWERED);
        ping();
      }
      return;
    }
    const row = rows.next();
    if (row) {
      launch(row, null);
      return;
    }
    for (const [slot, ask] of unsent) {
      unsent.delete(slot);
      if (isLoaded(ask)) continue;
      launch(ask, slot);
      return;
    }
    clearTimeout(idle);
    if (ahead.length > 0) idle = setTimeout(() => whenIdle(fetchAhead), IDLE_AFTER);
  };

  const fetchAhead = (): void => {
    if (flight || models.length === 0 || status.state !== "ok") return;
    const next = ahead.find((ask) => !failures.has(keyOf(ask)) && !isLoaded(ask));
    ahead = ahead.filter((ask) => ask !== next);
    if (next) launch(next, null);
  };

  /** Request data for the reader within a slot, replacing the slot's earlier request. */
  const requestShown = (ask: TileRequest | LayerRequest, slot: string): void => {
    if (lastLayer.get(ask.source) !== ask.layer) stopped.clear();
    lastLayer.set(ask.source, ask.layer);
    ahead = neighbours(models[0]?.get("header"), ask);
    enqueue(ask, slot);
  };

  const enqueue = (ask: DataRequest, slot: string): void => {
    unsent.delete(slot);
    const key = keyOfRequest(ask);
    const isAccepted = [...jobs.all.values()].some((work) => work.key === key);
    if (flight?.key === key) flight.slot ??= slot;
    else if (!isLoaded(ask) && !failures.has(key) && !stopped.has(key) && !isAccepted) unsent.set(slot, ask);
    sendNext();
  };

  // ---- replies ----

  /** The kernel answers again. */
  const recover = (): void => {
    if (flight || status.state === "ok") return;
    clearTimeout(timer);
    failures.clear();
    setStatus("ok");
    sendNext();
  };

  /** The kernel accepted a request as a job: others may be sent meanwhile. */
  const accept = (accepted: Flight, msg: Job): void => {
    jobs.follow(accepted.id, accepted, msg);
    if (accepted.slot !== null && unsent.get(accepted.slot) === accepted.ask) unsent.delete(accepted.slot);
    if (accepted === flight) {
      clearTimeout(timer);
      flight = null;
    }
    setStatus("ok");
    notify();
    sendNext();
  };

  const receive = (msg: Reply, buffers: DataView[]): void => {
    if (!msg || typeof msg !== "object" || typeof msg.id !== "number") return;
    isHeard = true;
    jobs.heard();
    const request = [jobs.all.get(msg.id), flight, abandoned].find((request) => request?.id === msg.id);
    let problem: string | null = null;
    if (msg.kind === "pong") {
      if (flight) flight.alive = true;
      else recover();
      return;
    }
    if (msg.kind === "progress") {
      if (request) accept(request, msg);
      return;
    }
    if (msg.kind === "made") {
      if (awaitedMethod?.source === msg.source) awaitedMethod.done();
    } else if (msg.kind === "cancelled") {
      if (request && !msg.superseded) stopped.add(request.key);
    } else if (msg.kind === "error") {
      problem = String(msg.message);
      // The menu that would show it is already closed.
      if (request?.ask.kind === "method")
        status = { state: "ok", message: `${baseKey(request.ask.source)}: ${problem}` };
    } else problem = buffers?.[0] ? store(msg, buffers[0]) : NO_BYTES;
    if (request) {
      finish(request, problem);
    } else {
      recover();
      if (problem === null) notify();
    }
  };

  const listen = (): void => {
    const model = models[0];
    // Only the first proxy listens; otherwise each reply would be decoded once per view.
    if (!model || bound.has(model)) return;
    bound.add(model);
    model.on("msg:custom", (msg: Reply, buffers: DataView[]) => {
      if (models[0] === model) receive(msg, buffers);
    });
    model.on("change:header", readHeader);
    model.on("change:eager", readHeader);
    readHeader();
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
        // No view is left: stop all timers.
        clearTimeout(timer);
        clearTimeout(idle);
        flight = null;
        jobs.all.clear();
        unsent.clear();
        rows.finishAll();
      });
    },
    empty: () => models.length === 0,
    subscribe(signal, cb) {
      listeners.add(cb);
      atEnd(signal, () => listeners.delete(cb));
    },
    status: () => status,
    patience,
    say(message) {
      if (status.message === message) return;
      status = { ...status, message };
      notify();
    },
    lose() {
      if (flight) return; // it finds out itself
      const isNews = status.state !== "no-kernel";
      setStatus("no-kernel", UNANSWERED);
      if (!isNews) return;
      pings = 0;
      pingLater();
    },
    failure(source, layer, head) {
      const key = keyOf({ source, layer, head });
      return stopped.has(key) ? "stopped. Go to another layer and back to compute it" : failures.get(key);
    },
    make(source, layer, done) {
      const key = keyOf({ source });
      stopped.delete(key);
      failures.delete(key);
      awaitedMethod = { source, done };
      if (status.state === "ok") status.message = "";
      if (models[0]?.get("header").sources.some(({ method }) => method === source)) done();
      else enqueue({ kind: "method", source, layer }, "method");
    },
    job: jobs.current,
    cancel() {
      const work = jobs.current();
      if (work) send({ kind: "cancel", id: 0, job: work.id });
    },
    get: (source, layer, head) => cache.tile(keyOf({ source, layer, head })),
    thumbsFailure: (source, special) => failures.get(keyOf({ source, special })),
    thumbs(source, special, from) {
      const sheet = cache.thumbs(keyOf({ source, special }));
      const ask = { kind: "thumbs", source, special } as const;
      if (from || (!sheet && from === undefined)) enqueue(from ? { ...ask, from } : ask, "thumbs");
      return sheet;
    },
    request(source, layer, head, slot = `${source} ${typeof head}`) {
      requestShown({ kind: "tile", source, layer, head }, slot);
    },
    requestHeads: (source, layer, heads) => requestShown({ kind: "layer", source, layer, heads }, `${source} heads`),
    row(source, layer, head, row, quiet) {
      const ask: RowRequest = { kind: "row", source, layer, head, row };
      const key = keyOf(ask);
      const cached = cache.row(key);
      if (cached) return Promise.resolve(cached);
      const lost = status.state === "no-kernel";
      quietRows[quiet ? "add" : "delete"](key);
      if (lost && !quiet) setStatus("no-kernel", UNANSWERED);
      if (lost) ping();
      if (lost || failures.has(key)) return Promise.resolve(null);
      const wish = rows.add(key, ask, flight?.key);
      sendNext();
      return wish;
    },
  };
}
