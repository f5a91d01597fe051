/**
 * How much of the difference between two texts each activation of a model carries, and the effect of patching an
 * activation.
 *
 * `update` reads shares (`read`) and follows the choices of other views (`follow`), `lay` arranges the maps that fit
 * and draws them, `point` marks them, and `readRun` runs the model once the choice has rested.
 */
import type { ViewContext } from "../../context.ts";
import {
  assign,
  h,
  iconButton,
  type KeyHandlers,
  on,
  onResize,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
} from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { type Control, createLayerControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import {
  cells,
  choose,
  current,
  follow,
  layerNow,
  type Mode,
  options,
  type PatchState,
  pinOf,
  save,
  tokenSites,
} from "./patch/choice.ts";
import { CLAIM_TITLE, claimOf } from "./patch/claimOf.ts";
import { createPanel } from "./patch/panel.ts";
import {
  type Activation,
  activationAt,
  activationName,
  type Direction,
  differingColumns,
  indexOf,
  type PatchedRun,
  type Patching,
  readPatching,
  SITES,
  type Site,
  shareOf,
  widthOf,
} from "./patch/patching.ts";
import { columnsOf, createSiteMap, FOLDED, type SiteMap } from "./patch/siteMap.ts";
import { createTexts } from "./patch/texts.ts";
import { decimal, inQuotes } from "./words.ts";

/** Milliseconds that a choice rests before the model runs. */
const RESTS = 220;
/** px between maps, of the layers' numbers, of a column at least, where several maps are shown, and of the heads' name. */
const [GAP, AXIS, COLUMN, HEADING] = [20, 26, 30, 76];
const WIDEST = { head: 27, token: 56 };
/** px of a row at least, and at most. */
const ROWS = [8, 26] as const;
/** Smallest width in px with the panel next to the maps. */
const WIDE = 640;

/** Steppers and a list for the head of the chosen layer. */
function createHeads(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (head: number) => void,
): Control & {
  offer(count: number, head: number): void;
} {
  const list = h("select.button", { "aria-label": "head" });
  let [now, last] = [-1, 0];
  const less = iconButton(signal, "‹", "previous head", () => choose(Math.max(0, now - 1)));
  const more = iconButton(signal, "›", "next head", () => choose(Math.min(last, now + 1)));
  const element = h("span.group", { role: "group", "aria-label": "head" }, less, list, more);
  let drawn = -1;
  on(list, signal, { change: () => list.value && choose(Number(list.value)) });
  return {
    elements: [element],
    show: () => undefined,
    offer(count, head) {
      [now, last] = [head, count - 1];
      assign(element, { hidden: count < 1 });
      if (drawn !== count) {
        drawn = count;
        const names = Array.from({ length: count }, (_, i) => `head ${ctx.headName(i)} / ${ctx.headName(last)}`);
        setChildren(
          list,
          h("option", { value: "" }, "all heads"),
          ...names.map((name, i) => h("option", { value: String(i) }, name)),
        );
      }
      assign(list, { value: head < 0 ? "" : String(head) });
      assign(less, { disabled: head <= 0 });
      assign(more, { disabled: head >= last });
    },
  };
}

export const renderPatchView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const modes = createSegments<Mode>(
    "direction",
    { denoise: "denoise", noise: "noise", estimate: "estimate" },
    signal,
    () => {
      const mode = modes.value();
      save(ctx, mode === "estimate" ? { estimate: true } : { direction: mode, estimate: false });
    },
  );
  const layers = createLayerControl(ctx, signal);
  const heads = createHeads(ctx, signal, (head) => choose(state, [activationAt("head", layerNow(ctx), head)], false));
  const texts = createTexts(ctx, signal, (token) => {
    const site = current(ctx)?.[0] ?? "state";
    const of = site === "head" ? (tokenSites(state)[0] ?? "head") : site;
    if (state.patching && of !== "head" && token >= state.patching.first)
      choose(state, [activationAt(of, layerNow(ctx), token)], false);
  });
  const panel = createPanel(ctx, signal, (activation) => choose(state, [activation], false));
  const which = createSegments<Site>("map", { state: "state" }, signal, () => lay(state));
  const axis = h("div.patch-axis.fine", { "aria-hidden": "true" });
  const maps = h("div.patch-maps");
  const left = h("div.patch-left", which.element, h("div.patch-scroll", axis, maps));
  const copy = createCopyButton(ctx, signal, () => {
    const { direction, estimate, cells } = options(ctx);
    return cells.length ? { of: "share", direction, estimate, cells } : null;
  });
  const claim = createCopyButton(ctx, signal, () => claimOf(cells(ctx)), "Claim", CLAIM_TITLE);
  const frame = createFrame(ctx, root, {
    layout: ".column.flush.untitled",
    controls: [modes.element, ...layers.elements, ...heads.elements],
    lead: [texts.element],
    body: [h("div.patch-body", left, panel.element)],
    skeleton: "cells",
    hint: "Click a cell to see the effect of patching it.",
    says: true,
    actions: [claim.element, copy.element],
  });
  const body = root.querySelector(".aw-patch-body") as HTMLElement;
  const made = new Map<Site, SiteMap>();

  const state: PatchState = {
    ctx,
    root,
    signal,
    answers,
    modes,
    layers,
    heads,
    texts,
    panel,
    which,
    axis,
    maps,
    copy,
    claim,
    frame,
    body,
    siteMaps: made,
    patching: null,
    others: [],
    over: null,
    box: { width: 0, height: 0 },
    panelWidth: 0,
    timer: undefined,
    rested: null,
    selectionSeen: "",
    run: [null, ""],
  };

  root.classList.add("aw-patch");
  root.role = "group";
  signal.addEventListener("abort", () => clearTimeout(state.timer));

  onResize(body, signal, ({ width, height }) => {
    const next = { width: Math.floor(width), height: Math.floor(height) };
    if (next.width <= 0 || (next.width === state.box.width && next.height === state.box.height)) return;
    state.box = next;
    update(state);
  });
  return (changed) => {
    if (only(changed, "hover")) point(state);
    else update(state);
  };
});

