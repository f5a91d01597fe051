/**
 * Every layer and head at a glance: an atlas of max-pooled thumbnails, by layer or in the order of a statistic; a heat
 * table of a single value where there are too many. Below or next to it, the heads ranked by a pattern. The head under
 * the pointer is shown enlarged, a click selects it.
 *
 * `draw` lays the heads out (`rearrange`) and paints the atlas if its input has changed; `point` moves outlines, the
 * enlarged map and the readout, and runs on every pointer move.
 */

import { heatMap } from "../../colour.ts";
import type { Change, ViewContext } from "../../context.ts";
import { atEnd, createWatch, density, h, setFlag, setSizes, setText, watchWidth } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { peaksOf } from "../../wire/sheets.ts";
import type { GridOptions, HeadGridOptions } from "../../wire/viewState.ts";
import type { Source } from "../../wire/wire.ts";
import { createChosen } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { filtersOf, offerAdjusting, showsSpecial } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { failed, type Missing } from "../base/missing.ts";
import { plural } from "../base/navigation.ts";
import { createPopover } from "../base/popover.ts";
import { only, view } from "../base/view.ts";
import type { Spot } from "./grid/arrange.ts";
import { isPruned, paintAtlas, paintTable } from "./grid/atlas.ts";
import { createControls } from "./grid/controls.ts";
import { createCursor } from "./grid/cursor.ts";
import { createKnockout } from "./grid/knockout.ts";
import { layOut, NOTHING, TWO_COLUMNS } from "./grid/layout.ts";
import { createPatterns, type Ranking } from "./grid/patterns.ts";
import { drawChosen, point, previewed, selectedAt } from "./grid/point.ts";
import { createPreview } from "./grid/preview.ts";
import { createRanked } from "./grid/ranked.ts";
import {
  atlasOf,
  createBoard,
  exists,
  type HeadGridState,
  isHeadless,
  largestOf,
  rankingOf,
  sizes,
  spotsOf,
} from "./grid/state.ts";

/** Every head is filtered out. */
const NONE: Missing = { kind: "none", words: "No head matches the filter", advice: "Change it with “Filter” above." };

export const renderHeadGrid = view((ctx, root, signal) => {
  const board = createBoard(ctx);
  const scale = createScale();
  const answers = createAnswers(ctx, signal, () => refresh(state));
  const { grid } = ctx.options as Partial<HeadGridOptions>;
  const controls = createControls(
    signal,
    answers,
    grid,
    (order) => reorder(state, order),
    () => {
      state.selectsFirst = true;
    },
  );
  const patterns = createPatterns(ctx, answers, signal, (selects) => rankByPattern(state, selects));
  const positionOf = (spot: Spot | null) => (spot && state.now.positions.get(`${spot.layer} ${spot.head}`)) ?? null;
  const ranked = createRanked(
    ctx,
    signal,
    (spot) => cursor.choose(spot),
    (spot) => cursor.hover(positionOf(spot)),
  );
  const [preview, chosen] = [createPreview(ctx, signal), createChosen(board.plot)];
  // Inside another view there is already a Heatmap, and little room.
  const isAlone = ctx.el === root;
  const panel = h("div.menu.grid-panel", ...(isAlone ? [] : [controls.menu]), ...controls.panel);
  const filter = h("button.button.grid-filter", { type: "button" }, isAlone ? "Filter" : "Sort, filter");
  createPopover(filter, panel, signal, () => undefined);
  const [count, problem] = [h("span.where"), h("div.line.grid-problem")];

  offerAdjusting(ctx, false);
  const lists = [h("div.grid-head.inline", patterns.field, count), controls.work, problem, ranked.element];
  const aside = h("div.grid-aside.column", ...(isAlone ? [preview.element] : []), ...lists);
  const content = h("div.grid-body.column", h("div.grid-main", board.box, board.axes), aside);
  const frame = createFrame(ctx, root, {
    controls: [controls.menu, filter],
    tags: isAlone ? [] : [filter],
    body: [panel, content],
    skeleton: "cells",
    hint: "Click a head to show it in every view.",
    legend: scale.element,
  });

  const cursor = createCursor(
    ctx,
    board.plot,
    {
      layout: () => state.now,
      selected: () => selectedAt(state).slice(0, 2) as [number, number],
      isPruned: (at) => isPruned(state.sheet, at),
      moved: () => point(state),
      outline: board.hovered,
    },
    signal,
  );
  const knockout = createKnockout(ctx, board.plot, answers, signal, cursor.meant, () => point(state));

  const state: HeadGridState = {
    ctx,
    ...board,
    root,
    scale,
    answers,
    controls,
    patterns,
    ranked,
    preview,
    chosen,
    isAlone,
    filter,
    count,
    problem,
    width: 0,
    inView: false,
    selectsFirst: false,
    drawnKey: "",
    isOffered: createWatch(),
    isRepainted: createWatch(),
    isPreviewed: createWatch(),
    sheet: undefined,
    isOther: false,
    now: NOTHING,
    best: [],
    content,
    frame,
    cursor,
    knockout,
  };
  listen(state, signal);
  return (changed) => onChange(state, changed);
});

