/**
 * The live models of a page: they answer what the kernel would, for the texts that the page was written with and for
 * those that the reader types.
 */
import { type Group, nameIn, type Settable } from "../host/groups.ts";
import type { State } from "../host/pageModel.ts";
import type { ExplorerOptions, TextItem, Texts } from "../wire/viewState.ts";
import type { Header, Question, QuestionReply, Reply, Request } from "../wire/wire.ts";
import { forward } from "./forward.ts";
import { labelOf, labelsOf } from "./labels.ts";
import { createText, headerOf, type LiveModel, type LiveText } from "./liveText.ts";
import { type Continuation, classes, continued, type Predicts, predictionsOf, type Sampling } from "./predictions.ts";
import { type PackedReader, read, Unreadable } from "./reader.ts";
import { type Answered, answerRequest } from "./storeAnswers.ts";
import { axisIn } from "./units.ts";
import { answerView } from "./viewAnswers.ts";
import { type PackedModel, unpackModel } from "./weights.ts";

/** A live model as a page holds it; written by attnwidgets/views/page/live/packing.py. */
export interface PackedLive {
  /** The element with its weights. */
  blob: string;
  /** Class of the model, and how many parameters it has. */
  name: string;
  parameters: number;
  model: PackedModel;
  reader: PackedReader;
  predicts: Predicts;
  longest: number;
  /** The place among the page's groups of views that show its texts. */
  group: number;
  /** Units in which a typed text can be read. */
  units: string[];
  /** The recorded texts in tokens, by the name of their store. */
  stores: Record<string, number[]>;
  /** The first recorded text, and the last logits that torch computes from the same weights. */
  check: { text: string; ids: number[]; logits: number[] };
}

/** What the page lends. */
export interface Host {
  groups: readonly Group[];
  model(name: string): Settable | undefined;
  /** State of a model as it was written, by name. */
  written(name: string): State;
  add(name: string, kind: "store" | "selection" | "view", state: State): void;
  show(group: number, index: number): Promise<void>;
  bytes(id: string): Promise<Uint8Array>;
}

export interface Session {
  /** The answer to a store's request; null: no live model knows the store. */
  request(store: string, request: Request): Promise<Answered<Reply> | null>;
  /** The same for a view. */
  question(view: string, question: Question): Promise<Answered<QuestionReply> | null>;
}

/** Characters of a text in a menu. */
const BEGINNING = 80;
/** By how much the page may differ from torch, as a share of the largest logit. */
const TOLERANCE = 1e-3;

/** One model of the page with its texts. */
interface Live {
  packed: PackedLive;
  /** The model, unpacked and checked when it is first needed. */
  ready(): Promise<LiveModel>;
  texts: Map<string, (live: LiveModel) => LiveText>;
  known: Map<string, LiveText>;
}

/** Whether a model returns here what torch returned from the same weights. */
function isEqual({ check }: PackedLive, live: LiveModel): boolean {
  const { logits, states } = forward(live.model, check.ids);
  const last = (logits.length ? logits : states).slice(-check.logits.length);
  const most = Math.max(1e-2, ...check.logits.map(Math.abs));
  return last.every((value, i) => Math.abs(value - (check.logits[i] as number)) <= TOLERANCE * most);
}

/** What `Unreadable` says, as an error of the wire. */
async function told<R>(id: number, answer: () => Promise<Answered<R> | null>): Promise<Answered<R | Failed> | null> {
  try {
    return await answer();
  } catch (error) {
    if (error instanceof Unreadable) return [{ kind: "error", id, message: error.message }, []];
    throw error;
  }
}

type Failed = Extract<Reply, { kind: "error" }>;

