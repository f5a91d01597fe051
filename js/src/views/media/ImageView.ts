/**
 * A picture and, over it, the patches that a patch or the class token reads in a layer and head; next to it, every
 * other head. Click a patch to choose it, arrow keys read patch after patch.
 *
 * `draw` reads the maps of the chosen element (`read`), fits the picture (`fit`), and paints the heat (`paint`) and the
 * other heads (`drawColumn`, atlas.ts). A pointer that moves runs `point` of reading.ts alone.
 */

import { type Mode, SCALE } from "../../colour.ts";
import type { Change, ViewContext } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  on,
  onResize,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
  watchWidth,
} from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import type { Cell, HeadKey, Source } from "../../wire/wire.ts";
import { filtersOf, offerAdjusting } from "../base/filters.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { type Missing, missingAnswer } from "../base/missing.ts";
import { headAddress } from "../base/navigation.ts";
import { createSegments, type Segments } from "../base/segmentedControl.ts";
import {
  type Control,
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { setAttributes } from "../charts/svg.ts";
import { type Atlas, createAtlas } from "./atlas.ts";
import { type Column, createColumn, type Entry } from "./column.ts";
import { type Chosen, chosenElement, elementName, elementsOf, isOfPicture } from "./elements.ts";
import { outline, overlayCss, overMap, paintHeat, type Shade, topPatches } from "./heat.ts";
import { createOverlay, createShading, createSwaps } from "./imageControls.ts";
import { createNorms, type Norms } from "./norms.ts";
import { createPicture, type Picture } from "./picture.ts";
import { createReading, type Reading, type Shown } from "./reading.ts";
import { type PatchRowsMeta, readRows } from "./rows.ts";
import { createShares, type Shares } from "./shares.ts";

/** px from which there are three columns, and below which there is a single column. */
const [WIDE, NARROW] = [1000, 640];
/** px between the picture and the small pictures. */
const GAP = 12;

/** The elements of the view, and its state. */
interface ImageState extends ReturnType<typeof createShading>, ReturnType<typeof createOverlay> {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly isInside: boolean;
  readonly answers: Answers;
  readonly controls: Control;
  readonly direction: Segments<"from" | "into">;
  readonly picture: Picture;
  readonly smooth: Segments<"nearest" | "smoothed">;
  readonly smoothLabel: HTMLElement;
  readonly shares: Shares;
  readonly atlas: Atlas;
  readonly column: Column;
  readonly norms: Norms;
  /** Buttons that switch between panels if a single panel fits. */
  readonly swaps: ReturnType<typeof createSwaps>;
  readonly reading: Reading;
  /** Whether the map shows the readers of the chosen element instead of the elements it reads. */
  into: boolean;
  /** The drawn map, the previous map until the next arrives; null: none yet. */
  shown: Shown | null;
  /** px of the picture. */
  size: readonly [number, number];
  /** px of the picture; 0 while it is not visible. */
  width: number;
  /** Sizes of the panes, measured when they change: to measure while drawing would lay out the page each time. */
  room: readonly [number, number];
  normsRoom: readonly [number, number];
  /** The requested frame that draws the norms. */
  nextNorms: number;
  readonly isPainted: (...values: unknown[]) => boolean;
  readonly isBelow: (...values: unknown[]) => boolean;
  readonly isOtherExtent: (...values: unknown[]) => boolean;
  readonly isFitted: (...values: unknown[]) => boolean;
  readonly frame: Frame;
  readonly captions: HTMLElement[];
}

export const renderImageView = view((ctx, root, signal) => {
  const isInside = ctx.el !== root;
  const answers = createAnswers(ctx, signal, () => draw(state));
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    createHeadControl(ctx, signal),
    createUnitControl(ctx, signal),
  );
  const direction = createSegments("direction", { from: "from", into: "into" }, signal, () => turn(state));
  const picture = createPicture(ctx, () => draw(state));
  const smooth = createSegments("between patches", { nearest: "nearest", smoothed: "smoothed" }, signal, () =>
    draw(state),
  );
  const shading = createShading();
  const overlay = createOverlay();
  const shares = createShares(ctx, signal, (side, index) => look(state, side, index));
  const atlas = createAtlas(
    ctx,
    signal,
    (layer, head) => showMap(ctx, layer, head),
    (layer, head) => reading.pointMap(layer, head),
  );
  const column = createColumn(signal, picture, (at) => showMap(ctx, state.shown?.layer ?? 0, at));
  const norms = createNorms(ctx, signal, answers, picture, () => draw(state));
  const swaps = createSwaps(norms, atlas, signal, (pane) => swap(state, pane));
  const [tools, menu] = [h("span.image-tools", smooth.element), h("div.form")];
  const lead = h("div.image-lead", shares.element, tools);
  const main = h("div.image-main", overlay.plot, column.element);
  const reading = createReading(ctx, signal, {
    root,
    plot: overlay.plot,
    shown: () => state.shown,
    size: () => state.size,
    seen: () => picture.seen(),
    frame: () => frame,
    look: (side, index) => look(state, side, index),
  });
  const frame = createFrame(ctx, root, {
    controls: isInside ? [] : [...controls.elements, direction.element],
    tags: swaps.slice(2).map(({ button }) => button),
    legend: shading.legend,
    body: [lead, atlas.element, main, norms.element],
    skeleton: "own",
    hint: ctx.source().kind === "map" ? "Click a patch to see what it reads." : "Point at a patch to read its value.",
    says: true,
    actions: reading.copy ? [reading.copy.element] : [],
  });
  // Above the picture's caption, and reached before it.
  lead.parentElement?.prepend(lead);

  const state: ImageState = {
    ctx,
    ...shading,
    ...overlay,
    root,
    signal,
    isInside,
    answers,
    controls,
    direction,
    picture,
    smooth,
    smoothLabel: smooth.element.lastElementChild as HTMLElement,
    shares,
    atlas,
    column,
    norms,
    swaps,
    reading,
    into: false,
    shown: null,
    size: [0, 0],
    width: 0,
    room: [0, 0],
    normsRoom: [0, 0],
    nextNorms: 0,
    isPainted: createWatch(),
    isBelow: createWatch(),
    isOtherExtent: createWatch(),
    isFitted: createWatch(),
    frame,
    captions: [...root.querySelectorAll<HTMLElement>(".aw-caption > :is(.aw-title, .aw-where)")],
  };
  listen(state, tools, menu, main);
  return (changed) => update(state, changed);
});

