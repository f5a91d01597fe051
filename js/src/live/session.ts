/**
 * The live models of a page: they answer in place of the kernel, for the recorded texts of the page and for the texts
 * that the reader types.
 */
import { workerClient } from "../engine/client.ts";
import { nameIn } from "../host/groups.ts";
import type { Header, Question, QuestionReply, Reply, Request } from "../wire/wire.ts";
import { labelOf } from "./labels.ts";
import type { LiveText } from "./liveText.ts";
import {
  durations,
  embeddedModel,
  folderModel,
  type Host,
  type LiveModel,
  type PackedLive,
  type Source,
} from "./model.ts";
import { type Continuation, type Continued, classes, continued, predictionsOf } from "./predictions.ts";
import { read, Unreadable } from "./reader.ts";
import { offering } from "./relevance.ts";
import { type Answered, answerRequest } from "./storeAnswers.ts";
import { type Live, textIn, type } from "./typed.ts";
import { answerView, isAnswered } from "./viewAnswers.ts";

export type { Host, PackedLive } from "./model.ts";

/** The progress of an answer; `total` null: the end is open. */
export interface News {
  text: string;
  done: number;
  total: number | null;
}

export type Tell = (news: News) => void;

export interface Session {
  /** The answer to a store's request; null: no live model has the store. */
  request(store: string, request: Request, tell: Tell): Promise<Answered<Reply> | null>;
  /** The same for a view. */
  question(view: string, question: Question, tell: Tell): Promise<Answered<QuestionReply> | null>;
  /** Add the methods that the models compute to the menus of all texts in the page. */
  offer(): void;
}

/** Milliseconds until the first report of progress, and between further ones. */
const [SOON, AGAIN] = [200, 2000];
const WAITS: Record<ReturnType<Live["source"]["state"]>, string> = {
  offered: "press “Compute here” to see it",
  coming: "waiting for the model",
  here: "computing…",
};
/** Topics whose answer handles a stop. */
const STOPS = ["load", "continue"];
/** Milliseconds between two tokens of a model that is faster than the eye. */
const PACE = 35;

const pause = (time: number): Promise<void> => new Promise((done) => setTimeout(done, time));

export function createSession(all: readonly PackedLive[], host: Host): Session {
  /** Models of the page's folder: several groups of views may show texts of the same model. */
  const inFolders = new Map<string, Source>();
  const lives = all.map((packed): Live => {
    const { blob, files, stores } = packed;
    const texts = new Map(Object.entries(stores).map(([store, ids]) => [store, textIn(host, store, ids)]));
    const source = files
      ? (inFolders.get(files.folder) ?? folderModel(packed, files, () => workerClient(host.engine, packed.model)))
      : embeddedModel(packed, () => host.bytes(blob));
    if (files) inFolders.set(files.folder, source);
    return { packed, source, texts, opened: new Map() };
  });
  const modelOf = (store: string): Live | undefined => lives.find(({ texts }) => texts.has(store));
  /** Requests that the reader may stop, by id. */
  const stops = new Map<number, AbortController>();
  const offer = (): void => {
    for (const { source, texts } of lives) if (source.state() === "here") offerIn(host, texts.keys());
  };
  for (const { source } of lives) source.ready().then(offer, () => undefined);
  const textOf = async (live: Live, store: string): Promise<[LiveModel, LiveText]> => {
    const model = await live.source.ready();
    const text = live.opened.get(store) ?? (live.texts.get(store)?.(model) as LiveText);
    live.opened.set(store, text);
    return [model, text];
  };
  /** Answer a request, report its progress, and end it when the reader stops it. */
  async function served<R>(
    { source }: Live,
    id: number,
    topic: string,
    tell: Tell,
    answer: (signal: AbortSignal, tell: Tell) => Promise<Answered<R>>,
  ): Promise<Answered<R | Ended>> {
    const stop = new AbortController();
    stops.set(id, stop);
    const { signal } = stop;
    const cancelled: Answered<Ended> = [{ kind: "cancelled", id, superseded: false }, []];
    const stopped = new Promise<Answered<Ended>>((done) => signal.addEventListener("abort", () => done(cancelled)));
    const hasStop = STOPS.includes(topic);
    let last: News | null = null;
    // Reported repeatedly: a view that receives no message for a while gives its request up.
    let timer = setTimeout(function say() {
      if (last || !hasStop) tell(last ?? { text: WAITS[source.state()], done: 0, total: null });
      timer = setTimeout(say, AGAIN);
    }, SOON);
    try {
      const answered = answer(signal, (news) => {
        last = news;
        tell(news);
      });
      return await (hasStop ? answered : Promise.race([answered, stopped]));
    } catch (error) {
      if (signal.aborted) return cancelled;
      if (error instanceof Unreadable) return [{ kind: "error", id, message: error.message }, []];
      throw error;
    } finally {
      clearTimeout(timer);
      stops.delete(id);
    }
  }
  const cancel = (id: number, job: number): Answered<Ended> => {
    stops.get(job)?.abort();
    return [{ kind: "cancelled", id, superseded: true }, []];
  };
  const answerTopic = async (live: Live, view: string, topic: string, args: Args): Promise<Answer> => {
    const [store, selection] = ["store", "selection"].map((name) => nameIn(host.model(view)?.get(name)));
    const [model, text] = await textOf(live, store ?? "");
    const method = String(host.model(selection ?? "")?.get("method"));
    return answerView(topic, { live: model, text, method, args });
  };
  return {
    offer,
    async request(store, request, tell) {
      const live = modelOf(store);
      if (!live) return null;
      if (request.kind === "cancel") return cancel(request.id, request.job);
      const state = live.source.state();
      if (state !== "here" && request.kind !== "method") {
        // Matrices are requested again once the model has arrived; exact values only refine drawn ones.
        const message = WAITS[state];
        return request.kind === "row" ? null : [{ kind: "error", id: request.id, message }, []];
      }
      return served(live, request.id, request.kind, tell, async () =>
        answerRequest((await textOf(live, store))[1], request),
      );
    },
    async question(view, question, tell) {
      const live = modelOf(nameIn(host.model(view)?.get("store")));
      if (!live) return null;
      if (question.kind === "cancel") return cancel(question.id, question.job);
      const { id, topic, args } = question;
      const handler = TOPICS[topic];
      if (!handler && !isAnswered(topic)) return null;
      return served<QuestionReply>(live, id, topic, tell, async (signal, tellNow) => {
        const [meta, buffers]: Answer = handler
          ? [await handler(live, host, args, signal, tellNow), []]
          : await answerTopic(live, view, topic, args);
        return [{ kind: "answer", id, meta, lengths: buffers.map(({ length }) => length) }, buffers];
      });
    },
  };
}

