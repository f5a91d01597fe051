/**
 * Links: the state of a selection as an address or a line of Python, which opens a view at the same cell again. The
 * twin of `attnwidgets/views/base/links.py`; a page reads an address in `host/address.ts`.
 */
import type { ViewContext } from "./context.ts";
import { baseKey } from "./wire/keys.ts";
import type { Axis, Cell, Header, SelectionState, Source } from "./wire/wire.ts";

/** The names in an address, in their order. All numbers count from 0. */
export const NAMES = [
  "view", // which view of a page, from 1; absent: the first
  "text", // index of the text; absent: the text with which the page opens
  "method",
  "unit",
  "stack",
  "layer",
  "head",
  "heads", // 3.1,4.0
  "pin", // query,key or query,key,unit or query,key,unit,layer; once for each
  "span", // start,stop or start,stop,unit or start,stop,unit,side
  "target",
  "foil",
  "feature",
  "inside", // 1
  "of", // identifies the counted text, so that no pin points at another word
] as const;
export type Name = (typeof NAMES)[number];

type Pairs = [Name, string][];

/** The values of a selection, as text by name; values that the options of the view fix are left out. */
function pairsOf(ctx: ViewContext, number: number, text: string | undefined): Pairs {
  const { options, selection } = ctx;
  const pairs: Pairs = number > 1 ? [["view", String(number)]] : [];
  const header = ctx.header();
  if (text !== undefined) pairs.push(["text", text]);
  if (header.sources.length === 0) return pairs;
  const get = <K extends keyof SelectionState>(key: K): SelectionState[K] => selection.get(key);
  const [method, unit, head, span] = [get("method"), get("unit"), get("head"), get("span")];
  const countedUnit = options.unit === null ? unit : null;
  if (options.method === null && method) pairs.push(["method", baseKey(method)]);
  if (countedUnit !== null) pairs.push(["unit", countedUnit]);
  const stacks = new Set(header.sources.map(({ stack }) => stack));
  if (options.stack === null && stacks.size > 1) pairs.push(["stack", get("stack")]);
  pairs.push(["layer", String(get("layer"))]);
  if (head !== "-") pairs.push(["head", String(head)]);
  if (get("heads").length) pairs.push(["heads", String(get("heads").map((head) => head.join(".")))]);
  for (const cell of get("pins")) pairs.push(["pin", pinText(cell, countedUnit)]);
  if (span) {
    const { start, stop, side } = span;
    const rest = side !== "query" ? [span.unit, side] : span.unit === countedUnit ? [] : [span.unit];
    pairs.push(["span", String([start, stop, ...rest])]);
  }
  for (const name of ["target", "foil"] as const) {
    const outcome = get(name);
    if (outcome) pairs.push([name, String(outcome.id)]);
  }
  if (get("feature") !== null) pairs.push(["feature", String(get("feature"))]);
  if (get("inside")) pairs.push(["inside", "1"]);
  const counted = get("pins")[0]?.unit ?? span?.unit;
  const of = counted && markOf(header, counted, get("stack"));
  if (of) pairs.push(["of", of]);
  return pairs;
}

function pinText({ query, key, unit, layer }: Cell, countedUnit: string | null): string {
  if (layer !== undefined) return String([query, key, unit, layer]);
  return String(unit === countedUnit ? [query, key] : [query, key, unit]);
}

/**
 * The part of an address after `#` that reopens the current state of a view; `number` is the index of the view on the
 * page, and `text` the index of its text, if it has several.
 */
export function fragmentOf(ctx: ViewContext, number: number, text?: string): string {
  const quoted = (text: string): string => encodeURIComponent(text.toWellFormed()).replaceAll("%2C", ",");
  return pairsOf(ctx, number, text)
    .map(([name, text]) => `${name}=${quoted(text)}`)
    .join("&");
}

/** The Python that brings a view, which is called `view`, to its current state, for when the kernel cannot answer. */
export function codeOf(ctx: ViewContext, text?: string): string {
  const value = (text: string): string => (/^-?\d+$/.test(text) ? text : JSON.stringify(text));
  const tuple = (text: string, by = ","): string => `(${text.split(by).map(value).join(", ")})`;
  const pairs = pairsOf(ctx, 1, text);
  const parts = pairs.flatMap(([name, text]): string[] => {
    if (name === "pin" || name === "of") return [];
    if (name === "inside") return ["inside=True"];
    if (name === "heads")
      return [
        `heads=[${text
          .split(",")
          .map((head) => tuple(head, "."))
          .join(", ")}]`,
      ];
    return [`${name}=${name === "span" ? tuple(text) : value(text)}`];
  });
  const pins = pairs.filter(([name]) => name === "pin").map(([, text]) => tuple(text));
  if (pins.length) parts.push(`pins=[${pins.join(", ")}]`);
  return `view.at(${parts.join(", ")})`;
}

/**
 * A fingerprint of the text whose elements `unit` counts: a checksum of its keys, and of its queries if they differ.
 */
export function markOf(header: Header, unit: string, stack: string): string {
  const inUnit = header.sources.filter((source) => source.unit === unit && source.stack === stack);
  const source: Source | undefined = inUnit.find(({ kind }) => kind === "map") ?? inUnit[0];
  if (!source) return "";
  const sum = (axis: string): string => checksum((header.axes[axis] as Axis).labels.join("\n"));
  const alone = source.kind === "attributions" || source.query === source.key;
  return alone ? sum(source.key) : `${sum(source.key)}.${sum(source.query)}`;
}

/** CRC-32 of a text. */
function checksum(text: string): string {
  let sum = -1;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (~sum >>> 0).toString(16).padStart(8, "0");
}
