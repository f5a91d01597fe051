/** A row of attention to be made uniform, set to a single key, or adjusted by a slider. */

import type { ViewContext } from "../../context.ts";
import { atEnd, h, iconButton, on, quoted, setChildren, setText, shortLabel, watchWidth } from "../../dom.ts";
import { printed, tickText } from "../../numbers.ts";
import { toggled } from "../../selection.ts";
import type { Answers } from "../../wire/answers.ts";
import { floatsOf } from "../../wire/buffers.ts";
import type { Cell, SetRow, Source } from "../../wire/wire.ts";
import { createReadout } from "../base/frame.ts";
import { createProgress } from "../base/missing.ts";
import { attends } from "../base/mixers.ts";
import { headAddress } from "../base/navigation.ts";
import { lastContent } from "../base/opening.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { type Changed, distanceWords, lacking } from "./change.ts";
import { hasSameTarget, pull, release, shownHeadOf, specsOf } from "./list.ts";
import { createStrips } from "./strips.ts";

type Mode = "as" | SetRow["to"];

/** Milliseconds that the slider must rest before a request. */
const RESTS = 180;
/** The smallest share of a row that can be moved. */
const NOTHING = 1e-9;

interface RowAddress {
  stack: string;
  layer: number;
  head: number;
  query: number;
}

export interface RowEditor {
  element: HTMLElement;
  show(): void;
}

