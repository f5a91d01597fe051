/**
 * The controls that every view has in the same order: method, stack, layer, head, unit. A number and its steppers are a
 * single control.
 */
import type { ViewContext } from "../../context.ts";
import { assign, createWatch, h, iconButton, on, reserve, setChildren, setFlag, setText } from "../../dom.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { drawing } from "../charts/svg.ts";
import { createUnits } from "../text/units.ts";
import { PAUSE, PLAY } from "./icons.ts";
import { createMenu } from "./menu.ts";
import { chooseMethod } from "./methodChoice.ts";
import { headlessWords, headsOf, kindWords } from "./mixers.ts";
import { headChoices, layerWords, methodsOf, moveHead, moveLayer, stacksOf, whereWords } from "./navigation.ts";
import { createPlayer } from "./player.ts";
import { foldSegments } from "./segmentedControl.ts";

/** Milliseconds after which a press of "next layer" plays through the layers. */
const LONG_PRESS_MS = 500;

export interface Control {
  elements: HTMLElement[];
  show(): void;
}

/** A slider through the layers between steppers, which can play through them. */
export function createLayerControl(ctx: ViewContext, signal: AbortSignal): Control {
  const range = h("input.range", { type: "range", min: "0", "aria-label": "layer" });
  const number = h("output");
  const less = iconButton(signal, "‹", "previous layer", () => moveLayer(ctx, -1));
  const more = iconButton(signal, "›", "next layer (hold to play)", () => moveLayer(ctx, 1));
  const play = h("button.button.icon.play", { type: "button" });
  const element = h("span.group", { role: "group", "aria-label": "layer" }, play, less, range, number, more);
  const motion = matchMedia("(prefers-reduced-motion: reduce)");
  let press: ReturnType<typeof setTimeout> | undefined;
  const drawPlay = (): void => {
    play.hidden = motion.matches; // the steppers remain
    const [name, sign] = player.playing() ? (["pause", PAUSE] as const) : (["play through layers", PLAY] as const);
    if (play.ariaLabel === name) return;
    play.ariaLabel = name;
    play.title = name;
    setChildren(play, drawing(sign));
  };
  const player = createPlayer(ctx, signal, drawPlay);
  ctx.onChange(signal, (changed) => {
    if (changed.has("tiles")) player.arrived();
  });
  on(play, signal, { click: () => player.toggle(false) });
  on(more, signal, {
    pointerdown() {
      player.stop();
      press = setTimeout(() => player.toggle(motion.matches), LONG_PRESS_MS);
    },
    pointerup: () => clearTimeout(press),
    pointerleave: () => clearTimeout(press),
  });
  on(range, signal, {
    input() {
      player.stop();
      ctx.selection.set({ layer: ctx.layered().source.layers[Number(range.value)] as number });
    },
  });
  return {
    elements: [element],
    show() {
      const at = ctx.layered();
      const { layers } = at.source;
      assign(element, { hidden: layers.length < 2 });
      // Set the maximum first, since it limits the value.
      assign(range, { max: String(layers.length - 1), ariaValueText: whereWords(ctx, at) });
      assign(range, { value: String(layers.indexOf(at.layer)) });
      const isAtInput = at.source !== ctx.source();
      const last = layers.at(-1) ?? 0;
      const ofLast = at.source.states ? "" : ` / ${ctx.layerName(last)}`;
      const words = (layer: number): string => layerWords(ctx, at.source, layer) + ofLast;
      setText(number, isAtInput ? "at input" : words(at.layer));
      const kind = kindWords(at.source, at.layer);
      assign(element, { title: kind && `block ${ctx.layerName(at.layer)}: ${kind}` });
      reserve(number, words(last), "at input");
      assign(less, { disabled: at.layer === layers[0] });
      assign(more, { disabled: at.layer === layers.at(-1) });
      drawPlay();
    },
  };
}