/** Draw again after changes of controls and of the width of the panes. */
function listen(state: ImageState, tools: HTMLSpanElement, menu: HTMLDivElement, main: HTMLDivElement): void {
  const { isInside, ctx, root, signal, direction, smooth, heat, around, extent, norms, heatField, outlineField } =
    state;
  offerAdjusting(ctx, "colours", menu);
  root.classList.add("aw-image");
  setFlag(root, "data-inside", isInside);
  // For an answer in words next to it, which would request a whole matrix.
  ctx.lasting.set("pictured", (side: string, index: number): Float32Array | undefined => {
    if (
      !state.shown ||
      (state.shown.source.kind === "map" && (state.shown.chosen.side !== side || state.shown.chosen.index !== index))
    )
      return;
    const { rows, layer, values, source } = state.shown;
    const whole = new Float32Array(rows.patches.length + rows.others.length);
    const head = source.kind === "map" ? state.shown.head : index;
    const map = head === state.shown.head ? values : rows.map(layer, head);
    rows.patches.forEach((element, i) => {
      whole[element] = map[i] as number;
    });
    rows.others.forEach((element, i) => {
      whole[element] = rows.rest(layer, head)[i] as number;
    });
    return whole;
  });
  for (const control of [heat, around, extent]) on(control, signal, { input: () => draw(state) });

  watchWidth(root, signal, (now) => {
    state.width = now;
    root.dataset.size = now >= WIDE ? "wide" : now >= NARROW ? "middle" : "narrow";
    // Controls that do not fit are in the menu.
    const [inLead, inMenu] =
      now >= WIDE
        ? [[outlineField, smooth.element, heatField], []]
        : now >= NARROW
          ? [[smooth.element], [outlineField, heatField]]
          : [[], [smooth.element, outlineField, heatField]];
    setChildren(tools, ...(isInside ? [direction.element] : []), ...inLead);
    setChildren(menu, ...inMenu);
    draw(state);
  });
  onResize(main, signal, (box) => {
    state.room = [box.width, box.height];
    draw(state);
  });
  onResize(norms.element, signal, (box) => {
    state.normsRoom = [box.width, box.height];
    if (box.width > 0) draw(state);
  });
}

