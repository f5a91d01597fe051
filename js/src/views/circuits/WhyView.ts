/**
 * Why a head reads a token: the score of the pinned cell, split into parts of the query and of the key, with the
 * sentence above, the same by groups of components next to it, and the attention without its largest parts.
 */
import type { ViewContext } from "../../context.ts";
import { assign, h, keyboard, on, onResize, setChildren, setFlag, setStyles, setText } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { ViewOptions } from "../../wire/viewState.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu, type Item } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { headAddress } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { svg } from "../charts/svg.ts";
import { drawGrid } from "./why/grid.ts";
import { type At, createLists } from "./why/lists.ts";
import { createOthers, type OthersState, type ShownOthers } from "./why/others.ts";
import { decimalsOf, largestOf, type ShownWhy, together, type WhyRemoval } from "./why/why.ts";
import { decimal, inQuotes, word } from "./words.ts";

type Kind = "component" | "token" | "word" | "feature";
type Foil = string | number | null;

interface WhyOptions extends ViewOptions {
  by: Kind;
  kinds: Kind[];
  foil: Foil;
  otherTexts: OthersState;
  /** The cell with which the view opens. */
  opens: { layer: number; head: number; query: number; key: number };
}

const KINDS: Record<Kind, string> = { word: "words", token: "tokens", component: "components", feature: "features" };
const FOILS: Record<string, string> = {
  others: "the other tokens",
  words: "the other words",
  row: "the mean of the row",
  none: "nothing: the score itself",
};
/** Tokens that can be chosen as the foil. */
const MOST_FOILS = 40;
/** Smallest width in px with the grid next to the lists. */
const WIDE = 940;

/** The arguments of a request, in the order of `_request` in why_view.py. */
function argsOf(ctx: ViewContext): Record<string, unknown> & WhyOptions["opens"] {
  const { opens, by, foil } = ctx.options as WhyOptions;
  const { source, layer, head } = ctx.resolved();
  const pinned = ctx.cell("pinned");
  const { query, key } = pinned && pinned.query >= 0 && pinned.key >= 0 ? pinned : opens;
  return { stack: source.stack, layer, head: typeof head === "number" ? head : opens.head, query, key, by, foil };
}

