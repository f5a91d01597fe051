/**
 * One text under several explanations: strips below each other, each on its own scale or all on one, and how alike
 * every two of them rank the text. Two of them are brought together by a click on their cell.
 */

import { assign, atEnd, createWatch, dress, fill, flag, h, on, put } from "../dom.ts";
import { filtersOf, leavesOut, setFilters } from "../filters.ts";
import { printed, tickText } from "../numbers.ts";
import { createAnswers } from "../wire/answers.ts";
import type { Axis } from "../wire/wire.ts";
import { createAgreementTable, type Ranking } from "./compare/agreementTable.ts";
import { byRank, difference, rankOf } from "./compare/comparing.ts";
import { createHeading, createReadout, only, view } from "./frame.ts";
import { renderLayerSlider } from "./LayerSlider.ts";
import { pinnedQuery } from "./pinned.ts";
import { nameOf } from "./readout.ts";
import { createRowFilters, rowsOf } from "./rowFilters.ts";
import { createSegments } from "./segments.ts";
import { plural } from "./steps.ts";
import { type Band, createBand } from "./text/band.ts";
import { largestOf, peak } from "./text/reading.ts";
import { createStrip, type Strip } from "./text/strip.ts";
import { gradient, shades } from "./text/stripColour.ts";

/** What `CompareView._strips` says beside the values. */
interface Strips {
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

interface Agreements {
  measures: Record<string, Ranking>;
  k: number;
  warning: string;
  caveat: string;
}

/** One explanation on the page. */
interface Row {
  strip: Strip | Band;
  note: HTMLElement;
  value: HTMLElement;
  ends: [HTMLElement, HTMLElement, HTMLElement];
}

const MEASURES = { spearman: "Spearman", kendall: "Kendall", top_k: "top-k overlap" };
const SCALES = { own: "each its own scale", one: "one scale for all" };
const NONE: ReadonlySet<number> = new Set();
/** Elements of all strips together; where there are more, one strip is a text and the others are bands. */
const MOST_WORDS = 2400;
/** Strips whose matrix has room beside them. */
const MOST_BESIDE = 6;
const WARNING =
  "Agreement is not faithfulness: it says that methods rank these elements alike, not that any of them is right.";

export const renderCompareView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const filters = createRowFilters(ctx);
  const heading = createHeading(ctx, filters.element);
  const slider = h("div.panel");
  const texts = h("div.texts");
  const readout = createReadout();
  const scales = createSegments("scale", SCALES, signal, () =>
    setFilters(ctx, { extent: scales.value() === "one" ? "all" : "map" }),
  );
  const measures = createSegments("measure of agreement", MEASURES, signal, () => drawAgreement());
  const size = h("input", { type: "checkbox" });
  const sizes = h("label.field", size, "rank by magnitude");
  const all = h("button.button", { type: "button" });
  const table = createAgreementTable(signal, choose, (row, col) => pointPair(row, col));
  const about = h("div.note");
  const caveat = h("p.note");
  const details = h("details", h("summary", "What it does and does not show"), caveat);
  const warning = h("div.warning", { role: "note" }, WARNING, details);
  const side = h(
    "div.compare-side",
    h("b.title", "Agreement"),
    measures.element,
    h("div.row", sizes),
    h("div.agree-scroll", table.element),
    about,
    warning,
  );
  const main = h("div.panel", h("div.row", scales.element, all), texts, ...readout.elements);
  const answers = createAnswers(ctx, signal, () => draw());
  let rows: Row[] = [];
  let apart: Row | null = null;
  let built = "";
  const [isBuilt, isRanked] = [createWatch(), createWatch()];
  let bound = new AbortController();
  let told: Strips | null = null;
  let values: Float32Array[] = [];
  let shown: Float32Array[] = []; // NaN where the filters leave something out
  let ranks: number[][] = []; // of those that were asked for
  let pair: [number, number] | null = null;
  let crowded = false; // too many words for every strip to be a text
  let opened = 0; // the one that is
  let stale = false;