function chosenNow(state: ImageState): {
  source: Source;
  chosen: Chosen;
  args: Record<string, unknown>;
  topic: string;
} {
  const { ctx } = state;
  const { source } = ctx.resolved();
  const chosen = chosenElement(ctx, ctx.cell("pinned"), state.into);
  const args = { source: source.id, ...chosen, computed: source.computed?.length ?? null };
  return { source, chosen, args, topic: chosen.side === "query" ? "reads" : "readers" };
}

/** Request the maps of the chosen element; returns the missing data, or null. */
function read(state: ImageState): Missing | null {
  const { ctx, answers } = state;
  const { source, layer, head } = ctx.resolved();
  if (!isOfPicture(ctx, source)) {
    state.shown = null;
    return {
      kind: "none",
      words: "This method reads no patches",
      advice: "Choose another unit, method or stack.",
      other: true,
    };
  }
  const { chosen, args, topic } = chosenNow(state);
  if (source.computed && !source.computed.includes(layer)) {
    const request = { source: source.id, layer };
    answers.get("layer", request);
    return {
      ...missingAnswer(answers, "layer", request, `layer ${ctx.layerName(layer)}`),
      other: state.shown?.source !== source,
    };
  }
  const answer = answers.get<PatchRowsMeta>(topic, args);
  const chosenAxis = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
  const map = source.kind === "attributions" ? "map" : `map of ${elementName(ctx, chosenAxis, chosen.index)}`;
  if (!answer) return { ...missingAnswer(answers, topic, args, map), other: state.shown?.source.id !== source.id };
  const rows = readRows(answer);
  const at = Math.max(0, rows.layers.indexOf(layer));
  const target = Math.max(0, ctx.cell("pinned")?.query ?? 0);
  const headIndex = source.kind === "attributions" ? Math.min(target, rows.heads - 1) : headAt(source, head);
  const other = ctx.axisOf(chosen.side === "query" ? source.key : source.query);
  const { grid, patches } = elementsOf(rows.patches.length ? other : chosenAxis);
  state.shown = { source, chosen, rows, layer: at, head: headIndex, values: rows.map(at, headIndex), grid, patches };
  return null;
}

function headAt(source: Source, head: HeadKey): HeadKey {
  return typeof head === "number" ? Math.max(0, source.heads?.indexOf(head) ?? 0) : head;
}

/** Look at an element: pin it, or unpin it if it is pinned already. */
function look(state: ImageState, side: Chosen["side"], index: number): void {
  const { ctx } = state;
  const { unit, kind } = ctx.source();
  if (kind === "attributions") return;
  const pinned = ctx.cell("pinned");
  const alone: Cell = side === "query" ? { unit, query: index, key: -1 } : { unit, query: -1, key: index };
  state.into = side === "key";
  const isSame = pinned && pinned.query === alone.query && pinned.key === alone.key;
  ctx.selection.set({ pinned: isSame ? null : alone });
}

/** Turn the map of the chosen element round. */
function turn(state: ImageState): void {
  const { ctx } = state;
  const { selection } = ctx;
  const { unit, query: queryAxis, key: keyAxis } = ctx.source();
  const { chosen } = chosenNow(state);
  state.into = state.direction.value() === "into";
  const side = state.into ? "key" : "query";
  if (side === chosen.side) return;
  // Where queries and keys are different texts or pictures, an element of either does not exist in the other.
  if (queryAxis !== keyAxis || !ctx.cell("pinned")) selection.set({ pinned: null });
  else
    selection.set({
      pinned: state.into ? { unit, query: -1, key: chosen.index } : { unit, query: chosen.index, key: -1 },
    });
  draw(state);
}

function showMap(ctx: ViewContext, layer: number, head: number): void {
  const source = ctx.source();
  const number = source.layers[layer];
  if (source.kind === "attributions") ctx.selection.set({ pinned: { unit: source.unit, query: head, key: -1 } });
  const heads = source.kind === "map" && source.heads ? { head: source.heads[head] as number } : {};
  if (number !== undefined) ctx.selection.set({ ...(source.kind === "map" && { layer: number }), ...heads });
}

// ---- the picture ----
function shadeOf(state: ImageState, { source, rows, layer, head }: Shown): Shade {
  const { palette, scale } = filtersOf(state.ctx);
  const extent = state.extent.value;
  const layers = extent === "all" ? [...rows.layers.keys()] : [layer];
  const heads: HeadKey[] = extent === "map" ? [head] : Array.from({ length: rows.heads }, (_, i) => i);
  const peaks = layers
    .flatMap((at) => heads.map((index) => rows.peak(at, index)))
    .filter((peak) => !Number.isNaN(peak));
  const top = Math.max(0, ...peaks) || 1;
  const mode: Mode = scale || SCALE;
  return { map: overMap(source.signed, palette), mode, range: [source.signed ? -top : 0, top] };
}

