/** The head under the pointer or reached by keys, and choosing heads. */

import type { ViewContext } from "../../../context.ts";
import { keyboard, on, spotAt } from "../../../dom.ts";
import { rectangle } from "../../../selection.ts";
import { createPicking } from "../../base/gestures.ts";
import type { Spot } from "./arrange.ts";
import type { Layout } from "./layout.ts";

/** Line and column. */
type At = [number, number];

export interface Cursor {
  /** Line and column under the pointer; null: none. */
  at(): At | null;
  /** The head under the pointer, otherwise the selected head. */
  meant(): Spot | null;
  headAt(at: readonly [number, number] | null): Spot | null;
  hover(at: At | null): void;
  /** Stay on a head once the grid is laid out again; null, or a head that the layout leaves out: on none. */
  stayOn(head: Spot | null): void;
  choose(spot: Spot | null): void;
}

/** The grid in which the cursor moves. */
export interface Board {
  layout(): Layout;
  /** Line and column of the selected head; -1: not shown. */
  selected(): At;
  isPruned(spot: Spot): boolean;
  /** The cursor reached another head. */
  moved(): void;
  /** The outline of the head under the cursor. */
  outline: HTMLElement;
}

const within = (i: number, count: number): number => Math.max(0, Math.min(count - 1, i));

export function createCursor(ctx: ViewContext, plot: HTMLElement, board: Board, signal: AbortSignal): Cursor {
  let spot: At | null = null;
  const headAt = (at: readonly [number, number] | null): Spot | null =>
    (at && board.layout().lines[at[0]]?.spots[at[1]]) || null;
  const hover = (at: At | null): void => {
    if (String(at) === String(spot)) return;
    spot = at;
    board.moved();
  };
  const choose = (spot: Spot | null): void => {
    if (!spot || board.isPruned(spot)) return;
    const { layers, heads } = ctx.source();
    const layer = layers[spot.layer] as number;
    ctx.selection.set(heads ? { layer, head: heads[spot.head] as number, heads: [] } : { layer });
  };
  /** The heads at some positions, as the selection names them. */
  const headsAt = (spots: readonly (readonly [number, number])[]): [number, number][] => {
    const { layers, heads } = ctx.source();
    const chosen = new Set(spots.map(([row, col]) => headAt([row, col])));
    return [...chosen].flatMap((at): [number, number][] => {
      return at && heads && !board.isPruned(at) ? [[layers[at.layer] as number, heads[at.head] as number]] : [];
    });
  };
  const toggle = (at: readonly [number, number] | null): void => {
    if (at) ctx.selection.toggleHeads(headsAt([at]));
  };
  const size = (): At => [board.layout().lines.length, board.layout().cols];
  const find = (event: MouseEvent): At | null => {
    const at = spotAt(event, plot, ...size());
    return headAt(at) ? at : null;
  };
  createPicking(plot, { element: plot, size }, signal, {
    toggle,
    drag(from, to, adds) {
      const heads = headsAt(rectangle(from, to));
      if (adds) ctx.selection.addHeads(heads);
      else ctx.selection.set({ heads });
    },
  });
  /** Move the cursor to the next head in a direction; it starts at the selected head. */
  const move = (down: number, right: number) => (): void => {
    const { lines, cols } = board.layout();
    const [row, col] = board.selected();
    let at: At = spot ?? (row < 0 ? [0, -right] : [row, col]);
    const from = headAt(at);
    for (let i = 0; i < Math.max(cols, lines.length); i += 1) {
      const line = within(at[0] + down, lines.length);
      const wide = lines[line]?.spots.length ?? 0;
      const next: At = [line, right || down === 0 ? within(at[1] + right, wide) : Math.min(at[1], wide - 1)];
      if (String(next) === String(at)) break;
      at = next;
      if (headAt(at) && headAt(at) !== from) break; // filtered heads are skipped
    }
    if (headAt(at)) hover(at);
    board.outline.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  };
  /** Choose the head that the cursor leaves and the head that it reaches. */
  const extend = (down: number, right: number) => (): void => {
    const from = spot ?? board.selected();
    move(down, right)();
    if (spot) ctx.selection.addHeads(headsAt([from, spot]));
  };
  on(plot, signal, {
    pointermove: (event) => hover(find(event)),
    pointerleave: () => hover(null),
    click: (event) => choose(headAt(find(event))),
  });
  keyboard(
    plot,
    signal,
    {
      ArrowUp: move(-1, 0),
      ArrowDown: move(1, 0),
      ArrowLeft: move(0, -1),
      ArrowRight: move(0, 1),
      Home: () => hover([...board.layout().positions.values()][0] ?? null),
      End: () => hover([...board.layout().positions.values()].at(-1) ?? null),
      Enter: () => choose(headAt(spot)),
      " ": () => choose(headAt(spot)),
      "Shift+ArrowUp": extend(-1, 0),
      "Shift+ArrowDown": extend(1, 0),
      "Shift+ArrowLeft": extend(0, -1),
      "Shift+ArrowRight": extend(0, 1),
      "Shift+Enter": () => toggle(spot),
      Escape() {
        hover(null);
        ctx.selection.clear();
      },
    },
    "← → ↑ ↓: move · Home End: first, last · Enter: select · Shift + arrows, Enter: select several · Esc: back",
  );
  return {
    at: () => spot,
    meant: () => headAt(spot ?? board.selected()),
    headAt,
    hover,
    stayOn(head) {
      spot = (head && board.layout().positions.get(`${head.layer} ${head.head}`)) || null;
    },
    choose,
  };
}
