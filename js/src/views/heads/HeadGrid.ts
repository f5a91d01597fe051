/**
 * Every layer and head at a glance: one atlas of max-pooled thumbnails, by layer or in the order of a statistic; a heat
 * table of one value where there are too many. Beneath or beside it the heads ranked by a pattern. The head under the
 * pointer is shown enlarged, a click selects it.
 */

import { heatMap } from "../../colour.ts";
import {
  atEnd,
  createWatch,
  density,
  h,
  keyboard,
  on,
  place,
  setChildren,
  setFlag,
  setSizes,
  setText,
  spotAt,
  thinned,
  watchWidth,
} from "../../dom.ts";
import { printed, tickText } from "../../numbers.ts";
import { rectangle } from "../../selection.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { ThumbSheet } from "../../wire/tile.ts";
import type { HeadGridOptions, Source } from "../../wire/wire.ts";
import { createChosen } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { filtersOf, offerAdjusting } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { createPicking } from "../base/gestures.ts";
import { failed, type Missing } from "../base/missing.ts";
import { headAddress, placeWords, plural } from "../base/navigation.ts";
import { createPopover } from "../base/popover.ts";
import { only, view } from "../base/view.ts";
import { type Arrangement, arrange, type Place, type Spot, table, thumbSide } from "./grid/arrange.ts";
import { type Atlas, isPruned, paintAtlas, paintTable, peaksOf } from "./grid/atlas.ts";
import { createControls } from "./grid/controls.ts";
import { createKnockout } from "./grid/knockout.ts";
import { createPatterns, type Ranking } from "./grid/patterns.ts";
import { createPreview } from "./grid/preview.ts";
import { createRanked } from "./grid/ranked.ts";

/** Side of a thumbnail in px: the largest; the least, below which the grid is a heat table; the least with a name. */
const [LARGEST, LEAST_SIDE, NAMED] = [72, 12, 36];
/** Size of a place of the heat table in px. */
const [WIDEST, HIGHEST] = [24, 20];
/** Width in px left of the grid, for names of layers or values; height below a thumbnail, for its name. */
const [NAMES, VALUES, FOOT] = [34, 62, 15];
/** Height in px of names above the grid and of its scrollbar. */
const AROUND = 28;
/** Width in px from which the ranked heads stand beside the grid, their width, and the side of the enlarged map. */
const [TWO_COLUMNS, ASIDE, ENLARGED] = [640, 300, 148];
/** Height in px of a view of its own, and of the grid in it: beside the ranked heads, or above them. */
const [HEIGHT, TALL, LOW] = [480, 318, 190];
/** Width in px of a narrow grid: if its thumbnails would be too small there, it is a heat table at any width. */
const NARROW = 300;
/** Height of a narrow heat table: its six thumbnails stand below it. */
const LOW_TABLE = 150;

/** Every head is filtered out. */
const NONE: Missing = { kind: "none", words: "No head passes the filter", advice: "Change it with “Filter” above." };