  root.classList.add("aw-compare");
  root.role = "group";
  const body = h("div.compare-body", main, side);
  fill(root, ...heading.elements, slider, body);

  const keyAxis = (): Axis => ctx.axisOf(ctx.source().key);
  const keyOf = (which: "pinned" | "hover"): number => ctx.cell(which)?.key ?? -1;

  const rowWanted = (): number | null => (told?.follows === false ? null : pinnedQuery(ctx));

  const args = (): Record<string, unknown> => {
    const { source, layer } = ctx.resolved();
    return { layer: source.kind === "map" ? layer : 0, query: rowWanted(), unit: source.unit };
  };

  const hover = (index: number): void => {
    selection.hover(index < 0 ? null : { unit: ctx.source().unit, query: -1, key: index });
  };
  const pin = (index: number): void => {
    const { unit } = ctx.source();
    const now = selection.get("pinned");
    if (told?.follows) selection.pin(rowWanted() === index ? null : { unit, query: index, key: -1 });
    else selection.pin(now?.unit === unit && now.key === index ? null : { unit, query: -1, key: index });
  };

  const makeRow = (axis: Axis, name: string, index: number): Row => {
    const asText = isText(index);
    const strip = asText
      ? createStrip(ctx, axis, name, NONE, { hover, pin }, bound.signal)
      : createBand(axis.labels.length, name, { hover, pin }, bound.signal);
    const caption = strip.box.querySelector(".aw-strip-name") as HTMLElement;
    const [note, value] = [h("span.note"), h("span.compare-value")];
    const ends: Row["ends"] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
    const open = h("button.button", { type: "button", "aria-label": `${name} as text` }, "as text");
    open.hidden = asText || index < 0;
    on(open, bound.signal, {
      click() {
        opened = index;
        draw();
      },
    });
    fill(caption, h("b.compare-name", name), note, value, open, h("span.field", ...ends));
    return { strip, note, value, ends };
  };

  /** Whether a strip is a text, or a band of colour where there are too many words; -1: their difference. */
  const isText = (index: number): boolean => !crowded || index === opened;

  /** Strips are made once for a set of names and an axis. */
  const build = (names: readonly string[]): void => {
    const axis = keyAxis();
    crowded = (names.length + 1) * axis.labels.length > MOST_WORDS;
    if (opened >= names.length) opened = 0;
    if (!isBuilt(names.join("\n"), axis, crowded && opened)) return;
    const name = JSON.stringify([names, axis, crowded && opened]);
    if (name === built) return;
    built = name;
    bound.abort();
    bound = new AbortController();
    apart = null;
    pair = pair && Math.max(...pair) < names.length ? pair : null;
    rows = names.map((label, i) => makeRow(axis, `${i + 1} ${label}`, i));
    fill(texts, ...rows.map(({ strip }) => strip.box));
    flag(body, "data-many", names.length > MOST_BESIDE);
  };

  const read = (): void => {
    const wanted = args();
    const answer = answers.get<Strips>("strips", wanted);
    stale = !answer;
    if (!answer) return;
    const { meta } = answer;
    told = meta;
    values = rowsOf(answer, keyAxis().labels.length);
    filters.offer({ signed: meta.signed.some(Boolean), stochastic: meta.shares.some(Boolean) });
  };

  /** Leave out what the filters say. */
  const trim = (): void => {
    const chosen = filtersOf(ctx);
    const rest = filters.of(values, chosen, keyAxis().special, told?.shares ?? []);
    if (rest !== shown) ranks = [];
    shown = rest;
    scales.choose(chosen.extent === "all" || (told?.alike && chosen.extent !== "map") ? "one" : "own");
  };

  const paintRow = (row: Row, of: Float32Array, top: number, signed: boolean, words: string): void => {
    const { palette, scale } = filtersOf(ctx);
    const look = [ctx.theme, signed, palette, scale || "linear"] as const;
    const colours = shades(...look);
    const { underlay } = row.strip as Partial<Strip>;
    (underlay ?? (row.strip as Band)).paint((i) => colours((of[i] ?? 0) / (top || 1)));
    const [low, ramp, high] = row.ends;
    dress(ramp, { background: gradient(...look) });
    put(low, signed ? `−${tickText(top)}` : "0");
    put(high, `${signed ? "+" : ""}${tickText(top)}`);
    put(row.note, words);
  };

