/** The state of a HeadGrid, its heads, and their ranking. */
import { heatMap } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { h } from "../../../dom.ts";
import { printed } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import { peaksOf } from "../../../wire/sheets.ts";
import type { ThumbSheet } from "../../../wire/tile.ts";
import type { Source } from "../../../wire/wire.ts";
import type { Chosen } from "../../base/chosen.ts";
import type { ColourScale } from "../../base/colourScale.ts";
import { filtersOf } from "../../base/filters.ts";
import type { Frame } from "../../base/frame.ts";
import { headlessWords, headsOf } from "../../base/mixers.ts";
import type { Spot } from "./arrange.ts";
import type { Atlas } from "./atlas.ts";
import type { Controls } from "./controls.ts";
import type { Cursor } from "./cursor.ts";
import type { Knockout } from "./knockout.ts";
import type { Layout } from "./layout.ts";
import { createNames } from "./names.ts";
import type { PatternChoice, Ranking } from "./patterns.ts";
import type { Preview } from "./preview.ts";
import type { Ranked } from "./ranked.ts";

/** Its elements, and the state that they show. */
export interface HeadGridState extends ReturnType<typeof createBoard> {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly scale: ColourScale;
  readonly answers: Answers;
  readonly controls: Controls;
  readonly patterns: PatternChoice;
  readonly ranked: Ranked;
  readonly preview: Preview;
  readonly chosen: Chosen;
  /** Inside another view there is already a Heatmap, and little room. */
  readonly isAlone: boolean;
  readonly filter: HTMLButtonElement;
  readonly count: HTMLSpanElement;
  readonly problem: HTMLDivElement;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  /** Whether the grid is on screen: thumbnails sent in parts are requested as they scroll into view. */
  inView: boolean;
  /** Whether the first head of the next ranking is selected. */
  selectsFirst: boolean;
  /** The input of the drawn atlas. */
  drawnKey: string;
  readonly isOffered: (...values: unknown[]) => boolean;
  readonly isRepainted: (...values: unknown[]) => boolean;
  readonly isPreviewed: (...values: unknown[]) => boolean;
  /** The thumbnails; undefined until they arrive. */
  sheet: ThumbSheet | undefined;
  /** Whether the thumbnails of the map's filters are missing, and others are shown. */
  isOther: boolean;
  /** The layout of the heads. */
  now: Layout;
  /** The heads by the ranking. */
  best: Spot[];
  readonly content: HTMLDivElement;
  readonly frame: Frame;
  readonly cursor: Cursor;
  readonly knockout: Knockout;
}

/** The canvas of all heads with its names, and the outlines over it. */
export function createBoard(ctx: ViewContext) {
  const canvas = h("canvas.cells");
  const [hovered, selected] = [h("div.spot"), h("div.spot.spot-selected")];
  const role = { tabindex: "0", role: "application", "aria-roledescription": "grid of heads" };
  const plot = h("div.plot.grid-plot", role, canvas, hovered, selected);
  const labels = createNames(ctx);
  const figure = h("div.figure.grid", h("i"), labels.cols, labels.rows, plot);
  return {
    canvas,
    hovered,
    selected,
    plot,
    labels,
    figure,
    box: h("div.grid-box", figure),
    axes: h("div.where.grid-axes.fine"),
  };
}

export function sizes({ layers, heads }: Source): [number, number] {
  return [layers.length, heads?.length ?? 1];
}

export function isHeadless(source: Source, layer: number): boolean {
  return headlessWords(source, source.layers[layer] as number, "mean") !== "";
}

export function exists(source: Source, { layer, head }: Spot): boolean {
  return !source.heads || headsOf(source, source.layers[layer] as number).includes(source.heads[head] as number);
}

export function spotsOf(source: Source): Spot[] {
  const [layers, heads] = sizes(source);
  const all = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads }));
  return all.filter((at) => exists(source, at));
}

/** The ranking of heads: the chosen statistic, otherwise a pattern. */
export function rankingOf(state: HeadGridState): Ranking | null {
  const { controls } = state;
  const statistic = controls.statistic();
  if (!statistic) return state.patterns.ranking();
  const { low, high, of, title } = statistic;
  return {
    id: controls.state(),
    title,
    of,
    share: (at) => (high > low ? (of(at) - Math.min(low, 0)) / (high - Math.min(low, 0)) : 1),
    lowest: controls.lowest(),
    words: (at) => `${title} ${printed(of(at), true)}`,
  };
}

export function atlasOf(state: HeadGridState, source: Source, sheet: ThumbSheet): Atlas {
  return {
    source,
    sheet,
    map: heatMap(source.signed, state.ctx.theme, filtersOf(state.ctx).palette),
    mode: state.scale.mode(),
    common: state.scale.common() ? largestOf(sheet) : null,
  };
}

export const largestOf = (sheet: ThumbSheet): number => Math.max(0, ...peaksOf(sheet).flat());
