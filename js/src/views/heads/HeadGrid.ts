/**
 * Every layer and head at a glance: one atlas of max-pooled thumbnails, by layer or in the order of a statistic. The
 * head under the pointer is shown enlarged, a click selects it.
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
import { filtersOf, setFilters } from "../base/filters.ts";
import { createPicking } from "../base/gestures.ts";
import { placeWords, plural } from "../base/navigation.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { type Arrangement, arrange, type Spot, thumbSide } from "./grid/arrange.ts";
import { type Atlas, isPruned, paintAtlas, peaksOf } from "./grid/atlas.ts";
import { createControls } from "./grid/controls.ts";
import { createKnockout } from "./grid/knockout.ts";
import { createPreview } from "./grid/preview.ts";

const LARGEST = 72;
const TALLEST = 640;
/** Width in px left of the grid, for names of layers or values. */
const [NAMES, VALUES] = [34, 62];
/** Size in px of the enlarged map: beside the grid if there is room, otherwise below. */
const [LEAST, MOST, GAP] = [170, 280, 24];
const TWO_COLUMNS = 640;

export const renderHeadGrid = view((ctx, root, signal) => {
  const heading = createHeading(ctx);
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "grid of heads" };
  const plot = h("div.plot.grid-plot", role, canvas, hovered, selected);
  const rowNames = h("div.grid-rows", { "aria-hidden": "true" });
  const colNames = h("div.grid-cols", { "aria-hidden": "true" });
  const figure = h("div.figure.grid", h("i"), colNames, rowNames, plot);
  const readout = createReadout();
  const scale = createScale(signal, true, () =>
    setFilters(ctx, { scale: scale.mode(), extent: scale.common() ? "all" : "map" }),
  );
  const answers = createAnswers(ctx, signal, () => {
    controls.update(ctx.source());
    draw();
  });
  const { grid } = ctx.options as Partial<HeadGridOptions>;
  const controls = createControls(signal, answers, grid, (now) => {
    // Python does not store the order of an Explorer's grid.
    if (now && grid) {
      ctx.model.set("options", { ...ctx.model.get("options"), grid: now } as HeadGridOptions);
      ctx.model.save_changes();
    }
    draw();
  });
  const preview = createPreview(ctx, signal);
  const chosen = createChosen(plot);
  // Inside another view there is already a Heatmap.
  const isAlone = ctx.el === root;
  let width = 0;
  let inView = false;
  let side = 0;
  let drawnKey = "";
  const isOffered = createWatch();
  let sheet: ThumbSheet | undefined;
  let peaks: number[][] = [];
  let now: Arrangement = { cols: 0, lines: [], shown: 0 };
  let places = new Map<string, [number, number]>();
  /** Line and column of the cursor. */
  let spot: [number, number] | null = null;

  root.classList.add("aw-headgrid");
  setChildren(
    root,
    ...heading.elements,
    ...controls.elements,
    h("div.grid-body", figure, ...(isAlone ? [preview.element] : [])),
    ...readout.elements,
    scale.element,
  );

  const isBeside = (): boolean => isAlone && width >= TWO_COLUMNS;
  const sizes = ({ layers, heads }: Source): [number, number] => [layers.length, heads?.length ?? 1];
  const headAt = (at: [number, number] | null): Spot | null => (at && now.lines[at[0]]?.spots[at[1]]) || null;

  const words = (): void => {
    const { source } = ctx.resolved();
    const [layers, heads] = sizes(source);
    const across = source.heads ? ` × ${heads} ${heads === 1 ? "head" : "heads"}` : "";
    const where = `${layers} ${layers === 1 ? "layer" : "layers"}${across} · ${plural(source.unit)}`;
    const title = heading.show(where);
    plot.ariaLabel = `${title}: ${where}. Arrow keys, Home and End move, Enter selects a head, with Shift several, Escape goes back to it.`;
    if (isOffered(source, ctx.options)) controls.update(source);
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
    const { palette, scale: mode, extent } = filtersOf(ctx);
    scale.follow(mode || "sqrt", extent === "all");
    const how = [dots, ctx.theme, palette, mode, extent, ctx.options.indexBase, controls.state(), why];
    const stateKey = [source.id, rows, cols, width, ...how].join("|");
    if (stateKey !== drawnKey || thumbs !== sheet) {
      if (thumbs && thumbs !== sheet) peaks = peaksOf(thumbs);
      [drawnKey, sheet] = [stateKey, thumbs];
      layOut(source);
      setFlag(plot, "data-empty", !thumbs || source.computed !== null || lacking(source) !== null);
      plot.ariaBusy = String(!thumbs);
      const foot = thumbs && controls.statistic() && side >= 10 ? Math.max(2, Math.round(side / 12)) * dots : 0;
      if (thumbs) paintAtlas(canvas, now, side * dots, foot, atlasOf(source, thumbs));
      else canvas.width = 0;
      if (foot) bars(side * dots, foot);
      legend(source, thumbs ? Math.max(0, ...peaks.flat()) : 1, why);
    }
    const next = source.parts && inView ? lacking(source) : null;
    if (next) ctx.tiles.thumbs(source.id, [next.layer, next.head]);
    point();
  };

  /** For a source sent in parts, the first visible thumbnail that is missing. */
  const lacking = (source: Source): Spot | null => {
    const isMissing = (at: Spot | null): boolean => at !== null && sheet?.meta.scale[at.layer]?.[at.head] === undefined;
    const first = source.parts ? now.lines.flatMap(({ spots }) => spots).find(isMissing) : null;
    // Heads of a layer come in their order.
    return first ? { layer: first.layer, head: sheet?.meta.scale[first.layer]?.length ?? 0 } : null;
  };

  const layOut = (source: Source): void => {
    const [layers, heads] = sizes(source);
    const statistic = controls.statistic();
    const isValued = statistic !== null && ["all", "groups"].includes(controls.order());
    const names = isValued ? VALUES : NAMES;
    const room = width - names - (isBeside() ? LEAST + GAP : 0);
    const layerName = (layer: number): string => ctx.layerName(source.layers[layer] as number);
    const headName = (head: number): string => (source.heads ? ctx.headName(source.heads[head] as number) : "");
    const keeps = (at: Spot): boolean => controls.keeps(at, layerName(at.layer), headName(at.head));
    const value = statistic?.of ?? null;
    const [order, lowest] = [controls.order(), controls.lowest()];
    const box = { room, tallest: TALLEST, largest: LARGEST };
    now = arrange({ layers, heads, order, lowest, value, keeps, layerName, ...box });
    side = thumbSide(now.lines.length, now.cols, room, TALLEST, LARGEST);
    places = new Map();
    for (const [row, { spots }] of now.lines.entries()) {
      for (const [col, at] of spots.entries()) if (at) places.set(`${at.layer} ${at.head}`, [row, col]);
    }
    spot = null;
    controls.count(now.shown, layers * heads);
    setSizes(figure, { names: names - 6, width: side * now.cols, height: side * now.lines.length });
    const label = (text: string, at: number, edge: "left" | "top"): HTMLElement => {
      const span = h("span", text);
      span.style[edge] = `${(at + 0.5) * side}px`;
      return span;
    };
    const isGroups = isValued && controls.order() === "groups";
    const lines = isGroups ? now.lines.map((_, i) => i) : thinned(now.lines.length, side, 13);
    let free = 0;
    const shown = lines.filter((i) => {
      // Groups may be one thin line each: labels that do not fit are omitted.
      if (!now.lines[i]?.label || (isGroups && i * side < free)) return false;
      free = i * side + 13;
      return true;
    });
    setChildren(rowNames, ...shown.map((i) => label(now.lines[i]?.label ?? "", i, "top")));
    const all =
      isValued || (statistic && order === "within") ? [] : (source.heads ?? []).map((head) => ctx.headName(head));
    const shownHeads = thinned(all.length, side, 8 + 7 * (all.at(-1)?.length ?? 0));
    setChildren(colNames, ...shownHeads.map((i) => label(all[i] as string, i, "left")));
  };

  /** A bar below every thumbnail for its statistic. */
  const bars = (px: number, foot: number): void => {
    const pen = canvas.getContext("2d");
    const statistic = controls.statistic();
    if (!pen || !statistic) return;
    const span = statistic.high - statistic.low || 1;
    pen.fillStyle = getComputedStyle(root).getPropertyValue("--aw-accent") || "#1976d2";
    for (const [row, { spots }] of now.lines.entries()) {
      for (const [col, at] of spots.entries()) {
        const value = at ? statistic.of(at) : NaN;
        if (Number.isNaN(value)) continue;
        const long = Math.max(1, (px - 2) * ((value - statistic.low) / span));
        pen.fillRect(col * px, (row + 1) * px - foot - 1, long, foot);
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
      button: scale.common()
        ? ["scale: common", "All thumbnails share one scale. Click to scale each to its own maximum."]
        : ["scale: each its own", "Every thumbnail is scaled to its own maximum. Click for one scale for all."],
    });
  };

  /** Position of the selected head: line, column, and how many columns it spans. */
  const selectedAt = (): [number, number, number] => {
    const { source, layer, head } = ctx.resolved();
    const row = source.layers.indexOf(layer);
    if (source.heads && typeof head !== "number") {
      const isLayer = !controls.statistic() || ["layers", "within"].includes(controls.order());
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
      return at ? [[at[1] * side, at[0] * side, side, side]] : [];
    });
    chosen.draw(boxes);
  };

  /** Update outlines, the enlarged map and the readout. Runs on every pointer move. */
  const point = (): void => {
    const { source, layer, head } = ctx.resolved();
    const outline = (el: HTMLElement, row: number, col: number, cols: number): void =>
      place(el, col * side, row * side, cols * side, side);
    const [row, col] = spot ?? [-1, -1];
    outline(hovered, row, col, 1);
    outline(selected, ...selectedAt());
    const at = headAt(spot);
    knockout.show(places, side);
    drawChosen(source);
    const text = at ? wordsAt(source, at) : `selected: ${placeWords(ctx, layer, head)}`;
    readout.show(text + knockout.words(meant()), root.contains(document.activeElement));
    if (!isAlone || !sheet) return;
    const chosen = typeof head === "number" ? (source.heads?.indexOf(head) ?? 0) : 0;
    const shown = at ?? { layer: source.layers.indexOf(layer), head: chosen };
    const beside = width - side * now.cols - VALUES - GAP;
    const large = isBeside() ? Math.min(MOST, Math.max(LEAST, beside)) : Math.min(LEAST, width);
    const name = placeWords(ctx, source.layers[shown.layer] as number, source.heads?.[shown.head] ?? "-");
    preview.show(atlasOf(source, sheet), shown, Math.floor(large), name);
  };

  const wordsAt = (source: Source, at: Spot): string => {
    const layer = source.layers[at.layer] as number;
    const name = placeWords(ctx, layer, source.heads?.[at.head] ?? "-");
    if (isPruned(sheet, at)) return `${name} · pruned: this layer has no such head`;
    const peak = sheet && peaks[at.layer]?.[at.head];
    const later = source.computed?.includes(layer) === false ? " · computed when it is opened" : "";
    const most = peak === undefined ? later : ` · largest value ≈ ${tickText(peak)}`;
    const statistic = controls.statistic();
    const value = statistic ? ` · ${statistic.title} ${printed(statistic.of(at), true)}` : "";
    return name + value + most;
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
  const choose = (at: [number, number] | null): void => {
    const spot = headAt(at);
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
    click: (event) => choose(find(event)),
  });
  const enter = (): void => choose(spot);
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
  watchWidth(root, signal, (at) => {
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