/** `refusal`: why nothing can be changed, if so. */
export function createRowEditor(
  ctx: ViewContext,
  answers: Answers,
  signal: AbortSignal,
  refusal: () => string,
): RowEditor {
  const title = h("b");
  const stepper = h(
    "span.stepper",
    iconButton(signal, "‹", "previous token", () => move(-1)),
    iconButton(signal, "›", "next token", () => move(1)),
  );
  const modes = createSegments<Mode>(
    "attention row",
    { as: "unchanged", uniform: "uniform", one_hot: "only on", free: "free" },
    signal,
    () => set(modes.value()),
  );
  modes.element.dataset.needsKernel = "";
  const onKey = modes.element.children[2]?.lastChild as Text;
  (modes.element.children[3] as HTMLElement).title = "moves weight among keys; the output of the head stays the same";
  const slider = h("input.range", {
    type: "range",
    min: "0",
    max: "1",
    step: "0.01",
    "aria-label": "share of its free part",
  });
  const moved = h("output");
  const free = h("div.row.row-free", h("label.field", "moved by", slider), moved);
  const message = h("div.line", { role: "status" });
  const state = createProgress(signal);
  const strips = createStrips(ctx, signal, {
    point: (key) => say(key),
    pin: (key) => pinKey(key),
    toggle(key) {
      const at = address();
      const cell = at && cellOf(at.query, key);
      if (cell) ctx.selection.pinAll(toggled(ctx.selection.get("pins"), cell));
    },
    span(first, last) {
      const [from, to] = [cellOf(-1, Math.min(first, last)), cellOf(-1, Math.max(first, last))];
      if (from && to) ctx.selection.setSpan({ start: from.key, stop: to.key + 1, unit: from.unit, side: "key" });
    },
  });
  const readout = createReadout();
  const body = h("div", modes.element, free, message, strips.element, ...readout.elements);
  const note = h("div.line");
  const element = h("section.row-editor", h("div.row", title, stepper), note, body, state.element);
  let width = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let [before, after]: [Float32Array, Float32Array] = [new Float32Array(), new Float32Array()];
  let labels: string[] = [];
  let most = 0;
  /** The slider's value while it moves; null: the value of the shared list. */
  let live: number | null = null;

  const axes = () => {
    const source = shownHeadOf(ctx)?.source;
    return source && { query: ctx.axisOf(source.query), key: ctx.axisOf(source.key), source };
  };
  /** The tokens of an element of a unit. */
  const tokensIn = (unit: string | undefined, side: "query" | "key", at: number): readonly number[] => {
    const { sources, axes: all } = ctx.header();
    const stack = shownHeadOf(ctx)?.source.stack;
    const source = sources.find((source) => source.unit === unit && source.stack === stack && source.kind === "map");
    const axis = source && all[source[side]];
    if (!axis || at < 0) return [];
    return axis.spans ? (axis.spans[at] ?? []) : at < axis.labels.length ? [at] : [];
  };
  /** The first token of the pinned element; -1: none. */
  const pinned = (side: "query" | "key", cell = ctx.selection.get("pinned")): number =>
    tokensIn(cell?.unit, side, cell?.[side] ?? -1)[0] ?? -1;
  const tokensOf = (side: "query" | "key"): number => {
    const axis = axes()?.[side];
    return axis?.spans ? 1 + Math.max(-1, ...axis.spans.flat()) : (axis?.labels.length ?? 0);
  };
  /** The token whose row is shown while none is pinned. */
  const opening = (): number => {
    const stack = shownHeadOf(ctx)?.source.stack;
    const isTokens = ({ kind, unit, stack: of }: Source): boolean => kind === "map" && unit === "token" && of === stack;
    const source = ctx.header().sources.find(isTokens);
    return source ? lastContent(ctx.axisOf(source.query)) : tokensOf("query") - 1;
  };
  const address = (): RowAddress | null => {
    const at = shownHeadOf(ctx);
    if (!at || typeof at.head !== "number") return null;
    const query = pinned("query");
    const { source, layer, head } = at;
    if (!attends(source, layer, head)) return null;
    return { stack: source.stack, layer, head, query: query < 0 ? opening() : query };
  };
  const current = (at: RowAddress): SetRow | undefined =>
    specsOf(ctx).find((spec) => hasSameTarget(spec, { kind: "row", ...at, to: "uniform" })) as SetRow | undefined;
  const strongest = (): number => before.reduce((best, value, i) => (value > (before[best] as number) ? i : best), 0);
  const keyOf = (): number => (pinned("key") < 0 ? strongest() : pinned("key"));

  /** A query and a key by their tokens (-1: none), as a cell in the unit of the views. */
  const cellOf = (query: number, key: number): Cell | null => {
    const stack = shownHeadOf(ctx)?.source.stack;
    const maps = ctx.header().sources.filter((candidate) => candidate.stack === stack && candidate.kind === "map");
    const source = maps.find(({ unit }) => unit === "token") ?? maps[0];
    if (!source) return null;
    const at = (side: "query" | "key", token: number): number => {
      const { spans } = ctx.axisOf(source[side]);
      return token >= 0 && spans ? spans.findIndex((span) => span.includes(token)) : token;
    };
    return { unit: source.unit, query: at("query", query), key: at("key", key) };
  };
  const pinTokens = (query: number, key: number): void => {
    const pinned = cellOf(query, key);
    if (pinned) ctx.selection.set({ pinned });
  };
  /** Outline the keys of this row that are pinned together, and draw the span. */
  const drawChosen = (query: number): void => {
    const pins = ctx.selection.get("pins");
    const here = pins.length > 1 ? pins.filter((cell) => pinned("query", cell) === query) : [];
    const span = ctx.selection.get("span");
    const covered = span ? [span.start, span.stop - 1].map((at) => tokensIn(span.unit, "key", at)) : [];
    const [first, last] = [covered[0]?.[0], covered[1]?.at(-1)];
    const isBoth = span?.side === "key" || shownHeadOf(ctx)?.source.stack !== "cross";
    strips.choose(
      here.flatMap((cell) => tokensIn(cell.unit, "key", cell.key)),
      isBoth && first !== undefined && last !== undefined ? [first, last + 1] : null,
    );
  };
  const move = (by: number): void => {
    const at = address();
    if (at) pinTokens(Math.max(0, Math.min(tokensOf("query") - 1, at.query + by)), pinned("key"));
  };
  const pinKey = (key: number): void => {
    const at = address();
    if (!at) return;
    pinTokens(at.query, key);
    if (current(at)?.to === "one_hot") pull(ctx, { kind: "row", ...at, to: "one_hot", key });
  };

  const set = (to: Mode): void => {
    const at = address();
    if (!at) return;
    const spec = current(at);
    live = null;
    if (to === "one_hot") pull(ctx, { kind: "row", ...at, to, key: keyOf() });
    else if (to === "free") pull(ctx, { kind: "row", ...at, to, amount: 1 });
    else if (to === "uniform") pull(ctx, { kind: "row", ...at, to });
    else if (spec) release(ctx, spec);
    show();
  };
  on(slider, signal, {
    input() {
      live = slider.valueAsNumber;
      clearTimeout(timer);
      timer = setTimeout(() => {
        const at = address();
        const amount = live;
        live = null;
        if (at && amount !== null) pull(ctx, { kind: "row", ...at, to: "free", amount });
      }, RESTS);
      show();
    },
  });
  atEnd(signal, () => clearTimeout(timer));

  const say = (key: number): void => {
    const label = labels[key];
    const text =
      label === undefined
        ? `highest bar ${tickText(most)}`
        : `${quoted(labels, key, ctx.options.indexBase)}: ${share(before[key])} → ${share(after[key])}`;
    readout.show(text, element.contains(document.activeElement));
  };

  /** The resulting row. */
  const edited = (spec: SetRow | undefined, at: RowAddress): Float32Array => {
    if (!spec) return before;
    if (spec.to === "uniform") {
      const readable = before.reduce((sum, value) => sum + Number(value > 0), 0);
      return before.map((value) => (value > 0 ? 1 / readable : 0));
    }
    if (spec.to === "one_hot") {
      const key = spec.key ?? 0;
      return before[key] ? before.map((_, i) => Number(i === key)) : before;
    }
    const row = freed(at);
    const amount = live ?? spec.amount ?? 1;
    return row ? before.map((value, i) => value + amount * ((row.row[i] as number) - value)) : before;
  };
  const freed = (at: RowAddress): { row: Float32Array; movable: number } | undefined => {
    const answer = answers.get<{ movable: number }>("free_row", { ...at });
    return answer && { row: Float32Array.from(floatsOf(answer.buffers[0] as DataView)), movable: answer.meta.movable };
  };

  const show = (): void => {
    const at = address();
    const shownHead = shownHeadOf(ctx);
    const why = refusal();
    body.hidden = !at || Boolean(why);
    stepper.hidden = body.hidden;
    const name = at ? `head ${headAddress(ctx, at.layer, at.head)}` : "one head";
    setText(title, `attention row in ${name}`);
    setText(
      note,
      why || at
        ? ""
        : !shownHead
          ? "Nothing shown here has heads."
          : typeof shownHead.head === "number"
            ? "Only rows of attention are set here."
            : "Choose one head: several are shown together.",
    );
    if (!at || why) {
      state.show(null);
      return;
    }
    const spec = current(at);
    const recordedRow = answers.get<{ query: string; keys: string[] }>("own_row", { ...at });
    body.hidden = !recordedRow;
    if (!recordedRow) {
      const away = "The row of this token is not in this file: it needs a running kernel.";
      state.show(lacking(answers, "own_row", { ...at }, "row of this token", away));
      return;
    }
    labels = recordedRow.meta.keys;
    before = Float32Array.from(floatsOf(recordedRow.buffers[0] as DataView));
    setText(title, `attention row of \u2068“${shortLabel(recordedRow.meta.query, 24)}”\u2069 in ${name}`);
    modes.choose(spec?.to ?? "as");
    const key = spec?.to === "one_hot" ? (spec.key ?? 0) : keyOf();
    onKey.data = `only on ${quoted(labels, key, ctx.options.indexBase)}`;
    after = edited(spec, at);
    free.hidden = spec?.to !== "free";
    if (live === null) slider.value = String(spec?.amount ?? 1);
    if (width > 0) {
      most = strips.draw(labels, before, after, key, width);
      drawChosen(at.query);
    }
    message.textContent = "";
    if (spec?.to === "free") tellFree(at);
    else {
      state.show(null);
      if (spec?.to === "one_hot" && !before[key])
        setText(message, "This token cannot attend to that key: its row is unchanged.");
    }
    say(-1);
  };

  const tellFree = (at: RowAddress): void => {
    const row = freed(at);
    const away = "The free part of this row is not in this file: it needs a running kernel.";
    state.show(lacking(answers, "free_row", { ...at }, "free part of this row", away));
    slider.disabled = !row || row.movable < NOTHING;
    setText(moved, row ? `${Math.round(100 * slider.valueAsNumber)} % of its free part` : "");
    slider.ariaValueText = moved.textContent;
    if (!row) return;
    if (row.movable < NOTHING) {
      setText(message, "No part of this row is free: with so few keys, any other row changes the head's output.");
      return;
    }
    const specs = specsOf(ctx);
    const answer = live === null ? answers.get<Changed>("changed", { interventions: specs })?.meta : undefined;
    const size = `moved ${printed(slider.valueAsNumber * row.movable, false)} of the row`;
    const others = specs.length > 1 ? "with everything that is active, " : "";
    setText(message, answer ? `${size}; ${others}${distanceWords(answer)}` : `${size}; running the model …`);
    if (!answer && live === null && answers.failure("changed", { interventions: specs })) setText(message, size);
  };

  watchWidth(element, signal, (now) => {
    width = now;
    show();
  });
  setChildren(readout.elements[0] as HTMLElement);
  return { element, show };
}

const share = (value: number | undefined): string => printed(value ?? 0, true);
