/** Where in the model the linked views look: layer (with play), head or reduction, unit. */

import type { RenderView, ViewContext } from "../context.ts";
import { h, keyboard } from "../dom.ts";
import type { HeadKey } from "../wire.ts";
import { headChoices, headWords, moveLayer, nextHead, plural, unitsOf, whereWords } from "./steps.ts";

const PLAY_EVERY_MS = 500;
const SVG = "http://www.w3.org/2000/svg";
const PLAY = "M2 1 L11 6 L2 11 Z";
const PAUSE = "M2 1 H5 V11 H2 Z M7 1 H10 V11 H7 Z";
const NEXT = "M2 1 L8 6 L2 11 Z M9 1 H11 V11 H9 Z";

export const renderLayerSlider: RenderView = (ctx, root) => {
  const stop = new AbortController();
  const { signal } = stop;
  const range = h("input", { class: "aw-range", type: "range", min: "0", step: "1", "aria-label": "layer" });
  const where = h("output", { class: "aw-where" });
  const play = h("button", { class: "aw-button aw-icon", type: "button" });
  const layers = h("div", { class: "aw-layers" }, play, range, where);
  const heads = h("select", { class: "aw-select", "aria-label": "head" });
  const less = h("button", { class: "aw-button aw-icon", type: "button", "aria-label": "previous head" }, "‹");
  const more = h("button", { class: "aw-button aw-icon", type: "button", "aria-label": "next head" }, "›");
  const headField = h("span", { class: "aw-stepper" }, less, heads, more);
  const units = h("fieldset", { class: "aw-segments", "aria-label": "unit" });
  const note = h("div", { class: "aw-note" });
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "layer, head and unit");
  root.replaceChildren(h("div", { class: "aw-controls" }, layers, headField, units), note);
  for (const control of [range, play, heads, less, more]) keyboard(control, {}, signal);

  const player = createPlayer(ctx, signal, () => drawPlay());
  const drawPlay = (): void => {
    const still = prefersStill(root);
    const [name, path] = player.playing()
      ? ["pause", PAUSE]
      : still
        ? ["next layer", NEXT]
        : ["play through layers", PLAY];
    if (play.getAttribute("aria-label") === name) return;
    play.setAttribute("aria-label", name as string);
    play.title = name as string;
    play.replaceChildren(icon(root.ownerDocument, path as string));
  };
  play.addEventListener("click", () => player.toggle(prefersStill(root)), { signal });
  range.addEventListener(
    "input",
    () => {
      player.stop();
      const layer = ctx.source().layers[Number(range.value)];
      if (layer !== undefined) ctx.selection.set({ layer });
    },
    { signal },
  );
  heads.addEventListener(
    "change",
    () => ctx.selection.set({ head: (/^\d+$/.test(heads.value) ? Number(heads.value) : heads.value) as HeadKey }),
    { signal },
  );
  const shift = (by: number): void => {
    const { source, head } = ctx.resolved();
    ctx.selection.set({ head: nextHead(source, head, by) });
  };
  less.addEventListener("click", () => shift(-1), { signal });
  more.addEventListener("click", () => shift(1), { signal });
  units.addEventListener("change", (event) => ctx.selection.set({ unit: (event.target as HTMLInputElement).value }), {
    signal,
  });

  let drawnHeads = "";
  let drawnUnits = "";
  // Radio buttons of one group find each other by name in the whole page.
  const group = `aw-unit-${Math.random().toString(36).slice(2)}`;
  const update = (): void => {
    const { source, layer, head, notes } = ctx.resolved();
    const choices = headChoices(source);
    const headNames = choices.map((choice) => headWords(ctx, choice));
    if (drawnHeads !== headNames.join()) {
      drawnHeads = headNames.join();
      heads.replaceChildren(
        ...choices.map((choice, i) => h("option", { value: String(choice) }, headNames[i] as string)),
      );
    }
    heads.value = String(head);
    headField.hidden = choices.length === 0;
    const numbers = source.heads ?? [];
    less.disabled = head === numbers[0];
    more.disabled = head === numbers[numbers.length - 1];
    range.max = String(source.layers.length - 1);
    range.value = String(source.layers.indexOf(layer));
    range.setAttribute("aria-valuetext", whereWords(ctx));
    where.textContent = whereWords(ctx);
    layers.hidden = source.layers.length < 2 && choices.length === 0;
    range.hidden = source.layers.length < 2;
    play.hidden = range.hidden;
    note.textContent = notes.join(" · ");
    const offered = ctx.options.unit ? [] : unitsOf(ctx.header(), source, ctx.options.units);
    units.hidden = offered.length < 2;
    if (drawnUnits !== offered.join()) {
      drawnUnits = offered.join();
      units.replaceChildren(
        ...offered.map((unit) => {
          const button = h("input", { type: "radio", name: group, value: unit });
          keyboard(button, {}, signal);
          return h("label", { class: "aw-segment" }, button, plural(unit));
        }),
      );
    }
    for (const button of units.querySelectorAll("input")) button.checked = button.value === source.unit;
    drawPlay();
  };
  const off = ctx.onChange((changed) => {
    // Hovering changes nothing here, and it comes at the rate of the pointer.
    if (changed.size === 1 && changed.has("hover")) return;
    if (changed.has("tiles")) player.arrived();
    update();
  });
  update();
  return () => {
    stop.abort();
    off();
    root.replaceChildren();
  };
};

export interface Player {
  playing(): boolean;
  stop(): void;
  /** Start, stop, or (`still`) take one step. */
  toggle(still: boolean): void;
  /** Tiles came: go on if that is what play waited for. */
  arrived(): void;
}

/**
 * Steps through the layers at a pace that can be followed, waits for a tile that is not there yet, and ends at
 * the last layer. Started at the last layer, it begins again at the first.
 */
export function createPlayer(ctx: ViewContext, signal: AbortSignal, changed: () => void): Player {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let playing = false;
  let waiting = false;
  const stop = (): void => {
    if (timer !== null) clearTimeout(timer);
    [timer, playing, waiting] = [null, false, false];
    changed();
  };
  const next = (): void => {
    const { source, layer, head } = ctx.resolved();
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
  signal.addEventListener("abort", () => {
    if (timer !== null) clearTimeout(timer);
    playing = false;
  });
  return {
    playing: () => playing,
    stop: () => {
      if (playing) stop();
    },
    toggle(still) {
      const { source, layer } = ctx.resolved();
      const atEnd = layer === source.layers[source.layers.length - 1];
      if (playing) {
        stop();
        return;
      }
      if (still) {
        if (atEnd) ctx.selection.set({ layer: source.layers[0] as number });
        else moveLayer(ctx, 1);
        return;
      }
      playing = true;
      changed();
      if (atEnd) {
        ctx.selection.set({ layer: source.layers[0] as number });
        timer = setTimeout(next, PLAY_EVERY_MS);
      } else next();
    },
    arrived() {
      if (playing && waiting) next();
    },
  };
}

function prefersStill(root: HTMLElement): boolean {
  return root.ownerDocument.defaultView?.matchMedia("(prefers-reduced-motion: reduce)").matches ?? false;
}

function icon(doc: Document, path: string): SVGElement {
  const svg = doc.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("aria-hidden", "true");
  const shape = doc.createElementNS(SVG, "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}