export function createSession(all: readonly PackedLive[], host: Host): Session {
  const lives = all.map((packed) => createLive(packed, host));
  const find = (store: string): Live | undefined => lives.find(({ texts }) => texts.has(store));
  const textOf = async (live: Live, store: string): Promise<[LiveModel, LiveText]> => {
    const model = await live.ready();
    const text = live.known.get(store) ?? (live.texts.get(store)?.(model) as LiveText);
    live.known.set(store, text);
    return [model, text];
  };
  const answered = async (view: string, question: Question): Promise<Answered<QuestionReply> | null> => {
    const [store, selection] = ["store", "selection"].map((name) => nameIn(host.model(view)?.get(name)));
    const live = find(store ?? "");
    if (!live || question.kind !== "ask") return null;
    const { id, topic, args } = question;
    const reply = (meta: unknown, buffers: Uint8Array<ArrayBuffer>[] = []): Answered<QuestionReply> => [
      { kind: "answer", id, meta, lengths: buffers.map(({ length }) => length) },
      buffers,
    ];
    if (topic === "live") return reply(aboutOf(live.packed));
    if (topic === "preview") return reply(await preview(live, String(args.text)));
    if (topic === "continue") return reply(await written(live, args as unknown as Wanted));
    if (topic === "text") return reply({ shown: await type(live, host, String(args.text ?? "")) });
    const [model, text] = await textOf(live, store ?? "");
    const method = String(host.model(selection ?? "")?.get("method"));
    return reply(...answerView(topic, { live: model, text, method, args }));
  };
  return {
    request: (store, request) =>
      told(request.id, async () => {
        const live = find(store);
        return live ? answerRequest((await textOf(live, store))[1], request) : null;
      }),
    question: (view, question) => told(question.id, () => answered(view, question)),
  };
}

function createLive(packed: PackedLive, host: Host): Live {
  let model: Promise<LiveModel> | undefined;
  const ready = async (): Promise<LiveModel> => {
    const { predicts, longest } = packed;
    const live = { model: unpackModel(packed.model, await host.bytes(packed.blob)), predicts, longest };
    if (!isEqual(packed, live)) throw new Unreadable("This browser computes the model differently: nothing is shown.");
    return live;
  };
  const texts: Live["texts"] = new Map();
  for (const [store, ids] of Object.entries(packed.stores)) texts.set(store, textIn(host, store, ids));
  return {
    packed,
    texts,
    known: new Map(),
    ready() {
      model ??= ready();
      return model;
    },
  };
}

/** What makes the text of a store. */
const textIn =
  (host: Host, store: string, ids: readonly number[]) =>
  (live: LiveModel): LiveText =>
    createText(
      live,
      ids,
      () => host.model(store)?.get("header") as Header,
      (header) => host.model(store)?.setAll({ header }),
    );

const aboutOf = ({ name, parameters, predicts }: PackedLive) => ({
  name,
  parameters,
  generates: predicts.what === "next token",
});

type PredictionsOfText = Pick<Header["predictions"], "title" | "items">;

/** What a model says of a text that is being typed. */
export interface Preview extends PredictionsOfText {
  /** Every token with its class, for a model that has classes of tokens. */
  each: [token: string, name: string][];
  ids: number;
}

async function preview(live: Live, text: string): Promise<Preview> {
  const { reader } = live.packed;
  const { ids, special } = read(reader, text);
  const { model, predicts } = await live.ready();
  const pass = forward(model, ids);
  const each = classes(predicts, pass).flatMap((name, i): [string, string][] =>
    special[i] ? [] : [[labelOf(reader, ids[i] as number), name]],
  );
  return { ...predictionsOf(predicts, pass, 4), each, ids: ids.length };
}

/** How a text is continued. */
interface Wanted extends Pick<Sampling, "length" | "temperature" | "top_k" | "seed"> {
  text: string;
}

async function written(live: Live, { text, ...how }: Wanted): Promise<Continuation> {
  const { model, predicts, longest } = await live.ready();
  const pass = forward(model, read(live.packed.reader, text).ids);
  const length = Math.min(how.length, Math.max(1, longest - pass.tokens.length));
  return continued(model, predicts, pass, longest, {
    how: "sample",
    n: 1,
    top_p: 1,
    ...how,
    length,
  })[0] as Continuation;
}

const itemOf = ({ text, model, predictions, axes }: Header): TextItem => ({
  text: text.length > BEGINNING ? `${text.slice(0, BEGINNING - 1)}…` : text,
  tokens: Object.values(axes)[0]?.labels.length ?? 0,
  model,
  prediction: predictions.items[0] ?? null,
});