function fetchPatching(state: PatchState, direction: Direction, estimate: boolean, quiet = false): Patching | null {
  const { answers, frame } = state;
  const isStored = options(state.ctx).held.some(([way, isEstimate]) => way === direction && isEstimate === estimate);
  if (!isStored && quiet) return null;
  const topic = isStored ? "patching" : "more_patching";
  const answer = answers.get<never>(topic, { direction, estimate });
  if (answer) {
    if (!quiet) frame.lacks(null);
    return readPatching(answer);
  }
  if (!quiet) frame.lacks(missingAnswer(answers, topic, { direction, estimate }, "shares"));
  return null;
}

function read(state: PatchState): void {
  const { direction, estimate, held } = options(state.ctx);
  state.patching = fetchPatching(state, direction, estimate) ?? state.patching;
  state.others = held.flatMap(([way, isEstimate]) =>
    way === direction && isEstimate === estimate ? [] : (fetchPatching(state, way, isEstimate, true) ?? []),
  );
}

/** The run with the chosen activations patched, or why it is missing. */
function readRun(state: PatchState): [PatchedRun | null, string] {
  const { answers } = state;
  const { direction, runs } = options(state.ctx);
  const args = { direction, cells: cells(state.ctx) };
  if (!cells(state.ctx).length) return [null, "choose a place"];
  const isPage = state.ctx.model.get("runtime") === "";
  if (!runs) return [null, "loaded and aligned results cannot run the model"];
  const isRested = state.rested !== null && JSON.stringify(state.rested) === JSON.stringify(cells(state.ctx));
  if (!isRested && !isPage) {
    clearTimeout(state.timer);
    state.timer = setTimeout(
      () => {
        state.rested = cells(state.ctx);
        update(state);
      },
      state.rested === null ? 0 : RESTS,
    );
    return [null, "…"];
  }
  const answer = answers.get<PatchedRun>("patched_cells", args, true);
  if (answer) return [answer.meta, ""];
  const failure = answers.failure("patched_cells", args);
  if (!failure) return [null, "running the model …"];
  return [null, isPage || /not in this file|No answer/.test(failure) ? "needs a running kernel" : failure];
}

function siteKeys(state: PatchState, site: Site): KeyHandlers {
  const step = (down: number, right: number) => (): void => {
    if (!state.patching) return;
    const last = current(state.ctx);
    const isHere = last?.[0] === site;
    const first = site === "head" ? 0 : state.patching.first;
    const index = isHere ? indexOf(last as Activation) : first;
    const within = (at: number, low: number, count: number): number => Math.max(low, Math.min(count - 1, at));
    const layer = within(layerNow(state.ctx) + (isHere ? down : 0), 0, state.patching.layers);
    choose(
      state,
      [activationAt(site, layer, within(index + (isHere ? right : 0), first, widthOf(state.patching, site)))],
      false,
    );
  };
  return {
    ArrowUp: step(-1, 0),
    ArrowDown: step(1, 0),
    ArrowLeft: step(0, -1),
    ArrowRight: step(0, 1),
    Home: step(-Infinity, 0),
    End: step(Infinity, 0),
    Escape: () => {
      const last = current(state.ctx);
      if (last && cells(state.ctx).length > 1) choose(state, [last], false);
      else state.ctx.selection.clear();
    },
  };
}