export const renderHeadGrid = view((ctx, root, signal) => {
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "grid of heads" };
  const plot = h("div.plot.grid-plot", role, canvas, hovered, selected);
  const rowNames = h("div.grid-rows", { "aria-hidden": "true" });
  const colNames = h("div.grid-cols", { "aria-hidden": "true" });
  const figure = h("div.figure.grid", h("i"), colNames, rowNames, plot);
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
    (spot) => choose(spot),
    (spot) => {
      hover(spot ? (places.get(`${spot.layer} ${spot.head}`) ?? null) : null);
    },
  );
  const preview = createPreview(ctx, signal);
  const chosen = createChosen(plot);
  const panel = h("div.menu.grid-panel", ...controls.panel);
  const filter = h("button.button.grid-filter", { type: "button" }, "Filter");
  createPopover(filter, panel, signal, () => undefined);
  const count = h("span.where");
  const problem = h("div.line.grid-problem");
  // Inside another view there is already a Heatmap.
  const isAlone = ctx.el === root;
  let width = 0;
  let inView = false;
  /** A place of the grid, its last part for a name, and the side of thumbnails in the order of layers. */
  let size: Place = { width: 0, height: 0 };
  let foot = 0;
  let isTable = false;
  let selectsFirst = false;
  let drawnKey = "";
  const isOffered = createWatch();
  let sheet: ThumbSheet | undefined;
  let peaks: number[][] = [];
  let now: Arrangement = { cols: 0, lines: [], shown: 0 };
  let best: Spot[] = [];
  let places = new Map<string, [number, number]>();
  /** Line and column of the cursor. */
  let spot: [number, number] | null = null;

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
    tags: isAlone ? [] : [controls.menu, filter],
    body: [panel, content],
    skeleton: "cells",
    hint: "Click a head to show it in every view.",
    legend: scale.element,
  });

  const isBeside = (): boolean => isAlone && width >= TWO_COLUMNS;
  const sizes = ({ layers, heads }: Source): [number, number] => [layers.length, heads?.length ?? 1];
  const headAt = (at: [number, number] | null): Spot | null => (at && now.lines[at[0]]?.spots[at[1]]) || null;

  const words = (): void => {
    const { source } = ctx.resolved();
    const [layers, heads] = sizes(source);
    const unit = source.heads ? "head" : "layer";
    const title = `${layers * heads} ${layers * heads === 1 ? unit : plural(unit)}`;
    frame.show("", title);
    plot.ariaLabel = `${title}, ${source.title}. Arrow keys, Home and End move, Enter selects a head, with Shift several, Escape goes back to it.`;
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
    sheet: sheet,
    peaks,
    map: heatMap(source.signed, ctx.theme, filtersOf(ctx).palette),
    mode: scale.mode(),
    common: scale.common() ? Math.max(0, ...peaks.flat()) : null,
  });

  /** Atlas and labels; only when something they depend on changed. */
  const draw = (): void => {
    if (width <= 0) return;
    const source = ctx.source();
    const thumbs = ctx.tiles.thumbs(source.id, source.parts ? null : undefined);
    const [rows, cols] = sizes(source);
    const why = thumbs ? "" : (ctx.tiles.failure(source.id) ?? (ctx.tiles.status().message || "loading thumbnails …"));
    const dots = Math.max(1, Math.min(2, Math.round(density())));
    const chosenFilters = filtersOf(ctx);
    const { palette, scale: mode, extent } = chosenFilters;
    const ranking = rankingOf();
    scale.follow(chosenFilters);
    const how = [dots, ctx.theme, palette, mode, extent, ctx.options.indexBase, controls.state(), ranking?.id, why];
    const stateKey = [source.id, rows, cols, width, ctx.options.height, ...how].join("|");
    if (stateKey !== drawnKey || thumbs !== sheet) {
      if (thumbs && thumbs !== sheet) peaks = peaksOf(thumbs);
      [drawnKey, sheet] = [stateKey, thumbs];
      layOut(source, ranking);
      setFlag(plot, "data-empty", !isTable && (!thumbs || source.computed !== null || lacking(source) !== null));
      plot.ariaBusy = String(!thumbs);
      const pixels = { width: size.width * dots, height: size.height * dots };
      const map = heatMap(false, ctx.theme, filtersOf(ctx).palette);
      const top = Math.max(1e-9, ...best.slice(0, 1).map((at) => ranking?.share(at) ?? 0));
      if (isTable) paintTable(canvas, now, pixels, map, (at) => (ranking?.share(at) ?? NaN) / top);
      else if (thumbs) paintAtlas(canvas, now, pixels, foot * dots, atlasOf(source, thumbs));
      else canvas.width = 0;
      if (foot && !isTable) names(source, pixels, foot * dots);
      legend(source, thumbs ? Math.max(0, ...peaks.flat()) : 1, why);
    }
    frame.lacks(isTable || thumbs ? (now.shown > 0 ? null : NONE) : lackingThumbs(source));
    const job = ranking ? null : answers.job(patterns.request()[0]);
    const failed = ranking ? "" : answers.failure(...patterns.request());
    setText(problem, failed || (job ? `${job.text}${job.total ? ` ${job.done} of ${job.total}` : " …"}` : ""));
    setText(count, controls.statistic() ? `by ${controls.statistic()?.title}` : patterns.count());
    if (selectsFirst && ranking && best[0]) {
      selectsFirst = false;
      choose(best[0]);
    }
    const next = source.parts && inView ? lacking(source) : null;
    if (next) ctx.tiles.thumbs(source.id, [next.layer, next.head]);
    point();
  };

  const lackingThumbs = ({ id }: Source): Missing => {
    const { state, message } = ctx.tiles.status();
    const why = ctx.tiles.failure(id) ?? (state === "no-kernel" ? message : "");
    if (why) return failed("thumbnails", why);
    return { kind: "awaited", words: "loading thumbnails" };
  };

  /** For a source sent in parts, the first visible thumbnail that is missing. */
  const lacking = (source: Source): Spot | null => {
    const isMissing = (at: Spot | null): boolean => at !== null && sheet?.meta.scale[at.layer]?.[at.head] === undefined;
    const first = source.parts ? now.lines.flatMap(({ spots }) => spots).find(isMissing) : null;
    // Heads of a layer come in their order.
    return first ? { layer: first.layer, head: sheet?.meta.scale[first.layer]?.length ?? 0 } : null;
  };

  const layOut = (source: Source, ranking: Ranking | null): void => {
    const [layers, heads] = sizes(source);
    const statistic = controls.statistic();
    const order = statistic ? controls.order() : "layers";
    const tallest = isBeside() ? (ctx.options.height ?? HEIGHT) - (HEIGHT - TALL) : LOW;
    const across = Math.max(40, (isBeside() ? width - ASIDE : width) - NAMES - 2);
    // The height of the grid never depends on how it is sorted.
    const plain = thumbSide(layers, heads, across, tallest, LARGEST);
    isTable = layers * heads > 1 && thumbSide(layers, heads, NARROW, LOW, LARGEST) < LEAST_SIDE;
    setFlag(content, "data-beside", isBeside());
    const layerName = (layer: number): string => ctx.layerName(source.layers[layer] as number);
    const headName = (head: number): string => (source.heads ? ctx.headName(source.heads[head] as number) : "");
    const keeps = (at: Spot): boolean => controls.keeps(at, layerName(at.layer), headName(at.head));
    const isValued = !isTable && ["all", "groups"].includes(order);
    const names = isValued ? VALUES : NAMES;
    if (isTable) {
      now = table(layers, heads, keeps, headName);
      const [wide, high] = [Math.floor(across / layers), Math.floor((isBeside() ? tallest : LOW_TABLE) / heads)];
      size = { width: Math.max(3, Math.min(WIDEST, wide)), height: Math.max(3, Math.min(HIGHEST, high)) };
      foot = 0;
    } else {
      const room = across - names + NAMES - 12; // beside a scrollbar
      const largest = order === "layers" ? plain : Math.max(NAMED, plain);
      const endless = order === "layers" ? tallest : Number.POSITIVE_INFINITY;
      const value = statistic?.of ?? null;
      const lowest = controls.lowest();
      now = arrange({ layers, heads, order, lowest, value, keeps, layerName, room, tallest: endless, largest });
      const side =
        order === "layers" ? plain : order === "within" ? Math.min(plain, Math.floor(room / heads)) : largest;
      foot = order === "layers" ? 0 : FOOT;
      size = { width: side, height: side + foot };
    }
    const all = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads }));
    const rank = (at: Spot): number => (ranking ? ranking.of(at) * (ranking.lowest ? 1 : -1) : 0);
    best = all.filter((at) => keeps(at) && !Number.isNaN(rank(at)) && !isPruned(sheet, at));
    best.sort((a, b) => rank(a) - rank(b));
    const fixed = isTable ? size.height * heads : Math.min(tallest, plain * layers);
    setSizes(box, { box: Math.max(fixed, Math.min(tallest, 3 * NAMED)) + AROUND });
    places = new Map();
    for (const [row, { spots }] of now.lines.entries()) {
      for (const [col, at] of spots.entries()) if (at) places.set(`${at.layer} ${at.head}`, [row, col]);
    }
    spot = null;
    controls.count(now.shown, layers * heads);
    setFlag(filter, "data-filtered", now.shown < layers * heads);
    setText(
      axes,
      isTable ? "layers across, heads down" : order === "layers" && source.heads ? "heads across, layers down" : "",
    );
    setSizes(figure, { names: names - 6, width: size.width * now.cols, height: size.height * now.lines.length });
    const label = (text: string, at: number, edge: "left" | "top"): HTMLElement => {
      const span = h("span", text);
      span.style[edge] = `${(at + 0.5) * (edge === "top" ? size.height : size.width)}px`;
      return span;
    };
    const isGroups = isValued && order === "groups";
    const lines = isGroups ? now.lines.map((_, i) => i) : thinned(now.lines.length, size.height, 14);
    let free = 0;
    const shown = lines.filter((i) => {
      // Groups may be one thin line each: labels that do not fit are omitted.
      if (!now.lines[i]?.label || (isGroups && i * size.height < free)) return false;
      free = i * size.height + 14;
      return true;
    });
    setChildren(rowNames, ...shown.map((i) => label(now.lines[i]?.label ?? "", i, "top")));
    const columns = isTable
      ? source.layers.map((layer) => ctx.layerName(layer))
      : order === "layers"
        ? (source.heads ?? []).map((head) => ctx.headName(head))
        : [];
    const shownColumns = thinned(columns.length, size.width, 8 + 8 * (columns.at(-1)?.length ?? 0));
    setChildren(colNames, ...shownColumns.map((i) => label(columns[i] as string, i, "left")));
  };

  /** The name of every head below its thumbnail. */
  const names = (source: Source, { width, height }: Place, foot: number): void => {
    const pen = canvas.getContext("2d");
    if (!pen) return;
    const style = getComputedStyle(plot);
    pen.fillStyle = style.color;
    pen.font = `${Math.round((12 * foot) / FOOT)}px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const isNarrow = controls.order() === "within"; // the layer stands at the left
    for (const [row, { spots }] of now.lines.entries()) {
      for (const [col, at] of spots.entries()) {
        if (!at) continue;
        const [layer, head] = [source.layers[at.layer] as number, source.heads?.[at.head]];
        const name = head === undefined ? ctx.layerName(layer) : headAddress(ctx, layer, head);
        const short = isNarrow && head !== undefined ? ctx.headName(head) : name;
        pen.fillText(short, (col + 0.5) * width, (row + 1) * height - foot / 2 - 1, width);
      }
    }
  };

  const legend = (source: Source, common: number, why: string): void => {
    const top = scale.common() ? common : 1;
    let pooled = scale.common() ? "max-pooled, one scale for all" : "max-pooled, × each thumbnail's own maximum";
    if (lacking(source)) {
      const here = sheet?.meta.scale.flat().length ?? 0;
      pooled += `; ${here} of ${sizes(source).reduce((a, b) => a * b)} are loaded, the others load as they scroll into view`;
    }
    scale.show({
      map: heatMap(source.signed, ctx.theme, filtersOf(ctx).palette),
      range: [source.signed ? -top : 0, top],
      words: why || pooled,
    });
  };

  /** Position of the selected head: line, column, and how many columns it spans. */
  const selectedAt = (): [number, number, number] => {
    const { source, layer, head } = ctx.resolved();
    const row = source.layers.indexOf(layer);
    if (source.heads && typeof head !== "number") {
      const isLayer = !isTable && (!controls.statistic() || ["layers", "within"].includes(controls.order()));
      return isLayer ? [row, 0, now.cols] : [-1, -1, 1];
    }
    const at = source.heads && typeof head === "number" ? source.heads.indexOf(head) : 0;
    return [...(places.get(`${row} ${at}`) ?? ([-1, -1] as const)), 1];
  };

  /** The head under the cursor, otherwise the selected one. */
  const meant = (): Spot | null => headAt(spot ?? (selectedAt().slice(0, 2) as [number, number]));

  /** Outline the heads chosen together. */
  const drawChosen = ({ layers, heads }: Source): void => {
    const boxes = ctx.selection.get("heads").flatMap(([layer, head]): [number, number, number, number][] => {
      const at = places.get(`${layers.indexOf(layer)} ${heads?.indexOf(head)}`);
      const { width: across, height: down } = size;
      return at ? [[at[1] * across, at[0] * down, across, down]] : [];
    });
    chosen.draw(boxes);
  };

  /** Update outlines, the enlarged map and the readout. Runs on every pointer move. */
  const point = (): void => {
    const { source, layer, head } = ctx.resolved();
    const outline = (el: HTMLElement, row: number, col: number, cols: number): void =>
      place(el, col * size.width, row * size.height, cols * size.width, size.height);
    const [row, col] = spot ?? [-1, -1];
    outline(hovered, row, col, 1);
    outline(selected, ...selectedAt());
    const at = headAt(spot);
    knockout.show(places, size);
    drawChosen(source);
    const text = at ? wordsAt(source, at) : `selected: ${placeWords(ctx, layer, head)}`;
    frame.readout.show(text + knockout.words(meant()), root.contains(document.activeElement));
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
    if (isPruned(sheet, at)) return `${name} · pruned: this layer has no such head`;
    const peak = sheet && peaks[at.layer]?.[at.head];
    const later = source.computed?.includes(layer) === false ? " · computed when it is opened" : "";
    const most = peak === undefined ? later : ` · largest value ≈ ${tickText(peak)}`;
    const value = rankingOf()?.words(at);
    const own = patterns.own(at);
    return `${name}${value ? ` · ${value}` : ""}${own ? ` · ${own}` : ""}${most}`;
  };

  const find = (event: MouseEvent): [number, number] | null => {
    const at = spotAt(event, plot, now.lines.length, now.cols);
    return headAt(at) ? at : null;
  };
  const hover = (at: [number, number] | null): void => {
    if (String(at) === String(spot)) return;
    spot = at;
    point();
  };
  const choose = (spot: Spot | null): void => {
    if (!spot || isPruned(sheet, spot)) return;
    const { layers, heads } = ctx.source();
    const layer = layers[spot.layer] as number;
    ctx.selection.set(heads ? { layer, head: heads[spot.head] as number, heads: [] } : { layer });
  };
  /** The heads at some positions, as the selection names them. */
  const headsAt = (spots: readonly (readonly [number, number])[]): [number, number][] => {
    const { layers, heads } = ctx.source();
    return spots.flatMap(([row, col]): [number, number][] => {
      const at = headAt([row, col]);
      return at && heads && !isPruned(sheet, at) ? [[layers[at.layer] as number, heads[at.head] as number]] : [];
    });
  };
  const toggle = (at: readonly [number, number] | null): void => {
    if (at) ctx.selection.toggleHeads(headsAt([at]));
  };
  const picture = { element: plot, size: (): [number, number] => [now.lines.length, now.cols] };
  createPicking(plot, picture, signal, {
    toggle,
    drag(from, to, adds) {
      const heads = headsAt(rectangle(from, to));
      if (adds) ctx.selection.addHeads(heads);
      else ctx.selection.set({ heads });
    },
  });
  /** Move the cursor to the next head in a direction; it starts at the selected one. */
  const move = (down: number, right: number) => (): void => {
    const [row, col] = selectedAt();
    let at: [number, number] = spot ?? (row < 0 ? [0, -right] : [row, col]);
    const within = (i: number, count: number): number => Math.max(0, Math.min(count - 1, i));
    for (let i = 0; i < Math.max(now.cols, now.lines.length); i += 1) {
      const line = within(at[0] + down, now.lines.length);
      const wide = now.lines[line]?.spots.length ?? 0;
      const next: [number, number] = [
        line,
        right || down === 0 ? within(at[1] + right, wide) : Math.min(at[1], wide - 1),
      ];
      if (String(next) === String(at)) break;
      at = next;
      if (headAt(at)) break; // filtered heads are skipped
    }
    if (headAt(at)) hover(at);
    hovered.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  };
  /** Choose the head that the cursor leaves and the one that it reaches. */
  const extend = (down: number, right: number) => (): void => {
    const from = spot ?? (selectedAt().slice(0, 2) as [number, number]);
    move(down, right)();
    if (spot) ctx.selection.addHeads(headsAt([from, spot]));
  };
  on(plot, signal, {
    pointermove: (event) => hover(find(event)),
    pointerleave: () => hover(null),
    click: (event) => choose(headAt(find(event))),
  });
  const enter = (): void => choose(headAt(spot));
  keyboard(
    plot,
    signal,
    {
      ArrowUp: move(-1, 0),
      ArrowDown: move(1, 0),
      ArrowLeft: move(0, -1),
      ArrowRight: move(0, 1),
      Home: () => hover([...places.values()][0] ?? null),
      End: () => hover([...places.values()].at(-1) ?? null),
      Enter: enter,
      " ": enter,
      "Shift+ArrowUp": extend(-1, 0),
      "Shift+ArrowDown": extend(1, 0),
      "Shift+ArrowLeft": extend(0, -1),
      "Shift+ArrowRight": extend(0, 1),
      "Shift+Enter": () => toggle(spot),
      Escape() {
        hover(null);
        ctx.selection.clear();
      },
    },
    "← → ↑ ↓: move · Home End: first, last · Enter: select · Shift + arrows, Enter: select several · Esc: back",
  );
  const watch = new IntersectionObserver((entries) => {
    inView = entries.at(-1)?.isIntersecting ?? false;
    draw();
  });
  watch.observe(plot);
  atEnd(signal, () => watch.disconnect());
  const knockout = createKnockout(ctx, plot, answers, signal, meant, point);
  watchWidth(content, signal, (at) => {
    width = at;
    draw();
  });
  return (changed) => {
    if (changed.has("pinned")) drawChosen(ctx.source());
    if (only(changed, "hover", "pinned")) return;
    words();
    draw();
  };
});
