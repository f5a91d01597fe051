/**
 * A picture and, over it, what a patch or the class token reads in one layer and head; next to it, every other head.
 * Click a patch to look at that one, arrow keys read patch after patch.
 */
import { type Mode, SCALE } from "../../colour.ts";
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
import { createAnswers } from "../../wire/answers.ts";
import type { Cell, HeadKey, Source } from "../../wire/wire.ts";
import { filtersOf, offerAdjusting } from "../base/filters.ts";
import { createFrame } from "../base/frame.ts";
import { type Missing, missingAnswer } from "../base/missing.ts";
import { headAddress } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import {
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { setAttributes, svg } from "../charts/svg.ts";
import { createAtlas } from "./atlas.ts";
import { createColumn, type Entry } from "./column.ts";
import { type Chosen, chosenElement, elementName, isOfPicture, placesOf } from "./elements.ts";
import { outline, overlayCss, overMap, paintHeat, type Shade, topPatches } from "./heat.ts";
import { createNorms } from "./norms.ts";
import { createPicture } from "./picture.ts";
import { createReading, type Shown } from "./reading.ts";
import { type PatchRowsMeta, readRows } from "./rows.ts";
import { createShares } from "./shares.ts";

/** px from which there are three columns, and below which there is one. */
const [WIDE, NARROW] = [1000, 640];
/** px between the picture and the small ones. */
const GAP = 12;
const OUTLINES: readonly (readonly [string, string])[] = [
  ["", "none"],
  ["0.5", "half of it"],
  ["0.6", "60 % of it"],
  ["0.8", "80 % of it"],
  ["0.95", "95 % of it"],
];
const SCALES: readonly (readonly [string, string])[] = [
  ["map", "this head"],
  ["layer", "this layer"],
  ["all", "all layers"],
];
const options = (choices: readonly (readonly [string, string])[]): HTMLElement[] =>
  choices.map(([value, name]) => h("option", { value }, name));

export const renderImageView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const isInside = ctx.el !== root;
  const answers = createAnswers(ctx, signal, () => draw());
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    createHeadControl(ctx, signal),
    createUnitControl(ctx, signal),
  );
  const direction = createSegments("direction", { from: "from", into: "into" }, signal, () => turn());
  const picture = createPicture(ctx, () => draw());
  const smooth = createSegments("between patches", { nearest: "nearest", smoothed: "smoothed" }, signal, () => draw());
  const smoothLabel = smooth.element.lastElementChild as HTMLElement;
  const heat = h("input.range.image-opacity", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.05",
    value: "1",
    "aria-label": "heat",
  });
  const heatField = h("label.group.image-heat-field", "heat", heat);
  const around = h("select.button", { "aria-label": "outline" }, ...options(OUTLINES));
  const extent = h("select.button.image-extent", { "aria-label": "scale" }, ...options(SCALES));
  const [least, ramp, most] = [h("span"), h("span.ramp", { "aria-hidden": "true" }), h("span")];
  const legend = h("span.scale.image-legend", ramp, least, h("span", "–"), most, h("label.image-of", "scale:", extent));
  const [below, warm] = [h("canvas.image-below"), h("canvas.image-heat")];
  const line = svg("path", { class: "aw-image-contour" });
  const lines = svg("svg", { class: "aw-image-lines", "aria-hidden": "true", preserveAspectRatio: "none" });
  lines.append(line);
  const plot = h(
    "div.plot.image-plot",
    { tabindex: "0", role: "application", "aria-roledescription": "picture of patches" },
    below,
    warm,
    lines,
  );
  const shares = createShares(ctx, signal, (side, index) => look(side, index));
  const atlas = createAtlas(
    ctx,
    signal,
    (layer, head) => showMap(layer, head),
    (layer, head) => reading.pointMap(layer, head),
  );
  const column = createColumn(signal, picture, (at) => showMap(shown?.layer ?? 0, at));
  const norms = createNorms(ctx, signal, answers, picture, () => draw());
  const panes = { heads: "all heads", norms: "norms" };
  /** Buttons that switch between panels if only one fits. */
  const swaps = [
    ["heads", norms.element.firstElementChild, "image-option"],
    ["norms", atlas.element.firstElementChild, "image-option"],
    ["heads", null, "image-alone"],
    ["norms", null, "image-alone"],
  ].map(([name, place, kind]) => {
    const button = h(`button.button.${kind as string}`, { type: "button" }, panes[name as "heads" | "norms"]);
    (place as Element | null)?.append(button);
    on(button, signal, { click: () => swap(name as string) });
    return { name, button };
  });
  const outlineField = h("label.group.image-heat-field", "outline", around);
  const [tools, menu] = [h("span.image-tools", smooth.element), h("div.form")];
  const lead = h("div.image-lead", shares.element, tools);
  const main = h("div.image-main", plot, column.element);
  const reading = createReading(ctx, signal, {
    root,
    plot,
    shown: () => shown,
    size: () => size,
    seen: () => picture.seen(),
    frame: () => frame,
    look: (side, index) => look(side, index),
  });
  let into = false;
  let shown: Shown | null = null;
  let size: readonly [number, number] = [0, 0];
  let width = 0;
  /** Sizes of the panes, measured when they change: to measure while drawing would lay out the page each time. */
  let room: readonly [number, number] = [0, 0];
  let normsRoom: readonly [number, number] = [0, 0];
  let nextNorms = 0;
  const [isPainted, isBelow, isOtherExtent, isFitted] = [createWatch(), createWatch(), createWatch(), createWatch()];

  offerAdjusting(ctx, "colours", menu);
  root.classList.add("aw-image");
  setFlag(root, "data-inside", isInside);
  const frame = createFrame(ctx, root, {
    controls: isInside ? [] : [...controls.elements, direction.element],
    tags: swaps.slice(2).map(({ button }) => button),
    legend,
    body: [lead, atlas.element, main, norms.element],
    skeleton: "own",
    hint: ctx.source().kind === "map" ? "Click a patch to see what it reads." : "Point at a patch to read its value.",
    says: true,
    actions: reading.copy ? [reading.copy.element] : [],
  });
  // It stands above the picture's caption, and is reached before it.
  lead.parentElement?.prepend(lead);
  const captions = [...root.querySelectorAll<HTMLElement>(".aw-caption > :is(.aw-title, .aw-where)")];

  const state = (): { source: Source; chosen: Chosen; args: Record<string, unknown>; topic: string } => {
    const { source } = ctx.resolved();
    const chosen = chosenElement(ctx, ctx.cell("pinned"), into);
    const args = { source: source.id, ...chosen, computed: source.computed?.length ?? null };
    return { source, chosen, args, topic: chosen.side === "query" ? "reads" : "readers" };
  };

  /** Ask for the maps of the chosen element; what is missing, or null. */
  const read = (): Missing | null => {
    const { source, layer, head } = ctx.resolved();
    if (!isOfPicture(ctx, source)) {
      shown = null;
      return {
        kind: "none",
        words: "This method reads no patches",
        advice: "Choose another unit, method or stack.",
        other: true,
      };
    }
    const { chosen, args, topic } = state();
    if (source.computed && !source.computed.includes(layer)) {
      const wanted = { source: source.id, layer };
      answers.get("layer", wanted);
      return {
        ...missingAnswer(answers, "layer", wanted, `layer ${ctx.layerName(layer)}`),
        other: shown?.source !== source,
      };
    }
    const answer = answers.get<PatchRowsMeta>(topic, args);
    const own = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
    const map = source.kind === "attributions" ? "map" : `map of ${elementName(ctx, own, chosen.index)}`;
    if (!answer) return { ...missingAnswer(answers, topic, args, map), other: shown?.source.id !== source.id };
    const rows = readRows(answer);
    const at = Math.max(0, rows.layers.indexOf(layer));
    const target = Math.max(0, ctx.cell("pinned")?.query ?? 0);
    const place = source.kind === "attributions" ? Math.min(target, rows.heads - 1) : placeOf(source, head);
    const other = ctx.axisOf(chosen.side === "query" ? source.key : source.query);
    const { grid, patches } = placesOf(rows.patches.length ? other : own);
    shown = { source, chosen, rows, layer: at, head: place, values: rows.map(at, place), grid, patches };
    return null;
  };
  // For an answer in words next to it, which would request a whole matrix.
  ctx.lasting.set("pictured", (side: string, index: number): Float32Array | undefined => {
    if (!shown || (shown.source.kind === "map" && (shown.chosen.side !== side || shown.chosen.index !== index))) return;
    const { rows, layer, values, source } = shown;
    const whole = new Float32Array(rows.patches.length + rows.others.length);
    const head = source.kind === "map" ? shown.head : index;
    const map = head === shown.head ? values : rows.map(layer, head);
    rows.patches.forEach((element, i) => {
      whole[element] = map[i] as number;
    });
    rows.others.forEach((element, i) => {
      whole[element] = rows.rest(layer, head)[i] as number;
    });
    return whole;
  });
  const placeOf = (source: Source, head: HeadKey): HeadKey =>
    typeof head === "number" ? Math.max(0, source.heads?.indexOf(head) ?? 0) : head;

  /** Look at an element: pin it, or let it go if it is looked at already. */
  const look = (side: Chosen["side"], index: number): void => {
    const { unit, kind } = ctx.source();
    if (kind === "attributions") return;
    const pinned = ctx.cell("pinned");
    const alone: Cell = side === "query" ? { unit, query: index, key: -1 } : { unit, query: -1, key: index };
    into = side === "key";
    const isSame = pinned && pinned.query === alone.query && pinned.key === alone.key;
    selection.set({ pinned: isSame ? null : alone });
  };
  /** Turn the map of the chosen element round. */
  const turn = (): void => {
    const { unit, query: queryAxis, key: keyAxis } = ctx.source();
    const { chosen } = state();
    into = direction.value() === "into";
    const side = into ? "key" : "query";
    if (side === chosen.side) return;
    // Where queries and keys are different texts or pictures, an element of one does not exist in the other.
    if (queryAxis !== keyAxis || !ctx.cell("pinned")) selection.set({ pinned: null });
    else
      selection.set({ pinned: into ? { unit, query: -1, key: chosen.index } : { unit, query: chosen.index, key: -1 } });
    draw();
  };
  const showMap = (layer: number, head: number): void => {
    const source = ctx.source();
    const number = source.layers[layer];
    if (source.kind === "attributions") selection.set({ pinned: { unit: source.unit, query: head, key: -1 } });
    const heads = source.kind === "map" && source.heads ? { head: source.heads[head] as number } : {};
    if (number !== undefined) selection.set({ ...(source.kind === "map" && { layer: number }), ...heads });
  };

  // ---- the picture ----

  const shadeOf = ({ source, rows, layer, head }: Shown): Shade => {
    const { palette, scale } = filtersOf(ctx);
    const wanted = extent.value;
    const layers = wanted === "all" ? [...rows.layers.keys()] : [layer];
    const heads: HeadKey[] = wanted === "map" ? [head] : Array.from({ length: rows.heads }, (_, i) => i);
    const peaks = layers.flatMap((at) => heads.map((one) => rows.peak(at, one))).filter((peak) => !Number.isNaN(peak));
    const top = Math.max(0, ...peaks) || 1;
    const mode: Mode = scale || SCALE;
    return { map: overMap(source.signed, palette), mode, range: [source.signed ? -top : 0, top] };
  };

  /** The size of the picture in px: whole px a patch where it fits. */
  const fit = (): void => {
    const [rows, cols] = shown?.grid ?? [0, 0];
    if (!rows || !cols || width <= 0) return;
    const ratio = picture.ratio() ?? rows / cols;
    if (!isFitted(rows, cols, ratio, column.element.hidden, ...room, root.dataset.size)) return;
    const columnWidth = column.element.hidden ? 0 : column.element.offsetWidth + GAP;
    const wide = Math.max(cols, Math.min(room[0] - columnWidth, room[1] / ratio));
    const across = Math.max(1, Math.floor(wide / cols));
    const down = Math.max(1, Math.round((across * cols * ratio) / rows));
    const now = cols > wide || !down ? ([wide, wide * ratio] as const) : ([across * cols, down * rows] as const);
    if (now[0] === size[0] && now[1] === size[1]) return;
    size = now;
    setSizes(plot, { wide: now[0], high: now[1] });
    setSizes(root, { "image-high": now[1] });
  };

  const paint = (now: Shown): void => {
    const { rows, values } = now;
    const shade = shadeOf(now);
    const isSmooth = smooth.value() === "smoothed";
    const dots = Math.min(2, globalThis.devicePixelRatio || 1);
    const [wide, high] = [Math.round(size[0] * dots), Math.round(size[1] * dots)];
    if (isBelow(wide, high, picture.ratio()) && wide > 0) picture.draw(below, wide, high);
    setStyles(plot, { "--aw-heat": heat.value });
    setFlag(plot, "data-smooth", isSmooth);
    const grid = `${now.grid[0]} × ${now.grid[1]} values`;
    assign(smoothLabel, { title: `${grid}, interpolated` });
    smoothLabel.dataset.values = `: ${grid}`;
    if (!isPainted(values, JSON.stringify(shade), around.value)) return;
    paintHeat(warm, values, rows.grid, shade);
    setAttributes(lines, { viewBox: `0 0 ${rows.grid[1]} ${rows.grid[0]}` });
    setAttributes(line, { d: around.value ? outline(topPatches(values, Number(around.value)), rows.grid) : "" });
    setStyles(ramp, { background: overlayCss(shade) });
    setText(least, shade.range[0] < 0 ? tickText(shade.range[0]) : "0");
    setText(most, tickText(shade.range[1]));
    legend.title = `${shade.mode} scale; ${now.source.stochastic && now.chosen.side === "query" ? "share of what is read" : "weight"}`;
  };

  const drawColumn = (now: Shown): void => {
    const { rows, layer, source, chosen, head } = now;
    const targets = source.kind === "attributions";
    const labels = targets ? ctx.axisOf(source.query).labels : [];
    const axis = ctx.axisOf(chosen.side === "query" ? source.key : source.query);
    const first = rows.others.findIndex((i) => axis.special[i]);
    const own = extent.value === "map";
    const shade = shadeOf(now);
    const isWide = root.dataset.size === "wide" || targets;
    const entries = Array.from({ length: rows.heads }, (_, i): Entry => {
      const top = rows.peak(layer, i) || 1;
      const range: readonly [number, number] = own ? [source.signed ? -top : 0, top] : shade.range;
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
    column.show(rows, layer, entries, typeof head === "number" ? head : -1, isWide, size[1] || 384);
  };

  // ---- words and controls ----

  const words = (): void => {
    const { source, layer, head } = ctx.resolved();
    controls.show();
    const targets = source.kind === "attributions";
    const { chosen } = state();
    direction.element.hidden = targets;
    direction.choose(chosen.side === "key" ? "into" : "from");
    const own = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
    const name = elementName(ctx, own, chosen.index);
    const label = targets ? (own.labels[Math.max(0, ctx.cell("pinned")?.query ?? 0)] ?? "") : "";
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
    frame.show(about, at);
    for (const el of captions) assign(el, { title: el.textContent ?? "" });
    assign(plot, {
      ariaLabel: `${at}, ${about}. Arrow keys read the next patch, Enter shows what it reads, Space pins the pair, Shift and arrows change layer and head.`,
    });
    extent.options[0]?.replaceChildren(targets ? "this map" : head === "-" ? "this layer's" : "this head");
    const canNorm = Boolean((ctx.options as { canNorm?: boolean }).canNorm) && source.query === source.key;
    setFlag(root, "data-norms", canNorm);
    setFlag(root, "data-targets", targets);
    for (const { name, button } of swaps) button.hidden = name === "norms" && !canNorm;
  };

  const draw = (): void => {
    const filter = filtersOf(ctx).extent;
    if (isOtherExtent(filter)) extent.value = filter || "map";
    const missing = read();
    words();
    frame.lacks(missing);
    // What failed leaves the picture without the map of something else.
    setFlag(root, "data-blank", missing !== null && (missing.kind !== "awaited" || (missing.other ?? false)));
    if (!shown || width <= 0) return;
    const now = shown;
    const { rows, layer, head, chosen, source } = now;
    const { palette } = filtersOf(ctx);
    const own = ctx.axisOf(chosen.side === "query" ? source.query : source.key);
    const targets = source.kind === "attributions";
    // Maps of one layer are next to the picture already.
    setFlag(root, "data-flat", rows.layers.length < 2);
    column.element.hidden = rows.heads < 2;
    fit();
    drawColumn(now);
    paint(now);
    const name = elementName(ctx, own, chosen.index);
    const about = targets ? "by target" : chosen.side === "query" ? `what ${name} reads` : `who reads ${name}`;
    atlas.show(rows, about, palette, isInside ? root.clientHeight - 112 : (ctx.options.height ?? 560) - 188);
    atlas.select(layer, typeof head === "number" ? head : head === "-" ? 0 : -1);
    shares.show({
      chosen,
      rows,
      rest: rows.rest(layer, head),
      sum: rows.sum(layer, head),
      shares: source.stochastic && chosen.side === "query",
      targets,
    });
    if (root.hasAttribute("data-norms") && normsRoom[0] > 0) {
      // In the same frame, but after what the reader looks at.
      cancelAnimationFrame(nextNorms);
      nextNorms = requestAnimationFrame(() => {
        const at = Math.max(0, source.layers.indexOf(ctx.resolved().layer));
        if (!signal.aborted) norms.show(source.stack, ctx.axisOf(source.key), at, ...normsRoom);
      });
    }
    reading.point();
    (ctx.lasting.get("drawn") as (() => void) | undefined)?.();
  };
  const swap = (name: string): void => {
    const isBeside = root.dataset.size === "middle";
    root.dataset.pane = root.dataset.pane === name || (isBeside && name === "heads") ? "" : name;
    for (const { name: own, button } of swaps.slice(2)) button.ariaPressed = String(own === root.dataset.pane);
    draw();
  };
  for (const control of [heat, around, extent]) on(control, signal, { input: () => draw() });

  watchWidth(root, signal, (now) => {
    width = now;
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
    draw();
  });
  onResize(main, signal, (box) => {
    room = [box.width, box.height];
    draw();
  });
  onResize(norms.element, signal, (box) => {
    normsRoom = [box.width, box.height];
    if (box.width > 0) draw();
  });
  return (changed) => {
    if (only(changed, "hover")) {
      reading.point();
      return;
    }
    reading.settle();
    draw();
  };
});