function mapOf(state: PatchState, site: Site): SiteMap {
  const { ctx, siteMaps } = state;
  let map = siteMaps.get(site);
  if (!map) {
    map = createSiteMap(ctx, site, state.signal, {
      choose: (activations, adds) => choose(state, activations, adds),
      hover(activation) {
        state.over = activation;
        const pin = activation && pinOf(activation);
        ctx.selection.hover(pin && { unit: "token", query: pin.query, key: -1 });
        point(state);
      },
      keys: (site) => siteKeys(state, site),
    });
    siteMaps.set(site, map);
  }
  return map;
}

/** The maps that share a row at this width. */
function fitting(state: PatchState, p: Patching, width: number): Site[] {
  const tokens: Site[] = p.sites.filter((site) => site !== "head");
  const withHeads = p.sites.filter((site) => site === "head");
  const least = (sites: Site[]): number =>
    sites.reduce(
      (sum, site) =>
        sum + GAP + columnsOf(p, site) * (site === "head" ? 12 : COLUMN) + (site !== "head" && p.first ? FOLDED : 0),
      AXIS,
    );
  const all: Site[] = [...tokens, ...withHeads];
  if (least(all) <= width) return all;
  const chosen = state.which.value();
  const site: Site = p.sites.includes(chosen) ? chosen : (tokens[0] ?? "head");
  if (site === "head") return ["head"];
  const both: Site[] = [site, ...withHeads];
  // Heads have a separate row where they do not fit next to the tokens.
  const small = AXIS + 2 * GAP + columnsOf(p, site) * 7 + FOLDED + (withHeads.length ? columnsOf(p, "head") * 12 : 0);
  return small <= width ? both : [site];
}

/** Lay out and draw the maps. */
function lay(state: PatchState): void {
  const { ctx, which, axis, maps, body, box } = state;
  const p = state.patching;
  if (!p || box.width <= 0) return;
  const isWide = box.width >= WIDE;
  setFlag(body, "data-stacked", !isWide);
  const side = isWide ? Math.round(Math.max(290, Math.min(430, 0.4 * box.width))) : box.width;
  state.panelWidth = side - (isWide ? 13 : 0);
  setSizes(body, { side });
  const width = (isWide ? box.width - side : box.width) - 24;
  const sites = fitting(state, p, width);
  const isOne = sites.filter((site) => site !== "head").length < p.sites.filter((site) => site !== "head").length;
  assign(which.element, { hidden: !isOne && sites.length === p.sites.length });
  const offered = sites.includes("head") ? p.sites.filter((site) => site !== "head") : p.sites;
  const names = Object.fromEntries(offered.map((site) => [site, SITES[site]]));
  const now = which.value();
  if (which.element.dataset.of !== offered.join()) {
    which.element.dataset.of = offered.join();
    which.offer(names);
    which.choose(offered.includes(now) ? now : (offered[0] ?? "state"));
  }
  const fixed = AXIS + GAP * (sites.length - 1) + sites.filter((site) => site !== "head" && p.first).length * FOLDED;
  const tokens = sites.filter((site) => site !== "head").reduce((sum, site) => sum + columnsOf(p, site), 0);
  const ofHeads = sites.includes("head") ? columnsOf(p, "head") : 0;
  // A token has twice the room of a head, where there is enough.
  const each = (width - fixed) / Math.max(1, 2 * tokens + ofHeads);
  const headRoom = ofHeads && Math.max(HEADING, ofHeads * Math.max(12, Math.min(WIDEST.head, each)));
  const tokenCell = Math.max(7, Math.min(WIDEST.token, (width - fixed - headRoom) / Math.max(1, tokens)));
  const widths = sites.map((site) =>
    site === "head" ? headRoom : columnsOf(p, site) * tokenCell + (p.first ? FOLDED : 0),
  );
  const shown = sites.map((site) => mapOf(state, site));
  const head = Math.max(...shown.map((map, i) => map.head(p, widths[i] as number)));
  const room = box.height - 22 - head - (which.element.hidden ? 0 : 32);
  const tall = isWide || ctx.options.height === null ? room : 0.6 * room;
  const row = Math.max(ROWS[0], Math.min(ROWS[1], Math.floor(tall / p.layers)));
  const isSet = shown.every(({ element }, i) => maps.children[i] === element);
  if (!isSet || maps.childElementCount !== shown.length) setChildren(maps, ...shown.map(({ element }) => element));
  for (const [i, map] of shown.entries()) map.draw(p, widths[i] as number, row, head);
  const every = Math.max(1, Math.ceil(14 / row), p.layers > 12 ? 5 : 1);
  const numbers = Array.from({ length: p.layers }, (_, i) => i).filter(
    (i) => (i % every === 0 && p.layers - 1 - i >= Math.ceil(14 / row)) || i === p.layers - 1,
  );
  setStyles(axis, { height: `${p.layers * row}px`, "margin-top": `${18 + head}px` });
  setChildren(axis, ...numbers.map((i) => h("span", { style: `top:${i * row + row / 2 - 8}px` }, ctx.layerName(i))));
  point(state);
}