function rankByPattern(state: HeadGridState, selects: boolean): void {
  state.selectsFirst = selects;
  state.controls.clear();
  refresh(state);
}

/** Draw in another order, which Python stores, but not that of an Explorer's grid. */
function reorder(state: HeadGridState, order: GridOptions | undefined): void {
  const { ctx } = state;
  const options = ctx.options as Partial<HeadGridOptions>;
  if (order && options.grid) {
    ctx.model.set("options", { ...ctx.model.get("options"), grid: order } as HeadGridOptions);
    ctx.model.save_changes();
  }
  draw(state);
}

/** Draw when the grid comes into view, and when its room changes. */
function listen(state: HeadGridState, signal: AbortSignal): void {
  state.root.classList.add("aw-headgrid");
  const { content } = state;
  const watch = new IntersectionObserver((entries) => {
    state.inView = entries.at(-1)?.isIntersecting ?? false;
    draw(state);
  });
  watch.observe(state.plot);
  atEnd(signal, () => watch.disconnect());
  watchWidth(content, signal, (at) => {
    state.width = at;
    draw(state);
  });
}

function isBeside(state: HeadGridState): boolean {
  return state.isAlone && state.width >= TWO_COLUMNS;
}

function words(state: HeadGridState): void {
  const { ctx } = state;
  const { source } = ctx.resolved();
  const all = spotsOf(source);
  const layers = all.filter(({ layer }) => !source.heads || isHeadless(source, layer)).length;
  const counted = (count: number, unit: string): string => `${count} ${count === 1 ? unit : plural(unit)}`;
  const heads = layers < all.length ? counted(all.length - layers, "head") : "";
  const title = [heads, layers ? counted(layers, "layer") : ""].filter(Boolean).join(", ");
  state.frame.show("", title);
  state.plot.ariaLabel = `${title}, ${source.title}. Arrow keys, Home, End move, Enter selects, with Shift several, Escape goes back.`;
  if (state.isOffered(source, ctx.options)) update(state, source);
}

function update(state: HeadGridState, source: Source): void {
  state.controls.update(source);
  state.patterns.update(source);
}

function refresh(state: HeadGridState): void {
  update(state, state.ctx.source());
  draw(state);
}

