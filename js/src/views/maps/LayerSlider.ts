/** The position of linked views in the model: layer (with play), head or reduction, unit. */

import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, iconButton, on, setChildren, setText } from "../../dom.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { headChoices, headWords, moveHead, moveLayer, whereWords } from "../base/navigation.ts";
import { only, view } from "../base/view.ts";
import { createUnits } from "../text/units.ts";

const PLAY_EVERY_MS = 500;
const SVG = "http://www.w3.org/2000/svg";
const PLAY = "M2 1 L11 6 L2 11 Z";
const PAUSE = "M2 1 H5 V11 H2 Z M7 1 H10 V11 H7 Z";
const NEXT = "M2 1 L8 6 L2 11 Z M9 1 H11 V11 H9 Z";

export const renderLayerSlider = view((ctx, root, signal) => {
  const range = h("input.range", { type: "range", min: "0", "aria-label": "layer" });
  const where = h("output.where");
  const play = h("button.button.icon", { type: "button" });
  const layers = h("div.layers", play, range, where);
  const heads = h("select.button", { "aria-label": "head" });
  const less = iconButton(signal, "‹", "previous head", () => moveHead(ctx, -1));
  const more = iconButton(signal, "›", "next head", () => moveHead(ctx, 1));
  const headField = h("span.stepper", less, heads, more);
  const units = createUnits(ctx, signal);
  const note = h("div.note");
  root.role = "group";
  root.ariaLabel = "layer, head and unit";
  setChildren(root, h("div.row", layers, headField, units.element), note);

  const player = createPlayer(ctx, signal, () => drawPlay());
  const motion = matchMedia("(prefers-reduced-motion: reduce)");
  const drawPlay = (): void => {
    const still = motion.matches ? (["next layer", NEXT] as const) : (["play through layers", PLAY] as const);
    const [name, path] = player.playing() ? (["pause", PAUSE] as const) : still;
    if (play.ariaLabel === name) return;
    play.ariaLabel = name;
    play.title = name;
    setChildren(play, icon(path));
  };
  on(play, signal, { click: () => player.toggle(motion.matches) });
  on(range, signal, {
    input() {
      player.stop();
      ctx.selection.set({ layer: ctx.layered().source.layers[Number(range.value)] as number });
    },
  });
  on(heads, signal, {
    change: () =>
      ctx.selection.set({ head: (/^\d+$/.test(heads.value) ? Number(heads.value) : heads.value) as HeadKey }),
  });

  let drawnHeads = "";
  const update = (): void => {
    const at = ctx.layered();
    const { source, layer, head, notes } = at;
    const choices = headChoices(source);
    const names = choices.map((choice) => headWords(ctx, choice));
    if (drawnHeads !== names.join()) {
      drawnHeads = names.join();
      setChildren(heads, ...choices.map((choice, i) => h("option", { value: String(choice) }, names[i] as string)));
    }
    assign(heads, { value: String(head) });
    assign(headField, { hidden: choices.length === 0 });
    assign(less, { disabled: head === source.heads?.[0] });
    assign(more, { disabled: head === source.heads?.at(-1) });
    const alone = source.layers.length < 2;
    const place = whereWords(ctx, at);
    // Set the maximum first, since it limits the value.
    assign(range, { max: String(source.layers.length - 1), hidden: alone, ariaValueText: place });
    assign(range, { value: String(source.layers.indexOf(layer)) });
    setText(where, place);
    assign(layers, { hidden: alone && choices.length === 0 });
    assign(play, { hidden: alone });
    setText(note, notes.join(" · "));
    units.show();
    drawPlay();
  };
  return (changed) => {
    // Ignore hovering, which changes nothing here and is frequent.
    if (only(changed, "hover")) return;
    if (changed.has("tiles")) player.arrived();
    update();
  };
});

export interface Player {
  playing(): boolean;
  stop(): void;
  /** Start, stop, or (`still`) take one step. */
  toggle(still: boolean): void;
  /** Tiles arrived: continue if play was waiting for them. */
  arrived(): void;
}

/**
 * Steps through the layers at a readable pace, waits for missing tiles, and stops at the last layer. Started at the
 * last layer, it begins again at the first.
 */
export function createPlayer(ctx: ViewContext, signal: AbortSignal, changed: () => void): Player {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let playing = false;
  let waiting = false;
  const stop = (): void => {
    clearTimeout(timer);
    [playing, waiting] = [false, false];
    changed();
  };
  const next = (): void => {
    const { source, layer, head } = ctx.layered();
    const to = source.layers[source.layers.indexOf(layer) + 1];
    if (to === undefined) {
      stop();
      return;
    }
    if (!ctx.tiles.get(source.id, to, head)) {
      const lost = ctx.tiles.failure(source.id, to, head) ?? (ctx.tiles.status().state === "no-kernel" ? "lost" : "");
      if (lost) {
        stop();
        return;
      }
      waiting = true;
      ctx.tiles.request(source.id, to, head, "play");
      return;
    }
    waiting = false;
    ctx.selection.set({ layer: to });
    timer = setTimeout(next, PLAY_EVERY_MS);
  };
  atEnd(signal, () => {
    clearTimeout(timer);
    playing = false;
  });
  return {
    playing: () => playing,
    stop: () => {
      if (playing) stop();
    },
    toggle(still) {
      if (playing) {
        stop();
        return;
      }
      const { source, layer } = ctx.layered();
      const again = layer === source.layers.at(-1);
      if (again) moveLayer(ctx, -Infinity);
      else if (still) moveLayer(ctx, 1);
      if (still) return;
      playing = true;
      changed();
      if (again) timer = setTimeout(next, PLAY_EVERY_MS);
      else next();
    },
    arrived() {
      if (playing && waiting) next();
    },
  };
}

function icon(path: string): SVGElement {
  const [svg, shape] = ["svg", "path"].map((tag) => document.createElementNS(SVG, tag)) as [SVGElement, SVGElement];
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.ariaHidden = "true";
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}
