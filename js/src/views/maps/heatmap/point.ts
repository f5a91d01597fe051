/**
 * The element under the pointer or reached by keys: the crosshair, the readout, and the cell or row that a click pins.
 */
import { on, spotAt } from "../../../dom.ts";
import type { Cell } from "../../../wire/wire.ts";
import { describeCells, describeShare, nameOf } from "../../base/cellValues.ts";
import { movePinned } from "../../base/gestures.ts";
import { openingQuery } from "../../base/opening.ts";
import { readWords, rowWords, sinkWords } from "../../base/rowFacts.ts";
import type { AxisPart } from "../axisPart.ts";
import { namesApart } from "../shares.ts";
import type { HeatmapState } from "./state.ts";

/** Update crosshair, pinned cell and readout. Runs on every pointer move and creates no nodes. */
export function point(state: HeatmapState): void {
  const { ctx, figure, size, parts, onBar, onSink, tile, frame } = state;
  if (!size || !parts) return;
  const [hover, pinned] = [ctx.cell("hover"), ctx.cell("pinned")];
  const [query, key] = parts;
  const drawn = (cell: Cell | null): Cell | null =>
    cell && { unit: cell.unit, query: query.positionOf(cell.query), key: key.positionOf(cell.key) };
  const opening = openingQuery(ctx);
  const shown = hover ?? (opening < 0 ? null : { unit: "", query: opening, key: -1 });
  const [over, pin] = [drawn(shown), drawn(pinned)];
  figure.crosshair.move(size, over, pin);
  figure.left.mark(over?.query, pin?.query);
  figure.top.mark(over?.key, pin?.key);
  const isApart = (cell: Cell | null): boolean => cell !== null && key.apart.includes(cell.key);
  figure.shares.mark(
    size,
    onBar >= 0 || isApart(hover) ? (over?.query ?? -1) : -1,
    isApart(pinned) ? (pin?.query ?? -1) : -1,
  );
  figure.sink.mark(size, query.positionOf(onSink), isPinnedSink(state, pinned) ? (pin?.query ?? -1) : -1);
  state.copy?.show();
  if (frame.readout.isSilent) return;
  const text =
    onBar >= 0
      ? barWords(state, onBar, key.apart)
      : onSink >= 0
        ? [`${nameOf(ctx, ctx.source().query, onSink)} → ${sinkWords(tile, onSink)}`, readWords(tile, onSink)]
            .filter(Boolean)
            .join(" · ")
        : describeCells(ctx, state.exactRows, tile, hover, pinned);
  frame.readout.show(text, state.spoken || state.root.contains(document.activeElement));
}

/** The meaning of a bar: the share of a row on the elements apart, with further facts about the row. */
function barWords(state: HeatmapState, row: number, apart: readonly number[]): string {
  const { ctx } = state;
  const { labels } = ctx.axisOf(ctx.source().key);
  const named = apart.length > 0 ? describeShare(ctx, state.shareRows, row, apart, namesApart(labels, apart)) : "";
  return [named || nameOf(ctx, ctx.source().query, row), rowWords(state.tile, row)].filter(Boolean).join(" · ");
}

export function cellAt(state: HeatmapState, event: MouseEvent): Cell | null {
  const { size, parts } = state;
  const spot = size && parts && spotAt(event, state.figure.plot, size.rows, size.cols);
  if (!spot || !parts) return null;
  const [query = -1, key = -1] = spot.map((at, i) => (parts as readonly AxisPart[])[i]?.drawn()[at] ?? -1);
  return { unit: state.ctx.source().unit, query, key };
}

/** The row whose bar, or whose cell of the sink, is under the pointer. */
function rowAt(state: HeatmapState, event: MouseEvent, strip: HTMLElement): Cell | null {
  const { size } = state;
  const at = size && spotAt(event, strip, size.rows, 1);
  const query = at ? state.parts?.[0].drawn()[at[0]] : undefined;
  return query === undefined ? null : { unit: state.ctx.source().unit, query, key: -1 };
}

function isPinnedSink(state: HeatmapState, pinned: Cell | null): boolean {
  return state.hasSink && pinned !== null && pinned.key < 0 && pinned.query === state.pinnedSink;
}

export function isSameCell(a: Cell | null, b: Cell): boolean {
  return a?.query === b.query && a.key === b.key;
}

/** Pin the cell next to the pinned or hovered cell; the same cell again unpins it. */
export function movePin(state: HeatmapState, rows: number, cols: number): () => void {
  return (): void => {
    if (!state.parts) return;
    const pinned = state.ctx.cell("pinned");
    const now = pinned ?? state.ctx.cell("hover");
    const [query = -1, key = -1] = state.parts.map((part, i) => {
      const at = part.inside.indexOf((i ? now?.key : now?.query) ?? -1);
      // The sink is before the first key.
      const least = i && state.hasSink ? -1 : 0;
      const from = i && (isPinnedSink(state, pinned) || (!pinned && state.onSink >= 0)) ? -1 : Math.max(0, at);
      return part.inside[Math.max(least, Math.min(part.inside.length - 1, from + (i ? cols : rows)))] ?? -1;
    });
    state.pinnedSink = key < 0 ? query : -1;
    const to: Cell = { unit: state.ctx.source().unit, query, key };
    state.spoken = true;
    if (!isSameCell(pinned, to)) movePinned(state.ctx, to);
    else if (rows === 0 && cols === 0) movePinned(state.ctx, null);
  };
}

/** Let elements next to the cells hover and pin a row. `on` takes the row under the pointer, -1: none. */
export function listenAlong(
  state: HeatmapState,
  strip: HTMLElement,
  isOn: (row: number) => void,
  pinning: (row: number) => void,
): void {
  const { selection } = state.ctx;
  on(strip, state.signal, {
    pointermove(event) {
      const cell = rowAt(state, event, strip);
      state.spoken = false;
      state.isInside = true;
      isOn(cell?.query ?? -1);
      selection.hover(cell);
      point(state);
    },
    pointerleave() {
      state.isInside = false;
      isOn(-1);
      selection.hover(null);
    },
    click(event) {
      const cell = rowAt(state, event, strip);
      if (!cell) return;
      const isPinned = isSameCell(state.ctx.cell("pinned"), cell);
      pinning(isPinned ? -1 : cell.query);
      selection.pin(isPinned ? null : cell);
    },
  });
}