type Args = Record<string, unknown>;
type Answer = [meta: unknown, buffers: Uint8Array<ArrayBuffer>[]];
type Ended = Extract<Reply, { kind: "error" | "cancelled" }>;

/** Add the methods that a model computes to the menus of texts. */
function offerIn(host: Host, stores: Iterable<string>): void {
  for (const store of stores) {
    const header = host.model(store)?.get("header") as Header | undefined;
    if (header) host.model(store)?.setAll({ header: offering(header) });
  }
}

/** The description of a model in the page. */
export interface About {
  name: string;
  parameters: number;
  rounding: string;
  slow: string;
  generates: boolean;
  /** Tokens that are written at a time. */
  most: number;
  /** Bytes that its files take; null: it is in the page. */
  bytes: number | null;
  state: ReturnType<Live["source"]["state"]>;
}

function aboutOf({ packed: { name, parameters, predicts, files, rounding }, source }: Live): About {
  const generates = predicts.kind === "next token";
  const shared = { name, parameters, rounding, generates, state: source.state(), slow: source.slow() };
  return { ...shared, most: files ? 20 : 48, bytes: files?.bytes ?? null };
}

type PredictionsOfText = Pick<Header["predictions"], "title" | "items">;

/** The predictions of a model about a text while it is typed. */
export interface Preview extends PredictionsOfText {
  /** Every token with its class, for a model that has classes of tokens. */
  each: [token: string, name: string][];
  ids: number;
  /** Milliseconds that the model took. */
  took: number;
}

async function preview(live: Live, _: Host, { text }: Args): Promise<Preview> {
  const { reader, predicts, pass } = await live.source.ready();
  const { ids, special } = read(reader, String(text));
  const computed = await pass(ids);
  const took = durations.get(computed) ?? 0;
  const each = classes(predicts, computed).flatMap((name, i): [string, string][] =>
    special[i] ? [] : [[labelOf(reader, ids[i] as number), name]],
  );
  return { ...predictionsOf(predicts, computed, 4), each, ids: ids.length, took };
}

/** How a text is continued. */
interface ContinuationArgs extends Pick<Continued, "length" | "temperature" | "top_k" | "seed"> {
  text: string;
}

/** Continue a text, and report every token. When the reader stops it, the text so far is the answer. */
async function written(live: Live, _: Host, args: Args, signal: AbortSignal, tell: Tell): Promise<Continuation> {
  const { text, ...how } = args as unknown as ContinuationArgs;
  const model = await live.source.ready();
  const { ids } = read(model.reader, text);
  const length = Math.min(how.length, Math.max(1, model.longest - ids.length));
  const drawn: number[] = [];
  const onToken = async (id: number): Promise<boolean> => {
    drawn.push(id);
    tell({ text: model.predicts.written(drawn), done: drawn.length, total: length });
    if (!live.packed.files) await pause(PACE);
    return !signal.aborted;
  };
  const [written] = await continued(model, ids, { how: "sample", n: 1, top_p: 1, ...how, length }, onToken);
  return written as Continuation;
}

/** The requests of the field for the reader's text, by topic. */
const TOPICS: Record<
  string,
  (live: Live, host: Host, args: Args, signal: AbortSignal, tell: Tell) => Promise<unknown>
> = {
  live: async (live) => aboutOf(live),
  load: async (live, _host, _args, signal, tell) => {
    await live.source.bring(signal, tell);
    return aboutOf(live);
  },
  preview,
  continue: written,
  text: async (live, host, { text }) => ({ shown: await type(live, host, String(text ?? "")) }),
};
