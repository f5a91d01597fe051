/** What stands apart from the picture, above it: class and register tokens with their shares, and words. */
import { colourAt, cssOf, heatMap, inkOn, place } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { createWatch, h, on, setChildren, setStyles, setText, shortLabel } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { type Chosen, elementName, placesOf } from "./elements.ts";
import type { PatchRows } from "./rows.ts";

export interface Shares {
  element: HTMLElement;
  /** Show the elements of both axes that are not patches, with the values of a layer and head. */
  show(state: SharesState): void;
}

export interface SharesState {
  chosen: Chosen;
  rows: PatchRows | null;
  rest: Float32Array;
  sum: number;
  /** Whether values are shares, so that bars may be compared. */
  shares: boolean;
  /** Whether rows are targets of attributions. */
  targets: boolean;
}

interface Chip {
  element: HTMLElement;
  bar: HTMLElement;
  number: HTMLElement;
  name: HTMLElement;
}

/** `choose` is called with an element that is to be looked at. */
export function createShares(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (side: Chosen["side"], index: number) => void,
): Shares {
  const what = h("span.where");
  const query = h("span.chip.image-query");
  const chips = h("span.image-chips", { role: "group", "aria-label": "tokens that are not patches" });
  const words = h("span.image-words", { role: "group", "aria-label": "words" });
  const element = h("div.image-others", h("div.image-shares", what, query, chips), words);
  const isOther = createWatch();
  let made = new Map<number, Chip>();
  let buttons = new Map<number, HTMLElement>();
  let total: Chip | null = null;
  let wordSide: Chosen["side"] = "query";
  let chipSide: Chosen["side"] = "query";

  const chip = (tag: "button" | "span", label: string, name: string): Chip => {
    const [bar, number, text] = [h("i.image-share"), h("span.image-number"), h("b", label)];
    const own = h(`${tag}.image-chip`, text, bar, number);
    own.title = name;
    return { element: own, bar, number, name: text };
  };
  const choosing = (from: ReadonlyMap<number, HTMLElement>, side: () => Chosen["side"]) => ({
    click({ target }: Event) {
      for (const [index, el] of from) if (el.contains(target as Node)) choose(side(), index);
    },
  });
  on(chips, signal, {
    click: (event) => choosing(new Map([...made].map(([i, { element: el }]) => [i, el])), () => chipSide).click(event),
  });
  on(words, signal, { click: (event) => choosing(buttons, () => wordSide).click(event) });

  const build = (axis: Axis, wordsAxis: Axis, count: number): void => {
    const special = placesOf(axis).others.filter((i) => axis.special[i]);
    made = new Map(
      special.map((i) => [i, chip("button", shortLabel(axis.labels[i] as string), elementName(ctx, axis, i))]),
    );
    total = count ? chip("span", `${count} patches`, `all ${count} patches`) : null;
    for (const { element: el } of made.values()) el.setAttribute("type", "button");
    setChildren(chips, ...[...made.values()].map(({ element: el }) => el), ...(total ? [total.element] : []));
    const plain = placesOf(wordsAxis).others.filter((i) => !wordsAxis.special[i]);
    buttons = new Map(
      plain.map((i) => [i, h("button.image-word", { type: "button" }, elementWord(wordsAxis.labels[i] as string))]),
    );
    setChildren(words, ...buttons.values());
    words.hidden = plain.length === 0;
  };
  const showChip = ({ bar, number }: Chip, value: number, shares: boolean, amount: boolean): void => {
    setText(number, Number.isNaN(value) ? "" : value.toFixed(3).replace("-", "−"));
    setStyles(bar, {
      width: shares ? `max(2px, calc(${Math.min(1, Math.abs(value))} * var(--aw-image-bar, 90px)))` : "0",
      background: amount ? "var(--aw-amount)" : "var(--aw-apart)",
    });
  };
  return {
    element,
    show({ chosen, rows, rest, sum, shares, targets }) {
      const source = ctx.source();
      const [queries, keys] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
      // Values are those of the other side's elements.
      const shown = chosen.side === "query" ? keys : queries;
      const isSame = source.query === source.key;
      const wordsAxis = isSame || targets ? keys : queries;
      const own = chosen.side === "query" ? queries : keys;
      chipSide = isSame ? chosen.side : chosen.side === "query" ? "key" : "query";
      wordSide = isSame ? chosen.side : "query";
      if (isOther(shown, wordsAxis, rows?.patches.length)) build(shown, wordsAxis, rows?.patches.length ?? 0);
      query.hidden = targets;
      const name = elementName(ctx, own, chosen.index);
      setText(what, targets ? "other tokens" : chosen.side === "query" ? "" : "who reads");
      setText(query, chosen.side === "query" ? `${name} attends to` : name);
      rows?.others.forEach((i, at) => {
        const one = made.get(i);
        const value = rest[at] ?? Number.NaN;
        if (one) {
          setText(
            one.name,
            isSame && i === chosen.index && !targets ? "itself" : shortLabel(shown.labels[i] as string),
          );
          one.element.ariaPressed = String(isSame && i === chosen.index && !targets);
          showChip(one, value, shares, false);
        }
      });
      if (total) showChip(total, sum, shares, true);
      const places = new Map(rows?.others.map((i, at) => [i, rest[at] ?? Number.NaN]));
      const coloured = wordsAxis === shown;
      const values = [...buttons.keys()].map((i) => (coloured ? (places.get(i) ?? Number.NaN) : Number.NaN));
      const top = Math.max(1e-9, ...values.map((value) => Math.abs(value) || 0));
      const map = heatMap(source.signed, ctx.theme);
      [...buttons].forEach(([i, el], at) => {
        const value = values[at] as number;
        const rgb = colourAt(map, place(Number.isNaN(value) ? 0 : value, [source.signed ? -top : 0, top], "linear"));
        setStyles(el, {
          background: Number.isNaN(value) ? "none" : cssOf(rgb),
          color: Number.isNaN(value) ? "inherit" : inkOn(rgb),
        });
        el.ariaPressed = String(!targets && chosen.side === wordSide && i === chosen.index);
        const number = Number.isNaN(value) ? "" : ` ${value.toPrecision(3)}`;
        el.title = `${wordsAxis.labels[i]}${number}`;
      });
    },
  };
}

/** A word as a button says it. */
const elementWord = (label: string): string => shortLabel(label.replace(/^␣(?=.)|^##/, ""));