/** The size of the picture in px: whole px a patch where it fits. */
function fit(state: ImageState): void {
  const { root, column, room } = state;
  const [rows, cols] = state.shown?.grid ?? [0, 0];
  if (!rows || !cols || state.width <= 0) return;
  const ratio = state.picture.ratio() ?? rows / cols;
  if (!state.isFitted(rows, cols, ratio, column.element.hidden, ...room, root.dataset.size)) return;
  const columnWidth = column.element.hidden ? 0 : column.element.offsetWidth + GAP;
  const wide = Math.max(cols, Math.min(room[0] - columnWidth, room[1] / ratio));
  const across = Math.max(1, Math.floor(wide / cols));
  const down = Math.max(1, Math.round((across * cols * ratio) / rows));
  const now = cols > wide || !down ? ([wide, wide * ratio] as const) : ([across * cols, down * rows] as const);
  if (now[0] === state.size[0] && now[1] === state.size[1]) return;
  state.size = now;
  setSizes(state.plot, { wide: now[0], high: now[1] });
  setSizes(root, { "image-high": now[1] });
}

function paint(state: ImageState, now: Shown): void {
  const { picture, smoothLabel, around, plot, size } = state;
  const { rows, values } = now;
  const shade = shadeOf(state, now);
  const isSmooth = state.smooth.value() === "smoothed";
  const dots = Math.min(2, globalThis.devicePixelRatio || 1);
  const [wide, high] = [Math.round(size[0] * dots), Math.round(size[1] * dots)];
  if (state.isBelow(wide, high, picture.ratio()) && wide > 0) picture.draw(state.below, wide, high);
  setStyles(plot, { "--aw-heat": state.heat.value });
  setFlag(plot, "data-smooth", isSmooth);
  const grid = `${now.grid[0]} × ${now.grid[1]} values`;
  assign(smoothLabel, { title: `${grid}, interpolated` });
  smoothLabel.dataset.values = `: ${grid}`;
  if (!state.isPainted(values, JSON.stringify(shade), around.value)) return;
  paintHeat(state.warm, values, rows.grid, shade);
  setAttributes(state.lines, { viewBox: `0 0 ${rows.grid[1]} ${rows.grid[0]}` });
  setAttributes(state.line, {
    d: around.value ? outline(topPatches(values, Number(around.value)), rows.grid) : "",
  });
  setStyles(state.ramp, { background: overlayCss(shade) });
  setText(state.least, shade.range[0] < 0 ? tickText(shade.range[0]) : "0");
  setText(state.most, tickText(shade.range[1]));
  state.legend.title = `${shade.mode} scale; ${now.source.stochastic && now.chosen.side === "query" ? "share of what is read" : "weight"}`;
}

function drawColumn(state: ImageState, now: Shown): void {
  const { ctx } = state;
  const { rows, layer, source, chosen, head } = now;
  const targets = source.kind === "attributions";
  const labels = targets ? ctx.axisOf(source.query).labels : [];
  const axis = ctx.axisOf(chosen.side === "query" ? source.key : source.query);
  const first = rows.others.findIndex((i) => axis.special[i]);
  const isMapScale = state.extent.value === "map";
  const shade = shadeOf(state, now);
  const isWide = state.root.dataset.size === "wide" || targets;
  const entries = Array.from({ length: rows.heads }, (_, i): Entry => {
    const top = rows.peak(layer, i) || 1;
    const range: readonly [number, number] = isMapScale ? [source.signed ? -top : 0, top] : shade.range;
    return {
      name: targets ? (labels[i] ?? "") : `${isWide ? "head " : ""}${ctx.headName(source.heads?.[i] ?? i)}`,
      about:
        targets || first < 0
          ? ""
          : `${chosen.side === "query" ? "to" : "by"} ${axis.labels[rows.others[first] as number]}`,
      value: targets ? rows.sum(layer, i) : first < 0 ? Number.NaN : (rows.rest(layer, i)[first] ?? Number.NaN),
      shade: { ...shade, range },
    };
  });
  state.column.show(rows, layer, entries, typeof head === "number" ? head : -1, isWide, state.size[1] || 384);
}

