/**
 * The text from which sources are chosen, coloured by one line in one layer; above it, the text from which the query is
 * chosen.
 */

import { SCALE } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { atEnd, createWatch, h, keyboard, on, setChildren, setFlag, setText } from "../../../dom.ts";
import { filtersOf, standApart } from "../../base/filters.ts";
import { peak } from "../../text/rowValues.ts";
import { createStrip, type Strip } from "../../text/strip.ts";
import { fills, NOTHING } from "../../text/stripColour.ts";
import type { ExplanationRows } from "../rows.ts";
import type { Profile, Sources } from "./sources.ts";

const SOURCES = "sources (choose; Shift adds)";

export interface ProfileStrips {
  element: HTMLElement;
  /** Build the strips if they differ from those on the page. */
  build(profile: Profile): void;
  /** Colour by the first line in the layer with this index, whose values are `row`, and mark the chosen sources. */
  paint(profile: Profile, row: Float32Array, place: number, some: readonly number[]): void;
}

export function createProfileStrips(
  ctx: ViewContext,
  signal: AbortSignal,
  explanations: ExplanationRows<Profile>,
  chosen: Sources,
): ProfileStrips {
  const element = h("div.texts.profile-texts");
  const [isColoured, isCued, isElsewhere] = [createWatch(), createWatch(), createWatch()];
  let builtFor = "";
  let bound = new AbortController();
  let targets: Strip | null = null;
  let sources: Strip | null = null;
  let adding = false;

  const pin = (key: number): void => chosen.pin(key, adding);
  const pinFocused = (): void => pin(Number((document.activeElement as HTMLElement | null)?.dataset.i ?? -1));
  atEnd(signal, () => bound.abort());
  return {
    element,
    build({ follows }) {
      const axis = explanations.axis();
      const name = JSON.stringify([axis, follows]);
      if (name === builtFor) return;
      builtFor = name;
      bound.abort();
      bound = new AbortController();
      const make = (caption: string, pin: (index: number) => void, hover: (index: number) => void): Strip =>
        createStrip(ctx, axis, caption, new Set(), { hover, pin }, bound.signal);
      targets = follows ? make("target: whose row (choose)", chosen.pinTarget, () => undefined) : null;
      sources = make(SOURCES, pin, chosen.hover);
      // Whether Shift was held when a source was chosen.
      const heed = (event: MouseEvent | KeyboardEvent): void => {
        adding = event.shiftKey;
      };
      on(sources.box, bound.signal, { pointerdown: heed, keydown: heed });
      keyboard(sources.box, bound.signal, { "Shift+Enter": pinFocused, "Shift+ ": pinFocused });
      targets?.box.classList.add("aw-profile-targets");
      const boxes = [...(targets ? [targets.box] : []), sources.box];
      setChildren(element, ...boxes.map((box) => h("div.profile-text", box)));
    },
    paint({ names, layers, query }, row, place, some) {
      if (!sources) return;
      const { box, underlay, mark } = sources;
      const { palette, scale } = filtersOf(ctx);
      if (isColoured(sources, row, ctx.theme, palette, scale)) {
        const apart = standApart(explanations.axis().special, filtersOf(ctx));
        const [top, signed] = [peak(row.filter((_, key) => !apart[key])), row.some((value) => value < 0)];
        const colours = fills(ctx.theme, signed, palette, scale || SCALE);
        underlay.paint((key) => (apart[key] ? NOTHING : colours((row[key] ?? 0) / (top || 1))));
      }
      mark("aw-key", some.length === 1 ? (some[0] ?? -1) : -1);
      const caption = box.querySelector(".aw-strip-name");
      if (caption)
        setText(caption, `${SOURCES}, coloured by ${names[0]} in layer ${ctx.layerName(layers[place] ?? 0)}`);
      targets?.mark("aw-query", query ?? -1);
      if (isElsewhere(sources, query, some.join())) {
        targets?.keepIn(targets.box.parentElement as HTMLElement, query ?? -1);
        sources.keepIn(box.parentElement as HTMLElement, some[0] ?? -1);
      }
      const { cues } = chosen;
      if (!isCued(sources, some.length > 1, [...cues].join())) return;
      for (const cue of box.querySelectorAll<HTMLElement>(".aw-tok"))
        setFlag(cue, "data-cue", some.length > 1 && cues.has(Number(cue.dataset.i)));
    },
  };
}