/** Atlas and labels; only after a change of their input. */
function draw(state: HeadGridState): void {
  const { ctx, canvas, plot, answers, controls, patterns, width } = state;
  if (width <= 0) return;
  const source = ctx.source();
  const special = showsSpecial(ctx, source);
  const requested = ctx.tiles.thumbs(source.id, special, source.parts ? null : undefined);
  const thumbs = requested ?? ctx.tiles.thumbs(source.id, !special, null);
  state.isOther = thumbs !== requested;
  const [rows, cols] = sizes(source);
  const why = thumbs
    ? ""
    : (ctx.tiles.thumbsFailure(source.id, special) ?? (ctx.tiles.status().message || "loading thumbnails …"));
  const dots = Math.max(1, Math.min(2, Math.round(density())));
  const chosenFilters = filtersOf(ctx);
  const { palette, scale: mode, extent } = chosenFilters;
  const ranking = rankingOf(state);
  const request = patterns.request();
  // A table without a ranking shows every head's largest value, unless the reader chose a ranking that is yet to
  // arrive.
  const largest = ranking || request[0] !== "patterns" ? null : thumbs && peaksOf(thumbs);
  state.scale.follow(chosenFilters);
  const how = [
    dots,
    ctx.theme,
    palette,
    mode,
    extent,
    ctx.options.indexBase,
    controls.state(),
    ranking?.id,
    !largest,
    why,
    special,
    state.isOther,
  ];
  const stateKey = [source.id, rows, cols, width, ctx.options.height, ...how].join("|");
  if (stateKey !== state.drawnKey || thumbs !== state.sheet) {
    [state.drawnKey, state.sheet] = [stateKey, thumbs];
    rearrange(state, source, ranking);
    const { size, foot, isTable } = state.now;
    setFlag(plot, "data-empty", !isTable && (!thumbs || source.computed !== null || lacking(state, source) !== null));
    plot.ariaBusy = String(!thumbs);
    const pixels = { width: size.width * dots, height: size.height * dots };
    const map = heatMap(false, ctx.theme, palette);
    const share = ranking?.share ?? (({ layer, head }: Spot) => largest?.[layer]?.[head] ?? 0);
    const top = Math.max(1e-9, ...state.best.map(share));
    // A ranking that arrives need not change the content of thumbnails, nor their positions.
    const spots = state.now.lines
      .map((line) => line.spots.map((at) => at && `${at.layer}.${at.head}`).join())
      .join(";");
    const looks = [ctx.theme, palette, mode, extent, ctx.options.indexBase, dots].join("|");
    const repaints = state.isRepainted(source.id, thumbs, isTable, size.width, foot, spots, looks);
    if (isTable) paintTable(canvas, state.now, pixels, map, (at) => share(at) / top);
    else if (!thumbs) canvas.width = 0;
    else if (repaints) paintAtlas(canvas, state.now, pixels, foot * dots, atlasOf(state, source, thumbs));
    if (foot && (isTable || repaints)) state.labels.paint(canvas, source, state.now, pixels, foot * dots);
    legend(state, source, thumbs ? largestOf(thumbs) : 1, why);
  }
  state.frame.lacks(
    (state.now.isTable && ranking) || thumbs
      ? state.now.shown > 0
        ? null
        : NONE
      : lackingThumbs(ctx, source, special),
  );
  const job = ranking ? null : answers.job(request[0]);
  const failed = ranking ? "" : answers.failure(...request);
  setText(
    state.problem,
    failed ? `patterns: ${failed}` : job ? `${job.text}${job.total ? ` ${job.done} of ${job.total}` : " …"}` : "",
  );
  const title = controls.statistic()?.title;
  setText(
    state.count,
    title ? `by ${title}` : patterns.count() || (state.now.isTable && largest ? "by largest value" : ""),
  );
  if (state.selectsFirst && ranking && state.best[0]) {
    state.selectsFirst = false;
    state.cursor.choose(state.best[0]);
  }
  const next = source.parts && state.inView ? lacking(state, source) : null;
  if (next) ctx.tiles.thumbs(source.id, special, [next.layer, next.head]);
  point(state);
}

function lackingThumbs(ctx: ViewContext, { id }: Source, special: boolean): Missing {
  const status = ctx.tiles.status();
  const why = ctx.tiles.thumbsFailure(id, special) ?? (status.state === "no-kernel" ? status.message : "");
  if (why) return failed("thumbnails", why);
  return { kind: "awaited", words: "loading thumbnails" };
}