  const paint = (): void => {
    if (!told) return;
    const { signed, remarks } = told;
    trim();
    const places = pair ?? values.map((_, i) => i);
    const tops = shown.map(peak);
    const common = Math.max(0, ...places.map((i) => tops[i] ?? 0));
    const anySigned = places.some((i) => signed[i]);
    const one = scales.value() === "one";
    rows.forEach((row, i) => {
      const isShown = places.includes(i);
      assign(row.strip.box, { hidden: !isShown });
      if (!isShown) return;
      const nothing = shown[i]?.every(Number.isNaN) ? "all left out" : "all values are 0";
      const zero = (tops[i] ?? 0) === 0 ? nothing : "";
      const words = [remarks[i], zero].filter(Boolean).join(" · ");
      paintRow(row, shown[i] as Float32Array, one ? common : (tops[i] ?? 0), one ? anySigned : !!signed[i], words);
    });
    paintPair();
  };

  /** The difference of two strips' shares, between them. */
  const paintPair = (): void => {
    assign(all, { hidden: !pair });
    put(all, `show all ${rows.length}`);
    if (!pair) {
      if (apart) apart.strip.box.hidden = true;
      return;
    }
    const [first, second] = pair;
    if (!apart) {
      apart = makeRow(keyAxis(), "difference", -1);
      texts.append(apart.strip.box);
    }
    const found = difference(shown[first] as Float32Array, shown[second] as Float32Array);
    apart.strip.box.hidden = false;
    put(apart.strip.box.querySelector(".aw-compare-name") as Element, `${first + 1} − ${second + 1}`);
    paintRow(apart, found, peak(found), true, "difference of shares: each divided by the sum of its magnitudes");
  };

  /** Marks and numbers of the element looked at. Runs on every pointer move. */
  const point = (): void => {
    if (!told) return;
    const hovered = keyOf("hover");
    const key = hovered >= 0 ? hovered : keyOf("pinned");
    const query = told.how === "row" ? (told.query ?? -1) : -1;
    for (const [i, { strip }] of [...rows, ...(apart ? [apart] : [])].entries()) {
      strip.mark("aw-key", key);
      strip.mark("aw-query", told.maps[i] ? query : -1);
    }
    rows.forEach((row, i) => {
      const value = shown[i]?.[key];
      put(row.value, value === undefined ? "" : number(value) + rankWords(i, key));
    });
    if (apart) put(apart.value, "");
    readout.show(key >= 0 ? keyWords(key) : pair ? pairWords(...pair) : restWords(), true);
  };

  const number = (value: number): string =>
    Number.isNaN(value) && leavesOut(filtersOf(ctx)) ? "left out" : printed(value, true);
  const rankWords = (i: number, key: number): string => {
    ranks[i] ??= rankOf(shown[i] as Float32Array);
    const [rank, count] = [ranks[i][key], ranks[i].filter(Boolean).length];
    return rank ? ` · ${byRank(rank, count)}` : "";
  };
  const named = (key: number): string => nameOf(ctx, ctx.source().key, key);
  const keyWords = (key: number): string => {
    const places = pair ?? values.map((_, i) => i);
    const said = places.map((i) => `${told?.names[i]} ${number(shown[i]?.[key] ?? Number.NaN)}`);
    return `${named(key)}: ${said.join(", ")}`;
  };
  const largest = (row: Float32Array, most: number): number[] => largestOf(row, most).filter((key) => row[key]);

