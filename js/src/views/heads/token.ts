/** The token that a HeadView describes: the hovered or pinned token, else that of the opening. */
import type { ViewContext } from "../../context.ts";
import type { Cell } from "../../wire/wire.ts";
import { openedAt } from "../base/opening.ts";
import type { Pairs, Side } from "./pairs.ts";

export const SIDES = ["query", "key"] as const;

export const opposite = (side: Side): Side => (side === "query" ? "key" : "query");

export interface Token {
  side: Side;
  index: number;
  /** The current token of the other side; -1: none. */
  other: number;
}

export interface CurrentToken {
  /** The token whose lines are all drawn: until the reader chooses a token, the query that the view opens on. */
  get(): Token | null;
  /** Where the arrow keys move: in a pair, its second token. */
  cursor(): { side: Side; index: number };
  /** The cell of a token; if a token of the other side is pinned, the cell of both. */
  cellOf(side: Side, index: number): Cell;
  /** Pin a cell; a pinned cell is unpinned. */
  pin(cell: Cell): void;
}

export function createCurrentToken(ctx: ViewContext, pairs: () => Pairs | null): CurrentToken {
  /** The side of the pinned token; for a pair, the query's. */
  const pinnedSide = (pinned: Cell): Side => (pinned.query >= 0 ? "query" : "key");

  /** The token that is hovered or pinned. */
  const chosen = (): Token | null => {
    const pinned = ctx.cell("pinned");
    const cell = ctx.cell("hover") ?? pinned;
    if (!cell) return null;
    const whole = cell.query >= 0 && cell.key >= 0;
    const side = whole && pinned ? pinnedSide(pinned) : cell.query >= 0 ? "query" : "key";
    return { side, index: cell[side], other: cell[opposite(side)] };
  };

  return {
    get() {
      const token = chosen();
      const opened = pairs();
      if (token || !opened) return token;
      const source = ctx.source();
      const index = source.kind === "attributions" ? 0 : openedAt(ctx, source);
      return index < 0 ? null : { side: "query", index, other: -1 };
    },
    cursor() {
      const token = chosen();
      if (!token) return { side: "query", index: -1 };
      return token.other < 0 ? token : { side: opposite(token.side), index: token.other };
    },
    cellOf(side, index) {
      const cell: Cell = { unit: ctx.source().unit, query: -1, key: -1 };
      const pinned = ctx.cell("pinned");
      if (pinned && pinnedSide(pinned) !== side) cell[opposite(side)] = pinned[opposite(side)];
      cell[side] = index;
      return cell;
    },
    pin(cell) {
      // Compared in this view's unit, so that a second click also unpins a cell pinned in another unit.
      const pinned = ctx.cell("pinned");
      const again = pinned?.query === cell.query && pinned.key === cell.key;
      ctx.selection.pin(again ? null : cell);
    },
  };
}
