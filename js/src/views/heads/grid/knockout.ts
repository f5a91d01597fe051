/** Heads of a grid that are knocked out: by `k` or a right click, and crossed out. */

import type { ViewContext } from "../../../context.ts";
import { h, on, setBox, setChildren } from "../../../dom.ts";
import type { Answers } from "../../../wire/answers.ts";
import { onLetter } from "../../base/letters.ts";
import { fixedWords } from "../../base/mixers.ts";
import { ablated, KNOCKS, knock, specsOf } from "../../interventions/list.ts";
import type { Size, Spot } from "./arrange.ts";

export interface Knockout {
  /** Cross out the knocked-out heads; `positions` are lines and columns by "layer head". */
  show(positions: ReadonlyMap<string, readonly [number, number]>, size: Size): void;
  /** The note for a head: " · knocked out". */
  words(at: Spot | null): string;
}

/** `spotted` returns the current head; `said` is called when there is a new message. */
export function createKnockout(
  ctx: ViewContext,
  plot: HTMLElement,
  answers: Answers,
  signal: AbortSignal,
  spotted: () => Spot | null,
  changed: () => void,
): Knockout {
  const crosses = h("div", { "aria-hidden": "true" });
  let drawnKey = "";
  let refusal = "";
  const act = (): void => {
    const source = ctx.source();
    const at = spotted();
    if (!at || !source.heads || source.kind !== "map") return;
    const [layer, head] = [source.layers[at.layer] as number, source.heads[at.head] as number];
    const answer = answers.get<{ refusal: string }>("interventions");
    refusal = answer?.meta.refusal ?? answers.failure("interventions") ?? "";
    if (!refusal && !fixedWords(source, layer, head)) knock(ctx, source.stack, layer, head, "zero");
    changed();
  };
  plot.append(crosses);
  plot.dataset.awKeys += ` · ${KNOCKS}`;
  onLetter(plot, signal, "k", act);
  on(plot, signal, {
    contextmenu(event) {
      event.preventDefault();
      event.stopPropagation(); // JupyterLab would open its own menu over the grid
      act();
    },
  });
  return {
    show(positions, { width, height }) {
      answers.get("interventions"); // fetched early, so that it is available when needed
      const source = ctx.source();
      const spots = specsOf(ctx).flatMap((spec) => {
        if (spec.kind !== "ablate" || spec.stack !== source.stack || source.kind !== "map") return [];
        const at = positions.get(`${source.layers.indexOf(spec.layer)} ${source.heads?.indexOf(spec.head)}`);
        return at && !fixedWords(source, spec.layer, spec.head) ? [at] : [];
      });
      const stateKey = `${spots.join(" ")}|${width}|${height}`;
      if (stateKey === drawnKey) return;
      drawnKey = stateKey;
      setChildren(
        crosses,
        ...spots.map(([row, col]) => {
          const cross = h("div.spot.grid-out");
          setBox(cross, col * width, row * height, width, height);
          return cross;
        }),
      );
    },
    words(at) {
      const source = ctx.source();
      if (!at || !source.heads) return "";
      const [layer, head] = [source.layers[at.layer] as number, source.heads[at.head] as number];
      const why = refusal || fixedWords(source, layer, head);
      if (why) return ` · cannot be knocked out: ${why}`;
      return ablated(ctx, source.stack, layer, head) ? " · knocked out" : "";
    },
  };
}
