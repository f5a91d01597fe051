/**
 * Around the two columns of a HeadView: words above, values next to the tokens, and below the row of elements apart.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, quoted, setFlag, setStyles, setText } from "../../dom.ts";
import { amountText } from "../base/meters.ts";
import { SINK_NAME } from "../base/rowFacts.ts";
import type { Column } from "./column.ts";
import { barRoom } from "./lines.ts";
import type { HeadNumbers } from "./numbers.ts";
import { type Pairs, relations, type Side, type Values } from "./pairs.ts";
import { namesApart } from "./rows.ts";
import { opposite, SIDES, type Token } from "./token.ts";
import { sinkShare } from "./words.ts";

/** Width in px below which values at the left are hidden. */
export const NARROW = 420;

/** Widths in px. */
export interface Widths {
  width: number;
  /** Of bars and values beyond the tokens of each side. */
  lanes: Record<Side, number>;
  /** Of the tokens. */
  columnWidths: Record<Side, number>;
}

export interface Margins {
  above: HTMLElement;
  below: HTMLElement;
  layOut(pairs: Pairs, widths: Widths): void;
  /** Name the columns. */
  name(names: Record<Side, string>): void;
  /** Write the values of a token next to the other side; returns where its bars are full. */
  tell(token: Token): number;
}

export function createMargins(
  ctx: ViewContext,
  columns: Readonly<Record<Side, Column>>,
  numbers: HeadNumbers,
): Margins {
  const over = {
    queryLane: h("span.hv-over"),
    query: h("span"),
    key: h("span"),
    keyLane: h("span.hv-over"),
  };
  const overQueries = h("span.hv-queries", over.queryLane, over.query);
  const above = h("div.hv-sides.fine", { "aria-hidden": "true" }, overQueries, over.key, over.keyLane);
  const belowRow = (row: string, kind: string) => {
    const [name, bar, value] = [h("span.hv-name"), h(`span.${kind}`), h("span.hv-number")];
    const room = h("span.hv-bar", bar);
    return { name, bar, value, room, element: h(`div.${row}`, name, room, value) };
  };
  /** The rows for special tokens, and for the weight on no token. */
  const [special, sink] = [belowRow("hv-apart", "apart"), belowRow("hv-sink", "to-sink")];
  const below = h("div.hv-below", special.element, sink.element);
  setText(sink.name, SINK_NAME);
  let pairs: Pairs | null = null;
  let width = 0;

  return {
    above,
    below,
    layOut(now, { width: all, lanes, columnWidths }) {
      [pairs, width] = [now, all];
      setStyles(overQueries, { width: `${lanes.query + columnWidths.query}px` });
      setStyles(over.query, { "max-width": `${columnWidths.query}px` });
      setStyles(over.key, { width: `${columnWidths.key}px` });
      setStyles(over.keyLane, { width: `${lanes.key}px` });
      setStyles(below, {
        "--aw-from": `${all - lanes.key - columnWidths.key}px`,
        "--aw-label-width": `${columnWidths.key}px`,
      });
      for (const { room } of [special, sink]) setStyles(room, { width: `${barRoom(lanes.key)}px` });
      assign(special.element, { hidden: now.key.apart.length === 0 });
      assign(sink.element, { hidden: !ctx.resolved().source.sink });
    },
    name(names) {
      for (const side of SIDES) setText(over[side], names[side]);
    },
    tell(token) {
      if (!pairs) return 1;
      const { source } = ctx.resolved();
      const otherSide = opposite(token.side);
      const { shown, apart } = pairs[otherSide];
      const { values, exact } = numbers.valuesOf(token.side, token.index);
      const received = values.length === 1 ? values[0] : undefined;
      // Separate tokens have the same scale; their sum lacks a bar where readers are shown.
      const sum = token.side === "key" ? 0 : sumOf(values, apart);
      let top = received ? Math.abs(sum) : numbers.top(null);
      for (const i of received ? shown : []) top = Math.max(top, Math.abs(received?.[i] as number) || 0);
      top ||= 1;
      const strong = token.other >= 0 ? token.other : (relations(values, 1, apart)[0]?.index ?? -1);
      const scale = source.stochastic ? Math.min(top, 0.99) : top;
      // A value that rounds to zero on the way to the page may not be zero.
      const text = (value: number): string =>
        Number.isNaN(value) ? "" : amountText(value === 0 && !exact ? Number.MIN_VALUE : value, scale);
      columns[token.side].tell(null, -1);
      columns[otherSide].tell(received && width >= NARROW / 2 ? (i) => text(received[i] as number) : () => "", strong);
      const label = quoted(
        ctx.axisOf(token.side === "query" ? source.query : source.key).labels,
        token.index,
        ctx.options.indexBase,
      );
      const names = namesApart(pairs.key);
      const lanes = {
        query: token.side === "key" ? `to ${label}` : names && !numbers.huge() ? `to ${names}` : "",
        key: token.side === "query" ? `from ${label}` : "",
      };
      for (const side of SIDES) {
        const lane = over[`${side}Lane`];
        if (setText(lane, lanes[side])) lane.title = lanes[side];
        setFlag(lane, "data-looked", token.side !== side);
      }
      if (setText(special.name, names)) special.name.title = names;
      const rest =
        token.side === "query" ? sinkShare({ ctx, source, heads: numbers.heads() }, token.index)?.mean : undefined;
      for (const [row, share] of [
        [special, token.side === "query" ? sum : undefined],
        [sink, rest],
      ] as const) {
        setText(row.value, share === undefined ? "" : text(share));
        setStyles(row.bar, { width: `${Math.min(100, (100 * Math.abs(share ?? 0)) / top)}%` });
        setFlag(row.element, "data-empty", share === undefined || !values.some(Boolean));
      }
      return top;
    },
  };
}

/** The sum over some elements, the mean over heads. */
function sumOf(values: Values, elements: readonly number[]): number {
  const loaded = values.filter((row) => row !== undefined);
  let sum = 0;
  for (const row of loaded) for (const i of elements) sum += row[i] || 0;
  return sum / Math.max(1, loaded.length);
}