/** For a source sent in parts, the first visible thumbnail that is missing. */
function lacking(state: HeadGridState, source: Source): Spot | null {
  const here = state.isOther ? [] : (state.sheet?.meta.scale ?? []);
  const isMissing = (at: Spot | null): boolean => at !== null && here[at.layer]?.[at.head] === undefined;
  const first = source.parts ? state.now.lines.flatMap(({ spots }) => spots).find(isMissing) : null;
  // Heads of a layer come in their order.
  return first ? { layer: first.layer, head: here[first.layer]?.length ?? 0 } : null;
}

/** Lay the grid out, and rank its heads. */
function rearrange(state: HeadGridState, source: Source, ranking: Ranking | null): void {
  const { ctx, controls, sheet, cursor } = state;
  const [layers, heads] = sizes(source);
  const statistic = controls.statistic();
  setFlag(state.content, "data-wide", isBeside(state));
  const layerName = (layer: number): string => ctx.layerName(source.layers[layer] as number);
  const headName = (head: number): string => (source.heads ? ctx.headName(source.heads[head] as number) : "");
  const keeps = (at: Spot): boolean => exists(source, at) && controls.keeps(at, layerName(at.layer), headName(at.head));
  const pointed = cursor.headAt(cursor.at());
  state.now = layOut({
    layers,
    heads,
    order: statistic ? controls.order() : "layers",
    lowest: controls.lowest(),
    value: statistic?.of ?? null,
    keeps,
    isWhole: (layer) => heads > 1 && isHeadless(source, layer),
    layerName,
    headName,
    width: state.width,
    height: ctx.options.height,
    isBeside: isBeside(state),
  });
  const all = spotsOf(source);
  const rank = (at: Spot): number => (ranking ? ranking.of(at) * (ranking.lowest ? 1 : -1) : 0);
  state.best = all.filter((at) => keeps(at) && !Number.isNaN(rank(at)) && !isPruned(sheet, at));
  state.best.sort((a, b) => rank(a) - rank(b));
  cursor.stayOn(pointed);
  const { size, names, isTable, lines, cols, shown, order } = state.now;
  setSizes(state.box, { box: state.now.height });
  controls.count(shown, all.length);
  setFlag(state.filter, "data-filtered", shown < all.length);
  const plain = state.isAlone && order === "layers" && source.heads ? "heads across, layers down" : "";
  const across = isTable ? "layers across, heads down" : plain;
  const other = state.isOther && sheet ? `shown ${sheet.meta.special ? "with" : "without"} special tokens` : "";
  setText(state.axes, [across, other].filter(Boolean).join("; "));
  setSizes(state.figure, { names: names - 6, width: size.width * cols, height: size.height * lines.length });
  state.labels.show(source, state.now);
}

function legend(state: HeadGridState, source: Source, common: number, why: string): void {
  const { ctx, scale } = state;
  const top = scale.common() ? common : 1;
  let pooled = scale.common() ? "max-pooled, one scale for all" : "max-pooled, × each thumbnail's own maximum";
  if (lacking(state, source)) {
    const here = state.sheet?.meta.scale.flat().length ?? 0;
    pooled += `; ${here} of ${sizes(source).reduce((a, b) => a * b)} are loaded, others as they scroll into view`;
  }
  scale.show({
    map: heatMap(source.signed, ctx.theme, filtersOf(ctx).palette),
    range: [source.signed ? -top : 0, top],
    ...(!scale.common() && { end: "1 × own largest" }),
    words: why || pooled,
  });
}

function onChange(state: HeadGridState, changed: ReadonlySet<Change>): void {
  if (changed.has("pinned")) drawChosen(state, state.ctx.source());
  if (state.isPreviewed(String(previewed(state)))) point(state);
  if (only(changed, "hover", "pinned")) return;
  words(state);
  draw(state);
}
