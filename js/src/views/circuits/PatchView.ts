/** What every place of a model carries of the difference between two texts, and what patching one of them changes. */
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
import type { Cell } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { type Control, createLayerControl } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { CLAIM_TITLE, claimOf } from "./patch/claimOf.ts";
import { createPanel } from "./patch/panel.ts";
import {
  type Direction,
  differingColumns,
  indexOf,
  isSame,
  type PatchedRun,
  type Patching,
  type PatchOptions,
  type Place,
  placeAt,
  placeName,
  readPatching,
  SITES,
  type Site,
  shareOf,
  widthOf,
} from "./patch/patching.ts";
import { columnsOf, createSiteMap, FOLDED, type SiteMap } from "./patch/siteMap.ts";
import { createTexts } from "./patch/texts.ts";
import { decimal, inQuotes } from "./words.ts";

type Mode = Direction | "estimate";

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
  const options = (): PatchOptions => ctx.options as PatchOptions;
  const answers = createAnswers(ctx, signal, () => update());
  const modes = createSegments<Mode>(
    "direction",
    { denoise: "denoise", noise: "noise", estimate: "estimate" },
    signal,
    () => {
      const mode = modes.value();
      save(mode === "estimate" ? { estimate: true } : { direction: mode, estimate: false });
    },
  );
  const layers = createLayerControl(ctx, signal);
  const heads = createHeads(ctx, signal, (head) => choose([placeAt("head", layerNow(), head)], false));
  const texts = createTexts(ctx, signal, (token) => {
    const site = current()?.[0] ?? "state";
    const of = site === "head" ? (tokenSites()[0] ?? "head") : site;
    if (patching && of !== "head" && token >= patching.first) choose([placeAt(of, layerNow(), token)], false);
  });
  const panel = createPanel(ctx, signal, (place) => choose([place], false));
  const which = createSegments<Site>("map", { state: "state" }, signal, () => lay());
  const axis = h("div.patch-axis", { "aria-hidden": "true" });
  const maps = h("div.patch-maps");
  const left = h("div.patch-left", which.element, h("div.patch-scroll", axis, maps));
  const copy = createCopyButton(ctx, signal, () => {
    const { direction, estimate, cells } = options();
    return cells.length ? { of: "share", direction, estimate, cells } : null;
  });
  const claim = createCopyButton(ctx, signal, () => claimOf(cells()), "Claim", CLAIM_TITLE);
  const frame = createFrame(ctx, root, {
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
  let patching: Patching | null = null;
  let others: Patching[] = [];
  let over: Place | null = null;
  let box = { width: 0, height: 0 };
  let panelWidth = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** The places for which the model was run. */
  let rested: readonly Place[] | null = null;
  /** The selection as this view knows it, to tell what others choose from its own choice. */
  let known = "";

  root.classList.add("aw-patch");
  root.role = "group";
  signal.addEventListener("abort", () => clearTimeout(timer));

  const save = (values: Partial<PatchOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const cells = (): readonly Place[] => options().cells;
  const current = (): Place | undefined => cells().at(-1);
  const layerNow = (): number => current()?.[1] ?? ctx.selection.get("layer");
  const tokenSites = (): Site[] => (patching?.sites ?? []).filter((site) => site !== "head");
  const pinOf = ([site, layer, token]: Place): Cell | null =>
    site === "head" || token === null ? null : { unit: "token", query: token, key: -1, layer };
  const snapshot = (): string =>
    JSON.stringify([ctx.selection.get("layer"), ctx.selection.get("head"), ctx.selection.get("pinned")]);

  /** Choose places, here and, of the last one, in the other views of the text. */
  const choose = (places: readonly Place[], adds: boolean): void => {
    const now = cells();
    const toggled =
      places.length === 1 && now.some((one) => isSame(one, places[0] as Place))
        ? now.filter((one) => !isSame(one, places[0] as Place))
        : [...now.filter((one) => !places.some((other) => isSame(one, other))), ...places];
    const next = adds ? toggled : places;
    const last = next.at(-1);
    if (last) {
      const [site, layer, , head] = last;
      const pin = pinOf(last);
      ctx.selection.set({
        layer,
        ...(site === "head" && head !== null && ctx.source().heads ? { head } : {}),
        ...(pin ? { pinned: pin } : {}),
      });
    }
    known = snapshot();
    save({ cells: next.map((place) => [...place] as unknown as Place) });
  };

  /** What another view, or a control, has chosen replaces the choice: its layer and head, or its token of a layer. */
  const follow = (): void => {
    const now = snapshot();
    if (now === known || !patching) return;
    const [layer, head, pinned] = JSON.parse(now) as [number, number | string, Cell | null];
    const [oldLayer, oldHead, oldPinned] = known
      ? (JSON.parse(known) as [number, number | string, Cell | null])
      : [layer, head, pinned];
    const isFirst = !known;
    known = now;
    if (isFirst) return;
    const last = current();
    const to = Math.max(0, Math.min(patching.layers - 1, layer));
    const token = pinned?.unit === "token" ? Math.max(pinned.query, pinned.key) : -1;
    const isToken = token >= patching.first && token < patching.cleanTokens.length;
    const site = last?.[0] ?? "state";
    const [fallback] = tokenSites();
    const of = site === "head" ? fallback : site;
    if (JSON.stringify(pinned) !== JSON.stringify(oldPinned) && pinned?.layer !== undefined && isToken && of) {
      save({ cells: [placeAt(of, Math.min(pinned.layer, patching.layers - 1), token)] });
    } else if (head !== oldHead && typeof head === "number" && head < widthOf(patching, "head")) {
      save({ cells: [placeAt("head", to, head)] });
    } else if (layer !== oldLayer && last) {
      save({ cells: [[last[0], to, last[2], last[3]]] });
    }
  };

  const fetchPatching = (direction: Direction, estimate: boolean, quiet = false): Patching | null => {
    const isHeld = options().held.some(([one, other]) => one === direction && other === estimate);
    if (!isHeld && quiet) return null;
    const topic = isHeld ? "patching" : "more_patching";
    const answer = answers.get<never>(topic, { direction, estimate });
    if (answer) {
      if (!quiet) frame.lacks(null);
      return readPatching(answer);
    }
    if (!quiet) frame.lacks(missingAnswer(answers, topic, { direction, estimate }, "shares"));
    return null;
  };

  const read = (): void => {
    const { direction, estimate, held } = options();
    const found = fetchPatching(direction, estimate);
    patching = found ?? patching;
    others = held.flatMap(([way, isEstimate]) =>
      way === direction && isEstimate === estimate ? [] : (fetchPatching(way, isEstimate, true) ?? []),
    );
  };

  /** The run with the chosen places patched, or why it is not there. */
  const readRun = (): [PatchedRun | null, string] => {
    const { direction, runs } = options();
    const args = { direction, cells: cells() };
    if (!cells().length) return [null, "choose a place"];
    const isPage = ctx.model.get("runtime") === "";
    if (!runs) return [null, "loaded and aligned results cannot run the model"];
    const isRested = rested !== null && JSON.stringify(rested) === JSON.stringify(cells());
    if (!isRested && !isPage) {
      clearTimeout(timer);
      timer = setTimeout(
        () => {
          rested = cells();
          update();
        },
        rested === null ? 0 : RESTS,
      );
      return [null, "…"];
    }
    const answer = answers.get<PatchedRun>("patched_cells", args, true);
    if (answer) return [answer.meta, ""];
    const failure = answers.failure("patched_cells", args);
    if (!failure) return [null, "running the model …"];
    return [null, isPage || /not in this file|No answer/.test(failure) ? "needs a running kernel" : failure];
  };

  const siteKeys = (site: Site): KeyHandlers => {
    const step = (down: number, right: number) => (): void => {
      if (!patching) return;
      const last = current();
      const isHere = last?.[0] === site;
      const first = site === "head" ? 0 : patching.first;
      const index = isHere ? indexOf(last as Place) : first;
      const within = (at: number, low: number, count: number): number => Math.max(low, Math.min(count - 1, at));
      const layer = within(layerNow() + (isHere ? down : 0), 0, patching.layers);
      choose([placeAt(site, layer, within(index + (isHere ? right : 0), first, widthOf(patching, site)))], false);
    };
    return {
      ArrowUp: step(-1, 0),
      ArrowDown: step(1, 0),
      ArrowLeft: step(0, -1),
      ArrowRight: step(0, 1),
      Home: step(-Infinity, 0),
      End: step(Infinity, 0),
      Escape: () => {
        const last = current();
        if (last && cells().length > 1) choose([last], false);
        else ctx.selection.clear();
      },
    };
  };
  const mapOf = (site: Site): SiteMap => {
    let map = made.get(site);
    if (!map) {
      map = createSiteMap(ctx, site, signal, {
        choose,
        hover(place) {
          over = place;
          const pin = place && pinOf(place);
          ctx.selection.hover(pin && { unit: "token", query: pin.query, key: -1 });
          point();
        },
        keys: siteKeys,
      });
      made.set(site, map);
    }
    return map;
  };

  /** The maps that share a row at this width. */
  const fitting = (p: Patching, width: number): Site[] => {
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
    const wanted = which.value();
    const one: Site = p.sites.includes(wanted) ? wanted : (tokens[0] ?? "head");
    if (one === "head") return ["head"];
    const both: Site[] = [one, ...withHeads];
    // Heads have a separate row where they do not fit next to the tokens.
    const small = AXIS + 2 * GAP + columnsOf(p, one) * 7 + FOLDED + (withHeads.length ? columnsOf(p, "head") * 12 : 0);
    return small <= width ? both : [one];
  };

  /** Place and draw the maps. */
  const lay = (): void => {
    const p = patching;
    if (!p || box.width <= 0) return;
    const isWide = box.width >= WIDE;
    setFlag(body, "data-stacked", !isWide);
    const side = isWide ? Math.round(Math.max(290, Math.min(430, 0.4 * box.width))) : box.width;
    panelWidth = side - (isWide ? 13 : 0);
    setSizes(body, { side });
    const width = (isWide ? box.width - side : box.width) - 24;
    const sites = fitting(p, width);
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
    const shown = sites.map(mapOf);
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
    point();
  };

  /** Outlines, panel and readout. Runs on every pointer move. */
  const point = (): void => {
    const p = patching;
    if (!p) return;
    const hovered = ctx.selection.get("hover");
    const column = over ? -1 : hovered?.unit === "token" ? Math.max(hovered.query, hovered.key) : -1;
    const chosen = cells();
    for (const map of made.values()) if (map.element.isConnected) map.mark(p, chosen, column);
    const at = over ? (pinOf(over)?.query ?? -1) : column;
    texts.show(
      p,
      at,
      chosen.flatMap(([, , token]) => (token === null ? [] : [token])),
    );
    say(p);
  };
  const say = (p: Patching): void => {
    const last = over ?? (cells().length === 1 ? current() : undefined);
    const [run] = over ? [null] : readRunQuietly();
    const what = p.gap === null ? "added to the target" : `of the gap ${decimal(Math.abs(p.gap))}`;
    if (!last) {
      const share = run?.share;
      const value = share === null || share === undefined ? "" : ` ${decimal(share, 4)}`;
      const words = cells().length ? `${cells().length} places together${value} · ${what}` : "no place chosen";
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
      `${placeName(ctx, p, last)} ${approximate}${decimal(share, 4)} ${what}${where}${pinned}`,
      root.contains(document.activeElement),
    );
  };
  let run: [PatchedRun | null, string] = [null, ""];
  const readRunQuietly = (): [PatchedRun | null, string] => run;

  const showPanel = (): void => {
    if (!patching || panelWidth <= 0) return;
    run = readRun();
    panel.show({ patching, others, chosen: cells(), run: run[0], why: run[1], width: panelWidth });
  };

  const update = (): void => {
    read();
    const { direction, estimate, held, runs } = options();
    const isPage = ctx.model.get("runtime") === "";
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
    layers.show();
    const title = frame.show("");
    root.ariaLabel = `patching: ${title}`;
    if (!patching) return;
    if (patching.warning) (root.querySelector(":scope > .aw-warning") as HTMLElement).textContent = patching.warning;
    follow();
    const last = current();
    heads.offer(widthOf(patching, "head"), last?.[0] === "head" ? (last[3] ?? -1) : -1);
    lay();
    showPanel();
    say(patching);
    copy.show();
    assign(claim.element, { hidden: options().claims !== true });
    claim.show();
  };

  onResize(body, signal, ({ width, height }) => {
    const next = { width: Math.floor(width), height: Math.floor(height) };
    if (next.width <= 0 || (next.width === box.width && next.height === box.height)) return;
    box = next;
    update();
  });
  return (changed) => {
    if (only(changed, "hover")) point();
    else update();
  };
});
