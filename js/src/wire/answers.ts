/**
 * Requests of a view to its Python twin: a topic with arguments, answered in JSON with buffers. Each topic has a single
 * request in flight, and the latest wins; answers are cached.
 */

import type { ViewContext } from "../context.ts";
import { atEnd } from "../dom.ts";
import { NO_BYTES } from "./binary.ts";
import type { Answer } from "./embeddedAnswers.ts";
import type { Job } from "./jobs.ts";
import type { Question, QuestionReply } from "./wire.ts";

/** Jobs shorter than this (ms) are not announced. */
const ANNOUNCED_AFTER = 250;
const CACHE_SIZE = 256;
const GONE = "No answer from the kernel: it is busy or gone, or there is none. Rerun the cell.";

export interface Answers {
  /**
   * The answer if it has arrived; otherwise it is requested, and `changed` is called when it arrives or fails. Without
   * a kernel, all views report it, unless the request is `quiet`.
   */
  get<T>(topic: string, args?: Record<string, unknown>, quiet?: boolean): Answer<T> | undefined;
  /** Why a request failed; after `retry` it is sent again. */
  failure(topic: string, args?: Record<string, unknown>): string | undefined;
  /** The running job of a topic, once it takes longer than a moment. */
  job(topic: string): Job | null;
  cancel(topic: string): void;
  /** Forget the failures of a topic and, if `andAnswers`, its answers. */
  retry(topic: string, andAnswers?: boolean): void;
  /** Forget the failures of a topic, and request missing answers. */
  again(topic: string): void;
}

interface Flight extends Job {
  id: number;
  key: string;
  topic: string;
  since: number;
  quiet: boolean;
  next: { key: string; args: Record<string, unknown>; quiet: boolean } | null;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** Connect to this view's twin until `signal` aborts. */
export function createAnswers(ctx: ViewContext, signal: AbortSignal, changed: () => void): Answers {
  const received = new Map<string, Answer<unknown>>();
  const failures = new Map<string, string>();
  const flights = new Map<string, Flight>();
  /** Requests that were given up, by id. */
  const lost = new Map<number, Flight>();
  const { model } = ctx;
  let nextId = Math.floor(Math.random() * 2 ** 40);
  const keyOf = (topic: string, args: Record<string, unknown>): string => JSON.stringify([topic, args]);
  for (const { topic, args, answer } of ctx.opening) received.set(keyOf(topic, args), answer);

  const wait = (flight: Flight): void => {
    clearTimeout(flight.timer);
    // A running model reports its progress meanwhile.
    flight.timer = setTimeout(() => lose(flight), ctx.tiles.patience());
  };
  /** No answer arrived. A busy kernel may still answer later. */
  const lose = (flight: Flight): void => {
    lost.set(flight.id, flight);
    finish(flight, GONE);
    if (!flight.quiet) ctx.tiles.lose();
  };
  const send = (topic: string, key: string, args: Record<string, unknown>, quiet: boolean): void => {
    const id = nextId++;
    const flight: Flight = {
      id,
      key,
      topic,
      quiet,
      next: null,
      since: Date.now(),
      timer: undefined,
      text: "",
      done: null,
      total: null,
    };
    flights.set(topic, flight);
    wait(flight);
    const question: Question = { kind: "ask", id, topic, args };
    try {
      model.send(question, undefined, []);
    } catch {
      queueMicrotask(() => lose(flight)); // the comm is closed
    }
    setTimeout(() => flights.get(topic) === flight && changed(), ANNOUNCED_AFTER);
  };
  const finish = (flight: Flight, why: string | null): void => {
    clearTimeout(flight.timer);
    if (flights.get(flight.topic) !== flight) return;
    flights.delete(flight.topic);
    if (why !== null) failures.set(flight.key, why);
    if (flight.next) send(flight.topic, flight.next.key, flight.next.args, flight.next.quiet);
    changed();
  };
  const receive = (reply: QuestionReply, buffers: DataView[]): void => {
    const flight = [...flights.values(), ...lost.values()].find(({ id }) => id === reply?.id);
    if (!flight || signal.aborted) return;
    if (lost.delete(flight.id)) {
      failures.delete(flight.key);
      if (!flights.has(flight.topic)) flights.set(flight.topic, flight);
    }
    if (reply.kind === "progress") {
      wait(flight);
      if (reply.done === null) clearTimeout(flight.timer); // it waits for a running cell, for as long as that takes
      Object.assign(flight, { text: reply.text, done: reply.done, total: reply.total });
      changed();
      return;
    }
    const isWhole = reply.kind !== "answer" || reply.lengths.every((length, i) => length === buffers[i]?.byteLength);
    if (reply.kind === "answer" && isWhole) {
      received.set(flight.key, { meta: reply.meta, buffers });
      for (const oldest of received.keys()) if (received.size > CACHE_SIZE) received.delete(oldest);
    }
    finish(
      flight,
      !isWhole
        ? NO_BYTES
        : reply.kind === "error"
          ? reply.message
          : reply.kind === "cancelled" && !reply.superseded
            ? "stopped"
            : null,
    );
  };
  model.on("msg:custom", receive as never);
  // The kernel is back: requests that it never received are sent again.
  ctx.onChange(signal, (names) => {
    if (!names.has("tiles") || ctx.tiles.status().state !== "ok" || lost.size === 0) return;
    for (const { key } of lost.values()) failures.delete(key);
    lost.clear();
    changed();
  });
  atEnd(signal, () => {
    for (const { timer } of flights.values()) clearTimeout(timer);
    model.off("msg:custom", receive as never);
  });

  const retry = (topic: string, andAnswers = false): void => {
    const isOfTopic = (key: string): boolean => key.startsWith(`[${JSON.stringify(topic)},`);
    for (const entries of andAnswers ? [failures, received] : [failures]) {
      for (const key of [...entries.keys()].filter(isOfTopic)) entries.delete(key);
    }
  };
  return {
    get<T>(topic: string, args: Record<string, unknown> = {}, quiet = false) {
      const key = keyOf(topic, args);
      const answer = received.get(key) as Answer<T> | undefined;
      const flight = flights.get(topic);
      if (flight) flight.next = null; // this is the latest request, and may be the request in flight
      if (answer || failures.has(key) || flight?.key === key) return answer;
      if (flight) flight.next = { key, args, quiet };
      else send(topic, key, args, quiet);
      return undefined;
    },
    failure: (topic, args = {}) => failures.get(keyOf(topic, args)),
    job(topic) {
      const flight = flights.get(topic);
      return flight && Date.now() - flight.since >= ANNOUNCED_AFTER ? flight : null;
    },
    cancel(topic) {
      const flight = flights.get(topic);
      if (flight) model.send({ kind: "cancel", id: 0, job: flight.id }, undefined, []);
    },
    retry,
    again(topic) {
      retry(topic);
      changed();
    },
  };
}
