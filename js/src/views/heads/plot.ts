/** The picture of a HeadView: two columns of tokens, the lines between them, and the values of the current token. */
import { barColours } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, h, setFlag, shortLabel } from "../../dom.ts";
import type { Axis, HeadKey } from "../../wire/wire.ts";
import { filtersOf } from "../base/filters.ts";
import type { Missing } from "../base/missing.ts";
import { openedAt } from "../base/opening.ts";
import { isUnread } from "../base/rowFacts.ts";
import { styleValue } from "../base/styleValue.ts";
import { textWidth } from "../maps/labels.ts";
import { headColour } from "./colours.ts";
import { type ColumnEvents, createColumn } from "./column.ts";
import { createLines } from "./lines.ts";
import { createMargins, type Margins, NARROW } from "./margins.ts";
import type { HeadNumbers } from "./numbers.ts";
import { createOutOfSight } from "./outOfSight.ts";
import type { Pairs, Side } from "./pairs.ts";
import { opposite, SIDES, type Token } from "./token.ts";

/** px that the words above and below a column need. */
const LEAST = 78;
/** Heights of a row in px: at least, and where there is room. */
const [LOW, HIGH] = [20, 28];

/** The content of the drawing. */
export interface Drawing {
  heads: readonly HeadKey[];
  token: Token | null;
  /** Index of the single head that is drawn in full; -1: all. */
  only: number;
}

/** Its elements, and the state that they show. */
interface PlotState {
  readonly ctx: ViewContext;
  readonly numbers: HeadNumbers;
  readonly lacks: (missing: Missing | null) => void;
  readonly lines: ReturnType<typeof createLines>;
  readonly columns: Record<Side, ReturnType<typeof createColumn>>;
  readonly beyond: ReturnType<typeof createOutOfSight>;
  readonly element: HTMLDivElement;
  readonly margins: Margins;
  readonly widths: WeakMap<Axis, number>;
  /** The axes that are laid out. */
  pairs: Pairs | null;
  /** The query axis whose last query has been scrolled into view. */
  sighted: Axis | null;
  /** The source that the canvas shows. */
  painted: string;
}

export function createPlot(
  ctx: ViewContext,
  signal: AbortSignal,
  numbers: HeadNumbers,
  token: () => Token | null,
  events: (side: Side) => ColumnEvents,
  lacks: (missing: Missing | null) => void,
) {
  const canvas = h("canvas.hv-canvas.overlaid");
  const lines = createLines(canvas);
  /** Scroll positions that a column received from the other column. */
  const followed = { query: -1, key: -1 };
  const column = (side: Side) => {
    const { scrolled, ...others } = events(side);
    return createColumn(side, signal, {
      ...others,
      scrolled() {
        const other = opposite(side);
        const top = columns[side].top();
        // A pinned token keeps its column.
        if (Math.abs(top - followed[side]) >= 1 && !ctx.cell("pinned")) {
          columns[other].scrollTo(top);
          followed[other] = columns[other].top();
        }
        followed[side] = -1;
        scrolled();
      },
    });
  };
  const columns: Record<Side, ReturnType<typeof createColumn>> = { query: column("query"), key: column("key") };
  const beyond = createOutOfSight(signal, (index) => columns[opposite(token()?.side ?? "key")].reveal(index));
  const role = { tabindex: "0", role: "application", "aria-roledescription": "lines between tokens" };
  const element = h("div.hv-plot", role, canvas, columns.query.element, columns.key.element, beyond.element);
  const margins = createMargins(ctx, columns, numbers);
  const widths = new WeakMap<Axis, number>();

  const state: PlotState = {
    ctx,
    numbers,
    lacks,
    lines,
    columns,
    beyond,
    element,
    margins,
    widths,
    pairs: null,
    sighted: null,
    painted: "",
  };
  return {
    element,
    columns,
    margins,
    follow: () => follow(state),
    layOut: (now: Pairs, width: number, height: number) => layOut(state, now, width, height),
    draw: (at: Drawing) => draw(state, at),
    tellBeyond: (looked: Token | null) => tellBeyond(state, looked),
    mark: (looked: Token | null) => mark(state, looked),
    choose: () => choose(state),
  };
}

function columnWidth(state: PlotState, axis: Axis, width: number): number {
  const { widths } = state;
  let widest = widths.get(axis);
  if (widest === undefined) {
    const font = `13px ${styleValue(state.ctx, state.element, "font-family")}`;
    // The longest labels by number of characters: measuring all takes too long.
    const long = axis.labels.map((label) => shortLabel(label)).sort((a, b) => b.length - a.length);
    widest = Math.max(0, ...long.slice(0, 99).map((label) => textWidth(label, font)));
    widths.set(axis, widest);
  }
  return Math.ceil(Math.max(34, Math.min(220, 0.24 * width, Math.max(LEAST, widest + 22))));
}