/** A head or a reduction over heads, between steppers. */
export function createHeadControl(ctx: ViewContext, signal: AbortSignal): Control {
  const heads = h("select.button", { "aria-label": "head" });
  const less = iconButton(signal, "‹", "previous head", () => moveHead(ctx, -1));
  const more = iconButton(signal, "›", "next head", () => moveHead(ctx, 1));
  const element = h("span.group", { role: "group", "aria-label": "head" }, less, heads, more);
  let drawnHeads = "";
  on(heads, signal, {
    change: () =>
      ctx.selection.set({ head: (/^\d+$/.test(heads.value) ? Number(heads.value) : heads.value) as HeadKey }),
  });
  return {
    elements: [element],
    show() {
      const { source, layer, head } = ctx.resolved();
      const choices = headChoices(source, layer);
      const isOne = choices.length === 1;
      const last = headsOf(source, layer).at(-1);
      const names = choices.map((choice) =>
        typeof choice === "number"
          ? headlessWords(source, layer, choice) || `head ${ctx.headName(choice)} / ${ctx.headName(last ?? choice)}`
          : `heads: ${choice}`,
      );
      if (drawnHeads !== names.join()) {
        drawnHeads = names.join();
        setChildren(heads, ...choices.map((choice, i) => h("option", { value: String(choice) }, names[i] as string)));
      }
      assign(heads, { value: isOne ? "0" : String(head) });
      assign(element, { hidden: choices.length === 0 });
      assign(less, { disabled: isOne || head === source.heads?.[0] });
      assign(more, { disabled: isOne || head === last });
    },
  };
}

/** Menus of methods and stacks. */
export function createMethodControl(ctx: ViewContext, signal: AbortSignal): Control {
  const method = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const stack = createMenu("stack", signal, (name) => ctx.selection.set({ stack: name }));
  const isOther = createWatch();
  return {
    elements: [method.field, stack.field],
    show() {
      const { options } = ctx;
      const header = ctx.header();
      const { source } = ctx.resolved();
      const lost = ctx.tiles.status().state === "no-kernel";
      const next = ctx.counterpart()?.source.method;
      if (!isOther(header, options, source, lost, next)) return;
      method.offer(options.method ? [] : methodsOf(header, options.methods, lost), source.method, next);
      const stacks = options.stack ? [] : stacksOf(header, source.method);
      stack.offer(
        stacks.map((name) => ({ value: name, label: name })),
        source.stack,
      );
    },
  };
}

export function createUnitControl(ctx: ViewContext, signal: AbortSignal): Control {
  const units = createUnits(ctx, signal);
  return { elements: [units.element], show: () => units.show() };
}

/**
 * Keep a toolbar in a single row, if it fits: beginning at its end, choices among segments become menus; then the layer
 * keeps only its slider and the head its list, and long names are cut.
 */
export function fitToolbar(bar: HTMLElement): void {
  const controls = [...bar.querySelectorAll<HTMLElement>(":scope > :not(.aw-caption)")];
  const isOneRow = (): boolean => {
    const shown = controls.filter(({ offsetHeight }) => offsetHeight > 0);
    const lowest = Math.max(...shown.map(({ offsetTop }) => offsetTop));
    return shown.every(({ offsetTop, offsetHeight }) => offsetTop + offsetHeight > lowest);
  };
  const segments = [...bar.querySelectorAll(".aw-segments")].reverse();
  setFlag(bar, "data-tight", false);
  for (const choice of segments) foldSegments(choice, false);
  for (const choice of segments) {
    if (isOneRow()) return;
    foldSegments(choice, true);
  }
  setFlag(bar, "data-tight", !isOneRow());
}

/** Several controls as a group. */
export function together(...controls: Control[]): Control {
  return {
    elements: controls.flatMap(({ elements }) => elements),
    show() {
      for (const control of controls) control.show();
    },
  };
}

/** The controls of a view of a single map: layer, head and unit. */
export const createNavigation = (ctx: ViewContext, signal: AbortSignal): Control =>
  together(createLayerControl(ctx, signal), createHeadControl(ctx, signal), createUnitControl(ctx, signal));
