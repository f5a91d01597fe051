/**
 * A text as a column of sentences, with arcs at its side from each to those that it depends on. One sentence is chosen:
 * its arcs stand out, the text is coloured by them, and both sides are listed with their values.
 */
import { colourAt, cssOf, heatMap, inkOn, place } from "../../colour.ts";
import { assign, h, type KeyHandlers, keyboard, on, onResize, setChildren, setFlag, shortLabel } from "../../dom.ts";
import { approximately, printed } from "../../numbers.ts";
import type { Tile } from "../../wire/tile.ts";
import type { Cell, ViewOptions } from "../../wire/wire.ts";
import { createExactRows } from "../base/cellValues.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { missingTile } from "../base/missing.ts";
import { moveHead, plural, whereWords } from "../base/navigation.ts";
import { lastContent } from "../base/opening.ts";
import { createHeadControl, createLayerControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { svg } from "../charts/svg.ts";
import { drawArcs } from "./sentences/arcs.ts";
import { around, type Link, type Links, linksOf, strongest } from "./sentences/links.ts";
import { createSentencePanel } from "./sentences/panel.ts";

interface SentenceOptions extends ViewOptions {
  /** Share of the largest value from which arcs are drawn. */
  least: number;
  /** Sentences that are nearer to each other are left out. */
  distance: number;
}

/** Characters of a sentence that are shown, of more than three lines of text. */
const LONGEST = 400;
/** Smallest width in px with the lists next to the text, and the widths of the arcs. */
const WIDE = 700;
const [ROOM, NARROW] = [116, 64];
/** Where the weakest arcs begin on the ramp, so that they are seen on the page. */
const PALEST = 0.3;
const DISTANCES = [1, 2, 4];

export const renderSentenceView = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const options = (): SentenceOptions => ctx.options as SentenceOptions;
  const save = (values: Partial<SentenceOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const controls = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const distances = createMenu("distance", signal, (value) => save({ distance: Number(value) }));
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.01",
    "aria-label": "smallest arc, as a share of the largest value",
  });
  const least = h("output");
  on(slider, signal, {
    input() {
      least.textContent = percent(slider.valueAsNumber);
      draw();
    },
    change: () => save({ least: slider.valueAsNumber }),
  });
  const scale = createScale();
  const arcs = svg("svg", { "aria-hidden": "true", class: "aw-sentence-arcs" });
  const list = h("div.sentence-list", { role: "listbox", tabindex: "0" });
  const pane = h("div.sentence-pane", arcs as unknown as HTMLElement, list);
  const panel = createSentencePanel(signal, ({ query, key }) => {
    keep = focus;
    pin({ unit: ctx.source().unit, query, key });
    reveal(query === focus ? key : query);
  });
  const exact = createExactRows(ctx, () => point());
  const copy = createCopyButton(ctx, signal);
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, distances.field, h("label.group.sentence-least", "arcs from", slider, least)],
    legend: scale.element,
    body: [h("div.sentence-body", pane, panel.element)],
    skeleton: "rows",
    hint: "Click a sentence: what does it depend on?",
    actions: [copy.element],
  });
  const body = root.querySelector(".aw-sentence-body") as HTMLElement;
  /** The chosen sentence, and the one that stays chosen while a pair is pinned in the lists. */
  let focus = -1;
  let keep = -1;
  let tile: Tile | null = null;
  let links: Links = { count: 0, all: [], top: 0 };
  let linksFor = "";
  let rows: HTMLElement[] = [];
  let writtenFor: readonly string[] | null = null;
  let width = 0;
  root.classList.add("aw-sentences");
  root.role = "group";

  const axis = () => ctx.axisOf(ctx.source().query);
  const name = (sentence: number): string => String(sentence + ctx.options.indexBase);
  const label = (sentence: number): string => axis().labels[sentence] ?? "";
  const percent = (share: number): string => `${Math.round(100 * share)} %`;
  const unitName = (): string => ctx.source().unit;

  const pin = (cell: Cell | null): void => selection.set({ pinned: cell });
  const choose = (sentence: number): void => {
    if (!rows.length) return;
    const at = Math.max(0, Math.min(rows.length - 1, sentence));
    keep = -1;
    pin({ unit: ctx.source().unit, query: at, key: -1 });
    reveal(at);
  };
  /** Scroll the text, and nothing around it, to a sentence. */
  const reveal = (sentence: number): void => {
    const row = rows[sentence];
    if (!row) return;
    const [start, end] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (start < pane.scrollTop) pane.scrollTop = start - 8;
    else if (end > pane.scrollTop + pane.clientHeight) pane.scrollTop = end - pane.clientHeight + 8;
  };
  const follow = (side: "on" | "of"): void => {
    const [link] = around(links, focus)[side];
    if (link) choose(side === "on" ? link.key : link.query);
  };
  const handlers: KeyHandlers = {
    ArrowUp: () => choose(focus - 1),
    ArrowDown: () => choose(focus + 1),
    ArrowLeft: () => follow("on"),
    ArrowRight: () => follow("of"),
    Home: () => choose(0),
    End: () => choose(Infinity),
    "[": () => moveHead(ctx, -1),
    "]": () => moveHead(ctx, 1),
    Escape() {
      keep = -1;
      selection.clear();
    },
  };
  keyboard(
    list,
    signal,
    handlers,
    "↑ ↓: another sentence · ←: to what it depends on most · →: to what depends most on it · [ ]: head · Esc: let go",
  );
  const sentenceAt = (event: Event): number =>
    Number((event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i ?? -1);
  on(list, signal, {
    click(event) {
      const at = sentenceAt(event);
      if (at < 0) return;
      const pinned = ctx.cell("pinned");
      if (pinned?.query === at && pinned.key < 0) pin(null);
      else choose(at);
    },
    pointermove(event) {
      const at = sentenceAt(event);
      selection.hover(at < 0 ? null : { unit: ctx.source().unit, query: at, key: -1 });
    },
    pointerleave: () => selection.hover(null),
  });

  const write = (): void => {
    const { labels, special } = axis();
    if (writtenFor === labels) return;
    writtenFor = labels;
    rows = labels.map((text, i) =>
      h(
        "div.sentence-row",
        {
          role: "option",
          id: `aw-sentence-${root.id || "view"}-${i}`,
          "data-i": String(i),
          ...(special[i] ? { "data-apart": "" } : {}),
        },
        h("span.sentence-number", name(i)),
        h("span.sentence-text", { dir: "auto" }, shortLabel(text, LONGEST)),
      ),
    );
    setChildren(list, ...rows);
  };

  /** The initial sentence: the last, or without an arc there, the sentence with the strongest. */
  const opening = (): number => {
    const last = lastContent(axis());
    const drawn = strongest(links, options().least);
    return drawn.some(({ query, key }) => query === last || key === last) ? last : (drawn[0]?.query ?? last);
  };
  /** The chosen sentence: the pinned one, else that of the opening. */
  const settle = (): void => {
    const pinned = ctx.cell("pinned");
    if (!pinned) keep = -1;
    const at = pinned ? (pinned.query >= 0 ? pinned.query : pinned.key) : -1;
    const isOfKept = keep >= 0 && (pinned?.query === keep || pinned?.key === keep);
    focus = isOfKept ? keep : at >= 0 ? at : opening();
    if (!isOfKept) keep = -1;
  };

  const read = (): boolean => {
    const { source, layer, head } = ctx.resolved();
    const { labels, special } = axis();
    const count = labels.length;
    if (count < 2 || special.filter((is) => !is).length < 2) {
      const what = plural(unitName());
      frame.lacks({
        kind: "none",
        words: `This text has one ${unitName()}, and arcs lead between ${what}.`,
        advice: 'Give a longer text, or smaller pieces of this one: unit="word", or spans of tokens.',
      });
      return false;
    }
    tile = tiles.get(source.id, layer, head) ?? null;
    if (!tile) {
      tiles.request(source.id, layer, head);
      frame.lacks(missingTile(ctx));
      return false;
    }
    frame.lacks(null);
    const { distance } = options();
    const key = [source.id, layer, head, distance].join();
    if (key !== linksFor || links.count !== count) {
      linksFor = key;
      const shown = tile;
      links = linksOf((row, col) => shown.value(row, col) || 0, count, distance, special);
    }
    return true;
  };

  const end = (): number => links.top;
  const colour = (value: number, palest = 0): string => cssOf(shade(value, palest));
  const shade = (value: number, palest: number): readonly [number, number, number] => {
    const isSigned = ctx.source().signed;
    const share = place(Math.abs(value), [0, end()], "linear");
    const at = palest + (1 - palest) * share;
    return colourAt(heatMap(isSigned, ctx.theme), isSigned ? 0.5 + (Math.sign(value) * at) / 2 : at);
  };

  const followed = (): number => {
    const over = ctx.cell("hover");
    const at = over ? (over.query >= 0 ? over.query : over.key) : -1;
    return at >= 0 && at < rows.length ? at : focus;
  };

  const tint = (sentence: number): void => {
    const { on: before, of: after } = around(links, sentence);
    const values = new Map<number, number>();
    for (const { query, value } of after) values.set(query, value);
    for (const { key, value } of before) values.set(key, value);
    rows.forEach((row, i) => {
      const text = row.lastElementChild as HTMLElement;
      const value = values.get(i) ?? 0;
      const fill = shade(value, 0);
      const isPlain = Math.abs(value) < 0.02 * end() || i === sentence;
      text.style.background = isPlain ? "" : cssOf(fill);
      text.style.color = isPlain ? "" : inkOn(fill);
      setFlag(row, "data-over", i === sentence && i !== focus);
    });
  };

  const draw = (): void => {
    if (width <= 0 || !rows.length || !tile) return;
    const state = {
      links: strongest(links, slider.valueAsNumber),
      followed: followed(),
      middles: rows.map((row) => row.offsetTop + row.offsetHeight / 2),
      width: width >= WIDE ? ROOM : NARROW,
      height: list.offsetHeight,
      top: end(),
      colour: (value: number) => colour(value, PALEST),
    };
    drawArcs(arcs, state);
  };

  const textOf = ({ query, key, value }: Link): string => {
    const row = query === focus ? exact(query, ctx.cell("pinned") !== null) : undefined;
    const known = row?.[key];
    if (known !== undefined && !Number.isNaN(known)) return printed(known, true);
    return tile ? tile.text(query, key) : printed(value, false);
  };
  const list2 = (some: readonly Link[], other: "query" | "key"): string =>
    some
      .slice(0, 3)
      .map((link) => `${name(link[other])} ${textWithSign(link)}`)
      .join(", ");
  const textWithSign = (link: Link): string => {
    const text = textOf(link);
    const isExact = link.query === focus && exact(link.query, false) !== undefined;
    return isExact ? text : approximately(text);
  };

  const words = (sentence: number): string => {
    const { on: before, of: after } = around(links, sentence);
    const start = `${name(sentence)} \u2068“${shortLabel(label(sentence), 40)}”\u2069`;
    const first = before.length ? `depends on ${list2(before, "key")}` : "depends on nothing above the threshold";
    const second = after.length
      ? `${list2(after, "query")} depend${after.length > 1 ? "" : "s"} on it`
      : "nothing depends on it";
    return `${start} ${first} · ${second}`;
  };

  const point = (): void => {
    if (!tile || !rows.length) return;
    const at = followed();
    tint(at);
    draw();
    rows.forEach((row, i) => {
      row.ariaSelected = String(i === focus);
    });
    const chosen = rows[focus];
    if (chosen) list.setAttribute("aria-activedescendant", chosen.id);
    const pinned = ctx.cell("pinned");
    const { on: before, of: after } = around(links, focus);
    const { distance } = options();
    panel.show({
      name,
      label,
      sentence: focus,
      on: before,
      of: after,
      top: Math.max(...[...before, ...after].map(({ value }) => Math.abs(value))),
      signed: ctx.source().signed,
      text: textOf,
      pinned: pinned && pinned.query >= 0 && pinned.key >= 0 ? { ...pinned, value: 0 } : null,
      note:
        distance > 1
          ? `Only ${plural(unitName())} that are ${distance} or more apart.`
          : "Adjacent sentences always score high: compare pairs at the same distance.",
    });
    frame.readout.show(words(at), root.contains(root.ownerDocument.activeElement));
  };

  const update = (): void => {
    const { layers, heads } = ctx.source();
    const title = frame.show(layers.length > 1 || heads ? whereWords(ctx) : "");
    root.ariaLabel = `${title}: sentences and what they depend on`;
    list.ariaLabel = `${title}: ${plural(unitName())}`;
    controls.show();
    const { distance, least: share } = options();
    const words = (far: number): string => (far === 1 ? "all distances" : `${far} or more apart`);
    const offered = [...new Set([...DISTANCES, distance])].sort((a, b) => a - b);
    distances.offer(
      offered.map((far) => ({ value: String(far), label: words(far) })),
      String(distance),
    );
    assign(slider, { value: String(share) });
    least.textContent = percent(share);
    write();
    const isThere = read();
    assign(scale.element, { hidden: !isThere });
    if (!isThere) return;
    const before = focus;
    settle();
    if (before < 0) requestAnimationFrame(() => reveal(focus));
    const { source } = ctx.resolved();
    scale.show({
      map: heatMap(source.signed, ctx.theme),
      range: source.signed ? [-end(), end()] : [0, end()],
      words: source.title,
    });
    point();
    copy.show();
  };
  onResize(body, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === width) return;
    width = now;
    body.dataset.wide = String(width >= WIDE);
    body.style.setProperty("--aw-arcs", `${width >= WIDE ? ROOM : NARROW}px`);
    if (rows.length && tile) {
      point();
      reveal(focus);
    }
  });
  return (changed) => {
    if (only(changed, "hover")) point();
    else update();
  };
});
