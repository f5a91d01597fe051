/** The elements apart from the picture, above it: class and register tokens with their shares, and words. */
import { colourAt, cssOf, heatMap, inkOn, scalePosition } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { createWatch, h, on, setChildren, setStyles, setText, shortLabel } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { type Chosen, elementName, elementsOf } from "./elements.ts";
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

/** The elements of the panel, and its state. */
interface SharesView {
  readonly ctx: ViewContext;
  readonly choose: (side: Chosen["side"], index: number) => void;
  readonly title: HTMLSpanElement;
  readonly query: HTMLSpanElement;
  readonly chips: HTMLSpanElement;
  readonly words: HTMLSpanElement;
  readonly isOther: (...values: unknown[]) => boolean;
  /** The chips of elements that are not patches, and the buttons of the words, by element. */
  chipOf: Map<number, Chip>;
  buttons: Map<number, HTMLElement>;
  /** The chip of the picture as a whole. */
  total: Chip | null;
  /** The side that a click on a word, or on a chip, looks at. */
  wordSide: Chosen["side"];
  chipSide: Chosen["side"];
}

/** `choose` is called with an element that is to be looked at. */
export function createShares(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (side: Chosen["side"], index: number) => void,
): Shares {
  const heading = h("span.where");
  const query = h("span.chip.image-query");
  const chips = h("span.image-chips", { role: "group", "aria-label": "tokens that are not patches" });
  const words = h("span.image-words", { role: "group", "aria-label": "words" });
  const element = h("div.image-others", h("div.image-shares", heading, query, chips), words);
  const isOther = createWatch();

  const state: SharesView = {
    ctx,
    choose,
    title: heading,
    query,
    chips,
    words,
    isOther,
    chipOf: new Map<number, Chip>(),
    buttons: new Map<number, HTMLElement>(),
    total: null,
    wordSide: "query",
    chipSide: "query",
  };
  on(chips, signal, {
    click: (event) =>
      choosing(state, new Map([...state.chipOf].map(([i, { element: el }]) => [i, el])), () => state.chipSide).click(
        event,
      ),
  });
  on(words, signal, { click: (event) => choosing(state, state.buttons, () => state.wordSide).click(event) });
  return {
    element,
    show: (at) => show(state, at),
  };
}

function chip(tag: "button" | "span", label: string, name: string): Chip {
  const [bar, number, text] = [h("i.image-share"), h("span.image-number"), h("b", label)];
  const element = h(`${tag}.image-chip`, text, bar, number);
  element.title = name;
  return { element, bar, number, name: text };
}

function choosing(
  state: SharesView,
  from: ReadonlyMap<number, HTMLElement>,
  side: () => Chosen["side"],
): { click({ target }: Event): void } {
  return {
    click({ target }: Event) {
      for (const [index, el] of from) if (el.contains(target as Node)) state.choose(side(), index);
    },
  };
}

function build(state: SharesView, axis: Axis, wordsAxis: Axis, count: number): void {
  const { words } = state;
  const special = elementsOf(axis).others.filter((i) => axis.special[i]);
  state.chipOf = new Map(
    special.map((i) => [i, chip("button", shortLabel(axis.labels[i] as string), elementName(state.ctx, axis, i))]),
  );
  state.total = count ? chip("span", `${count} patches`, `all ${count} patches`) : null;
  for (const { element: el } of state.chipOf.values()) el.setAttribute("type", "button");
  setChildren(
    state.chips,
    ...[...state.chipOf.values()].map(({ element: el }) => el),
    ...(state.total ? [state.total.element] : []),
  );
  const plain = elementsOf(wordsAxis).others.filter((i) => !wordsAxis.special[i]);
  state.buttons = new Map(
    plain.map((i) => [i, h("button.image-word", { type: "button" }, elementWord(wordsAxis.labels[i] as string))]),
  );
  setChildren(words, ...state.buttons.values());
  words.hidden = plain.length === 0;
}

function showChip({ bar, number }: Chip, value: number, shares: boolean, amount: boolean): void {
  setText(number, Number.isNaN(value) ? "" : value.toFixed(3).replace("-", "−"));
  setStyles(bar, {
    width: shares ? `max(2px, calc(${Math.min(1, Math.abs(value))} * var(--aw-image-bar, 90px)))` : "0",
    background: amount ? "var(--aw-amount)" : "var(--aw-apart)",
  });
}

function show(state: SharesView, { chosen, rows, rest, sum, shares, targets }: SharesState): void {
  const { ctx, query } = state;
  const source = ctx.source();
  const [queries, keys] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
  // Values are those of the other side's elements.
  const shown = chosen.side === "query" ? keys : queries;
  const isSame = source.query === source.key;
  const wordsAxis = isSame || targets ? keys : queries;
  const chosenAxis = chosen.side === "query" ? queries : keys;
  state.chipSide = isSame ? chosen.side : chosen.side === "query" ? "key" : "query";
  state.wordSide = isSame ? chosen.side : "query";
  if (state.isOther(shown, wordsAxis, rows?.patches.length)) build(state, shown, wordsAxis, rows?.patches.length ?? 0);
  query.hidden = targets;
  const name = elementName(ctx, chosenAxis, chosen.index);
  setText(state.title, targets ? "other tokens" : chosen.side === "query" ? "" : "who reads");
  setText(query, chosen.side === "query" ? `${name} attends to` : name);
  rows?.others.forEach((i, at) => {
    const chip = state.chipOf.get(i);
    const value = rest[at] ?? Number.NaN;
    if (chip) {
      setText(chip.name, isSame && i === chosen.index && !targets ? "itself" : shortLabel(shown.labels[i] as string));
      chip.element.ariaPressed = String(isSame && i === chosen.index && !targets);
      showChip(chip, value, shares, false);
    }
  });
  if (state.total) showChip(state.total, sum, shares, true);
  const shareOf = new Map(rows?.others.map((i, at) => [i, rest[at] ?? Number.NaN]));
  const coloured = wordsAxis === shown;
  const values = [...state.buttons.keys()].map((i) => (coloured ? (shareOf.get(i) ?? Number.NaN) : Number.NaN));
  const top = Math.max(1e-9, ...values.map((value) => Math.abs(value) || 0));
  const map = heatMap(source.signed, ctx.theme);
  [...state.buttons].forEach(([i, el], at) => {
    const value = values[at] as number;
    const rgb = colourAt(
      map,
      scalePosition(Number.isNaN(value) ? 0 : value, [source.signed ? -top : 0, top], "linear"),
    );
    setStyles(el, {
      background: Number.isNaN(value) ? "none" : cssOf(rgb),
      color: Number.isNaN(value) ? "inherit" : inkOn(rgb),
    });
    el.ariaPressed = String(!targets && chosen.side === state.wordSide && i === chosen.index);
    const number = Number.isNaN(value) ? "" : ` ${value.toPrecision(3)}`;
    el.title = `${wordsAxis.labels[i]}${number}`;
  });
}

/** A word as the text of a button. */
const elementWord = (label: string): string => shortLabel(label.replace(/^␣(?=.)|^##/, ""));
