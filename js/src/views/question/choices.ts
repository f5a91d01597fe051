/** The possible choices in the view of a question, and the current choice: the twin of attnwidgets/ask/kinds.py. */
import type { ViewContext } from "../../context.ts";
import type { AnswerRecord } from "../../wire/questions.ts";
import type { Axis, Source } from "../../wire/wire.ts";

/** The layers, heads and elements of the view; empty without a view. */
export interface Choices {
  layers: readonly number[];
  heads: readonly number[];
  queries: readonly string[];
  keys: readonly string[];
  base: number;
}

const NONE: Choices = { layers: [], heads: [], queries: [], keys: [], base: 0 };

const sorted = (numbers: readonly number[]): number[] => [...new Set(numbers)].sort((a, b) => a - b);

/** The source whose axes a unit counts. */
function sourceOf(ctx: ViewContext, unit: string | null): Source | undefined {
  const { sources } = ctx.header();
  const stack = ctx.selection.get("stack");
  const same = sources.filter((source) => source.unit === unit);
  return same.find((source) => source.stack === stack) ?? same[0];
}

/** The query and the key axis of a source; in attributions rows are targets, and both sides are the text. */
function axesOf(ctx: ViewContext, source: Source): [Axis, Axis] {
  const key = ctx.axisOf(source.key);
  return [source.kind === "attributions" ? key : ctx.axisOf(source.query), key];
}

/** The possible choices; `unit` is the unit of positions. */
export function choicesOf(ctx: ViewContext, unit: string | null): Choices {
  const { sources } = ctx.header();
  if (sources.length === 0) return NONE;
  const source = sourceOf(ctx, unit);
  const [queries, keys] = source ? axesOf(ctx, source).map(({ labels }) => labels) : [[], []];
  return {
    layers: sorted(sources.flatMap(({ layers }) => layers)),
    heads: sorted(sources.flatMap(({ heads }) => heads ?? [])),
    queries: queries ?? [],
    keys: keys ?? [],
    base: ctx.options.indexBase,
  };
}

const tokensOf = (axis: Axis, element: number): number[] => (axis.spans ? (axis.spans[element] ?? []) : [element]);

/** The current choice of the view that answers a question of this kind; null: none. */
export function selected(ctx: ViewContext, { kind, unit }: AnswerRecord): unknown {
  if (ctx.header().sources.length === 0) return null;
  const { selection } = ctx;
  const [layer, head] = [selection.get("layer"), selection.get("head")];
  if (kind === "layer") return layer;
  if (kind === "head") {
    const heads = selection.get("heads");
    if (heads.length > 1)
      return heads.map((head) => [...head]).sort(([a = 0, b = 0], [c = 0, d = 0]) => a - c || b - d);
    if (heads[0]) return [...heads[0]];
    return typeof head === "number" ? [layer, head] : null;
  }
  if (kind === "span") return spanIn(ctx);
  if (kind === "tokens") {
    const tokens = selection.get("pins").flatMap((pin) => {
      const source = sourceOf(ctx, pin.unit);
      if (!source) return [];
      const [queries, keys] = axesOf(ctx, source);
      return pin.key >= 0 ? tokensOf(keys, pin.key) : tokensOf(queries, pin.query);
    });
    return tokens.length ? sorted(tokens) : null;
  }
  return kind === "cell" ? cellIn(ctx, unit) : null;
}

function spanIn(ctx: ViewContext): [number, number] | null {
  const span = ctx.selection.get("span");
  const source = span && sourceOf(ctx, span.unit);
  if (!source) return null;
  const axis = axesOf(ctx, source)[span.side === "query" ? 0 : 1];
  const tokens = Array.from({ length: span.stop - span.start }, (_, i) => tokensOf(axis, span.start + i)).flat();
  return tokens.length ? [Math.min(...tokens), Math.max(...tokens) + 1] : null;
}

/** The pinned cell in tokens; null for a cell of words of several tokens. */
function cellIn(ctx: ViewContext, unit: string | null): [number, number] | null {
  const pin = ctx.selection.get("pinned");
  const source = pin && pin.query >= 0 && pin.key >= 0 ? sourceOf(ctx, pin.unit) : undefined;
  if (!pin || !source) return null;
  if (pin.unit === unit) return [pin.query, pin.key];
  const [queries, keys] = axesOf(ctx, source);
  const [query, key] = [tokensOf(queries, pin.query), tokensOf(keys, pin.key)];
  return query.length === 1 && key.length === 1 ? [query[0] as number, key[0] as number] : null;
}
