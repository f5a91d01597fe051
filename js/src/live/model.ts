/** A live model: brought from the page or from its folder, unpacked and checked against torch, and its passes. */
import { type EngineClient, localClient } from "../engine/client.ts";
import { createEngine } from "../engine/engine.ts";
import { type Edits, type Outputs, type PackedModel, type Pass, type Shape, UNCHANGED } from "../engine/types.ts";
import type { Group, Settable } from "../host/groups.ts";
import type { State } from "../host/pageModel.ts";
import type { PatternEntry } from "../views/heads/grid/patterns.ts";
import type { Spec } from "../wire/wire.ts";
import { type Arrived, createDownload, type Files } from "./download.ts";
import { labelOf, writtenAs } from "./labels.ts";
import { type PackedPredicts, type Predicts, rowsOf } from "./predictions.ts";
import { type PackedReader, Unreadable } from "./reader.ts";

/** A live model as a page holds it; written by attnwidgets/views/page/live/packing.py. */
export interface PackedLive {
  /**
   * The element with the weights, where the page holds them; used as a name for everything that belongs to the model.
   */
  blob: string;
  /** Where the page's folder has them; null: the page holds them. */
  files: Files | null;
  /** Class of the model, and how many parameters it has. */
  name: string;
  parameters: number;
  /** How the weights were rounded, in words; "": not at all. */
  rounding: string;
  model: PackedModel;
  /** null: it is in the folder. */
  reader: PackedReader | null;
  predicts: PackedPredicts;
  /** Named patterns of heads; those that this page can compute are offered. */
  patterns: PatternEntry[];
  longest: number;
  /** The index of the page's group of views that show the texts of this model. */
  group: number;
  /** Units in which a typed text can be read. */
  units: string[];
  /** The recorded texts in tokens, by the name of their store. */
  stores: Record<string, number[]>;
  /**
   * The first recorded text, and the numbers that torch computes for it from the same weights: the last logits, and
   * AttnLRP of tokens.
   */
  check: {
    text: string;
    ids: number[];
    logits: number[];
    relevance: { row: number; plus: number; minus: number | null; tokens: number[] } | null;
  };
}

/** The functions of the page that live models use. */
export interface Host {
  groups: readonly Group[];
  model(name: string): Settable | undefined;
  /** State of a model as it was written, by name. */
  written(name: string): State;
  add(name: string, kind: "store" | "selection" | "view", state: State): void;
  show(group: number, index: number): Promise<void>;
  bytes(id: string): Promise<Uint8Array<ArrayBuffer>>;
  /** A worker with the engine, as text that the page holds. */
  engine: string;
}

/** The functions that all texts of a model share. */
export interface LiveModel {
  engine: EngineClient;
  shape: Shape;
  layers: number;
  predicts: Predicts;
  reader: PackedReader;
  /**
   * A pass with requested outputs beyond its maps. The latest passes are cached, passes with changes by their specs.
   */
  pass(
    ids: readonly number[],
    outputs?: Partial<Outputs>,
    change?: { specs: readonly Spec[]; edits: Edits },
  ): Promise<Pass>;
  /** The most tokens of a text. */
  longest: number;
  patterns: readonly PatternEntry[];
}

/** A model, and how it is loaded. */
export interface Source {
  /** The checked model; for a model in the folder, once the reader has requested it. */
  ready(): Promise<LiveModel>;
  state(): "offered" | "coming" | "here";
  /** Why it is slow, as a sentence; "" where it is not. */
  slow(): string;
  /** Load it from the folder; resumes where it was stopped. Rejects with `Unreadable` where it cannot. */
  bring(signal: AbortSignal, tell: (arrived: Arrived) => void): Promise<LiveModel>;
}

/** By how much the page may differ from torch, as a share of the largest number. */
const TOLERANCE = 1e-3;

function areNear(computed: ArrayLike<number>, given: readonly number[]): boolean {
  const most = TOLERANCE * Math.max(1e-2, ...given.map(Math.abs));
  const from = computed.length - given.length;
  return from >= 0 && given.every((value, i) => Math.abs((computed[from + i] as number) - value) <= most);
}

/** Whether a model returns here the numbers that torch returned from the same weights. */
async function isEqual({ check }: PackedLive, { engine, pass }: LiveModel): Promise<boolean> {
  const { logits, states } = await pass(check.ids);
  if (!areNear(logits.length ? logits : states, check.logits)) return false;
  if (!check.relevance) return true;
  const { tokens, ...target } = check.relevance;
  return areNear((await engine.relevance(check.ids, UNCHANGED, target, "lrp")).tokens, tokens);
}

