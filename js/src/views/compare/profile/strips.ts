/**
 * The text from which sources are chosen, coloured by a line in a layer; above it, the text from which the query is
 * chosen.
 */

import { SCALE } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { atEnd, createWatch, h, setChildren, setText } from "../../../dom.ts";
import { filtersOf, standApart } from "../../base/filters.ts";
import { chooseSpan } from "../../base/gestures.ts";
import { peak } from "../../text/rowValues.ts";
import { createStrip, type Strip, type StripEvents } from "../../text/strip.ts";
import { fills, NOTHING } from "../../text/stripColour.ts";
import type { ExplanationRows } from "../rows.ts";
import type { Profile, Sources } from "./sources.ts";

const SOURCES = "sources (choose; Shift adds)";

export interface ProfileStrips {
  element: HTMLElement;
  /** Build the strips if they differ from those on the page. */
  build(profile: Profile): void;
  /** Colour by the first line in the layer with this index, whose values are `row`, and mark the chosen sources. */
  paint(profile: Profile, row: Float32Array, position: number, some: readonly number[]): void;
}

export function createProfileStrips(
  ctx: ViewContext,
  signal: AbortSignal,
  explanations: ExplanationRows<Profile>,
  chosen: Sources,
): ProfileStrips {
  const element = h("div.texts.profile-texts");
  const [isOther, isColoured, isElsewhere] = [createWatch(), createWatch(), createWatch()];
  let builtFor = "";
  let bound = new AbortController();
  let targets: Strip | null = null;
  let sources: Strip | null = null;

  const span = (first: number, last: number): void => chooseSpan(ctx, "key", first, last);
  atEnd(signal, () => bound.abort());
  return {
    element,
    build({ follows }) {
      const axis = explanations.axis();
      if (!isOther(axis, follows)) return;
      const name = JSON.stringify([axis, follows]);
      if (name === builtFor) return;
      builtFor = name;
      bound.abort();
      bound = new AbortController();
      const make = (caption: string, events: StripEvents): Strip =>
        createStrip(ctx, axis, caption, new Set(), { ...events, span }, bound.signal);
      const { pinTarget, hover, pin, toggle } = chosen;
      targets = follows
        ? make("target: whose row (choose)", { hover: () => undefined, pin: pinTarget, toggle: pinTarget })
        : null;
      sources = make(SOURCES, { hover, pin, toggle });
      targets?.box.classList.add("aw-profile-targets");
      const boxes = [...(targets ? [targets.box] : []), sources.box];
      setChildren(element, ...boxes.map((box) => h("div.profile-text", box)));
    },
    paint({ names, layers, query }, row, position, some) {
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
        setText(caption, `${SOURCES}, coloured by ${names[0]} in layer ${ctx.layerName(layers[position] ?? 0)}`);
      targets?.mark("aw-query", query ?? -1);
      sources.choose([], some.length > 1 ? some : [], ctx.span("key"));
      targets?.choose([], [], ctx.span("key")); // the same text
      if (isElsewhere(sources, query, some.join())) {
        targets?.keepIn(targets.box.parentElement as HTMLElement, query ?? -1);
        sources.keepIn(box.parentElement as HTMLElement, some[0] ?? -1);
      }
    },
  };
}