export const renderWhyView = view((ctx, root, signal) => {
  const options = (): WhyOptions => ctx.options as WhyOptions;
  const set = (values: Partial<WhyOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const isPage = ctx.model.get("runtime") === "";
  const answers = createAnswers(ctx, signal, () => update());
  const kinds = createSegments<Kind>("parts", {}, signal, () => set({ by: kinds.value() }));
  const foils = createMenu("rather than", signal, (value) =>
    set({ foil: value === "none" ? null : /^\d+$/.test(value) ? Number(value) : value }),
  );
  const title = h("b.why-title.clip");
  const text = h("div.why-text", { tabindex: "0", role: "application", "aria-roledescription": "text" });
  const summary = h("p.why-said");
  const more = h("p.why-more.fine");
  const lists = createLists(
    signal,
    (at) => point(at),
    (at) => follow(at),
  );
  const sums = h("p.why-note.fine");
  const removals = h("div.why-removals");
  const grid = svg("svg", { role: "img", class: "aw-drawn aw-why-grid" });
  const others = createOthers(ctx, signal, answers, isPage, () => set({ otherTexts: "shown" }));
  const left = h("div.why-panel", lists.element, sums, removals, others.element);
  const right = h(
    "div.why-panel.why-groups",
    h("div.why-head.fine", h("b", "by groups of components"), h("span", "rows ask, columns offer")),
    grid,
  );
  const panels = h("div.why-panels", left, right);
  const copy = createCopyButton(ctx, signal, () => (shown ? { of: "why", ...argsOf(ctx) } : null));
  const frame = createFrame(ctx, root, {
    layout: ".flush.untitled",
    controls: [h("span.why-label", "why"), title, kinds.element, foils.field],
    lead: [text, h("div", h("div", { role: "status" }, summary, more), others.offer)],
    body: [panels],
    skeleton: "chart",
    hint: "Click a word to ask about it instead.",
    says: true,
    actions: [copy.element],
  });
  let shown: ShownWhy | null = null;
  let compared: ShownOthers | null = null;
  let [width, drawnText, offered] = [0, "", ""];
  let pointed: At | null = null;
  let tokens: HTMLElement[] = [];
  root.classList.add("aw-why");
  root.role = "region";

  const labels = (side: "query" | "key"): readonly string[] => ctx.axisOf(ctx.source()[side]).labels;
  const quotedAt = (side: "query" | "key", i: number): string => inQuotes(labels(side)[i] ?? "–");

  const drawText = (): void => {
    const { query, key } = argsOf(ctx);
    const all = labels("key");
    const name = all.join("\u0001");
    if (name !== drawnText) {
      drawnText = name;
      tokens = all.map((label, i) => h("span.why-token.pick", { "data-i": String(i), dir: "auto" }, word(label, 40)));
      setChildren(text, ...tokens.flatMap((token) => [token, " "]));
    }
    const causal = ctx.source().causal;
    const span = pointed && shown?.[pointed.side][pointed.row]?.tokens;
    for (const [i, token] of tokens.entries()) {
      setFlag(token, "data-query", i === query);
      setFlag(token, "data-key", i === key);
      setFlag(token, "data-later", causal && i > query);
      setFlag(token, "data-part", Boolean(span && i >= span[0] && i < span[1]));
    }
    text.ariaLabel =
      `query ${quotedAt("query", query)}, key ${quotedAt("key", key)}. ` +
      "Left and right arrows change the key, with Shift the query.";
  };
  const reveal = (): void => {
    const token = tokens[argsOf(ctx).key];
    if (!token || text.scrollHeight <= text.clientHeight) return;
    text.scrollTop = token.offsetTop - text.offsetTop - (text.clientHeight - token.offsetHeight) / 2;
  };
  const pin = (query: number, key: number): void => {
    const now = ctx.cell("pinned");
    if (now?.query !== query || now.key !== key) ctx.selection.pin({ unit: ctx.source().unit, query, key });
  };
  const move = (by: number, isQuery: boolean) => (): void => {
    const { query, key } = argsOf(ctx);
    const within = (i: number, side: "query" | "key"): number => Math.max(0, Math.min(labels(side).length - 1, i));
    if (isQuery) pin(within(query + by, "query"), key);
    else pin(query, within(key + by, "key"));
  };
  on(text, signal, {
    click(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      if (at === undefined) return;
      const { query, key } = argsOf(ctx);
      if (event.shiftKey) pin(Number(at), key);
      else pin(query, Number(at));
    },
    // The browser would select text up to the click.
    mousedown: (event) => event.shiftKey && event.preventDefault(),
  });
  keyboard(
    text,
    signal,
    {
      ArrowLeft: move(-1, false),
      ArrowRight: move(1, false),
      "Shift+ArrowLeft": move(-1, true),
      "Shift+ArrowRight": move(1, true),
    },
    "← →: key · Shift + ← →: query",
  );

  /**
   * The pointer is on a row: highlight its lines; its words, head or feature here and in linked views; its largest
   * pairs in the footer.
   */
  const point = (at: At | null): void => {
    pointed = at;
    lists.point(at);
    drawText();
    const { tokens, head, feature } = (at && shown?.[at.side][at.row]) || {};
    const { unit, stack } = ctx.source();
    const [first] = tokens ?? [];
    const nowhere = { unit, query: -1, key: -1 };
    if (at && first !== undefined) {
      const isKey = at.side === "offers";
      ctx.selection.hover({ unit, query: isKey ? argsOf(ctx).query : first, key: isKey ? first : -1 });
    } else if (head && stack === ctx.selection.get("stack")) ctx.selection.hover({ ...nowhere, head });
    else if (typeof feature === "number") ctx.selection.hover({ ...nowhere, feature });
    else ctx.selection.hover(null);
    say();
  };
  /** A part that a head wrote is chosen in the grids of heads, a feature in views of features. */
  const follow = ({ side, row }: At): void => {
    const part = shown?.[side][row];
    if (part?.head) ctx.selection.toggleHeads([part.head]);
    if (typeof part?.feature === "number") ctx.selection.set({ feature: part.feature });
  };

  const say = (): void => {
    const { layer, head, query, key, foil } = argsOf(ctx) as ReturnType<typeof argsOf> & { foil: Foil };
    if (pointed && shown) {
      const { side, row } = pointed;
      const { asks, offers, pairs } = shown;
      const part = shown[side][row];
      const pieces = largestOf(pairs, side, row).map(
        ({ from, to, value }) => `${asks[from]?.name} × ${offers[to]?.name} ${decimal(value, 2, true)}`,
      );
      frame.readout.show(`${part?.name} ${decimal(part?.value ?? 0, 2, true)}: ${pieces.join(", ")}`, false);
      return;
    }
    const than = foil === null ? FOILS.none : typeof foil === "number" ? quotedAt("key", foil) : FOILS[foil];
    const weight = shown ? ` = ${printed(shown.attention, true)}` : "";
    frame.readout.show(
      `${quotedAt("query", query)} → ${quotedAt("key", key)}${weight} · head ${headAddress(ctx, layer, head)} · rather than ${than} · norms held fixed`,
      root.contains(document.activeElement),
    );
  };

  const removalRow = ({ side, parts, before, after, random }: WhyRemoval): HTMLElement => {
    const bar = h("span.why-left", { "aria-hidden": "true" }, h("i"), h("u"), h("s"));
    const [now, was, chance] = [...bar.children] as HTMLElement[];
    if (now && was && chance) {
      setStyles(now, { width: `${100 * after}%` });
      setStyles(was, { left: `${100 * before}%` });
      setStyles(chance, { left: `${100 * random}%` });
    }
    const of = shown?.words[side === "key" ? 1 : 0] ?? "";
    const words = `without ${together(parts)} in ${of}`;
    const digits = decimalsOf(before);
    const others = parts.length === 1 ? "another" : `${parts.length} others`;
    return h(
      "div.why-removal",
      { role: "listitem" },
      h("span.why-without.clip", { title: words, dir: "auto" }, words),
      bar,
      h("b", `${decimal(before, digits)} → ${decimal(after, digits)}`),
      h("span", `${others} at random ${decimal(random, digits)}`),
    );
  };
  /** Notes on removals whose measured change differs from the shares, which hold norms fixed. */
  const mispredicted = (all: readonly WhyRemoval[]): HTMLElement[] =>
    all
      .filter(({ predicted }) => predicted !== null)
      .map(({ parts, predicted }) =>
        h(
          "p.why-note.fine",
          `Shares hold norms fixed and predict ${decimal(predicted ?? 0)} without ${together(parts)}, which make much of the norm.`,
        ),
      );

  const draw = (): void => {
    if (!shown || width <= 0) return;
    const hasGroups = shown.grid.names.length > 0;
    const isWide = hasGroups && width >= WIDE;
    assign(right, { hidden: !hasGroups });
    setFlag(panels, "data-wide", isWide);
    const half = isWide ? Math.round(0.52 * width) : width;
    panels.style.setProperty("--aw-first", `${half}px`);
    lists.fit(half - 24);
    if (hasGroups) drawGrid(grid, shown.grid.names, shown.grid.values, (isWide ? width - half : width) - 24);
  };

  const update = (): void => {
    const args = argsOf(ctx);
    const { by, kinds: all, foil } = options();
    const answer = answers.get<ShownWhy>("why", args);
    const why = answers.failure("why", args);
    const words = [quotedAt("query", args.query), quotedAt("key", args.key)] as const;
    const name = `${words[0]} looks at ${words[1]}`;
    frame.show("", name);
    setText(title, ctx.options.title || name);
    title.title = name;
    root.ariaLabel = `why ${name}`;
    frame.lacks(answer ? null : { ...missingAnswer(answers, "why", args, "split of this score"), other: Boolean(why) });
    offerKinds(by, all);
    offerFoils(foil, args.query, args.key);
    const { by: _by, foil: _foil, ...cell } = args;
    const other = others.show(cell, answer ? options().otherTexts : "");
    if (answer && (shown !== answer.meta || compared !== other)) {
      if (shown !== answer.meta) pointed = null;
      shown = answer.meta;
      compared = other;
      // Tokens of other texts take the room of removals.
      if (other) right.append(removals);
      else sums.after(removals);
      const sentence = other?.said ?? shown.said;
      setChildren(summary, ...sentence.map(([piece, isStressed]) => (isStressed ? h("b", piece) : piece)));
      setText(more, [other?.more, shown.more, shown.warning].filter(Boolean).join(" "));
      assign(removals, {
        hidden: shown.removals.length === 0,
        role: "list",
        ariaLabel: "attention without the largest parts",
      });
      setChildren(removals, ...shown.removals.map(removalRow), ...mispredicted(shown.removals));
      lists.show(shown, by);
      draw();
      setText(sums, `${shown.sums} Lines are pairs of ${decimal(lists.least())} and more. ${shown.about}`.trim());
    } else if (!answer && why) {
      shown = null;
      setText(summary, "");
      setText(more, "");
    }
    drawText();
    copy.show();
    say();
  };
  const offerKinds = (by: Kind, all: readonly Kind[]): void => {
    const key = all.join();
    if (offered !== key) {
      offered = key;
      kinds.offer(Object.fromEntries(all.map((kind) => [kind, KINDS[kind]])));
    }
    kinds.choose(by);
  };
  const offerFoils = (foil: Foil, query: number, key: number): void => {
    const all = labels("key");
    const last = ctx.source().causal ? query : all.length - 1;
    const some = all.flatMap((_, i): Item[] =>
      i <= last && i !== key && i < MOST_FOILS
        ? [{ value: String(i), label: quotedAt("key", i), group: "one token" }]
        : [],
    );
    const groups = Object.entries(FOILS).map(([value, label]): Item => ({ value, label }));
    const now = foil === null ? "none" : String(foil);
    // A page holds the answers rather than the foil that it was written with.
    foils.offer(isPage ? [] : [...groups, ...some], now);
  };
  onResize(panels, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === width) return;
    width = now;
    draw();
    reveal();
  });
  return (changed) => {
    if (only(changed, "hover")) return;
    update();
    reveal();
  };
});
