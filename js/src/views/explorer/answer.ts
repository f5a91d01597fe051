/**
 * The answer in words beside the map: what the pinned query reads, who reads the pinned key, or which words speak for and
 * against a prediction; with the largest values, the rest summed, and special tokens apart.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, listed, on, quoted, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import type { Axis, Source } from "../../wire/wire.ts";
import { createExactRows } from "../base/cellValues.ts";
import { createMeters, type Meter } from "../base/meters.ts";
import { headAddress, headWords, plural } from "../base/navigation.ts";
import { lastContent } from "../base/opening.ts";
import { ablated, knock, shownHeadOf } from "../interventions/list.ts";
import { createAcrossLayers } from "./acrossLayers.ts";

/** Elements that are named one by one: of a map, and on each side of attributions. */
const [MOST, MOST_A_SIDE] = [6, 4];

export interface Answer {
  element: HTMLElement;
  show(): void;
}

interface Reading {
  axis: Axis;
  values: ArrayLike<number>;
}

export function createAnswer(ctx: ViewContext, signal: AbortSignal, answers: Answers): Answer {
  // Every value takes part here: what the filters hide in a picture is summed instead.
  const plain = ctx.child({ filters: { special: "show", mass: 1, least: 0 } });
  const exactRows = createExactRows(plain, () => show());
  const [title, where, against, sums] = [h("b"), h("span.dim"), h("b"), h("p.sums")];
  const pin = (index: number): void => {
    const { query, key } = asked();
    const unit = ctx.source().unit;
    ctx.selection.pin(query >= 0 ? { unit, query, key: index } : { unit, query: index, key });
  };
  const list = createMeters("the largest values", signal, pin);
  const others = createMeters("against", signal, pin);
  const held = h("div.held");
  const balance = h("div.balance", { role: "img" }, held);
  const across = createAcrossLayers(ctx, signal, answers);
  const knockOut = h("button.button", { type: "button" });
  const actions = h("div.actions", knockOut);
  const element = h(
    "section.answer",
    { "aria-label": "answer" },
    h("div.answer-head", title, where),
    list.element,
    h("div.answer-head", against),
    others.element,
    balance,
    sums,
    across.element,
    actions,
  );
  on(knockOut, signal, {
    click() {
      const at = shownHeadOf(ctx);
      if (at && typeof at.head === "number") knock(ctx, at.source.stack, at.layer, at.head, "zero");
    },
  });

  /** The query or the key that is asked about: the pinned one, else the last content token. */
  const asked = (): { query: number; key: number } => {
    const source = ctx.source();
    const pinned = ctx.cell("pinned");
    const query = ctx.axisOf(source.query);
    if (pinned && (pinned.query >= 0 || pinned.key >= 0)) return { query: pinned.query, key: pinned.key };
    return { query: source.kind === "attributions" ? 0 : lastContent(query), key: -1 };
  };

  const readRow = (source: Source, query: number): Reading | null => {
    const axis = ctx.axisOf(source.key);
    const { layer, head } = ctx.resolved();
    const exact = exactRows(query, true);
    if (exact) return { axis, values: exact };
    const tile = ctx.tiles.get(source.id, layer, head);
    if (!tile || tile.meta.whole) return null;
    return { axis, values: axis.labels.map((_, key) => tile.value(query, key)) };
  };
  const readColumn = (source: Source, key: number): Reading | null => {
    const axis = ctx.axisOf(source.query);
    const { layer, head } = ctx.resolved();
    const tile = ctx.tiles.get(source.id, layer, head);
    if (!tile || tile.meta.whole) return null;
    return { axis, values: axis.labels.map((_, query) => tile.value(query, key)) };
  };

  /** The largest elements, the sum of the others, and that of special tokens. */
  const metersOf = ({ axis, values }: Reading, most: number, sign: number, strong: number): Meter[] => {
    const base = ctx.options.indexBase;
    const [parts, apart]: [number[], number[]] = [[], []];
    for (let i = 0; i < axis.labels.length; i += 1) {
      const value = (values[i] as number) * (sign || 1);
      if (value > 0 || (!sign && value === 0)) (axis.special[i] ? apart : parts).push(i);
    }
    parts.sort((a, b) => Math.abs(values[b] as number) - Math.abs(values[a] as number));
    const kind = sign > 0 ? "for" : sign < 0 ? "against" : "amount";
    const meters: Meter[] = parts.slice(0, most).map((index) => ({
      name: listed(axis.labels, index, base),
      value: values[index] as number,
      kind,
      strong: index === strong,
      index,
    }));
    const sum = (indices: number[]): number => indices.reduce((total, i) => total + (values[i] as number), 0);
    const add = (name: string, indices: number[], as: Meter["kind"]): void => {
      if (indices.length > 0) meters.push({ name, value: sum(indices), kind: as });
    };
    const rest = parts.slice(most);
    add(`${rest.length} others`, rest, kind);
    const names = [...new Set(apart.map((i) => axis.labels[i] as string))];
    add(names.length > 2 ? "special tokens" : names.join(" "), apart, "apart");
    return meters;
  };

  const topOf = (...lists: Meter[][]): number => Math.max(...lists.flat().map(({ value }) => Math.abs(value)), 0);

  const showMap = (source: Source): void => {
    const { query, key } = asked();
    const { layer, head } = ctx.resolved();
    const base = ctx.options.indexBase;
    const name = quoted(ctx.axisOf(query >= 0 ? source.query : source.key).labels, query >= 0 ? query : key, base);
    const reading = query >= 0 ? readRow(source, query) : readColumn(source, key);
    setText(title, query >= 0 ? `${name} reads` : `${name} is read by`);
    const place = typeof head === "number" ? `head ${headAddress(ctx, layer, head)}` : headWords(ctx, head);
    const at = source.layers.length > 1 ? `layer ${ctx.layerName(layer)}` : source.title;
    setText(where, `in ${place || at}`);
    const meters = reading ? metersOf(reading, MOST, 0, query >= 0 ? key : query) : [];
    list.show(meters, topOf(meters));
    others.show([], 0);
    assign(balance, { hidden: true });
    setText(against, "");
    setText(sums, reading ? "" : "its values are on their way …");
    const strongest = meters.find(({ index }) => index !== undefined)?.index ?? -1;
    if (query >= 0) across.show(query, key >= 0 ? key : strongest);
    else across.show(strongest, key);
  };

  const showAttributions = (source: Source): void => {
    const { query } = asked();
    const row = Math.max(0, Math.min(query, ctx.axisOf(source.query).labels.length - 1));
    const label = quoted(ctx.axisOf(source.query).labels, row, ctx.options.indexBase);
    const reading = readRow(source, row);
    const strong = ctx.cell("pinned")?.key ?? -1;
    const many = source.signed ? MOST_A_SIDE : MOST;
    const pro = reading ? metersOf(reading, many, source.signed ? 1 : 0, strong) : [];
    const con = reading && source.signed ? metersOf(reading, many, -1, strong) : [];
    setText(title, source.signed ? `Speak for ${label}` : `Matter for ${label}`);
    setText(where, source.signed ? "" : `of all ${plural(source.unit)}`);
    setText(against, con.length > 0 ? "Speak against" : "");
    const top = topOf(pro, con);
    list.show(pro, top);
    others.show(con, top);
    const [inTokens = 0, inNone = 0] = source.balance[row] ?? [];
    const both = Math.abs(inTokens) + Math.abs(inNone);
    assign(balance, {
      hidden: !both || !source.signed,
      ariaLabel: `tokens hold ${tickText(inTokens)}, no token ${tickText(inNone)}`,
      title: `tokens: ${tickText(inTokens)} · hatched, no token: ${tickText(inNone)}`,
    });
    setStyles(held, { width: `${(100 * Math.abs(inTokens)) / (both || 1)}%` });
    setText(sums, [source.sums[row], source.verdict].filter(Boolean).join(" · "));
    across.show(-1, -1);
  };

  const show = (): void => {
    const source = ctx.source();
    if (source.kind === "attributions") showAttributions(source);
    else showMap(source);
    const at = shownHeadOf(ctx);
    const head = at && typeof at.head === "number" ? at.head : null;
    const refusal = answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? "unknown";
    assign(actions, { hidden: head === null || refusal !== "" || source.kind === "attributions" });
    if (at && head !== null) {
      const out = ablated(ctx, at.source.stack, at.layer, head);
      setText(knockOut, `${out ? "Restore" : "Knock out"} ${headAddress(ctx, at.layer, head)}`);
      knockOut.ariaPressed = String(Boolean(out));
    }
  };
  return { element, show };
}
