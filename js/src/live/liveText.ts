/** A text that a page computes: its passes, the header of its store, and the numbers of its matrices. */
import { type EngineClient, type Pass, type Shape, UNCHANGED, type Wanted } from "../engine/client.ts";
import type { Axis, Header, HeadKey, Source, Spec } from "../wire/wire.ts";
import { changeWords, editsOf } from "./changes.ts";
import { inUnit, METHODS, reduced } from "./maps.ts";
import { type Predicts, rowsOf } from "./predictions.ts";
import { Unreadable } from "./reader.ts";

/** Passes that are kept of one text, the recorded one apart. */
const KEPT = 8;

/** What all texts of a model have in common. */
export interface LiveModel {
  engine: EngineClient;
  shape: Shape;
  layers: number;
  predicts: Predicts;
  /** The most tokens of a text. */
  longest: number;
}

export interface LiveText {
  ids: readonly number[];
  /** The axis of its tokens. */
  tokens(): Axis;
  /** The pass without a change, with what is wanted of it beyond its maps; and with some. */
  pass(wanted?: Partial<Wanted>): Promise<Pass>;
  changed(specs: readonly Spec[]): Promise<Pass>;
  /** Offer maps of the changed model; returns the key of the method that shows them. */
  follow(specs: readonly Spec[], method: string): string;
  /** A source of the header by its id. */
  source(id: string): Source;
  axis(source: Source): Axis;
  /** The matrices of one layer [query, key]: a head each. */
  matrices(source: Source, layer: number): Promise<Float32Array[]>;
  /** The matrix of one head or of a reduction. */
  matrix(source: Source, layer: number, head: HeadKey): Promise<Float32Array>;
}

/** Separates a method from the number of a change: "attention#2" is a method called with other arguments. */
const CHANGED = "#changed";

/** Whether a page computes a source of a recorded text for others, too. */
export const isComputed = ({ method, kind, stack, query, key }: Source): boolean =>
  method in METHODS && kind === "map" && stack === "self" && query === key;

/** The header of a text that was typed, like that of one that was recorded. */
export function headerOf(
  like: Header,
  text: string,
  axes: readonly Axis[],
  predictions: Pick<Header["predictions"], "title" | "items">,
): Header {
  const methods = [...new Set(like.sources.filter(isComputed).map(({ method }) => method))];
  const sources = methods.flatMap((method) =>
    axes.map(({ unit }): Source => {
      const [own] = like.sources.filter((source) => source.method === method) as [Source];
      const note = unit === "token" ? "" : "sum over key pieces, mean over query pieces";
      return { ...own, id: `${method}/${unit}/self`, unit, query: unit, key: unit, note, warning: "" };
    }),
  );
  const named = Object.fromEntries(axes.map((axis) => [axis.unit, axis]));
  return {
    ...like,
    text,
    axes: named,
    sources,
    thumbs: [],
    tiles: [],
    predictions: { ...predictions, method: "", explained: [] },
  };
}

/** `header` and `announce` read and write the header of the text's store. */
export function createText(
  { engine, shape, layers, predicts }: LiveModel,
  ids: readonly number[],
  header: () => Header,
  announce: (header: Header) => void,
): LiveText {
  const passes = new Map<string, Promise<Pass>>();
  let recorded: { wanted: Wanted; pass: Promise<Pass> } | undefined;
  /** The changes that are followed, by the number in the method's key. */
  const followed: (readonly Spec[])[] = [];
  const least: Wanted = { logits: rowsOf(predicts), heads: false };
  const pass = ({ logits, heads = false }: Partial<Wanted> = {}): Promise<Pass> => {
    const all = [logits, least.logits, recorded?.wanted.logits].includes("all");
    const wanted: Wanted = { logits: all ? "all" : "last", heads: heads || Boolean(recorded?.wanted.heads) };
    if (JSON.stringify(recorded?.wanted) !== JSON.stringify(wanted))
      recorded = { wanted, pass: engine.pass(ids, UNCHANGED, wanted) };
    return (recorded as { pass: Promise<Pass> }).pass;
  };
  const after = async (specs: readonly Spec[]): Promise<Pass> => {
    const before = await pass();
    if (specs.length === 0) return before;
    const key = JSON.stringify(specs);
    const known = passes.get(key) ?? engine.pass(ids, editsOf(shape, before, specs), least);
    passes.delete(key);
    passes.set(key, known);
    const [oldest = ""] = passes.keys();
    if (passes.size > KEPT) passes.delete(oldest);
    return known;
  };
  const matrices = async (source: Source, layer: number): Promise<Float32Array[]> => {
    const [method = "", number] = source.method.split(CHANGED);
    const specs = followed[Number(number)] ?? [];
    const read = METHODS[method];
    if (!read || !(layer < layers)) throw new Unreadable(`${source.id} lacks layer ${layer} in this page.`);
    const axis = header().axes[source.query] as Axis;
    return read(await after(specs), layer).map((matrix) => inUnit(matrix, axis));
  };
  return {
    ids,
    tokens: () => Object.values(header().axes).find(({ spans, unit }) => !spans && unit === "token") as Axis,
    pass,
    changed: after,
    matrices,
    source(id) {
      const found = header().sources.find((source) => source.id === id);
      if (!found || !((found.method.split(CHANGED)[0] ?? "") in METHODS) || found.kind !== "map")
        throw new Unreadable("not in this file; open the notebook with a kernel to see it");
      return found;
    },
    axis: (source) => header().axes[source.query] as Axis,
    async matrix(source, layer, head) {
      const all = await matrices(source, layer);
      if (source.heads === null) return all[0] as Float32Array;
      if (typeof head === "string") return reduced(all, head === "max" ? "max" : "mean");
      const found = all[head];
      if (!found) throw new Unreadable(`layer ${layer} does not have head ${head}.`);
      return found;
    },
    follow(specs, method) {
      const key = JSON.stringify(specs);
      let at = followed.findIndex((one) => JSON.stringify(one) === key);
      if (at < 0) at = followed.push(specs) - 1;
      const now = header();
      const [own = ""] = method.split(CHANGED);
      const shown = now.sources.some((source) => source.method === own && isComputed(source)) ? own : "attention";
      const name = `${shown}${CHANGED}${at}`;
      if (!now.sources.some((source) => source.method === name)) {
        const like = now.sources.filter((source) => source.method === shown);
        const more = like.map((source) => ({
          ...source,
          id: `${name}/${source.unit}/${source.stack}`,
          method: name,
          title: `${source.title}, ${changeWords(specs)}`,
        }));
        announce({ ...now, sources: [...now.sources, ...more] });
      }
      return name;
    },
  };
}
