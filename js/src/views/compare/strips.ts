/**
 * Explanations of one text, one below the other: each as a text, or as a band of colour if there are too many words.
 */

import { SCALE } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, on, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import { filtersOf } from "../base/filters.ts";
import { type Band, createBand } from "../text/band.ts";
import { peak } from "../text/rowValues.ts";
import { createStrip, type Strip, type StripEvents } from "../text/strip.ts";
import { fills, gradient } from "../text/stripColour.ts";
import { difference } from "./differences.ts";
import type { ExplanationRows } from "./rows.ts";

/** What `CompareView._strips` returns in addition to the values. */
export interface Compared {
  names: string[];
  remarks: string[];
  maps: boolean[];
  signed: boolean[];
  shares: boolean[];
  alike: boolean;
  how: string;
  query: number | null;
  follows: boolean;
}

/** Two explanations that are compared. */
export type Pair = readonly [number, number] | null;

/** One explanation on the page. */
interface Row {
  strip: Strip | Band;
  note: HTMLElement;
  value: HTMLElement;
  ends: [HTMLElement, HTMLElement, HTMLElement];
}

const NONE: ReadonlySet<number> = new Set();
/** The largest total number of elements; beyond it one strip is a text and the others are bands. */
const MOST_WORDS = 2400;

export interface Strips {
  element: HTMLElement;
  /** Build the strips: once for a set of names and an axis. */
  build(names: readonly string[]): void;
  /** Colour the strips: the pair with its difference, or all. */
  paint(pair: Pair): void;
  /** Mark an element in all strips, and the query in maps; `words` describe an explanation's value of it. */
  mark(key: number, words: (i: number) => string): void;
  /** Highlight strips; -1: none. */
  point(first: number, second: number): void;
}

/** `opened` is called when another explanation is shown as the text. */
export function createStrips(
  ctx: ViewContext,
  signal: AbortSignal,
  explanations: ExplanationRows<Compared>,
  events: StripEvents,
  opened: () => void,
): Strips {
  const element = h("div.texts");
  let rows: Row[] = [];
  let apart: Row | null = null;
  let builtFor = "";
  let bound = new AbortController();
  let crowded = false; // too many words for every strip to be a text
  let open = 0; // the strip shown as a text
  atEnd(signal, () => bound.abort());

  /** Index -1: the difference of two. */
  const makeRow = (name: string, index: number): Row => {
    const axis = explanations.axis();
    const asText = !crowded || index === open;
    const strip = asText
      ? createStrip(ctx, axis, name, NONE, events, bound.signal)
      : createBand(axis.labels.length, name, events, bound.signal);
    const caption = strip.box.querySelector(".aw-strip-name") as HTMLElement;
    const [note, value] = [h("span.note"), h("span.compare-value")];
    const ends: Row["ends"] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
    const button = h("button.button", { type: "button", "aria-label": `${name} as text` }, "as text");
    button.hidden = asText || index < 0;
    on(button, bound.signal, {
      click() {
        open = index;
        opened();
      },
    });
    setChildren(caption, h("b.compare-name", name), note, value, button, h("span.field", ...ends));
    return { strip, note, value, ends };
  };

  const paintRow = (row: Row, of: Float32Array, top: number, signed: boolean, words: string): void => {
    const { palette, scale } = filtersOf(ctx);
    const colouring = [ctx.theme, signed, palette, scale || SCALE] as const;
    const colours = fills(...colouring);
    const { underlay } = row.strip as Partial<Strip>;
    (underlay ?? (row.strip as Band)).paint((i) => colours((of[i] ?? 0) / (top || 1)));
    const [low, ramp, high] = row.ends;
    setStyles(ramp, { background: gradient(...colouring) });
    setText(low, signed ? `−${tickText(top)}` : "0");
    setText(high, `${signed ? "+" : ""}${tickText(top)}`);
    setText(row.note, words);
  };

  /** The difference of the shares of two strips, shown below them. */
  const paintApart = (shown: readonly Float32Array[], pair: Pair): void => {
    if (!pair) {
      if (apart) apart.strip.box.hidden = true;
      return;
    }
    const [first, second] = pair;
    if (!apart) {
      apart = makeRow("difference", -1);
      element.append(apart.strip.box);
    }
    const differences = difference(shown[first] as Float32Array, shown[second] as Float32Array);
    apart.strip.box.hidden = false;
    setText(apart.strip.box.querySelector(".aw-compare-name") as Element, `${first + 1} − ${second + 1}`);
    paintRow(
      apart,
      differences,
      peak(differences),
      true,
      "difference of shares: each divided by the sum of its magnitudes",
    );
  };

  return {
    element,
    build(names) {
      const axis = explanations.axis();
      crowded = (names.length + 1) * axis.labels.length > MOST_WORDS;
      if (open >= names.length) open = 0;
      const name = JSON.stringify([names, axis, crowded && open]);
      if (name === builtFor) return;
      builtFor = name;
      bound.abort();
      bound = new AbortController();
      apart = null;
      rows = names.map((label, i) => makeRow(`${i + 1} ${label}`, i));
      setChildren(element, ...rows.map(({ strip }) => strip.box));
    },
    paint(pair) {
      const { signed, remarks } = explanations.meta as Compared;
      const { shown } = explanations;
      const places = pair ?? [...shown.keys()];
      const tops = shown.map(peak);
      const common = Math.max(0, ...places.map((i) => tops[i] ?? 0));
      const anySigned = places.some((i) => signed[i]);
      const hasOwnScales = explanations.hasOwnScales();
      rows.forEach((row, i) => {
        const isShown = places.includes(i);
        assign(row.strip.box, { hidden: !isShown });
        if (!isShown) return;
        const top = tops[i] ?? 0;
        const nothing = shown[i]?.every(Number.isNaN) ? "all left out" : "all values are 0";
        const words = [remarks[i], top === 0 ? nothing : ""].filter(Boolean).join(" · ");
        paintRow(
          row,
          shown[i] as Float32Array,
          hasOwnScales ? top : common,
          hasOwnScales ? !!signed[i] : anySigned,
          words,
        );
      });
      paintApart(shown, pair);
    },
    mark(key, words) {
      const { maps, how, query } = explanations.meta as Compared;
      for (const [i, { strip, value }] of [...rows, ...(apart ? [apart] : [])].entries()) {
        strip.mark("aw-key", key);
        strip.mark("aw-query", how === "row" && maps[i] ? (query ?? -1) : -1);
        setText(value, i < rows.length ? words(i) : "");
      }
    },
    point(one, other) {
      for (const [i, { strip }] of rows.entries()) setFlag(strip.box, "data-pointed", i === one || i === other);
    },
  };
}
