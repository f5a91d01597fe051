/**
 * The answer in words next to the map: the keys that the pinned query reads, the queries that read the pinned key, or
 * the words that speak for and against a prediction; with the largest values, the rest summed, and special tokens
 * apart.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, listed, on, quoted, setStyles, setText, shortLabel } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Axis, Cell, Source } from "../../wire/wire.ts";
import { createAccount, detailsOf } from "../base/account.ts";
import { createExactRows } from "../base/cellValues.ts";
import { createMeters, type Meter } from "../base/meters.ts";
import { fixedWords } from "../base/mixers.ts";
import { headAddress, headAt, plural } from "../base/navigation.ts";
import { openedAt } from "../base/opening.ts";
import { SINK_NAME, toSink } from "../base/rowFacts.ts";
import { ablated, knock, shownHeadOf } from "../interventions/list.ts";
import { createAcrossLayers } from "./acrossLayers.ts";
import { createComputed } from "./computed.ts";

/** Number of elements that are named individually: for a map, and on each side of attributions. */
const [MOST, MOST_A_SIDE] = [6, 4];
/** Share of the largest value below which an element is summed with the others. */
const FAINT = 0.005;

/** Keys of `lasting`: the function with which an ImageView hands over its values, and the function it calls after drawing. */
const [PICTURED, DRAWN] = ["pictured", "drawn"];

export interface Answer {
  element: HTMLElement;
  show(): void;
}

