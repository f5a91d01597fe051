/**
 * Every layer and head at a glance: one atlas of max-pooled thumbnails, by layer or in the order of a statistic; a heat
 * table of one value where there are too many. Below or next to it, the heads ranked by a pattern. The head under the
 * pointer is shown enlarged, a click selects it.
 */

import { heatMap } from "../../colour.ts";
import { atEnd, createWatch, density, h, place, setFlag, setSizes, setText, watchWidth } from "../../dom.ts";
import { printed, tickText } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { peaksOf } from "../../wire/sheets.ts";
import type { ThumbSheet } from "../../wire/tile.ts";
import type { HeadGridOptions, Source } from "../../wire/wire.ts";
import { createChosen } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { filtersOf, offerAdjusting, showsSpecial } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { failed, type Missing } from "../base/missing.ts";
import { headlessWords, headsOf } from "../base/mixers.ts";
import { placeWords, plural } from "../base/navigation.ts";
import { createPopover } from "../base/popover.ts";
import { only, view } from "../base/view.ts";
import { breadthAt, type Spot } from "./grid/arrange.ts";
import { type Atlas, isPruned, paintAtlas, paintTable } from "./grid/atlas.ts";
import { createControls } from "./grid/controls.ts";
import { createCursor } from "./grid/cursor.ts";
import { createKnockout } from "./grid/knockout.ts";
import { layOut, NOTHING, TWO_COLUMNS } from "./grid/layout.ts";
import { createNames } from "./grid/names.ts";
import { createPatterns, type Ranking } from "./grid/patterns.ts";
import { createPreview } from "./grid/preview.ts";
import { createRanked } from "./grid/ranked.ts";

/** Side in px of the enlarged map. */
const ENLARGED = 148;

const largestOf = (sheet: ThumbSheet): number => Math.max(0, ...peaksOf(sheet).flat());

/** Every head is filtered out. */
const NONE: Missing = { kind: "none", words: "No head matches the filter", advice: "Change it with “Filter” above." };

