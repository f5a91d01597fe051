/**
 * The text itself, coloured by one row of a map: the row of the pinned query, of the hovered one, or, with
 * neither, the mean over all queries. Attributions show the row of their target.
 */

import type { RenderView, Tile, ViewContext } from "../context.ts";
import { h, keyboard, liveRegion, quoted } from "../dom.ts";
import type { Axis, Source } from "../wire.ts";
import { meanReceived, peak, printed, rowOf, step, tick, topOfScale } from "./reading.ts";
import { headWords, moveLayer, plural, whereWords } from "./steps.ts";
import { gradient, shade } from "./stripColour.ts";
import { buildTokens, type TokenList } from "./tokens.ts";
import { Underlay } from "./underlay.ts";

/** One text on the page: the coloured keys, or the queries to choose from. */
interface Strip extends TokenList {
  box: HTMLElement;
  underlay: Underlay;
  active: number;
}

/** What is shown, and in which words. */
interface Reading {
  values: Float32Array;
  exact: boolean;
  /** Row index, or -1 for the mean over all rows. */
  query: number;
  preview: boolean;
}

const MOST_NAMED = 3;

export const renderTokenStrip: RenderView = (ctx, root) => {
  const view = new StripView(ctx, root);
  return () => view.close();
};

class StripView {
  readonly #ctx: ViewContext;
  readonly #root: HTMLElement;
  readonly #title = h("span", { class: "aw-title" });
  readonly #where = h("span", {});
  readonly #note = h("span", { class: "aw-note" });
  readonly #warning = h("div", { class: "aw-warning", role: "note" });
  readonly #status = h("div", { class: "aw-status", role: "status" });
  readonly #texts = h("div", { class: "aw-texts" });
  readonly #ramp = h("span", { class: "aw-ramp" });
  readonly #low = h("span", {});
  readonly #high = h("span", {});
  readonly #sensitivity = h("input", { class: "aw-range", type: "range", min: "0", max: "6", step: "0.5", value: "0" });
  readonly #what = h("span", { class: "aw-note" });
  readonly #readout = h("div", { class: "aw-readout" });
  readonly #announce: (words: string) => void;
  readonly #stop = new AbortController();
  #keys: Strip | null = null;
  #queries: Strip | null = null;
  #built = "";
  #bound = new AbortController();
  #reading: Reading | null = null;
  #exact: { name: string; values: Float32Array } | null = null;
  #asked = "";
  #mean: { tile: Tile; values: Float32Array } | null = null;
  #hoveredKey = -1;