  /** The strongest relations in words: what a reader who sees no colours is told. */
  const restWords = (): string => {
    const said = shown.map((row, i) => `${told?.names[i]}: ${largest(row, 3).map(named).join(", ") || "nothing"}`);
    return `Largest by ${said.join("; ")}.`;
  };
  const pairWords = (first: number, second: number): string => {
    const found = difference(shown[first] as Float32Array, shown[second] as Float32Array);
    const said = largest(found, 3).map((key) => `${named(key)} ${printed(found[key] ?? 0, true)}`);
    return `${told?.names[first]} less ${told?.names[second]}, in shares; most apart: ${said.join(", ")}.`;
  };

  const drawAgreement = (): void => {
    if (!told) return;
    const signed = told.signed.some(Boolean);
    assign(sizes, { hidden: !signed });
    const { special: flags } = keyAxis();
    const { special, mass, least } = filtersOf(ctx);
    const all = special === "show";
    const ranked = all ? flags.length : flags.filter((one) => !one).length;
    assign(table.element, { hidden: ranked < 2 });
    if (ranked < 2) {
      put(about, `There is nothing to rank: ${ranked} ${ctx.source().unit}.`);
      return;
    }
    const by = signed && size.checked ? "magnitude" : "value";
    const wanted = { ...args(), special: all, by };
    const found = answers.get<Agreements>("agreement", wanted);
    flag(table.element, "data-stale", !found);
    const why = answers.failure("agreement", wanted);
    if (!found) {
      put(about, why ? `No agreement: ${why}` : "");
      return;
    }
    const { meta } = found;
    const ranking = meta.measures[measures.value()] as Ranking;
    if (isRanked(told.names, ranking, pair, ctx.theme)) table.show(told.names, ranking, pair, ctx.theme);
    const chance = ranking.chance
      ? ` By chance ${ranking.chance.toFixed(2)}.`
      : " 1: the same order, 0: none, −1: reversed.";
    const small = mass < 1 || least > 0 ? " What the filters leave out for its size is ranked as well." : "";
    const warn = meta.warning ? ` ${meta.warning}.` : "";
    put(about, `${ranking.title}.${chance}${warn}${small} Click a cell to compare two.`);
    put(caveat, `${meta.caveat} ${ranking.paper}; Jain and Wallace 2019; Neely et al. 2021.`);
  };

  function choose(row: number, col: number): void {
    const same = pair?.includes(row) && pair.includes(col);
    pair = row === col || same ? null : [row, col];
    paint();
    point();
    drawAgreement();
  }
  const pointPair = (row: number, col: number): void => {
    for (const [i, { strip }] of rows.entries()) flag(strip.box, "data-pointed", i === row || i === col);
  };

  const words = (): string => {
    if (!told) return "";
    const unit = plural(ctx.source().unit);
    const maps = told.maps.some(Boolean);
    if (!maps) return `${told.names.length} explanations · ${unit}`;
    const row = told.query === null ? "" : `the row of ${named(told.query)}`;
    const read = told.how === "row" ? row : told.how.replace("_", " of ").replace("of mean", "mean").replace("_", " ");
    return `${told.names.length} explanations · maps read as ${read} · ${unit}`;
  };

  const draw = (): void => {
    read();
    const title = heading.show(words());
    assign(root, { ariaLabel: `${title}: one text, several explanations` });
    assign(slider, { hidden: ctx.source().layers.length < 2 });
    flag(texts, "data-stale", stale);
    if (stale) {
      const job = answers.job("strips");
      const why = answers.failure("strips", args());
      const doing = job ? `${job.text || "computing"} ${job.total ? `${job.done} of ${job.total}` : "…"}` : "reading …";
      readout.show(why ?? doing, Boolean(why));
      if (!told) return;
    }
    if (!told) return;
    build(told.names);
    if (!stale) {
      paint();
      point();
    }
    drawAgreement();
  };

  on(size, signal, { change: () => drawAgreement() });
  on(all, signal, {
    click() {
      if (pair) choose(...pair);
    },
  });
  atEnd(signal, () => bound.abort());
  renderLayerSlider(ctx.child({ title: "" }), slider);
  return (changed) => {
    if (only(changed, "hover")) point();
    else draw();
  };
});
