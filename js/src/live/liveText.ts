/** A text that a page computes: its passes, the header of its store, and the numbers of its matrices. */
import type { Outputs, Pass } from "../engine/types.ts";
import { inUnit, reduced } from "../wire/matrices.ts";
import type { Axis, Header, HeadKey, Source, Spec } from "../wire/wire.ts";
import { changeWords, editsOf } from "./changes.ts";
import { METHODS } from "./maps.ts";
import type { LiveModel } from "./model.ts";
import { Unreadable } from "./reader.ts";
import { explain, offering, offersOf, summed } from "./relevance.ts";

export interface LiveText {
  ids: readonly number[];
  /** The axis of its tokens, and of its words. */
  tokens(): Axis;
  words(): Axis | undefined;
  /** The unchanged pass, with requested outputs beyond its maps; and the pass with changes. */
  pass(outputs?: Partial<Outputs>): Promise<Pass>;
  changed(specs: readonly Spec[]): Promise<Pass>;
  /** Add the sources of a method that explains an outcome. */
  explain(method: string): Promise<void>;
  /** Offer maps of the changed model; returns the key of the method that shows them. */
  follow(specs: readonly Spec[], method: string): string;
  /** A source of the header by its id. */
  source(id: string): Source;
  axis(source: Source): Axis;
  /** The matrices of a layer [query, key], by head. */
  matrices(source: Source, layer: number): Promise<Float32Array[]>;
  /** The matrix of a head or of a reduction. */
  matrix(source: Source, layer: number, head: HeadKey): Promise<Float32Array>;
}

/** Separates a method from the number of a change: "attention#2" is a method called with other arguments. */
const CHANGED = "#changed";

/** Whether a page computes a source of a recorded text for others, too. */
export const isComputed = ({ method, kind, stack, query, key }: Source): boolean =>
  method in METHODS && kind === "map" && stack === "self" && query === key;

/** The header of a typed text, like that of a recorded text. */
export function headerOf(
  like: Header,
  text: string,
  axes: readonly Axis[],
  predictions: Pick<Header["predictions"], "title" | "items">,
): Header {
  const methods = [...new Set(like.sources.filter(isComputed).map(({ method }) => method))];
  const sources = methods.flatMap((method) =>
    axes.map(({ unit }): Source => {
      const [recorded] = like.sources.filter((source) => source.method === method) as [Source];
      const note = unit === "token" ? "" : "sum over key pieces, mean over query pieces";
      return { ...recorded, id: `${method}/${unit}/self`, unit, query: unit, key: unit, note, warning: "" };
    }),
  );
  const named = Object.fromEntries(axes.map((axis) => [axis.unit, axis]));
  return offering({
    ...like,
    text,
    axes: named,
    sources,
    methods: offersOf(like),
    thumbs: [],
    tiles: [],
    predictions: { ...predictions, method: "", explained: [] },
  });
}

/** `header` and `announce` read and write the header of the text's store. */
export function createText(
  live: LiveModel,
  ids: readonly number[],
  header: () => Header,
  announce: (header: Header) => void,
): LiveText {
  const { shape, layers } = live;
  /** Values of tokens by method, for methods that explain an outcome. */
  const relevances = new Map<string, Float32Array>();
  /** The changes that are followed, by the number in the method's key. */
  const followed: (readonly Spec[])[] = [];
  const pass = (outputs?: Partial<Outputs>): Promise<Pass> => live.pass(ids, outputs);
  const after = async (specs: readonly Spec[]): Promise<Pass> => {
    const before = await pass();
    return specs.length ? live.pass(ids, {}, { specs, edits: editsOf(shape, before, specs) }) : before;
  };
  const matrices = async (source: Source, layer: number): Promise<Float32Array[]> => {
    const values = relevances.get(source.method);
    if (values) return [summed(values, header().axes[source.key] as Axis)];
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
    words: () => Object.values(header().axes).find(({ unit }) => unit === "word"),
    pass,
    changed: after,
    matrices,
    source(id) {
      const source = header().sources.find((source) => source.id === id);
      const isMap = source?.kind === "map" && (source.method.split(CHANGED)[0] ?? "") in METHODS;
      if (!source || !(isMap || relevances.has(source.method)))
        throw new Unreadable("not in this file; open the notebook with a kernel to see it");
      return source;
    },
    axis: (source) => header().axes[source.key] as Axis,
    async matrix(source, layer, head) {
      const all = await matrices(source, layer);
      if (source.heads === null) return all[0] as Float32Array;
      if (typeof head === "string") return reduced(all, head === "max" ? "max" : "mean");
      const matrix = all[head];
      if (!matrix) throw new Unreadable(`layer ${layer} does not have head ${head}.`);
      return matrix;
    },
    async explain(method) {
      const { sources, axis, values } = await explain(live, ids, header(), method);
      relevances.set(method, values);
      const now = header();
      const others = now.sources.filter((source) => source.method !== method);
      const axes = { ...now.axes, [axis[0]]: axis[1] };
      announce({ ...now, axes, sources: [...others, ...sources] });
    },
    follow(specs, method) {
      const key = JSON.stringify(specs);
      let at = followed.findIndex((earlier) => JSON.stringify(earlier) === key);
      if (at < 0) at = followed.push(specs) - 1;
      const now = header();
      const [base = ""] = method.split(CHANGED);
      const shown = now.sources.some((source) => source.method === base && isComputed(source)) ? base : "attention";
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
