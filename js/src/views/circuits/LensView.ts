/** What the model would predict after each layer: top tokens, the rank of an answer over the layers, one cell in detail. */
import { heatMap, rampCss } from "../../colour.ts";
import {
  assign,
  directionOf,
  h,
  iconButton,
  type KeyHandlers,
  on,
  onResize,
  reserve,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
} from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Cell } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { missingAnswer } from "../base/missing.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { only, view } from "../base/view.ts";
import { createCurve } from "./lens/curve.ts";
import {
  type Lens,
  type LensOptions,
  MEASURES,
  type Measure,
  ranksAt,
  readLens,
  topOf,
  topValue,
  valueAt,
} from "./lens/lens.ts";
import { createLensPanel } from "./lens/panel.ts";
import { foldedWords, rowsShown, withRow } from "./lens/rows.ts";
import { createTable } from "./lens/table.ts";
import { chance, decimal, inQuotes, word } from "./words.ts";

type Kind = "plain" | "fitted";

/** px of a row at least and at most, of what stands above the rows, and of the caption. */
const [LEAST, MOST_ROW] = [18, 24];
const [HEADS, CAPTION] = [26, 24];
/** px from which the panel has a column of its own, and from which there are two columns. */
const [THREE, TWO] = [960, 560];

export const renderLensView = view((ctx, root, signal) => {
  const options = (): LensOptions => ctx.options as LensOptions;
  const answers = createAnswers(ctx, signal, () => update());
  const save = (values: Partial<LensOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const kinds = createSegments<Kind>("lens", { plain: "plain", fitted: "fitted" }, signal, () =>
    save({ fitted: kinds.value() === "fitted" }),
  );
  const colours = createMenu("colour", signal, (measure) => save({ color: measure as Measure }));
  const range = h("input.range", { type: "range", min: "0", "aria-label": "layer" });
  const number = h("output");
  const less = iconButton(signal, "‹", "previous layer", () => move(-1, 0));
  const more = iconButton(signal, "›", "next layer", () => move(1, 0));
  const layer = h("span.group", { role: "group", "aria-label": "layer" }, less, range, number, more);
  on(range, signal, { input: () => choose(range.valueAsNumber, options().cell[1]) });
  const text = h("div.lens-text", { role: "group", "aria-label": "text" });
  const chips = h("span.lens-chips");
  const answer = h("button.lens-answer", { type: "button" });
  const lead = h("div.lens-lead", text, chips, h("span.lens-room"), answer);
  on(answer, signal, { click: () => save({ answer: null }) });
  on(text, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      if (at !== undefined) choose(options().cell[0], Number(at));
    },
    pointermove(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      ctx.selection.hover(at === undefined ? null : { unit: "token", query: Number(at), key: -1 });
    },
    pointerleave: () => ctx.selection.hover(null),
  });
  const move = (down: number, right: number): void => {
    if (!lens) return;
    const [row, token] = options().cell;
    const within = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));
    choose(within(row + down, lens.layers + 1), within(token + right, lens.tokens.length));
  };
  const keys: KeyHandlers = {
    ArrowUp: () => move(-1, 0),
    ArrowDown: () => move(1, 0),
    ArrowLeft: () => move(0, -1),
    ArrowRight: () => move(0, 1),
    Home: () => move(-Infinity, 0),
    End: () => move(Infinity, 0),
    Escape: () => ctx.selection.clear(),
  };
  const table = createTable(
    ctx,
    signal,
    {
      choose: (row, token) => choose(row, token),
      hover(cell) {
        over = cell;
        ctx.selection.hover(cell && { unit: "token", query: cell[1], key: -1 });
        point();
      },
    },
    keys,
  );
  const curve = createCurve(ctx, signal, (row) => choose(row, options().cell[1]));
  const panel = createLensPanel(signal, {
    answer: (id) => options().runs && save({ answer: id }),
    patch() {
      const [row, token] = options().cell;
      ctx.selection.set({ layer: row, pinned: pinOf(row, token) });
    },
  });
  const [title, folded] = [h("b", "top token"), h("span.lens-folded")];
  const legend = h("span.lens-legend", { role: "img" });
  const side = createSegments("second column", { rank: "rank", top: "top" }, signal, () => lay());
  const [rankTitle, rankAt] = [h("b"), h("span.lens-folded")];
  const left = h("div.lens-left", h("div.lens-caption", title, folded, legend), table.element);
  const middle = h("div.lens-middle", h("div.lens-caption", rankTitle, rankAt, side.element), curve.element);
  const copy = createCopyButton(ctx, signal, () => {
    const { color, fitted, answer: id, cell } = options();
    return lens ? { of: "lens", measure: color, fitted, answer: id, row: cell[0], token: cell[1] } : null;
  });
  const frame = createFrame(ctx, root, {
    controls: [kinds.element, colours.field, layer],
    lead: [lead],
    body: [h("div.lens-body", left, middle, panel.element)],
    skeleton: "cells",
    hint: "Click a cell to see its most probable tokens.",
    says: true,
    actions: [copy.element],
  });
  const body = root.querySelector(".aw-lens-body") as HTMLElement;
  let lens: Lens | null = null;
  let other: Lens | null = null;
  let over: readonly [number, number] | null = null;
  let box = { width: 0, height: 0 };
  let known = "";
  let writtenFor: readonly string[] = [];
  let tokens: HTMLElement[] = [];
  root.classList.add("aw-lens");
  root.role = "group";

  const rowName = (row: number): string => (row === lens?.layers ? "output" : `layer ${ctx.layerName(row)}`);
  const pinOf = (row: number, token: number): Cell => ({ unit: "token", query: token, key: -1, layer: row });
  const snapshot = (): string => JSON.stringify([ctx.selection.get("layer"), ctx.selection.get("pinned")]);

  /** Choose a cell, here and in the other views of the text; these have no row for the output. */
  const choose = (row: number, token: number): void => {
    if (!lens) return;
    const isOutput = row === lens.layers;
    const pinned: Cell = isOutput ? { unit: "token", query: token, key: -1 } : pinOf(row, token);
    ctx.selection.set({ layer: Math.min(row, lens.layers - 1), pinned });
    known = snapshot();
    save({ cell: [row, token] });
  };
  const follow = (): void => {
    const now = snapshot();
    if (now === known || !lens) return;
    const isFirst = !known;
    known = now;
    if (isFirst) return;
    const [layerNow, pinned] = JSON.parse(now) as [number, Cell | null];
    const [row, token] = options().cell;
    const at = pinned?.unit === "token" ? Math.max(pinned.query, pinned.key) : -1;
    const isToken = at >= 0 && at < lens.tokens.length;
    const next: [number, number] = [Math.min(layerNow, lens.layers), isToken ? at : token];
    if (next[0] !== row || next[1] !== token) save({ cell: next });
  };

  const fetchLens = (fitted: boolean, id: number | null, isMain: boolean): Lens | null => {
    const args = { fitted, answer: id };
    const held = id === null && options().held.includes(fitted);
    const topic = held ? "lens" : "more_lens";
    const found = answers.get<never>(topic, args, !isMain);
    if (found) return readLens(found);
    if (isMain) frame.lacks(missingAnswer(answers, topic, args, "predictions by layer"));
    return null;
  };
  const read = (): void => {
    const { fitted, answer: id, kinds: offered } = options();
    const main = fetchLens(fitted, id, true);
    if (main) frame.lacks(null);
    lens = main ?? lens;
    const isPair = main !== null && offered.length > 1;
    other = isPair ? fetchLens(!fitted, id, false) : null;
  };

  const write = (l: Lens): void => {
    if (writtenFor !== l.tokens) {
      writtenFor = l.tokens;
      tokens = l.tokens.map((label, i) => h("span.lens-token", { "data-i": String(i) }, h("bdi", word(label))));
      setChildren(text, ...tokens);
      text.dir = directionOf(l.tokens);
    }
    setChildren(
      chips,
      "→",
      ...l.predicted
        .slice(0, 2)
        .map(([label, p]) => h("span.lens-chip", h("bdi", word(label, 14)), " ", h("b", p.toFixed(2)))),
    );
    setChildren(answer, "answer ", h("b", h("bdi", word(l.answer))), options().answer === null ? "" : " ×");
    answer.disabled = options().answer === null; // the default is active
    answer.title =
      options().answer === null ? "the token whose rank and probability are followed" : "follow the given answer again";
  };

  const lay = (): void => {
    const l = lens;
    if (!l || box.width <= 0) return;
    const columns = box.width >= THREE ? 3 : box.width >= TWO ? 2 : 1;
    body.dataset.columns = String(columns);
    assign(side.element, { hidden: columns === 3 });
    const isTop = columns < 3 && side.value() === "top";
    setFlag(body, "data-top", isTop);
    // In two columns the panel takes the place of the curve, under its heading.
    const panelPlace = columns < 3 ? middle : body;
    if (panel.element.parentElement !== panelPlace) panelPlace.append(panel.element);
    curve.element.style.display = isTop ? "none" : "";
    panel.element.hidden = columns < 3 && !isTop;
    const panelWidth = columns === 3 ? 310 : 0;
    const middleWidth =
      columns === 1 ? box.width : Math.round(Math.max(250, 0.27 * box.width + (columns === 2 ? 0.1 * box.width : 0)));
    const width = (columns === 1 ? box.width : box.width - middleWidth - panelWidth) - 26;
    setSizes(body, { middle: middleWidth, panel: panelWidth });
    const [row, token] = options().cell;
    const most = Math.max(4, Math.floor((box.height - CAPTION - HEADS - 14) / LEAST));
    const count = l.layers + 1;
    const rows = withRow(rowsShown(count, ranksAt(l, token), columns === 1 ? 16 : most), row);
    const high =
      columns === 1
        ? LEAST + 1
        : Math.max(LEAST, Math.min(MOST_ROW, Math.floor((box.height - CAPTION - HEADS - 14) / rows.length)));
    const [from, to] = table.window(l, token);
    const window =
      to - from < l.tokens.length
        ? `tokens ${from + ctx.options.indexBase} to ${to - 1 + ctx.options.indexBase} of ${l.tokens.length}`
        : "";
    setText(folded, [foldedWords(rows, count), window].filter(Boolean).join(" · "));
    folded.title = "The arrow keys and the slider reach folded layers.";
    table.show({ lens: l, rows, measure: options().color, cell: [row, token], column: columnOver(), row: high, width });
    setText(rankTitle, `rank of ${word(l.answer)}`);
    setText(rankAt, `at ${inQuotes(l.tokens[token] ?? "")}`);
    const { fitted } = options();
    const names = fitted ? ["fitted", "plain"] : ["plain", "fitted"];
    const lines = [l, ...(other ? [other] : [])].map((one, i) => ({
      name: names[i] as string,
      ranks: ranksAt(one, token),
      isShown: i === 0,
    }));
    curve.show({ lines, rows, chosen: row, width: middleWidth - 26, row: high, top: HEADS });
    curve.element.setAttribute(
      "aria-label",
      `rank of ${l.answer} over the layers: ${rows.map((at) => `${rowName(at)} ${(lines[0]?.ranks[at] ?? 0) + 1}`).join(", ")}`,
    );
    panel.show({ lens: l, other, fitted, cell: [row, token], name: rowName(row), canPatch: row < l.layers });
  };
  const columnOver = (): number => {
    const hovered = ctx.selection.get("hover");
    return over ? over[1] : hovered?.unit === "token" ? Math.max(hovered.query, hovered.key) : -1;
  };

  const point = (): void => {
    const l = lens;
    if (!l) return;
    const [row, token] = over ?? options().cell;
    tokens.forEach((el, i) => {
      el.toggleAttribute("data-chosen", i === options().cell[1]);
      el.toggleAttribute("data-over", i === columnOver());
    });
    const best = topOf(l, row, token)[0];
    const rank = valueAt(l, "rank", row, token) + 1;
    const isAnswer = best?.label === l.answer;
    const first = `${rowName(row)}, ${inQuotes(l.tokens[token] ?? "")} → ${inQuotes(best?.label ?? "")} ${chance(best?.p ?? 0)}`;
    const more = isAnswer
      ? ""
      : ` · p(${word(l.answer)}) ${chance(valueAt(l, "probability", row, token))}, rank ${rank.toLocaleString("en")}`;
    const rest = ` · entropy ${decimal(valueAt(l, "entropy", row, token))} · KL ${decimal(valueAt(l, "kl", row, token))}`;
    frame.readout.show(`${first}${more}${rest}`, root.contains(document.activeElement));
  };

  const showLegend = (l: Lens): void => {
    const { color } = options();
    const top = topValue(l, color);
    const [low, high] =
      color === "probability"
        ? ["0", "1"]
        : color === "rank"
          ? [(top + 1).toLocaleString("en"), "1st"]
          : ["0", decimal(top, 1)];
    const ramp = h("span.ramp", { "aria-hidden": "true" });
    setStyles(ramp, { background: rampCss(heatMap(false, ctx.theme)) });
    setChildren(legend, color === "probability" ? `p(${word(l.answer, 12)})` : MEASURES[color], " ", low, ramp, high);
    legend.ariaLabel = `${MEASURES[color]}, ${low} to ${high}`;
  };

  const update = (): void => {
    read();
    const { fitted, kinds: offered, color, cell } = options();
    kinds.choose(fitted ? "fitted" : "plain");
    assign(kinds.element, { hidden: offered.length < 2 });
    colours.offer(
      (Object.keys(MEASURES) as Measure[]).map((value) => ({ value, label: MEASURES[value] })),
      color,
    );
    const name = frame.show("", lens?.title);
    root.ariaLabel = `lens: ${name}`;
    if (!lens) return;
    follow();
    const last = lens.layers;
    assign(range, { max: String(last), ariaValueText: rowName(cell[0]) });
    assign(range, { value: String(cell[0]) });
    setText(number, cell[0] === last ? "output" : `layer ${ctx.layerName(cell[0])} / ${ctx.layerName(last)}`);
    reserve(number, `layer ${ctx.layerName(last)} / ${ctx.layerName(last)}`);
    assign(less, { disabled: cell[0] <= 0 });
    assign(more, { disabled: cell[0] >= last });
    write(lens);
    showLegend(lens);
    table.element.ariaLabel = `top tokens by ${lens.title}, layers by tokens`;
    lay();
    point();
    copy.show();
  };
  onResize(body, signal, ({ width, height }) => {
    const next = { width: Math.floor(width), height: Math.floor(height) };
    if (next.width <= 0 || (next.width === box.width && next.height === box.height)) return;
    box = next;
    lay();
    point();
  });
  return (changed) => {
    if (only(changed, "hover")) point();
    else update();
  };
});