export const renderHeadGrid = view((ctx, root, signal) => {
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "grid of heads" };
  const plot = h("div.plot.grid-plot", role, canvas, hovered, selected);
  const labels = createNames(ctx);
  const figure = h("div.figure.grid", h("i"), labels.cols, labels.rows, plot);
  const box = h("div.grid-box", figure);
  const axes = h("div.where.grid-axes");
  const scale = createScale();
  const answers = createAnswers(ctx, signal, () => refresh());
  const { grid } = ctx.options as Partial<HeadGridOptions>;
  const controls = createControls(
    signal,
    answers,
    grid,
    (now) => {
      // Python does not store the order of an Explorer's grid.
      if (now && grid) {
        ctx.model.set("options", { ...ctx.model.get("options"), grid: now } as HeadGridOptions);
        ctx.model.save_changes();
      }
      draw();
    },
    () => {
      selectsFirst = true;
    },
  );
  const patterns = createPatterns(ctx, answers, signal, (selects) => {
    selectsFirst = selects;
    controls.clear();
    refresh();
  });
  const ranked = createRanked(
    ctx,
    signal,
    (spot) => cursor.choose(spot),
    (spot) => {
      cursor.hover(spot ? (now.places.get(`${spot.layer} ${spot.head}`) ?? null) : null);
    },
  );
  const preview = createPreview(ctx, signal);
  const chosen = createChosen(plot);
  // Inside another view there is already a Heatmap, and little room.
  const isAlone = ctx.el === root;
  const panel = h("div.menu.grid-panel", ...(isAlone ? [] : [controls.menu]), ...controls.panel);
  const filter = h("button.button.grid-filter", { type: "button" }, isAlone ? "Filter" : "Sort, filter");
  createPopover(filter, panel, signal, () => undefined);
  const count = h("span.where");
  const problem = h("div.line.grid-problem");
  let width = 0;
  let inView = false;
  let selectsFirst = false;
  let drawnKey = "";
  const isOffered = createWatch();
  const isRepainted = createWatch();
  const isPreviewed = createWatch();
  let sheet: ThumbSheet | undefined;
  /** Whether those that the map asks for are not here, and others are shown. */
  let isOther = false;
  let now = NOTHING;
  let best: Spot[] = [];

  offerAdjusting(ctx, false);
  root.classList.add("aw-headgrid");
  const aside = h(
    "div.grid-aside",
    ...(isAlone ? [preview.element] : []),
    h("div.grid-head", patterns.field, count),
    controls.work,
    problem,
    ranked.element,
  );
  const content = h("div.grid-body", h("div.grid-main", box, axes), aside);
  const frame = createFrame(ctx, root, {
    controls: [controls.menu, filter],
    tags: isAlone ? [] : [filter],
    body: [panel, content],
    skeleton: "cells",
    hint: "Click a head to show it in every view.",
    legend: scale.element,
  });

  const isBeside = (): boolean => isAlone && width >= TWO_COLUMNS;
  const sizes = ({ layers, heads }: Source): [number, number] => [layers.length, heads?.length ?? 1];
  const isHeadless = (source: Source, layer: number): boolean =>
    headlessWords(source, source.layers[layer] as number, "mean") !== "";
  const exists = (source: Source, { layer, head }: Spot): boolean =>
    !source.heads || headsOf(source, source.layers[layer] as number).includes(source.heads[head] as number);
  const spotsOf = (source: Source): Spot[] => {
    const [layers, heads] = sizes(source);
    const all = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads }));
    return all.filter((at) => exists(source, at));
  };

  const words = (): void => {
    const { source } = ctx.resolved();
    const all = spotsOf(source);
    const layers = all.filter(({ layer }) => !source.heads || isHeadless(source, layer)).length;
    const counted = (count: number, unit: string): string => `${count} ${count === 1 ? unit : plural(unit)}`;
    const heads = layers < all.length ? counted(all.length - layers, "head") : "";
    const title = [heads, layers ? counted(layers, "layer") : ""].filter(Boolean).join(", ");
    frame.show("", title);
    plot.ariaLabel = `${title}, ${source.title}. Arrow keys, Home, End move, Enter selects, with Shift several, Escape goes back.`;
    if (isOffered(source, ctx.options)) update(source);
  };
  const update = (source: Source): void => {
    controls.update(source);
    patterns.update(source);
  };
  const refresh = (): void => {
    update(ctx.source());
    draw();
  };

  /** What heads are ranked by: the statistic that was chosen, otherwise a pattern. */
  const rankingOf = (): Ranking | null => {
    const statistic = controls.statistic();
    if (!statistic) return patterns.ranking();
    const { low, high, of, title } = statistic;
    return {
      id: controls.state(),
      title,
      of,
      share: (at) => (high > low ? (of(at) - Math.min(low, 0)) / (high - Math.min(low, 0)) : 1),
      lowest: controls.lowest(),
      words: (at) => `${title} ${printed(of(at), true)}`,
    };
  };

  const atlasOf = (source: Source, sheet: ThumbSheet): Atlas => ({
    source,
    sheet,
    map: heatMap(source.signed, ctx.theme, filtersOf(ctx).palette),
    mode: scale.mode(),
    common: scale.common() ? largestOf(sheet) : null,
  });

  /** Atlas and labels; only when something they depend on changed. */
  const draw = (): void => {
    if (width <= 0) return;
    const source = ctx.source();
    const special = showsSpecial(ctx, source);
    const requested = ctx.tiles.thumbs(source.id, special, source.parts ? null : undefined);
    const thumbs = requested ?? ctx.tiles.thumbs(source.id, !special, null);
    isOther = thumbs !== requested;
    const [rows, cols] = sizes(source);
    const why = thumbs
      ? ""
      : (ctx.tiles.thumbsFailure(source.id, special) ?? (ctx.tiles.status().message || "loading thumbnails …"));
    const dots = Math.max(1, Math.min(2, Math.round(density())));
    const chosenFilters = filtersOf(ctx);
    const { palette, scale: mode, extent } = chosenFilters;
    const ranking = rankingOf();
    const request = patterns.request();
    // A table without a ranking shows every head's largest value, unless the reader chose one that is yet to come.
    const largest = ranking || request[0] !== "patterns" ? null : thumbs && peaksOf(thumbs);
    scale.follow(chosenFilters);
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
      isOther,
    ];
    const stateKey = [source.id, rows, cols, width, ctx.options.height, ...how].join("|");
    if (stateKey !== drawnKey || thumbs !== sheet) {
      [drawnKey, sheet] = [stateKey, thumbs];
      rearrange(source, ranking);
      const { size, foot, isTable } = now;
      setFlag(plot, "data-empty", !isTable && (!thumbs || source.computed !== null || lacking(source) !== null));
      plot.ariaBusy = String(!thumbs);
      const pixels = { width: size.width * dots, height: size.height * dots };
      const map = heatMap(false, ctx.theme, palette);
      const share = ranking?.share ?? (({ layer, head }: Spot) => largest?.[layer]?.[head] ?? 0);
      const top = Math.max(1e-9, ...best.map(share));
      // A ranking that arrives need not change what the thumbnails show, nor where they are.
      const spots = now.lines.map((line) => line.spots.map((at) => at && `${at.layer}.${at.head}`).join()).join(";");
      const looks = [ctx.theme, palette, mode, extent, ctx.options.indexBase, dots].join("|");
      const repaints = isRepainted(source.id, thumbs, isTable, size.width, foot, spots, looks);
      if (isTable) paintTable(canvas, now, pixels, map, (at) => share(at) / top);
      else if (!thumbs) canvas.width = 0;
      else if (repaints) paintAtlas(canvas, now, pixels, foot * dots, atlasOf(source, thumbs));
      if (foot && (isTable || repaints)) labels.paint(canvas, source, now, pixels, foot * dots);
      legend(source, thumbs ? largestOf(thumbs) : 1, why);
    }
    frame.lacks((now.isTable && ranking) || thumbs ? (now.shown > 0 ? null : NONE) : lackingThumbs(source, special));
    const job = ranking ? null : answers.job(request[0]);
    const failed = ranking ? "" : answers.failure(...request);
    setText(
      problem,
      failed ? `patterns: ${failed}` : job ? `${job.text}${job.total ? ` ${job.done} of ${job.total}` : " …"}` : "",
    );
    const title = controls.statistic()?.title;
    setText(count, title ? `by ${title}` : patterns.count() || (now.isTable && largest ? "by largest value" : ""));
    if (selectsFirst && ranking && best[0]) {
      selectsFirst = false;
      cursor.choose(best[0]);
    }
    const next = source.parts && inView ? lacking(source) : null;
    if (next) ctx.tiles.thumbs(source.id, special, [next.layer, next.head]);
    point();
  };

  const lackingThumbs = ({ id }: Source, special: boolean): Missing => {
    const { state, message } = ctx.tiles.status();
    const why = ctx.tiles.thumbsFailure(id, special) ?? (state === "no-kernel" ? message : "");
    if (why) return failed("thumbnails", why);
    return { kind: "awaited", words: "loading thumbnails" };
  };

  /** For a source sent in parts, the first visible thumbnail that is missing. */
  const lacking = (source: Source): Spot | null => {
    const here = isOther ? [] : (sheet?.meta.scale ?? []);
    const isMissing = (at: Spot | null): boolean => at !== null && here[at.layer]?.[at.head] === undefined;
    const first = source.parts ? now.lines.flatMap(({ spots }) => spots).find(isMissing) : null;
    // Heads of a layer come in their order.
    return first ? { layer: first.layer, head: here[first.layer]?.length ?? 0 } : null;
  };

  /** Lay the grid out, and rank its heads. */
  const rearrange = (source: Source, ranking: Ranking | null): void => {
    const [layers, heads] = sizes(source);
    const statistic = controls.statistic();
    setFlag(content, "data-wide", isBeside());
    const layerName = (layer: number): string => ctx.layerName(source.layers[layer] as number);
    const headName = (head: number): string => (source.heads ? ctx.headName(source.heads[head] as number) : "");
    const keeps = (at: Spot): boolean =>
      exists(source, at) && controls.keeps(at, layerName(at.layer), headName(at.head));
    const pointed = cursor.headAt(cursor.at());
    now = layOut({
      layers,
      heads,
      order: statistic ? controls.order() : "layers",
      lowest: controls.lowest(),
      value: statistic?.of ?? null,
      keeps,
      isWhole: (layer) => heads > 1 && isHeadless(source, layer),
      layerName,
      headName,
      width,
      height: ctx.options.height,
      isBeside: isBeside(),
    });
    const all = spotsOf(source);
    const rank = (at: Spot): number => (ranking ? ranking.of(at) * (ranking.lowest ? 1 : -1) : 0);
    best = all.filter((at) => keeps(at) && !Number.isNaN(rank(at)) && !isPruned(sheet, at));
    best.sort((a, b) => rank(a) - rank(b));
    cursor.stayOn(pointed);
    const { size, names, isTable, lines, cols, shown, order } = now;
    setSizes(box, { box: now.height });
    controls.count(shown, all.length);
    setFlag(filter, "data-filtered", shown < all.length);
    const plain = isAlone && order === "layers" && source.heads ? "heads across, layers down" : "";
    const across = isTable ? "layers across, heads down" : plain;
    const other = isOther && sheet ? `shown ${sheet.meta.special ? "with" : "without"} special tokens` : "";
    setText(axes, [across, other].filter(Boolean).join("; "));
    setSizes(figure, { names: names - 6, width: size.width * cols, height: size.height * lines.length });
    labels.show(source, now);
  };

  const legend = (source: Source, common: number, why: string): void => {
    const top = scale.common() ? common : 1;
    let pooled = scale.common() ? "max-pooled, one scale for all" : "max-pooled, × each thumbnail's own maximum";
    if (lacking(source)) {
      const here = sheet?.meta.scale.flat().length ?? 0;
      pooled += `; ${here} of ${sizes(source).reduce((a, b) => a * b)} are loaded, others as they scroll into view`;
    }
    scale.show({
      map: heatMap(source.signed, ctx.theme, filtersOf(ctx).palette),
      range: [source.signed ? -top : 0, top],
      ...(!scale.common() && { end: "1 × own largest" }),
      words: why || pooled,
    });
  };

  /** Position of the selected head: line, column, and how many columns it spans. */
  const selectedAt = (): [number, number, number] => {
    const { source, layer, head } = ctx.resolved();
    const row = source.layers.indexOf(layer);
    if (source.heads && typeof head !== "number") {
      const isLayer = !now.isTable && (!controls.statistic() || ["layers", "within"].includes(controls.order()));
      return isLayer ? [row, 0, now.cols] : [-1, -1, 1];
    }
    const at = source.heads && typeof head === "number" ? source.heads.indexOf(head) : 0;
    return spread(now.places.get(`${row} ${at}`) ?? [-1, -1]);
  };
  /** A position with the columns that it spans. */
  const spread = ([row, col]: readonly [number, number]): [number, number, number] => {
    const spots = now.lines[row]?.spots ?? [];
    const first = spots[col] ? spots.indexOf(spots[col]) : col;
    return [row, first, breadthAt(spots, first)];
  };

  /** Outline the heads chosen together. */
  const drawChosen = ({ layers, heads }: Source): void => {
    const boxes = ctx.selection.get("heads").flatMap(([layer, head]): [number, number, number, number][] => {
      const at = now.places.get(`${layers.indexOf(layer)} ${heads?.indexOf(head)}`);
      const { width: across, height: down } = now.size;
      return at ? [[at[1] * across, at[0] * down, across, down]] : [];
    });
    chosen.draw(boxes);
  };

  /** The position of the head that a linked view previews. */
  const previewed = (): readonly [number, number] | undefined => {
    const { layers, heads } = ctx.source();
    const [layer, head] = ctx.selection.get("hover")?.head ?? [-1, -1];
    return now.places.get(`${layers.indexOf(layer)} ${heads?.indexOf(head)}`);
  };

  /** Update outlines, the enlarged map and the readout. Runs on every pointer move. */
  const point = (): void => {
    const { source, layer, head } = ctx.resolved();
    const { size, places, isTable } = now;
    const outline = (el: HTMLElement, row: number, col: number, cols: number): void =>
      place(el, col * size.width, row * size.height, cols * size.width, size.height);
    const spot = cursor.at() ?? previewed() ?? null;
    outline(hovered, ...spread(spot ?? [-1, -1]));
    outline(selected, ...selectedAt());
    const at = cursor.headAt(spot);
    knockout.show(places, size);
    drawChosen(source);
    const text = at ? wordsAt(source, at) : `selected: ${placeWords(ctx, layer, head)}`;
    frame.readout.show(text + knockout.words(cursor.meant()), root.contains(document.activeElement));
    const chosen = typeof head === "number" ? (source.heads?.indexOf(head) ?? 0) : 0;
    const current = { layer: source.layers.indexOf(layer), head: chosen };
    ranked.show(
      {
        ranking: rankingOf(),
        atlas: sheet ? atlasOf(source, sheet) : null,
        spots: best,
        isTable,
        selected: typeof head === "number" || !source.heads ? current : null,
        own: patterns.own,
      },
      `${drawnKey}|${Boolean(sheet)}`,
    );
    if (!isAlone || !sheet) return;
    const shown = at ?? current;
    const name = placeWords(ctx, source.layers[shown.layer] as number, source.heads?.[shown.head] ?? "-");
    preview.show(atlasOf(source, sheet), shown, ENLARGED, name);
  };

  const wordsAt = (source: Source, at: Spot): string => {
    const layer = source.layers[at.layer] as number;
    const name = placeWords(ctx, layer, source.heads?.[at.head] ?? "-");
    if (isPruned(sheet, at)) return `${name} · pruned from this layer`;
    const peak = sheet && peaksOf(sheet)[at.layer]?.[at.head];
    const later = source.computed?.includes(layer) === false ? " · computed when opened" : "";
    const most = peak === undefined ? later : ` · largest value ≈ ${tickText(peak)}`;
    const value = rankingOf()?.words(at);
    const own = patterns.own(at);
    return `${name}${value ? ` · ${value}` : ""}${own ? ` · ${own}` : ""}${most}`;
  };

  const cursor = createCursor(
    ctx,
    plot,
    {
      layout: () => now,
      selected: () => selectedAt().slice(0, 2) as [number, number],
      isPruned: (at) => isPruned(sheet, at),
      moved: () => point(),
      outline: hovered,
    },
    signal,
  );
  const watch = new IntersectionObserver((entries) => {
    inView = entries.at(-1)?.isIntersecting ?? false;
    draw();
  });
  watch.observe(plot);
  atEnd(signal, () => watch.disconnect());
  const knockout = createKnockout(ctx, plot, answers, signal, cursor.meant, point);
  watchWidth(content, signal, (at) => {
    width = at;
    draw();
  });
  return (changed) => {
    if (changed.has("pinned")) drawChosen(ctx.source());
    if (isPreviewed(String(previewed()))) point();
    if (only(changed, "hover", "pinned")) return;
    words();
    draw();
  };
});
