/**
 * The text, coloured by one row of a map: the row of the pinned query, of the hovered one, or otherwise the mean over
 * all queries. Attributions show the row of their target; a few targets have a strip each, many a tab each.
 */

import { SCALE } from "../../colour.ts";
import type { Change, ViewContext } from "../../context.ts";
import {
  assign,
  atEnd,
  createWatch,
  h,
  quoted,
  reserve,
  setChildren,
  setFlag,
  setStyles,
  setText,
  whenShown,
} from "../../dom.ts";
import { approximately, printed, roundUp, tickText } from "../../numbers.ts";
import { translateIndex } from "../../selection.ts";
import { createAnswers } from "../../wire/answers.ts";
import { LATER, NOT_COMPARED } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Axis, Cell, Filters, Source } from "../../wire/wire.ts";
import { createAccount, detailsOf } from "../base/account.ts";
import { createExactRows, nameOf } from "../base/cellValues.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { explanationAtRest } from "../base/explained.ts";
import { filtered, filteredRow, filterPlace, filtersOf, hidesValues, insideOf, standApart } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { missingTile } from "../base/missing.ts";
import { whereWords } from "../base/navigation.ts";
import { openingQuery, openingWords } from "../base/opening.ts";
import { absence, rowWords } from "../base/rowFacts.ts";
import { withSavedFallback } from "../base/savedFallback.ts";
import { joinScale } from "../base/sharedScale.ts";
import { createUnitControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { peakInside } from "../maps/peak.ts";
import { createForgetting } from "./forgetting.ts";
import { largestOf, peak, rowOf, topOfScale } from "./rowValues.ts";
import { createStrip, type Strip } from "./strip.ts";
import { fills, gradient, NOTHING } from "./stripColour.ts";
import type { StripHost } from "./stripTools.ts";

/** The values shown, and where they come from. */
interface Reading {
  values: Float32Array;
  /** The values of every strip, if every target has one. */
  all: Float32Array[];
  exact: boolean;
  /** Row index, or -1 for the mean over all rows. */
  query: number;
  /** The end of the scale of the map that the row is from: a value has one colour in both; 0: the values' own. */
  top: number;
  preview: boolean;
  /** The explanation that the values are of, in place of the shown map. */
  explained?: Source | undefined;
}

const MOST_NAMED = 3;
/** The largest number of other targets mentioned with a value. */
const MOST_OTHERS = 8;
/** The filter of the tile has already hidden special tokens. */
const NOTHING_MORE: Pick<Filters, "special"> = { special: "show" };
/** Up to this many targets have a strip each; among more, one is chosen. */
const STACKED = 3;

/** Whether attributions have too many targets for a strip each. */
export function hasManyTargets(ctx: ViewContext): boolean {
  const { kind, query } = ctx.source();
  return kind === "attributions" && ctx.axisOf(query).labels.length > STACKED;
}

export const renderTokenStrip = view((around, root, signal) => {
  const ctx = withSavedFallback(around);
  const { selection, tiles } = ctx;
  const isInside = root !== ctx.el;
  const units = createUnitControl(ctx, signal);
  const texts = h("div.texts");
  const what = h("span.where.what");
  const [low, ramp, high] = [h("span"), h("span.ramp"), h("span")];
  const grey = h("span.hatched", { "data-grey": "" });
  const legend = h("span.scale.legend", low, ramp, high, grey);
  const sum = createAccount(signal);
  const sums = h("div.overlay", sum.element);
  const menu = h("div.form");
  const tools = h("span.strip-tools");
  let [line, intensity] = [false, 0];
  let edge: ((index: number) => number) | undefined;
  const host: StripHost = {
    view: ctx.el,
    texts,
    menu,
    isInside,
    labels: () => ctx.axisOf(ctx.source().key).labels,
    paint(...look) {
      [line, edge, intensity] = look;
      paint();
    },
    reach(index, chosen) {
      keys[0]?.reach(index, chosen);
      hover(index, queries === keys[0], -1); // maps of long texts move there
    },
    note: () => "",
  };
  const copy = isInside ? null : createCopyButton(ctx, signal);
  const filterWords = filterPlace(ctx, menu);
  const shared = joinScale(ctx, signal, () => {
    isPainted();
    paint();
  });
  const exactRows = createExactRows(ctx, () => update());
  const answers = createAnswers(ctx, signal, () => forgetting.show());
  const forgetting = createForgetting(ctx, signal, answers, texts);
  let keys: Strip[] = [];
  let queries: Strip | null = null;
  let builtFor = "";
  let bound = new AbortController();
  let reading: Reading | null = null;
  let isShown = false;
  let hoveredKey = -1;
  const [isBuilt, isRead, isPainted, isElsewhere] = [createWatch(), createWatch(), createWatch(), createWatch()];

  root.classList.add("aw-strip-view");
  root.role = "group";
  const isOfMap = ctx.source().kind === "map";
  const frame = createFrame(ctx, root, {
    plain: true,
    controls: [...units.elements, tools],
    tags: [what, filterWords],
    legend,
    body: [texts, sums],
    skeleton: "own",
    hint: isOfMap ? `Click a token to see what it ${ctx.source().words[2]}.` : "Point at a token to read its value.",
    actions: copy ? [copy.element] : [],
  });
  // Of a text inside another view there is the text alone: that view has the rest.
  if (isInside) setChildren(root, texts, tools);
  else texts.after(forgetting.element);

  const cell = (query: number, key: number): Cell => ({ unit: ctx.source().unit, query, key });

  /** Whether every target has a strip of its own. */
  const stacked = (): boolean => keys.length > 1;

  /** Without a pin, a hovered token is previewed as the query; with one, it is the key. */
  const hover = (index: number, chooses: boolean, row: number): void => {
    const pinned = ctx.cell("pinned");
    if (index < 0) selection.hover(null);
    else if (row >= 0) selection.hover(cell(row, index));
    else if (chooses && (!pinned || queries !== keys[0])) selection.hover(cell(index, -1));
    else selection.hover(cell(pinned?.query ?? -1, index));
  };

  const pin = (index: number, chooses: boolean, row: number): void => {
    const pinned = ctx.cell("pinned");
    const query = pinned?.query ?? -1;
    if (row >= 0) selection.pin(cell(row, index));
    else if (chooses) selection.pin(query === index ? null : cell(index, -1));
    else if (query >= 0) selection.pin(cell(query, pinned?.key === index ? -1 : index));
  };

  /** Spans are built once per pair of axes; changing layer or head keeps them. */
  const build = (source: Source): void => {
    const marks = ctx.options.marks.filter((m): m is number => typeof m === "number");
    const [queryAxis, keyAxis] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    if (!isBuilt(queryAxis, keyAxis, source, ctx.options, ctx.header())) return;
    const breaks = paragraphs(ctx, keyAxis);
    const name = JSON.stringify([source.query, source.key, source.kind, marks, queryAxis.labels, keyAxis, [...breaks]]);
    if (name === builtFor) return;
    builtFor = name;
    bound.abort();
    bound = new AbortController();
    // A text that is a line shorter in another unit keeps its room.
    if (texts.firstChild) setStyles(texts, { "min-height": `${texts.getBoundingClientRect().height}px` });
    setChildren(texts);
    [hoveredKey, reading] = [-1, null];
    const same = source.query === source.key;
    const targets = source.kind === "attributions";
    const make = (axis: Axis, caption: string, chooses: boolean, row = -1): Strip => {
      const events = {
        hover: (i: number) => hover(i, chooses, row),
        pin: (i: number) => pin(i, chooses, row),
        toggle: (i: number) =>
          togglePin(ctx, chooses ? cell(i, -1) : cell(row >= 0 ? row : (ctx.cell("pinned")?.query ?? -1), i)),
        span: (first: number, last: number) => chooseSpan(ctx, chooses ? "query" : "key", first, last),
      };
      const strip = createStrip(
        ctx,
        axis,
        caption,
        new Set(axis === keyAxis ? marks : []),
        events,
        bound.signal,
        axis === keyAxis ? breaks : undefined,
      );
      texts.append(strip.box);
      return strip;
    };
    queries = null;
    const several = hasManyTargets(ctx);
    if (targets && queryAxis.labels.length > 1 && !several) {
      keys = queryAxis.labels.map((label, row) => make(keyAxis, label, false, row));
      return;
    }
    if (!same && (several || !targets)) {
      queries = make(queryAxis, targets ? "target (choose)" : "to: query (choose)", true);
      setFlag(queries.box, "data-tabs", targets);
    }
    keys = [make(keyAxis, several ? "attributed to" : same || targets ? "" : "from: key (coloured)", same)];
    if (same) [queries = null] = keys;
  };

  /** The values to show; null until the tile is loaded. */
  const read = (source: Source): Reading | null => {
    const { layer, head } = ctx.resolved();
    const [pinned, hovered] = [ctx.cell("pinned"), ctx.cell("hover")];
    const isMap = source.kind === "map";
    hoveredKey = hovered?.key ?? -1;
    let query = pinned && pinned.query >= 0 ? pinned.query : (hovered?.query ?? -1);
    // With a separate query strip, a hovered query is previewed even if something is pinned.
    const another = stacked() || (queries !== keys[0] && hovered && hovered.key < 0);
    if (another && hovered && hovered.query >= 0) query = hovered.query;
    const explained = query < 0 ? explanationAtRest(ctx) : null;
    const explaining = explained && tileOf(explained);
    if (explaining) {
      exactRows.rest(null);
      return { values: rowOf(explaining, 0), all: [], exact: false, query: -1, top: 0, preview: false, explained };
    }
    if (query < 0) query = isMap ? openingQuery(ctx) : 0;
    if (query >= ctx.axisOf(source.query).labels.length) query = -1;
    const preview = isMap && query !== pinned?.query;
    exactRows.rest(query >= 0 && hoveredKey >= 0 ? cell(query, hoveredKey) : null);
    const tile = tiles.get(source.id, layer, head);
    const chosen = filtersOf(ctx);
    const left = tile && filtered(ctx, tile, chosen);
    // A coarse tile lacks rows of single cells: a preview needs the exact row as well.
    const exact = query >= 0 ? exactRows(query, !preview || source.coarse) : undefined;
    if (!isRead(left, exact, query) && reading) return { ...reading, preview };
    const inside = (id: string): readonly number[] => insideOf(ctx.axisOf(id).special, chosen);
    const ends = isMap && query >= 0 && left ? roundUp(peakInside(left, inside(source.query), inside(source.key))) : 0;
    const top = source.stochastic ? Math.min(1, ends) : ends;
    const all = stacked() && left ? keys.map((_, row) => rowOf(left, row)) : [];
    if (exact && !(stacked() && !tile)) return { values: exact, all, exact: true, query, top, preview };
    if (!left) return null;
    if (query >= 0) return { values: rowOf(left, query), all, exact: false, query, top, preview };
    // Special tokens are excluded from the mean; the other filters apply to the mean itself.
    const counted = filtered(ctx, tile, { ...chosen, mass: 1, least: 0 });
    const { special } = ctx.axisOf(source.key);
    const mean = counted.received();
    const { special: how } = tile?.meta.whole ? chosen : NOTHING_MORE;
    const values = hidesValues(chosen) ? filteredRow(mean, special, { ...chosen, special: how }, false) : mean;
    return { values, all, exact: false, query, top, preview: false };
  };

  /** The tile of an explanation, which is requested if it is not here. */
  const tileOf = (source: Source): Tile | null => {
    const layer = source.layers[0] as number;
    const tile = tiles.get(source.id, layer, "-");
    if (!tile) tiles.request(source.id, layer, "-");
    return tile ? filtered(ctx, tile, filtersOf(ctx), source) : null;
  };

  const paint = (): void => {
    if (!reading) return;
    const { theme } = ctx;
    const { signed, stochastic } = reading.explained ?? ctx.source();
    const filters = filtersOf(ctx);
    const { palette, scale, extent } = filters;
    const colouring = [theme, signed, palette, scale || SCALE] as const;
    if (
      !isPainted(
        keys,
        reading.values,
        reading.all,
        reading.top,
        ...colouring,
        extent,
        filters.special,
        stochastic,
        intensity,
        line,
        edge,
      )
    )
      return;
    const rows = stacked() ? reading.all : [reading.values];
    // Separate tokens are not coloured and do not affect the scale.
    const apart = standApart(ctx.axisOf(ctx.source().key).special, filters);
    setFlag(texts, "data-apart", apart.includes(true));
    const inside = apart.includes(true) ? rows.map((row) => row.filter((_, i) => !apart[i])) : rows;
    const largest = Math.max(...inside.map(peak));
    const end = shared.end(reading.top || largest);
    const most = extent === "all" && stochastic ? 1 : stochastic ? Math.min(1, end) : end;
    const top = topOfScale([most], intensity);
    const colours = fills(...colouring);
    keys.forEach((strip, row) => {
      const values = rows[row];
      strip.underlay.paint((i) => (apart[i] ? NOTHING : colours((values?.[i] ?? 0) / (top || 1))), line, edge);
    });
    if (isInside) return; // the legend is the outer view's
    setStyles(ramp, { background: gradient(...colouring) });
    setFlag(legend, "data-signed", signed);
    setText(low, signed ? `−${tickText(top)}` : "0");
    const isCut = intensity > 0;
    setText(high, `${signed ? "+" : ""}${tickText(top)}${isCut ? "+" : ""}`);
    assign(high, { title: isCut ? `this and more; the largest ${tickText(largest)}` : "" });
  };

  const readWords = (query: number): string => {
    const opening = query === openingQuery(ctx) ? openingWords(ctx) : "";
    return `what ${nameOf(ctx, ctx.source().query, query)} ${ctx.source().words[2]}${opening ? ` · ${opening}` : ""}`;
  };
  const describe = ({ query, values, exact, preview }: Reading): void => {
    const source = ctx.source();
    const target = nameOf(ctx, source.query, query);
    const isNamed = ctx.axisOf(source.query).labels[query] !== "";
    const isMap = source.kind === "map";
    const pinnedKey = ctx.cell("pinned")?.key ?? -1;
    const key = hoveredKey >= 0 ? hoveredKey : pinnedKey;
    // The query is outlined; the key under the pointer of any linked view is underlined.
    queries?.mark("aw-query", query);
    for (const strip of keys) strip.mark("aw-key", key);
    const pinned = ctx.cell("pinned");
    if (isShown && isElsewhere(keys, pinned?.query, pinned?.key, query < 0)) keepInSight(pinned, preview ? query : -1);
    if (isInside && frame.readout.isSilent) return;
    if (stacked()) setText(what, "one scale for all");
    else if (source.kind === "attributions") setText(what, `attribution${isNamed ? ` to target ${target}` : ""}`);
    else if (query < 0) setText(what, `weight each ${source.unit} receives: mean over all queries`);
    else {
      setText(what, readWords(query));
    }
    what.title = what.textContent ?? "";
    const { layer, head } = ctx.resolved();
    // A cell read from its tile is worded as in the heatmap.
    const unfiltered = tiles.get(source.id, layer, head);
    const left = unfiltered && filtered(ctx, unfiltered);
    const tile = exact || query < 0 ? undefined : left;
    const isOut = hidesValues(filtersOf(ctx));
    const valueWords = (i: number, sign: string): string => {
      const to = query >= 0 && isNamed ? `${target} → ` : "";
      const name = `${to}${nameOf(ctx, source.key, i)}`;
      const value = values[i] ?? Number.NaN;
      const why = query >= 0 && isMap ? absence(source, Number.isNaN(value) ? left : null, query, i) : "";
      if (why || Number.isNaN(value)) return `${name}: ${why || (isOut ? "left out" : LATER)}`;
      const number = tile ? approximately(tile.text(query, i)) : `${sign} ${printed(value, exact)}`;
      return `${name} ${number}${host.note(i)}${others(i)}`;
    };
    /** The values of the same element for the other targets. */
    const others = (i: number): string => {
      const { labels } = ctx.axisOf(source.query);
      if (source.kind !== "attributions" || !left || labels.length < 2) return "";
      const rows = [...labels.keys()].filter((row) => row !== query);
      const size = (row: number): number => Math.abs(left.value(row, i));
      const listed = rows.length > MOST_OTHERS ? rows.sort((a, b) => size(b) - size(a)).slice(0, MOST_OTHERS) : rows;
      const words = listed.map((row) => `${nameOf(ctx, source.query, row)} ${approximately(left.text(row, i))}`);
      return ` · ${[...words, ...(rows.length > listed.length ? ["…"] : [])].join(" · ")}`;
    };
    let words: string;
    if (key >= 0) words = valueWords(key, exact ? "=" : "≈");
    else if (query < 0) words = `Hover a ${source.unit} to preview it as the query, click to pin it.`;
    else if (exact) {
      words = `largest: ${largestOf(values, MOST_NAMED)
        .map((i) => valueWords(i, "="))
        .join(", ")}`;
    } else if (source.kind === "attributions") words = `Hover a ${source.unit} to read its value, click to pin it.`;
    else
      words = preview
        ? `Hover a ${source.unit} to preview it as the query, click to pin it.`
        : `${target}: values are approximate (≈)`;
    const toSink = isMap ? rowWords(unfiltered, query) : "";
    setText(grey, isMap && query >= 0 && unfiltered?.meta.compared && values.some(Number.isNaN) ? NOT_COMPARED : "");
    frame.readout.show([words, toSink].filter(Boolean).join(" · "), true);
  };

  /** Scroll a long text, and not the page, to what is pinned, or to the query of the first picture. */
  const keepInSight = (pinned: Cell | null, opening: number): void => {
    const scroller = [texts, root].find((el) => el.scrollHeight > el.clientHeight + 1);
    if (!scroller) return;
    queries?.keepIn(scroller, pinned?.query ?? opening);
    keys[Math.max(0, stacked() ? (pinned?.query ?? 0) : 0)]?.keepIn(scroller, pinned?.key ?? -1);
  };

  /** Mark the tokens chosen together, and the span. */
  const markChosen = (): void => {
    const pins = ctx.pins();
    const several = pins.length > 1 ? pins : [];
    const [queried, keyed] = [several.map(({ query }) => query), several.map(({ key }) => key)];
    if (queries !== keys[0]) queries?.choose(queried, [], ctx.span("query"));
    keys.forEach((strip, row) => {
      const here = several.flatMap(({ query, key }) => (stacked() && query !== row ? [] : [key]));
      strip.choose(queries === strip ? queried : [], stacked() ? here : keyed, ctx.span("key"));
    });
  };

  /** How much of its target a method accounts for that conserves it: in every strip, or in the row shown. */
  const accountOf = (source: Source, query: number, lines: readonly string[]): string[] => {
    const labels = ctx.axisOf(source.query).labels;
    return stacked() ? lines.map((line, row) => `${quoted(labels, row, 0)}: ${line}`) : lines.slice(query, query + 1);
  };
  const showSum = (source: Source, query: number): void => {
    const other = ctx.counterpart()?.source;
    const words = (of: Source): string => accountOf(of, query, of.accounts).join(" ");
    sum.show(words(source), detailsOf(source, accountOf(source, query, source.sums)));
    const room = other ? words(other) : "";
    reserve(sums, room && `${room} Details`);
    sums.hidden = !(words(source) || sums.dataset.room);
  };

  /** Follow the selection, the tiles, the options and the theme. */
  const update = (changed: ReadonlySet<Change> = new Set()): void => {
    const { source, layer, head } = ctx.resolved();
    if (!only(changed, "hover")) {
      build(source);
      // Inside another view the text stands alone.
      const title = isInside ? source.title : frame.show((shown) => whereWords(ctx, shown));
      if (!isInside) units.show();
      copy?.show();
      setFlag(root, "data-pinned", ctx.cell("pinned") !== null);
      assign(root, { ariaLabel: `${title}, text coloured by weight` });
      markChosen();
    }
    if (!isInside) forgetting.show();
    reading = read(source);
    setFlag(texts, "data-stale", !reading);
    // The text itself is there.
    frame.lacks(reading ? null : { ...missingTile(ctx), part: true });
    if (reading) {
      paint();
      describe(reading);
      if (!isInside) showSum(source, reading.query);
      return;
    }
    tiles.request(source.id, layer, head);
    if (!what.textContent && isOfMap) setText(what, readWords(openingQuery(ctx)));
    if (isInside) frame.readout.show(missingTile(ctx).words, false);
  };

  ctx.views.StripTools?.(Object.create(ctx, { strip: { value: host } }), tools);
  atEnd(signal, () => bound.abort());
  // Where a text stands is known once the page has laid it out.
  whenShown(texts, signal, () => {
    isShown = true;
    if (reading) describe(reading);
  });
  return update;
});

/** Elements that begin a paragraph, if the labels themselves do not show line ends. */
function paragraphs(ctx: ViewContext, axis: Axis): Set<number> {
  const { axes, sources } = ctx.header();
  const { stack } = ctx.source();
  const source = sources.find((candidate) => candidate.unit === "paragraph" && candidate.stack === stack);
  const paragraphAxis = axes[source?.key ?? ""];
  if (!paragraphAxis || axis.labels.some((label) => /[\n⏎↵]/u.test(label))) return new Set();
  const inside = paragraphAxis.labels.map((_, i) => i).filter((i) => !paragraphAxis.special[i]);
  return new Set(inside.slice(1).map((i) => translateIndex(i, paragraphAxis, axis)));
}