/** A model with its tokenizer over an engine that has its weights. */
async function checked(packed: PackedLive, reader: PackedReader, engine: EngineClient): Promise<LiveModel> {
  const { longest, predicts, patterns } = packed;
  const { shape, layers } = packed.model;
  const named: Predicts = {
    ...predicts,
    label: (id) => predicts.labels?.[id] ?? labelOf(reader, id),
    written: (ids) => writtenAs(reader, ids),
  };
  const pass = remembered(engine, rowsOf(predicts));
  const live = { engine, shape, layers, predicts: named, longest, patterns, reader, pass };
  if (await isEqual(packed, live)) return live;
  throw new Unreadable("This browser computes the model differently: nothing is shown.");
}

/** Milliseconds that passes took, waiting for others included. */
export const durations = new WeakMap<Pass, number>();

/** Number of cached passes. */
const CACHE_SIZE = 8;

/** The cached passes of a model; a pass that lacks requested outputs is computed again. */
function remembered(engine: EngineClient, least: Outputs["logits"]): LiveModel["pass"] {
  const cache = new Map<string, { outputs: Outputs; pass: Promise<Pass> }>();
  return (ids, { logits, heads = false } = {}, change) => {
    const key = JSON.stringify([ids, change?.specs ?? []]);
    const before = cache.get(key);
    const all = [logits, least, before?.outputs.logits].includes("all");
    const outputs: Outputs = { logits: all ? "all" : "last", heads: heads || Boolean(before?.outputs.heads) };
    const isEnough = before && before.outputs.logits === outputs.logits && before.outputs.heads === outputs.heads;
    const start = performance.now();
    const entry = isEnough ? before : { outputs, pass: engine.pass(ids, change?.edits ?? UNCHANGED, outputs) };
    entry.pass.then(
      (pass) => durations.set(pass, durations.get(pass) ?? performance.now() - start),
      () => cache.delete(key),
    );
    cache.delete(key);
    cache.set(key, entry);
    const [oldest = ""] = cache.keys();
    if (cache.size > CACHE_SIZE) cache.delete(oldest);
    return entry.pass;
  };
}

/** A model whose weights the page holds: it is small, and runs in the page itself. */
export function embeddedModel(packed: PackedLive, weights: () => Promise<Uint8Array<ArrayBuffer>>): Source {
  let model: Promise<LiveModel> | undefined;
  const open = async (): Promise<LiveModel> => {
    const engine = await createEngine(packed.model, "plain");
    engine.load(0, await weights());
    return checked(packed, packed.reader as PackedReader, localClient(engine));
  };
  const ready = (): Promise<LiveModel> => {
    model ??= open();
    return model;
  };
  return { ready, bring: ready, state: () => "here", slow: () => "" };
}

/** A model in the page's folder: it runs in a worker. */
export function folderModel(packed: PackedLive, files: Files, open: () => Promise<EngineClient>): Source {
  let state: ReturnType<Source["state"]> = "offered";
  let slow = "";
  let resolve: (live: LiveModel) => void;
  const model = new Promise<LiveModel>((done) => {
    resolve = done;
  });
  const start = () => {
    const engine = open();
    const download = createDownload(files, async (at, bytes) => (await engine).load(at, bytes));
    return { engine, download };
  };
  let attempt: ReturnType<typeof start> | undefined;
  return {
    ready: () => model,
    state: () => state,
    slow: () => slow,
    async bring(signal, tell) {
      if (state === "here") return model;
      state = "coming";
      attempt ??= start();
      let isWhole = false;
      try {
        const [engine, json] = [await attempt.engine, await attempt.download(signal, tell)];
        isWhole = true;
        const live = await checked(packed, JSON.parse(json) as PackedReader, engine);
        slow = engine.about().slow;
        state = "here";
        resolve(live);
        return live;
      } catch (error) {
        state = "offered";
        const goesOn = !isWhole && (signal.aborted || error instanceof Unreadable);
        if (!goesOn) {
          attempt.engine.then((engine) => engine.close()).catch(() => undefined);
          attempt = undefined;
        }
        throw signal.aborted ? error : new Unreadable((error as Error).message);
      }
    },
  };
}