/** Show a text that the reader typed in all views of its group; returns its place. */
async function type(live: Live, host: Host, typed: string): Promise<number> {
  const { packed } = live;
  const group = host.groups[packed.group] as Group;
  const text = typed.toWellFormed();
  const found = read(packed.reader, text);
  const lead = group.views.find((line) => line[group.shown]) as string[];
  const header = (name: string | null | undefined): Header | undefined =>
    name ? (host.model(nameIn(host.written(name).store))?.get("header") as Header | undefined) : undefined;
  const known = lead.findIndex((name) => header(name)?.text === text);
  if (known < 0) await add(live, host, text, found);
  const index = known < 0 ? lead.length - 1 : known;
  await host.show(packed.group, index);
  return index;
}

/** Add the models of a text: a store, a selection, and the states of the views that show it. */
async function add(live: Live, host: Host, text: string, found: ReturnType<typeof read>): Promise<void> {
  const { packed } = live;
  const group = host.groups[packed.group] as Group;
  const model = await live.ready();
  const lines = group.views.map((line) => line[group.shown] ?? null);
  const like = host.written(lines.find(Boolean) as string);
  const before = host.model(nameIn(like.store))?.get("header") as Header;
  const labels = labelsOf(packed.reader, found.ids);
  const axes = packed.units.flatMap((unit) => axisIn(unit, text, found, labels) ?? []);
  const number = group.views[0]?.length ?? 0;
  const [store, selection] = ["store", "selection"].map((kind) => `${packed.blob}-${kind}${number}`) as [
    string,
    string,
  ];
  const predictions = predictionsOf(packed.predicts, forward(model.model, found.ids), 10);
  const header = headerOf(before, text, axes, predictions);
  host.add(store, "store", { header, eager: new Uint8Array() });
  live.texts.set(store, textIn(host, store, found.ids));
  host.add(selection, "selection", startOf(host.written(nameIn(like.selection)), header));
  const items = itemsOf(group, host, header);
  group.views.forEach((line, place) => {
    const name = lines[place] ? `${store}-view${place}` : null;
    if (name) {
      const state = host.written(lines[place] as string);
      const { texts, ...rest } = state.options as ExplorerOptions;
      const own = { ...rest, marks: [], ...(texts && { texts: { ...texts, text: null } }) };
      const at = { store: `anywidget:${store}`, selection: `anywidget:${selection}` };
      // The line for typed texts receives the text, and is not redrawn.
      const isLine = "text" in rest;
      host.add(name, "view", { ...state, ...(isLine ? { options: { ...own, text } } : { options: own, ...at }) });
    }
    line.push(name);
    line.forEach((one, index) => {
      if (one) setTexts(host.written(one), items, index);
    });
  });
}

/** A selection before anything was chosen in it. */
function startOf(like: State, { sources }: Header): State {
  const [first] = sources;
  const none = {
    pinned: null,
    pins: [],
    heads: [],
    span: null,
    target: null,
    foil: null,
    interventions: [],
    opening: null,
  };
  const has = sources.some(({ method }) => method === like.method);
  return { ...like, ...none, hover: null, unit: first?.unit, ...(has ? {} : { method: first?.method }) };
}

/** The menu of texts, with one more. */
function itemsOf(group: Group, host: Host, more: Header): TextItem[] {
  const states = group.views.flatMap((line) => (line[group.shown] ? [host.written(line[group.shown] as string)] : []));
  const texts = states.map(({ options }) => (options as ExplorerOptions).texts).find(Boolean);
  const [first] = states;
  const shown = host.model(nameIn(first?.store))?.get("header") as Header;
  return [...(texts?.items.length ? texts.items : [itemOf(shown)]), itemOf(more)];
}

/** Say in a view's options which texts there are; views that have no menu of texts keep theirs. */
function setTexts(state: State, items: TextItem[], shown: number): void {
  const { texts, ...options } = state.options as ExplorerOptions;
  if (texts) state.options = { ...options, texts: { ...texts, items, shown } satisfies Texts };
}