/** Scroll the pinned token into view, and the other column to the same height. */
function follow(state: PlotState): void {
  const { ctx, columns, pairs } = state;
  const pinned = ctx.cell("pinned");
  if (!pinned) {
    // Where the view opens, once.
    if (pairs && state.sighted !== pairs.query.axis)
      for (const side of SIDES) columns[side].reveal(openedAt(ctx, ctx.source()));
    state.sighted = pairs?.query.axis ?? null;
    return;
  }
  for (const side of SIDES) columns[side].reveal(pinned[side]);
  for (const side of SIDES) if (pinned[side] < 0) columns[side].scrollTo(columns[opposite(side)].top());
}

function layOut(state: PlotState, now: Pairs, width: number, height: number): void {
  state.pairs = now;
  const { query, key } = now;
  const count = Math.max(query.shown.length, key.shown.length, 1);
  const row = Math.floor(Math.max(LOW, Math.min(HIGH, height / count)));
  const lanes = lanesOf(width);
  const columnWidths = { query: columnWidth(state, query.axis, width), key: columnWidth(state, key.axis, width) };
  const off = { query: now.queries, key: now.keys };
  for (const side of SIDES) {
    const size = { row, width: lanes[side] + columnWidths[side], height, lane: lanes[side] };
    state.columns[side].layout(now[side], off[side], size);
  }
  state.margins.layOut(now, { width, lanes, columnWidths });
  const [left, right] = [lanes.query + columnWidths.query + 2, width - lanes.key - columnWidths.key - 2];
  state.lines.layout({ width, height, row, left, right, lanes, rows: { query, key } });
  follow(state);
}

/** Draw lines and values, or dim the old picture until the new arrives. */
function draw(state: PlotState, { heads, token: looked, only }: Drawing): void {
  const { ctx, numbers, lines, columns, element, margins } = state;
  const { source } = ctx.resolved();
  const missing = numbers.missing(looked);
  setFlag(element, "data-stale", Boolean(missing));
  assign(element, { ariaBusy: String(Boolean(missing)) });
  // The columns are complete, even without their lines.
  state.lacks(missing && { ...missing, part: true });
  // The picture of another map would be wrong, even dimmed.
  if (state.painted !== source.id || missing?.kind !== "awaited") lines.clear();
  if (missing) {
    if (looked) margins.tell(looked); // no numbers of the previous picture
    return;
  }
  state.painted = source.id;
  const all = source.heads ?? ["-"];
  const { palette, scale: mode } = filtersOf(ctx);
  const ink = barColours(ctx.theme, palette);
  lines.style({
    colours: heads.length < 2 ? [ink.amount] : heads.map((head) => headColour(all.indexOf(head as never), ctx.theme)),
    signs: source.signed ? [ink.against, ink.for] : null,
    mode,
    top: numbers.top(looked),
    only,
    apart: styleValue(ctx, element, "--aw-apart"),
  });
  const scroll = { query: columns.query.top(), key: columns.key.top() };
  const overview = numbers.huge() ? null : numbers.edges(...columns.query.range());
  if (overview) lines.edges(overview.edges, scroll);
  if (overview && looked?.side !== "key") lines.apart(overview.apart, scroll, numbers.top(null));
  if (looked) {
    const { values } = numbers.valuesOf(looked.side, looked.index);
    lines.look(looked, values, scroll, margins.tell(looked));
  }
}

/** Show how much of the current token's weight is out of view; null: none. */
function tellBeyond(state: PlotState, looked: Token | null): void {
  const { beyond, pairs } = state;
  assign(beyond.element, { hidden: !looked });
  if (!looked || !pairs) return;
  const side = opposite(looked.side);
  beyond.show(state.numbers.valuesOf(looked.side, looked.index).values, pairs[side], state.columns[side].range());
}

/** Mark the current token, the pinned token, and masked tokens. */
function mark(state: PlotState, looked: Token | null): void {
  const { ctx } = state;
  if (!state.pairs) return;
  const pinned = ctx.cell("pinned");
  const { source } = ctx.resolved();
  for (const side of SIDES) {
    const isTokenSide = looked?.side === side;
    const hides = looked && !isTokenSide;
    state.columns[side].mark(
      (isTokenSide ? looked.index : looked?.other) ?? -1,
      pinned?.[side] ?? -1,
      (i) =>
        Boolean(hides) &&
        isUnread(
          source,
          state.numbers.tile(),
          ...((side === "key" ? [looked?.index, i] : [i, looked?.index]) as [number, number]),
        ),
    );
  }
}

/** Mark the tokens chosen together. */
function choose(state: PlotState): void {
  const { ctx } = state;
  const pins = ctx.pins();
  const several = pins.length > 1 ? pins : [];
  for (const side of SIDES) {
    const tokens = several.flatMap((cell) => (cell[side] < 0 ? [] : [cell[side]]));
    state.columns[side].choose(tokens, ctx.span(side));
  }
}

/** Widths of bars and values next to the tokens. */
function lanesOf(width: number): Record<Side, number> {
  if (width < NARROW) return { query: Math.round(0.1 * width), key: Math.round(0.3 * width) };
  return { query: Math.round(Math.min(130, 0.14 * width)), key: Math.round(Math.min(260, 0.3 * width)) };
}
