/** The text that the model still sees, with removed tokens struck out. */

import type { ViewContext } from "../../../context.ts";
import { atEnd, h, setChildren, setFlag, setText } from "../../../dom.ts";
import type { Cell } from "../../../wire/wire.ts";
import { pinnedTogether } from "../../base/chosen.ts";
import { textPicks } from "../../base/gestures.ts";
import { peak } from "../../text/rowValues.ts";
import { createStrip, type Strip } from "../../text/strip.ts";
import { type Fill, fillOf, NOTHING } from "../../text/stripColour.ts";
import { rowOf } from "./request.ts";
import type { Removal } from "./steps.ts";

export interface RemainingText {
  element: HTMLElement;
  /** The text of the shown source. */
  build(): void;
  /**
   * Strike out removed tokens; the others carry the explanation's colours. Touches only tokens that change. `newest` is
   * the token that this step removes or keeps; -1: none.
   */
  show(removal: Removal, gone: ReadonlySet<number>, newest: number): void;
  /** Mark the token under the pointer of any linked view, and the tokens chosen together. */
  point(): void;
}

export function createRemainingText(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (token: number) => void,
): RemainingText {
  const element = h("div.texts");
  let strip: Strip | null = null;
  let tokens: HTMLElement[] = [];
  let colours = new Map<number, Fill>();
  let [builtFor, colouredFor] = ["", ""];
  let bound = new AbortController();
  atEnd(signal, () => bound.abort());

  const hover = (token: number): void => {
    const { unit } = ctx.source();
    ctx.selection.hover(token < 0 ? null : { unit, query: -1, key: token });
  };
  const colour = ({ order, weights }: Removal, box: HTMLElement): void => {
    const orderedWeights = order.map((token) => weights[token] ?? 0);
    const [top, signed] = [peak(orderedWeights), orderedWeights.some((weight) => weight < 0)];
    colours = new Map(
      order.map((token, i) => [token, top ? fillOf((orderedWeights[i] ?? 0) / top, ctx.theme, signed) : NOTHING]),
    );
    tokens = [...box.querySelectorAll<HTMLElement>(".aw-tok")];
  };
  const point = (): void => {
    strip?.mark("aw-key", ctx.cell("hover")?.key ?? -1);
    strip?.choose(pinnedTogether(ctx, "query"), pinnedTogether(ctx, "key"), ctx.span("key"));
  };
  /** A token of a map is the query of its row. */
  const cellOf = (token: number): Cell => {
    const { kind, unit } = ctx.source();
    return kind === "map" ? { unit, query: token, key: -1 } : { unit, query: -1, key: token };
  };

  return {
    element,
    build() {
      const { key, kind } = ctx.source();
      const axis = ctx.axisOf(key);
      const name = JSON.stringify([axis, kind]);
      if (name === builtFor) return;
      builtFor = name;
      bound.abort();
      bound = new AbortController();
      strip = createStrip(
        ctx,
        axis,
        " ",
        new Set(),
        { hover, pin: choose, ...textPicks(ctx, "key", cellOf) },
        bound.signal,
      );
      setChildren(element, strip.box);
    },
    show(removal, gone, newest) {
      if (!strip) return;
      const { requestKey } = removal;
      const isMap = ctx.source().kind === "map";
      const name = strip.box.querySelector<HTMLElement>(".aw-strip-name");
      if (name) {
        setText(name, "what the model still sees");
        name.title = isMap ? "A token pins its row" : "A token moves the slider to its step";
      }
      const stateKey = JSON.stringify([requestKey, builtFor, ctx.theme]);
      const all = stateKey !== colouredFor;
      if (all) {
        colouredFor = stateKey;
        colour(removal, strip.box);
      }
      for (const [i, token] of tokens.entries()) {
        const isGone = gone.has(i);
        setFlag(token, "data-newest", i === newest);
        if (!all && isGone === "gone" in token.dataset) continue;
        setFlag(token, "data-gone", isGone);
        const { css, flips } = (isGone ? undefined : colours.get(i)) ?? NOTHING;
        token.style.backgroundColor = css;
        setFlag(token, "data-flip", flips);
      }
      strip.mark("aw-query", isMap ? rowOf(ctx) : -1);
      point();
    },
    point,
  };
}