// ---- words and controls ----
function words(state: ImageState): void {
  const { ctx, root, direction } = state;
  const { source, layer, head } = ctx.resolved();
  state.controls.show();
  const targets = source.kind === "attributions";
  const { chosen } = chosenNow(state);
  direction.element.hidden = targets;
  direction.choose(chosen.side === "key" ? "into" : "from");
  const chosenAxis = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
  const name = elementName(ctx, chosenAxis, chosen.index);
  const label = targets ? (chosenAxis.labels[Math.max(0, ctx.cell("pinned")?.query ?? 0)] ?? "") : "";
  const about = targets
    ? `for ${label || "the target"}`
    : chosen.side === "query"
      ? `${name} reads patches`
      : `who reads ${name}`;
  const at =
    targets || head === "-"
      ? `${source.title}${source.layers.length > 1 ? `, layer ${ctx.layerName(layer)}` : ""}`
      : typeof head === "number"
        ? `head ${headAddress(ctx, layer, head)}`
        : `layer ${ctx.layerName(layer)}, ${head} of heads`;
  state.frame.show(about, at);
  for (const el of state.captions) assign(el, { title: el.textContent ?? "" });
  assign(state.plot, {
    ariaLabel: `${at}, ${about}. Arrow keys read the next patch, Enter shows what it reads, Space pins the pair, Shift and arrows change layer and head.`,
  });
  state.extent.options[0]?.replaceChildren(targets ? "this map" : head === "-" ? "this layer's" : "this head");
  const canNorm = Boolean((ctx.options as { canNorm?: boolean }).canNorm) && source.query === source.key;
  setFlag(root, "data-norms", canNorm);
  setFlag(root, "data-targets", targets);
  for (const { name, button } of state.swaps) button.hidden = name === "norms" && !canNorm;
}

function draw(state: ImageState): void {
  const { ctx, root, atlas } = state;
  const filter = filtersOf(ctx).extent;
  if (state.isOtherExtent(filter)) state.extent.value = filter || "map";
  const missing = read(state);
  words(state);
  state.frame.lacks(missing);
  // After a failure, the picture is shown without the map of another element.
  setFlag(root, "data-blank", missing !== null && (missing.kind !== "awaited" || (missing.other ?? false)));
  if (!state.shown || state.width <= 0) return;
  const now = state.shown;
  const { rows, layer, head, chosen, source } = now;
  const { palette } = filtersOf(ctx);
  const chosenAxis = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
  const targets = source.kind === "attributions";
  // Maps of a single layer are next to the picture already.
  setFlag(root, "data-flat", rows.layers.length < 2);
  state.column.element.hidden = rows.heads < 2;
  fit(state);
  drawColumn(state, now);
  paint(state, now);
  const name = elementName(ctx, chosenAxis, chosen.index);
  const about = targets ? "by target" : chosen.side === "query" ? `what ${name} reads` : `who reads ${name}`;
  atlas.show(rows, about, palette, state.isInside ? root.clientHeight - 112 : (ctx.options.height ?? 560) - 188);
  atlas.select(layer, typeof head === "number" ? head : head === "-" ? 0 : -1);
  state.shares.show({
    chosen,
    rows,
    rest: rows.rest(layer, head),
    sum: rows.sum(layer, head),
    shares: source.stochastic && chosen.side === "query",
    targets,
  });
  if (root.hasAttribute("data-norms") && state.normsRoom[0] > 0) {
    // In the same frame, but after the picture.
    cancelAnimationFrame(state.nextNorms);
    state.nextNorms = requestAnimationFrame(() => {
      const at = Math.max(0, source.layers.indexOf(ctx.resolved().layer));
      if (!state.signal.aborted) state.norms.show(source.stack, ctx.axisOf(source.key), at, ...state.normsRoom);
    });
  }
  state.reading.point();
  (ctx.lasting.get("drawn") as (() => void) | undefined)?.();
}

function swap(state: ImageState, name: string): void {
  const { root } = state;
  const isBeside = root.dataset.size === "middle";
  root.dataset.pane = root.dataset.pane === name || (isBeside && name === "heads") ? "" : name;
  for (const { name: panel, button } of state.swaps.slice(2)) button.ariaPressed = String(panel === root.dataset.pane);
  draw(state);
}

function update(state: ImageState, changed: ReadonlySet<Change>): void {
  const { reading } = state;
  if (only(changed, "hover")) {
    reading.point();
    return;
  }
  reading.settle();
  draw(state);
}
