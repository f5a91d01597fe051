/**
 * The text itself, coloured by one row of a map: the row of the pinned query, of the hovered one, or, with
 * neither, the mean over all queries. Attributions show the row of their target.
 */

import type { Tile } from "../context.ts";
import { atEnd, h, on, put } from "../dom.ts";
import { printed, tickText } from "../numbers.ts";
import type { Cell, Source } from "../wire.ts";
import { createHeading, createReadout, view } from "./frame.ts";
import { meanReceived, peak, rowOf, topOfScale } from "./reading.ts";
import { createExactRows, nameOf } from "./readout.ts";
import { headWords, plural, whereWords } from "./steps.ts";
import { createStrip, type Strip } from "./strip.ts";
import { gradient, shade } from "./stripColour.ts";

/** What is shown, and in which words. */
interface Reading {
  values: Float32Array;
  exact: boolean;
  /** Row index, or -1 for the mean over all rows. */
  query: number;
  preview: boolean;
}

const MOST_NAMED = 3;

export const renderTokenStrip = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const heading = createHeading(ctx);
  const texts = h("div.texts");
  const what = h("span.note");
  const [low, ramp, high] = [h("span"), h("span.ramp"), h("span")];
  const sensitivity = h("input.range", {
    type: "range",
    max: "6",
    step: "0.5",
    value: "0",
    "aria-label": "colour sensitivity: lowers the value that gets the full colour",
    title: "Colour sensitivity: move right to see small values. Double-click resets.",
  });
  const legend = h("span.field", low, ramp, high);
  const foot = h("div.row", what, legend, h("label.field", "sensitivity", sensitivity));
  const readout = createReadout();
  const exactRows = createExactRows(ctx, () => update());
  let keys: Strip | null = null;
  let queries: Strip | null = null;
  let built = "";
  let bound = new AbortController();
  let reading: Reading | null = null;
  let mean: { tile: Tile; values: Float32Array } | null = null;
  let hoveredKey = -1;

  root.classList.add("aw-strip-view");
  root.role = "group";
  root.replaceChildren(...heading.elements, texts, foot, ...readout.elements);

  const cell = (query: number, key: number): Cell => ({ unit: ctx.source().unit, query, key });

  /** Without a pin the hovered token is tried as the query; with one, its value under that query is read. */
  const hover = (index: number, chooses: boolean): void => {
    const pinned = ctx.cell("pinned");
    if (index < 0) selection.hover(null);
    else if (chooses && (!pinned || queries !== keys)) selection.hover(cell(index, -1));
    else selection.hover(cell(pinned?.query ?? -1, index));
  };

  const pin = (index: number, chooses: boolean): void => {
    const pinned = ctx.cell("pinned");
    const query = pinned?.query ?? -1;
    if (chooses) selection.pin(query === index ? null : cell(index, -1));
    else if (query >= 0) selection.pin(cell(query, pinned?.key === index ? -1 : index));
  };

  /** Spans are made once per pair of axes; a change of layer or head leaves them alone. */
  const build = (source: Source): void => {
    const marks = ctx.options.marks.filter((m): m is number => typeof m === "number");
    const [queryAxis, keyAxis] = [ctx.axisOf(source.query), ctx.axisOf(source.key)];
    const name = [source.query, source.key, source.kind, marks, JSON.stringify(keyAxis)].join("|");
    if (name === built) return;
    built = name;
    bound.abort();
    bound = new AbortController();
    texts.replaceChildren();
    hoveredKey = -1;
    const same = source.query === source.key;
    const targets = source.kind === "attributions";
    const make = (axis: typeof keyAxis, caption: string, marked: readonly number[], chooses: boolean): Strip => {
      const events = { hover: (i: number) => hover(i, chooses), pin: (i: number) => pin(i, chooses) };
      const strip = createStrip(ctx, axis, caption, new Set(marked), events, bound.signal);
      texts.append(strip.box);
      return strip;
    };
    queries = null;
    if (!same && !(targets && queryAxis.labels.length < 2)) {
      queries = make(queryAxis, targets ? "target (choose)" : "to: query (choose)", [], true);
    }
    keys = make(keyAxis, same ? "" : targets ? "attributed to" : "from: key (coloured)", marks, same);
    if (same) queries = keys;
  };

  /** Values to show; null while the tile is not in the browser. */
  const read = (source: Source): Reading | null => {
    const { layer, head } = ctx.resolved();
    const [pinned, hovered] = [ctx.cell("pinned"), ctx.cell("hover")];
    const isMap = source.kind === "map";
    hoveredKey = hovered?.key ?? -1;
    let query = pinned && pinned.query >= 0 ? pinned.query : (hovered?.query ?? -1);
    // A query strip of its own previews while something is pinned: there the hovered token is no key.
    if (queries !== keys && hovered && hovered.query >= 0 && hovered.key < 0) query = hovered.query;
    if (!isMap && query < 0) query = 0;
    if (query >= ctx.axisOf(source.query).labels.length) query = -1;
    const preview = isMap && query !== pinned?.query;
    const exact = query >= 0 ? exactRows(query, !preview) : undefined;
    if (exact) return { values: exact, exact: true, query, preview };
    const tile = tiles.get(source.id, layer, head);
    if (!tile) return null;
    if (query >= 0) return { values: rowOf(tile, query), exact: false, query, preview };
    if (mean?.tile !== tile) mean = { tile, values: meanReceived(tile) };
    return { values: mean.values, exact: false, query, preview: false };
  };

  const paint = (): void => {
    if (!reading) return;
    const { theme } = ctx;
    const { signed } = ctx.source();
    const { values } = reading;
    const top = topOfScale(values, Number(sensitivity.value));
    keys?.underlay.paint((i) => (top > 0 ? shade((values[i] ?? 0) / top, theme) : ""));
    ramp.style.background = gradient(theme, signed);
    put(low, signed ? `−${tickText(top)}` : "0");
    const cut = Number(sensitivity.value) > 0 ? ` and more (largest ${tickText(peak(values))})` : "";
    put(high, `${signed ? "+" : ""}${tickText(top)}${cut}`);
  };

  const say = ({ query, values, exact, preview }: Reading): void => {
    const source = ctx.source();
    const target = nameOf(ctx, source.query, query);
    const heads = headWords(ctx, ctx.resolved().head);
    const pinnedKey = ctx.cell("pinned")?.key ?? -1;
    const key = hoveredKey >= 0 ? hoveredKey : pinnedKey;
    // The query is outlined; the key under the pointer of any linked view is underlined.
    queries?.mark("aw-query", query);
    keys?.mark("aw-key", key);
    if (source.kind === "attributions") put(what, `attribution to target ${target}`);
    else if (query < 0) {
      put(what, `weight each ${source.unit} receives: mean over ${ctx.axisOf(source.query).labels.length} queries`);
    } else put(what, `${preview ? "preview of " : ""}the row of query ${target}${heads ? `, ${heads}` : ""}`);
    const { layer, head } = ctx.resolved();
    // A cell read from its tile is worded as the heatmap words it.
    const tile = exact || query < 0 ? undefined : tiles.get(source.id, layer, head);
    const pair = (i: number, sign: string): string => {
      const to = query >= 0 ? `${target} → ` : "";
      const value = tile?.text(query, i) ?? printed(values[i] ?? Number.NaN, exact);
      return `${to}${nameOf(ctx, source.key, i)} ${sign} ${value}`;
    };
    let words: string;
    if (key >= 0) words = pair(key, exact ? "=" : "≈");
    else if (query < 0) words = `Hover a ${source.unit} to preview it as the query, click to pin it.`;
    else if (exact) {
      const size = (i: number): number => Math.abs(values[i] as number);
      const most = [...values.keys()].sort((a, b) => size(b) - size(a)).slice(0, MOST_NAMED);
      words = `largest: ${most.map((i) => pair(i, "=")).join(", ")}`;
    } else words = preview ? `Click to pin ${target} as the query.` : `${target}: values are approximate (≈)`;
    readout.show(words, true);
  };

  /** Follow the selection, the tiles, the options and the theme. */
  const update = (): void => {
    const { source, layer, head } = ctx.resolved();
    build(source);
    const title = heading.show(`${whereWords(ctx)} · ${plural(source.unit)}`);
    root.ariaLabel = `${title}, text coloured by weight`;
    reading = read(source);
    texts.toggleAttribute("data-stale", !reading);
    if (reading) {
      paint();
      say(reading);
      return;
    }
    tiles.request(source.id, layer, head);
    const why = tiles.failure(source.id, layer, head) ?? tiles.status().message;
    readout.show(why || `fetching ${whereWords(ctx)} …`, false);
  };

  on(sensitivity, signal, {
    input: paint,
    dblclick() {
      sensitivity.value = "0";
      paint();
    },
  });
  atEnd(signal, () => bound.abort());
  return update;
});