  constructor(ctx: ViewContext, root: HTMLElement) {
    this.#ctx = ctx;
    this.#root = root;
    const { signal } = this.#stop;
    root.classList.add("aw-strip-view");
    root.setAttribute("role", "group");
    this.#sensitivity.setAttribute("aria-label", "colour sensitivity: lowers the value that gets the full colour");
    this.#sensitivity.title = "Colour sensitivity: move right to see small values. Double-click resets.";
    const legend = h("span", { class: "aw-legend" }, this.#low, this.#ramp, this.#high);
    const sensitivity = h("label", { class: "aw-legend" }, "sensitivity", this.#sensitivity);
    const head = h("div", { class: "aw-head" }, this.#title, this.#where, this.#note);
    root.replaceChildren(
      head,
      this.#warning,
      this.#status,
      this.#texts,
      h("div", { class: "aw-foot" }, this.#what, legend, sensitivity),
      this.#readout,
    );
    this.#announce = liveRegion(root);
    keyboard(this.#sensitivity, {}, signal);
    this.#sensitivity.addEventListener("input", () => this.#paint(), { signal });
    this.#sensitivity.addEventListener(
      "dblclick",
      () => {
        this.#sensitivity.value = "0";
        this.#paint();
      },
      { signal },
    );
    const off = ctx.onChange(() => this.#update());
    signal.addEventListener("abort", () => {
      off();
      this.#bound.abort();
    });
    ctx.signal.addEventListener("abort", () => this.#stop.abort(), { signal });
    this.#update();
  }

  close(): void {
    this.#stop.abort();
    this.#root.replaceChildren();
  }

  /** Follow the selection, the tiles, the options and the theme. */
  #update(): void {
    const { source, layer, head, notes } = this.#ctx.resolved();
    this.#build(source);
    const { options } = this.#ctx;
    this.#title.textContent = options.title || source.title;
    this.#where.textContent = `${source.stream === "self" ? "" : `${source.stream} · `}${whereWords(this.#ctx)} · ${plural(source.unit)}`;
    this.#note.textContent = [source.note, ...notes].filter(Boolean).join(" · ");
    this.#warning.textContent = this.#ctx.header().warning;
    this.#status.textContent = this.#ctx.tiles.status().message;
    this.#root.setAttribute("aria-label", `${options.title || source.title}, text coloured by weight`);
    this.#reading = this.#read(source);
    const stale = this.#reading === null;
    this.#texts.toggleAttribute("data-stale", stale);
    if (stale) {
      this.#ctx.tiles.request(source.id, layer, head);
      const why = this.#ctx.tiles.failure(source.id, layer, head) ?? this.#ctx.tiles.status().message;
      this.#readout.textContent = why || `fetching ${whereWords(this.#ctx)} …`;
      return;
    }
    this.#paint();
    this.#outline();
    this.#say();
  }

  /** Spans are made once per pair of axes; a change of layer or head leaves them alone. */
  #build(source: Source): void {
    const header = this.#ctx.header();
    const marks = this.#ctx.options.marks.filter((m): m is number => typeof m === "number");
    const name = [source.query, source.key, source.kind, marks.join(), JSON.stringify(header.axes[source.key])].join(
      "|",
    );
    if (name === this.#built) return;
    this.#built = name;
    this.#bound.abort();
    this.#bound = new AbortController();
    this.#texts.replaceChildren();
    this.#hoveredKey = -1;
    const keys = this.#ctx.axisOf(source.key);
    const queries = this.#ctx.axisOf(source.query);
    const same = source.query === source.key;
    const targets = source.kind === "attributions";
    this.#queries = null;
    if (!same && !(targets && queries.labels.length < 2)) {
      this.#queries = this.#strip(queries, targets ? "target (choose)" : "to: query (choose)", new Set(), true);
    }
    const caption = same ? "" : targets ? "attributed to" : "from: key (coloured)";
    this.#keys = this.#strip(keys, caption, new Set(marks), same);
    if (same) this.#queries = this.#keys;
  }

  #strip(axis: Axis, caption: string, marks: ReadonlySet<number>, chooses: boolean): Strip {
    const built = buildTokens(axis, `${caption || "text"}, ${axis.labels.length} ${plural(axis.unit)}`, marks);
    const layer = h("div", { class: "aw-underlay", "aria-hidden": "true" });
    const box = h("div", { class: "aw-strip" }, layer);
    if (built.spaced) box.dataset.spaced = "";
    if (caption) box.append(h("div", { class: "aw-strip-name" }, caption));
    box.append(built.list);
    this.#texts.append(box);
    const { signal } = this.#bound;
    const underlay = new Underlay(box, layer, built.chunks, signal);
    const strip: Strip = { ...built, box, underlay, active: 0 };
    const indexOf = (event: Event): number => {
      const target = (event.target as Element | null)?.closest?.<HTMLElement>(".aw-tok");
      return target?.dataset.i === undefined ? -1 : Number(target.dataset.i);
    };
    const { list } = built;
    list.addEventListener("pointerover", (event) => this.#hover(indexOf(event), chooses), { signal });
    list.addEventListener("pointerleave", () => this.#hover(-1, chooses), { signal });
    list.addEventListener(
      "click",
      (event) => {
        // A click that ends a text selection is not meant for the token under it.
        const selected = list.ownerDocument.getSelection();
        if (selected && !selected.isCollapsed && list.contains(selected.anchorNode)) return;
        const index = indexOf(event);
        if (index < 0) return;
        this.#move(strip, index, false);
        this.#pin(index, chooses);
      },
      { signal },
    );
    list.addEventListener("focusin", (event) => this.#focus(strip, indexOf(event), chooses), { signal });
    list.addEventListener("focusout", () => this.#hover(-1, chooses), { signal });
    list.addEventListener("keydown", (event) => this.#key(event, strip, chooses), { signal });
    for (const span of built.spans) span.dataset.lmSuppressShortcuts = "true";
    return strip;
  }

  #cell(query: number, key: number): { unit: string; query: number; key: number } {
    return { unit: this.#ctx.source().unit, query, key };
  }

  /** Without a pin the hovered token is tried as the query; with one, its value under that query is read. */
  #hover(index: number, chooses: boolean): void {
    const { selection } = this.#ctx;
    const pinned = this.#ctx.cell("pinned");
    if (index < 0) selection.hover(null);
    else if (chooses && (!pinned || this.#queries !== this.#keys)) selection.hover(this.#cell(index, -1));
    else selection.hover(this.#cell(pinned?.query ?? -1, index));
  }

  #pin(index: number, chooses: boolean): void {
    const pinned = this.#ctx.cell("pinned");
    const query = pinned?.query ?? -1;
    if (chooses) this.#ctx.selection.pin(query === index ? null : this.#cell(index, -1));
    else if (query >= 0) this.#ctx.selection.pin(this.#cell(query, pinned?.key === index ? -1 : index));
  }

  #focus(strip: Strip, index: number, chooses: boolean): void {
    if (index < 0) return;
    this.#move(strip, index, false);
    if (strip.spans[index]?.matches(":focus-visible")) this.#hover(index, chooses);
  }

  #key(event: KeyboardEvent, strip: Strip, chooses: boolean): void {
    // No plain key may reach the notebook: its command mode moves, and deletes, cells.
    event.stopPropagation();
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const to = step(event.key, strip.active, strip.spans.length, strip.rtl);
    if (to !== null) this.#move(strip, to, true);
    else if (event.key === "ArrowUp") moveLayer(this.#ctx, -1);
    else if (event.key === "ArrowDown") moveLayer(this.#ctx, 1);
    else if (event.key === "Enter" || event.key === " ") this.#pin(strip.active, chooses);
    else if (event.key === "Escape") this.#ctx.selection.pin(null);
    else return;
    event.preventDefault();
  }

  /** One token of a list is reached by Tab; the arrows carry that place along. */
  #move(strip: Strip, index: number, focus: boolean): void {
    const [old, next] = [strip.spans[strip.active], strip.spans[index]];
    if (old) old.tabIndex = -1;
    if (!next) return;
    next.tabIndex = 0;
    strip.active = index;
    if (focus) next.focus();
  }

  /** Values to show; null while the tile is not in the browser. */
  #read(source: Source): Reading | null {
    const { layer, head } = this.#ctx.resolved();
    const [pinned, hovered] = [this.#ctx.cell("pinned"), this.#ctx.cell("hover")];
    this.#hoveredKey = hovered?.key ?? -1;
    const rows = this.#ctx.axisOf(source.query).labels.length;
    let query = pinned && pinned.query >= 0 ? pinned.query : (hovered?.query ?? -1);
    // A query strip of its own previews while something is pinned: there the hovered token is no key.
    if (this.#queries !== this.#keys && hovered && hovered.query >= 0 && hovered.key < 0) query = hovered.query;
    if (source.kind === "attributions" && query < 0) query = 0;
    if (query >= rows) query = -1;
    const preview = query !== pinned?.query && source.kind === "map";
    const name = `${source.id}|${layer}|${head}|${query}`;
    if (query >= 0 && (!preview || source.kind === "attributions")) void this.#fetch(name, source, query);
    if (this.#exact?.name === name) return { values: this.#exact.values, exact: true, query, preview };
    const tile = this.#ctx.tiles.get(source.id, layer, head);
    if (!tile) return null;
    if (query >= 0) return { values: rowOf(asCells(tile), query), exact: false, query, preview };
    if (this.#mean?.tile !== tile) this.#mean = { tile, values: meanReceived(asCells(tile)) };
    return { values: this.#mean.values, exact: false, query, preview: false };
  }

  /** Printed numbers and rankings come from float32, never from colour codes. */
  async #fetch(name: string, source: Source, query: number): Promise<void> {
    if (this.#exact?.name === name || this.#asked === name) return;
    this.#asked = name;
    const { layer, head } = this.#ctx.resolved();
    const values = await this.#ctx.tiles.row(source.id, layer, head, query);
    if (this.#asked !== name || this.#stop.signal.aborted) return;
    if (!values) {
      this.#asked = "";
      return;
    }
    this.#exact = { name, values };
    this.#update();
  }

  #paint(): void {
    const reading = this.#reading;
    if (!reading || !this.#keys) return;
    const { theme } = this.#ctx;
    const { signed } = this.#ctx.source();
    const { values } = reading;
    const top = topOfScale(values, Number(this.#sensitivity.value));
    this.#keys.underlay.paint((i) => (top > 0 ? shade((values[i] ?? 0) / top, theme) : ""));
    this.#ramp.style.background = gradient(theme, signed);
    this.#low.textContent = signed ? `−${tick(top)}` : "0";
    const cut = Number(this.#sensitivity.value) > 0 ? ` and more (largest ${tick(peak(values))})` : "";
    this.#high.textContent = `${signed ? "+" : ""}${tick(top)}${cut}`;
  }

  /** The query is outlined; the key under the pointer of any linked view is underlined. */
  #outline(): void {
    const reading = this.#reading;
    if (!reading || !this.#keys) return;
    const marked = (strip: Strip | null, name: string, index: number): void => {
      for (const old of strip?.list.querySelectorAll(`.${name}`) ?? []) {
        old.classList.remove(name);
        if (name === "aw-query") old.setAttribute("aria-selected", "false");
      }
      const span = strip?.spans[index];
      span?.classList.add(name);
      if (name === "aw-query") span?.setAttribute("aria-selected", "true");
    };
    marked(this.#queries, "aw-query", reading.query);
    const pinnedKey = this.#ctx.cell("pinned")?.key ?? -1;
    marked(this.#keys, "aw-key", this.#hoveredKey >= 0 ? this.#hoveredKey : pinnedKey);
  }

  #say(): void {
    const reading = this.#reading;
    if (!reading) return;
    const source = this.#ctx.source();
    const label = (axis: string, i: number): string =>
      quoted(this.#ctx.axisOf(axis).labels, i, this.#ctx.options.indexBase);
    const { query, values, exact, preview } = reading;
    const rows = this.#ctx.axisOf(source.query).labels.length;
    const target = label(source.query, query);
    const heads = headWords(this.#ctx, this.#ctx.resolved().head);
    if (source.kind === "attributions") this.#what.textContent = `attribution to target ${target}`;
    else if (query < 0) this.#what.textContent = `weight each ${source.unit} receives: mean over ${rows} queries`;
    else
      this.#what.textContent = `${preview ? "preview of " : ""}the row of query ${target}${heads ? `, ${heads}` : ""}`;
    const key = this.#hoveredKey >= 0 ? this.#hoveredKey : (this.#ctx.cell("pinned")?.key ?? -1);
    const sign = exact ? "=" : "≈";
    const number = (i: number): string => printed(values[i] ?? Number.NaN, exact);
    const to = query >= 0 ? `${target} → ` : "";
    let words: string;
    if (key >= 0) words = `${to}${label(source.key, key)} ${sign} ${number(key)}`;
    else if (query < 0) words = `Hover a ${source.unit} to preview it as the query, click to pin it.`;
    else if (exact) {
      const most = [...values.keys()]
        .sort((a, b) => Math.abs(values[b] as number) - Math.abs(values[a] as number))
        .slice(0, MOST_NAMED);
      words = `largest: ${most.map((i) => `${to}${label(source.key, i)} = ${number(i)}`).join(", ")}`;
    } else words = preview ? `Click to pin ${target} as the query.` : `${target}: values are approximate (≈)`;
    if (words === this.#readout.textContent) return;
    this.#readout.textContent = words;
    this.#announce(words);
  }
}

function asCells(tile: Tile): { rows: number; cols: number; value(r: number, c: number): number } {
  return { rows: tile.meta.rows, cols: tile.meta.cols, value: (r, c) => tile.value(r, c) };
}