/** Outlines, panel and readout. Runs on every pointer move. */
function point(state: PatchState): void {
  const { over } = state;
  const p = state.patching;
  if (!p) return;
  const hovered = state.ctx.selection.get("hover");
  const column = over ? -1 : hovered?.unit === "token" ? Math.max(hovered.query, hovered.key) : -1;
  const chosen = cells(state.ctx);
  for (const map of state.siteMaps.values()) if (map.element.isConnected) map.mark(p, chosen, column);
  const at = over ? (pinOf(over)?.query ?? -1) : column;
  state.texts.show(
    p,
    at,
    chosen.flatMap(([, , token]) => (token === null ? [] : [token])),
  );
  say(state, p);
}

function say(state: PatchState, p: Patching): void {
  const { root, frame, over } = state;
  const last = over ?? (cells(state.ctx).length === 1 ? current(state.ctx) : undefined);
  const [run] = over ? [null] : readRunQuietly(state);
  const unit = p.gap === null ? "added to the target" : `of the gap ${decimal(Math.abs(p.gap))}`;
  if (!last) {
    const share = run?.share;
    const value = share === null || share === undefined ? "" : ` ${decimal(share, 4)}`;
    const words = cells(state.ctx).length
      ? `${cells(state.ctx).length} places together${value} · ${unit}`
      : "no place chosen";
    frame.readout.show(words, root.contains(document.activeElement));
    return;
  }
  const share = shareOf(p, last);
  const approximate = p.estimate ? "≈ " : "";
  const differs = differingColumns(p)
    .slice(0, 2)
    .map((i) => inQuotes(p.cleanTokens[i] ?? ""))
    .join(", ");
  const where =
    last[0] === "head" && p.differs.length < p.cleanTokens.length ? ` · the texts differ at ${differs}` : "";
  const pinned = over ? "" : " · chosen";
  frame.readout.show(
    `${activationName(state.ctx, p, last)} ${approximate}${decimal(share, 4)} ${unit}${where}${pinned}`,
    root.contains(document.activeElement),
  );
}

function readRunQuietly(state: PatchState): [PatchedRun | null, string] {
  return state.run;
}

function showPanel(state: PatchState): void {
  if (!state.patching || state.panelWidth <= 0) return;
  state.run = readRun(state);
  state.panel.show({
    patching: state.patching,
    others: state.others,
    chosen: cells(state.ctx),
    run: state.run[0],
    why: state.run[1],
    width: state.panelWidth,
  });
}

function update(state: PatchState): void {
  const { root, modes, claim } = state;
  read(state);
  const { direction, estimate, held, runs } = options(state.ctx);
  const isPage = state.ctx.model.get("runtime") === "";
  const can = (mode: Mode): boolean =>
    (runs && !isPage) ||
    held.some(([way, is]) => (mode === "estimate" ? is && way === direction : way === mode && !is));
  const names = { denoise: "denoise", noise: "noise", estimate: "estimate" } as const;
  const offered = (Object.keys(names) as Mode[]).filter(can);
  if (modes.element.dataset.of !== offered.join()) {
    modes.element.dataset.of = offered.join();
    modes.offer(Object.fromEntries(offered.map((mode) => [mode, names[mode]])));
  }
  modes.choose(estimate ? "estimate" : direction);
  state.layers.show();
  const title = state.frame.show("");
  root.ariaLabel = `patching: ${title}`;
  if (!state.patching) return;
  if (state.patching.warning)
    (root.querySelector(":scope > .aw-warning") as HTMLElement).textContent = state.patching.warning;
  follow(state);
  const last = current(state.ctx);
  state.heads.offer(widthOf(state.patching, "head"), last?.[0] === "head" ? (last[3] ?? -1) : -1);
  lay(state);
  showPanel(state);
  say(state, state.patching);
  state.copy.show();
  assign(claim.element, { hidden: options(state.ctx).claims !== true });
  claim.show();
}