export function createAnswer(ctx: ViewContext, signal: AbortSignal, answers: Answers): Answer {
  // Every value counts here: values that the filters hide in a picture are summed instead.
  const plain = ctx.child({ filters: { special: "show", mass: 1, least: 0 } });
  const exactRows = createExactRows(plain, () => show());
  const [title, where, against, sums] = [h("b"), h("span.dim"), h("b"), createAccount(signal)];
  const pin = (index: number): void => {
    const { query, key } = current();
    const unit = ctx.source().unit;
    ctx.selection.pin(query >= 0 ? { unit, query, key: index } : { unit, query: index, key });
  };
  const list = createMeters("the largest values", signal, pin);
  const others = createMeters("against", signal, pin);
  const fill = h("div.held");
  const balance = h("div.balance", { role: "img" }, fill);
  const across = createAcrossLayers(ctx, signal, answers);
  const knockOut = h("button.button", { type: "button" });
  const computed = createComputed(ctx, signal, answers);
  const actions = h("div.actions", knockOut, computed.button);
  const element = h(
    "div.answer",
    { role: "group", "aria-label": "answer" },
    h("div.answer-head", title, where),
    list.element,
    h("div.answer-head", against),
    others.element,
    balance,
    sums.element,
    across.element,
    actions,
    computed.element,
  );
  on(knockOut, signal, {
    click() {
      const at = shownHeadOf(ctx);
      if (at && typeof at.head === "number") knock(ctx, at.source.stack, at.layer, at.head, "zero");
    },
  });

  /** The query or key of the answer: the pinned element, or else the default of the view. */
  const current = (): { query: number; key: number } => {
    const source = ctx.source();
    const pinned = ctx.cell("pinned");
    if (pinned && (pinned.query >= 0 || pinned.key >= 0)) return { query: pinned.query, key: pinned.key };
    if (source.kind === "attributions") return { query: 0, key: -1 };
    return { query: openedAt(ctx, source), key: -1 };
  };

  /** The values of an element that a picture has already read: they need no matrix. */
  const pictured = (side: "query" | "key", index: number): Float32Array | undefined =>
    (ctx.lasting.get(PICTURED) as ((...of: [string, number]) => Float32Array | undefined) | undefined)?.(side, index);

  /** The exact row if it has arrived, else that of the drawn tile; NaN: keys that the query cannot read. */
  const readRow = (source: Source, query: number): number[] | null => {
    const { layer, head } = ctx.resolved();
    const exact = exactRows(query, true) ?? pictured("query", query);
    const tile = ctx.tiles.get(source.id, layer, head);
    if (!exact && (!tile || tile.meta.whole)) return null;
    const { labels } = ctx.axisOf(source.key);
    const last = source.causal && source.query === source.key ? query : labels.length;
    return labels.map((_, key) => (key > last ? Number.NaN : (exact?.[key] ?? (tile as Tile).value(query, key))));
  };
  const readColumn = (source: Source, key: number): number[] | null => {
    const { layer, head } = ctx.resolved();
    const tile = ctx.tiles.get(source.id, layer, head);
    const drawn = pictured("key", key);
    if (drawn) return [...drawn];
    if (!tile || tile.meta.whole) return null;
    const first = source.causal && source.query === source.key ? key : 0;
    return ctx.axisOf(source.query).labels.map((_, query) => (query < first ? Number.NaN : tile.value(query, key)));
  };

  /** The largest elements, the sum of the others, and that of special tokens. */
  const metersOf = (axis: Axis, values: readonly number[], most: number, sign: number, strong: number): Meter[] => {
    const base = ctx.options.indexBase;
    const [parts, apart]: [number[], number[]] = [[], []];
    for (let i = 0; i < axis.labels.length; i += 1) {
      const value = (values[i] as number) * (sign || 1);
      if (sign ? value > 0 : !Number.isNaN(value)) (axis.special[i] ? apart : parts).push(i);
    }
    parts.sort((a, b) => Math.abs(values[b] as number) - Math.abs(values[a] as number));
    const kind = sign > 0 ? "for" : sign < 0 ? "against" : "amount";
    const least = FAINT * Math.abs(values[parts[0] ?? -1] ?? 0);
    const named = parts.slice(0, most).filter((i) => i === strong || Math.abs(values[i] as number) >= least);
    const meters: Meter[] = named.map((index) => ({
      name: `\u2068${shortLabel(axis.labels[index] as string)}\u2069`,
      position: String(index + base),
      value: values[index] as number,
      kind,
      strong: index === strong,
      index,
    }));
    const sum = (indices: number[]): number => indices.reduce((total, i) => total + (values[i] as number), 0);
    const add = (name: string, indices: number[], as: Meter["kind"]): void => {
      if (indices.length > 0) meters.push({ name, value: sum(indices), kind: as });
    };
    const rest = parts.filter((i) => !named.includes(i));
    add(`${rest.length} other${rest.length > 1 ? "s" : ""}`, rest, kind);
    const names = [...new Set(apart.map((i) => axis.labels[i] as string))];
    add(names.length > 2 ? "special tokens" : names.join(" "), apart, "apart");
    return meters;
  };

  const topOf = (...lists: Meter[][]): number => Math.max(...lists.flat().map(({ value }) => Math.abs(value)), 0);

  const showMap = (source: Source): void => {
    const { query, key } = current();
    const { layer, head } = ctx.resolved();
    const address = headAt(ctx, layer, head);
    const at = source.layers.length > 1 ? `layer ${ctx.layerName(layer)}` : source.title;
    setText(where, `in ${address || at}`);
    setText(against, "");
    others.show([], 0);
    assign(balance, { hidden: true });
    const pins = ctx.pins().filter((cell) => cell.layer === undefined || cell.layer === layer);
    const meters = pins.length > 1 ? metersOfPins(source, pins) : metersOfCell(source, query, key);
    list.show(meters ?? [], topOf(meters ?? []));
    sums.show(meters ? "" : "exact values need a kernel …");
    const strongest = meters?.find(({ index }) => index !== undefined)?.index ?? -1;
    const pair = query >= 0 ? ([query, key >= 0 ? key : strongest] as const) : ([strongest, key] as const);
    across.show(...pair);
    computed.show(...pair);
  };

  const metersOfCell = (source: Source, query: number, key: number): Meter[] | null => {
    const isRow = query >= 0;
    const [mine, other] = isRow ? [source.query, source.key] : [source.key, source.query];
    const name = quoted(ctx.axisOf(mine).labels, isRow ? query : key, ctx.options.indexBase);
    setText(
      title,
      source.words[isRow ? 4 : 5].replace("{}", () => name),
    );
    const values = isRow ? readRow(source, query) : readColumn(source, key);
    if (!values) return null;
    const meters = metersOf(ctx.axisOf(other), values, MOST, 0, isRow ? key : query);
    const { layer, head } = ctx.resolved();
    const sink = isRow ? toSink(ctx.tiles.get(source.id, layer, head), query) : undefined;
    return sink === undefined ? meters : [...meters, { name: SINK_NAME, value: sink, kind: "apart" }];
  };

  /**
   * Several pins: each pinned pair with its value, or the common keys or queries of several tokens; their sum is named.
   */
  const metersOfPins = (source: Source, pins: readonly Cell[]): Meter[] | null => {
    const [queries, keys] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    const base = ctx.options.indexBase;
    const sumOf = (values: readonly number[]): number => values.reduce((total, value) => total + (value || 0), 0);
    const pairs = pins.filter(({ query, key }) => query >= 0 && key >= 0);
    if (pairs.length > 0) {
      setText(title, `${pairs.length} pinned pairs`);
      const values = pairs.map(({ query, key }) => readRow(source, query)?.[key]);
      if (values.includes(undefined)) return null;
      const numbers = values as number[];
      const meters = pairs.map(
        ({ query, key }, i): Meter => ({
          name: `${listed(queries.labels, query, base)} → ${listed(keys.labels, key, base)}`,
          value: numbers[i] as number,
          kind: "amount",
        }),
      );
      meters.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
      const [first, rest] = [meters.slice(0, MOST), meters.slice(MOST)];
      if (rest.length > 0)
        first.push({ name: `${rest.length} others`, value: sumOf(rest.map(({ value }) => value)), kind: "amount" });
      return [...first, { name: `sum of ${pairs.length}`, value: sumOf(numbers), kind: "amount", strong: true }];
    }
    const isRow = pins.every(({ query }) => query >= 0);
    const side = pins.map(({ query, key }) => (isRow ? query : key)).filter((i) => i >= 0);
    setText(title, `${side.length} ${plural(source.unit)} together`);
    const rows = side.map((i) => (isRow ? readRow(source, i) : readColumn(source, i)));
    if (rows.includes(null)) return null;
    const other = isRow ? keys : queries;
    const total = other.labels.map((_, i) => sumOf(rows.map((row) => row?.[i] ?? 0)));
    setText(where, `${where.textContent}, sum of ${side.length} ${isRow ? "rows" : "columns"}`);
    return metersOf(other, total, MOST, 0, -1);
  };

  const showAttributions = (source: Source): void => {
    const { query } = current();
    const row = Math.max(0, Math.min(query, ctx.axisOf(source.query).labels.length - 1));
    const label = quoted(ctx.axisOf(source.query).labels, row, ctx.options.indexBase);
    const axis = ctx.axisOf(source.key);
    const values = readRow(source, row);
    const strong = ctx.cell("pinned")?.key ?? -1;
    const many = source.signed ? MOST_A_SIDE : MOST;
    const pro = values ? metersOf(axis, values, many, source.signed ? 1 : 0, strong) : [];
    const con = values && source.signed ? metersOf(axis, values, many, -1, strong) : [];
    setText(title, source.signed ? `What speaks for ${label}?` : `What matters for ${label}?`);
    setText(where, source.signed ? "" : `of all ${plural(source.unit)}`);
    setText(against, con.length > 0 ? "And against it" : "");
    const top = topOf(pro, con);
    list.show(pro, top);
    others.show(con, top);
    const [inTokens = 0, inNone = 0] = source.balance[row] ?? [];
    const both = Math.abs(inTokens) + Math.abs(inNone);
    assign(balance, {
      hidden: !both || !source.signed,
      ariaLabel: `in tokens ${tickText(inTokens)}, in no token ${tickText(inNone)}`,
      title: `in tokens: ${tickText(inTokens)} · hatched, in no token: ${tickText(inNone)}`,
    });
    setStyles(fill, { width: `${(100 * Math.abs(inTokens)) / (both || 1)}%` });
    sums.show(source.accounts[row] ?? "", detailsOf(source, source.sums.slice(row, row + 1)));
    across.show(-1, -1);
    computed.show(-1, -1);
  };

  const show = (): void => {
    const source = ctx.source();
    if (source.kind === "attributions") showAttributions(source);
    else showMap(source);
    const at = shownHeadOf(ctx);
    const head = at && typeof at.head === "number" ? at.head : null;
    const refusal = answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? "unknown";
    assign(knockOut, { hidden: head === null || refusal !== "" || !source.heads });
    if (at && head !== null) {
      const why = fixedWords(at.source, at.layer, head);
      const out = !why && ablated(ctx, at.source.stack, at.layer, head);
      assign(knockOut, { disabled: why !== "", title: why && `cannot be knocked out: ${why}` });
      setText(knockOut, `${out ? "Restore" : "Knock out"} ${headAddress(ctx, at.layer, head)}`);
      knockOut.ariaPressed = String(Boolean(out));
    }
  };
  ctx.lasting.set(DRAWN, show);
  return { element, show };
}
