/**
 * How a weight is computed: q, k, their products and the sum of these for a query and a key, then scaling, mask and
 * softmax, as steps of a picture; for a kernel, how much of the key's value each token leaves. Next to it, the same
 * step for every key of the row.
 */

import {
  atEnd,
  h,
  iconButton,
  type KeyHandlers,
  keyboard,
  on,
  onResize,
  quoted,
  setChildren,
  setText,
} from "../../dom.ts";
import { rectangle } from "../../selection.ts";
import { createAnswers } from "../../wire/answers.ts";
import { NOT_COMPARED } from "../../wire/codec.ts";
import type { NeuronOptions } from "../../wire/viewState.ts";
import type { Cell, HeadKey } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { chooseSpan, createPicking, pinDragged, togglePin } from "../base/gestures.ts";
import { failed } from "../base/missing.ts";
import { addressWords, headWords } from "../base/navigation.ts";
import { lastContent } from "../base/opening.ts";
import { SINK_NAME } from "../base/rowFacts.ts";
import { createHeadControl, createLayerControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { chainAt, createChain } from "./neuron/chain.ts";
import { type Ink, inkOf } from "./neuron/ink.ts";
import { createKeyList } from "./neuron/keyList.ts";
import { createLanes } from "./neuron/lanes.ts";
import {
  exact,
  namesOf,
  numberOf,
  productWords,
  type QueryAddress,
  type Row,
  rowAt,
  type Step,
  strongest,
  wordsOf,
} from "./neuron/row.ts";

const NAMES = {
  vectors: "q and k",
  scaled: "scaled",
  capped: "capped",
  biased: "biased",
  masked: "masked",
  softmax: "softmax",
  weight: "weight",
};
/** The name of a step. */
const nameOf = (row: Row, step: Step): string => ({ ...NAMES, ...namesOf(row) })[step];
const GROWS_MS = 320;
/** Minimum width in px for two columns. */
const TWO_COLUMNS = 560;

export const renderNeuronView = view((ctx, root, signal) => {
  const controls = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const where = h("span.neuron-where.clip");
  const order = h("button.button", { type: "button" }, "largest first");
  const steps = h("fieldset.segments.neuron-steps", { "aria-label": "step" });
  const formula = h("div.neuron-formula", { role: "status" });
  const lanes = createLanes();
  const chain = createChain();
  const keys = createKeyList(ctx, signal);
  const copy = createCopyButton(ctx, signal, () => {
    const { layer, head, query } = shownQuery();
    // A map of channels shows their mean.
    return ctx.cell("pinned") && row && !row.kernel?.channels
      ? { of: "cell", source: ctx.source().id, layer, head, query, key: pinnedKey }
      : null;
  });
  const queries = h(
    "span.group",
    { role: "group", "aria-label": "query" },
    iconButton(signal, "‹", "previous query", () => move(-1, 0)),
    h("span.neuron-group", "query"),
    iconButton(signal, "›", "next query", () => move(1, 0)),
  );
  const channelName = h("output");
  const channels = h(
    "span.group",
    { role: "group", "aria-label": "channel" },
    iconButton(signal, "‹", "previous channel", () => moveChannel(-1)),
    channelName,
    iconButton(signal, "›", "next channel", () => moveChannel(1)),
  );
  const walk = h(
    "div.neuron-walk.inline",
    iconButton(signal, "‹", "previous step", () => walkBy(-1)),
    steps,
    iconButton(signal, "›", "next step", () => walkBy(1)),
  );
  const body = h("div.neuron-body", lanes.plot, chain.element, keys.list);
  const frame = createFrame(ctx, root, {
    controls: [...controls.elements, channels, queries, order],
    tags: [where],
    body: [walk, formula, body],
    hint: "Click a key to follow its weight, step by step.",
    actions: [copy.element],
  });
  root.classList.add("aw-neuron");
  root.role = "region";

  const answers = createAnswers(ctx, signal, () => update());
  const group = `aw-step-${Math.random()}`;
  let row: Row | undefined;
  let step: Step = "softmax";
  let drawnSteps = "";
  let sorted = false;
  let [width, number, growing] = [0, -1, 0];
  let [pinnedKey, grown, tall] = [0, 1, 0];
  let ordered: { row: Row; sorted: boolean; order: ArrayLike<number> } | null = null;
  let ink: Ink | null = null;
  /** The channel that the reader chose, of the head that it belongs to. */
  let chosen: { of: string; channel: number } | null = null;

  /** The query and the key that Python chose, if the view shows their head. */
  const opensOn = (layer: number, head: HeadKey): readonly [query: number, key: number] | null => {
    const { opens } = ctx.options as NeuronOptions;
    const isHere = opens?.layer === layer && opens.head === head && opens.stack === ctx.source().stack;
    return isHere ? opens.pair : null;
  };
  /** The shown query: the pinned query, else that of the opening, else the last that is not a special token. */
  const shownQuery = (): QueryAddress => {
    const { source, layer, head: selected } = ctx.resolved();
    const pinned = ctx.cell("pinned")?.query ?? -1;
    const head = typeof selected === "number" ? selected : (source.heads?.[0] ?? 0);
    const opens = opensOn(layer, head)?.[0] ?? lastContent(ctx.axisOf(source.query));
    return { stack: source.stack, layer, head, query: pinned < 0 ? opens : pinned };
  };
  const channelAt = ({ stack, layer, head }: QueryAddress): number | null =>
    chosen?.of === `${stack} ${layer} ${head}` ? chosen.channel : null;
  const name = (side: "query" | "key", i: number): string =>
    quoted(ctx.axisOf(ctx.source()[side]).labels, i, ctx.options.indexBase);
  /** The current key: hovered, pinned, that of the opening, or the strongest key that is not a special token. */
  const keyOf = (shown: Row, hovering: boolean): number => {
    const [hover, pinned] = [ctx.cell("hover"), ctx.cell("pinned")];
    const { layer, head, query } = shownQuery();
    const here = hovering && hover?.query === query && hover.key >= 0 ? hover.key : (pinned?.key ?? -1);
    if (here >= 0 && here < shown.count) return here;
    if (shown.kernel) return shown.kernel.opens;
    const [from, to] = opensOn(layer, head) ?? [-1, -1];
    return from === query && to < shown.count ? to : strongest(shown, ctx.axisOf(ctx.source().key).special);
  };

  const update = (): void => {
    const at = shownQuery();
    const answer = rowAt(answers, at, channelAt(at));
    const retry = (): void => {
      for (const topic of ["attention_keys", "kernel_chain"]) answers.retry(topic);
      answers.again("attention_row");
    };
    frame.lacks(
      typeof answer === "object"
        ? null
        : typeof answer === "string"
          ? { ...failed("what this weight is made of", answer, retry), other: true }
          : { kind: "awaited", words: "waiting for what this weight is made of", job: answers.job("attention_row") },
    );
    body.ariaBusy = String(answer === undefined);
    if (typeof answer === "object") {
      if (row !== answer) keys.leave();
      row = answer;
      if (!row.steps.includes(step)) step = row.kernel ? "weight" : "softmax";
      const count = row.kernel?.channels ?? 0;
      [lanes.plot.hidden, walk.hidden, chain.element.hidden] = [Boolean(row.kernel), Boolean(row.kernel), !row.kernel];
      channels.hidden = !count;
      const { indexBase } = ctx.options;
      if (count) setText(channelName, `channel ${(row.kernel?.channel ?? 0) + indexBase} / ${count - 1 + indexBase}`);
      pinnedKey = keyOf(row, false);
    }
    const { head } = ctx.resolved();
    const note = typeof head === "number" ? "" : `showing ${headWords(ctx, at.layer, at.head)}`;
    const title = frame.show(note, addressWords(ctx, at.layer, at.head));
    root.ariaLabel = `how one weight is computed, ${title}`;
    controls.show();
    choices();
    draw();
    keys.reveal(pinnedKey);
  };

  /** The steps as radio buttons, each with its result for this pair. */
  const choices = (): void => {
    if (!row) return;
    const shown = row;
    const names = row.steps.map((value) => nameOf(shown, value));
    if (drawnSteps !== names.join()) {
      drawnSteps = names.join();
      setChildren(
        steps,
        ...row.steps.map((value, i) =>
          h("label.segment", h("input", { type: "radio", name: group, value }), names[i] as string, h("b")),
        ),
      );
    }
    for (const input of steps.querySelectorAll("input")) input.checked = input.value === step;
  };

  const orderOf = (shown: Row): ArrayLike<number> => {
    if (ordered?.row === shown && ordered.sorted === sorted) return ordered.order;
    const all = Uint32Array.from({ length: shown.count }, (_, i) => i);
    const shares = shown.by.recorded;
    if (sorted && shares) all.sort((a, b) => Math.abs(shares[b] as number) - Math.abs(shares[a] as number) || a - b);
    ordered = { row: shown, sorted, order: all };
    return all;
  };

  /** Draw everything; while the pointer passes over keys, only the parts that depend on the `previewed` key. */
  const draw = (previewed = false): void => {
    if (!row || width <= 0) return;
    const key = keyOf(row, true);
    const { query } = shownQuery();
    setText(where, `${name("query", query)} → ${name("key", key)}`);
    order.title = `${row.count} keys, ${sorted ? "the largest share first" : "in the order of the text"}`;
    order.ariaPressed = String(sorted);
    for (const [i, label] of [...steps.children].entries()) {
      const value = numberOf(row, row.steps[i] as Step, key);
      setText(label.lastElementChild as Element, Number.isNaN(value) ? "" : exact(value));
    }
    const made = row.kernel ? chainAt(answers, shownQuery(), row, key) : undefined;
    const says = typeof made === "object" ? made.words : (made ?? wordsOf(row, step, key));
    if (says || !row.kernel) setText(formula, says);
    const walks = row.kernel ? "Up" : "Left and right arrows change the step, up";
    const pair = row.kernel ? chain.element : lanes.plot;
    pair.ariaLabel =
      `query ${name("query", query)}, key ${name("key", key)}, ${nameOf(row, step)}: ${says} ` +
      `${walks} and down ${row.kernel ? "arrows change " : ""}the key, with Shift the query; Escape unpins.`;
    keys.list.ariaLabel = `${row.count} keys of query ${name("query", query)}, ${nameOf(row, step)}. Up and down arrows choose one.`;
    const two = width >= TWO_COLUMNS;
    const half = two ? Math.floor((width - 24) * 0.52) : width;
    ink ??= inkOf(ctx, root);
    if (row.kernel) chain.draw(typeof made === "object" ? made : null, (at) => name("key", at), key);
    else lanes.draw(row, step, key, half, ink, grown);
    const hover = ctx.cell("hover");
    keys.point(hover?.query === query ? hover.key : -1);
    if (!previewed) {
      const { labels, special } = ctx.axisOf(ctx.source().key);
      keys.show({
        row,
        step,
        labels,
        special,
        order: orderOf(row),
        key: pinnedKey,
        width: width - (two ? 24 + half : 0),
        tall,
        ink,
      });
      keys.draw(grown);
      const together = ctx.pins().filter((cell) => cell.key >= 0 && cell.query === query);
      keys.choose(together.length > 1 ? together.map((cell) => cell.key) : [], ctx.span("key"));
    }
    say();
  };

  const say = (): void => {
    copy.show();
    if (!row) return;
    const key = keyOf(row, true);
    if (number >= 0 && number < row.dim) {
      const where = `number ${number + ctx.options.indexBase} of ${row.dim}`;
      frame.readout.show(`${where}: ${productWords(row, key, number)}`, false);
      return;
    }
    const share = numberOf(row, "recorded", key);
    const [query, read] = [name("query", shownQuery().query), name("key", key)];
    const isUnread = numberOf(row, "masked", key) === -Infinity;
    const isLater = ctx.source().causal && key > shownQuery().query;
    const attended = isUnread
      ? `${query} → ${read}: ${isLater ? "masked, comes later" : NOT_COMPARED}`
      : `${query} gives ${exact(share)} of its attention to ${read}`;
    const rest = 1 - (row.by.recorded ?? new Float32Array()).reduce((total, each) => total + each, 0);
    const sink = row.sink === null ? "" : `, ${exact(Math.max(0, rest))} to ${SINK_NAME}`;
    const text = row.kernel ? `${query} reads ${exact(share)} of what stands at ${read}` : `${attended}${sink}`;
    frame.readout.show(
      ctx.cell("pinned") ? text : `${text} · click a key to pin it`,
      root.contains(document.activeElement),
    );
  };

  /** Animate the bars from the previous step, unless the reader prefers reduced motion. */
  const grow = (): void => {
    cancelAnimationFrame(growing);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      grown = 1;
      draw();
      return;
    }
    const began = performance.now();
    const next = (): void => {
      if (signal.aborted) return;
      const t = Math.min(1, (performance.now() - began) / GROWS_MS);
      grown = 1 - (1 - t) ** 3;
      draw();
      if (t < 1) growing = requestAnimationFrame(next);
    };
    next();
  };
  const go = (to: Step | undefined): void => {
    if (!to || to === step) return;
    keys.leave();
    step = to;
    choices();
    grow();
  };
  const walkBy = (by: number): void => {
    if (row) go(row.steps[Math.max(0, Math.min(row.steps.length - 1, row.steps.indexOf(step) + by))]);
  };
  const moveChannel = (by: number): void => {
    const { stack, layer, head } = shownQuery();
    const { channels: count, channel } = row?.kernel ?? { channels: 0, channel: 0 };
    if (!count) return;
    chosen = { of: `${stack} ${layer} ${head}`, channel: ((channel ?? 0) + by + count) % count };
    update();
  };
  /** Move the pinned pair by some queries or keys. */
  const move = (queries: number, by: number): void => {
    if (!row) return;
    const source = ctx.source();
    const within = (i: number, side: "query" | "key"): number =>
      Math.max(0, Math.min(ctx.axisOf(source[side]).labels.length - 1, i));
    const standing = orderOf(row);
    let at = 0;
    while (at < row.count - 1 && standing[at] !== pinnedKey) at += 1;
    const key = by ? (standing[within(at + by, "key")] as number) : pinnedKey;
    const to: Cell = { unit: source.unit, query: within(shownQuery().query + queries, "query"), key };
    const now = ctx.cell("pinned");
    if (now?.query !== to.query || now.key !== to.key) ctx.selection.pin(to);
  };

  on(steps, signal, { change: (event) => go((event.target as HTMLInputElement).value as Step) });
  on(order, signal, {
    click() {
      sorted = !sorted;
      draw();
      keys.reveal(pinnedKey);
    },
  });
  on(lanes.plot, signal, {
    pointermove(event) {
      number = lanes.numberAt(event);
      lanes.point(number);
      say();
    },
    pointerleave() {
      number = -1;
      lanes.point(-1);
      say();
    },
  });
  const cellAt = (event: MouseEvent): Cell | null => {
    const key = keys.keyAt(event);
    return key < 0 ? null : { unit: ctx.source().unit, query: shownQuery().query, key };
  };
  const cellIn = (at: number): Cell => ({ unit: ctx.source().unit, query: shownQuery().query, key: keys.keyIn(at) });
  createPicking(keys.list, keys.picture, signal, {
    along: "rows",
    toggle: ([at]) => togglePin(ctx, cellIn(at)),
    drag([from], [to], adds) {
      // Only in the order of the text are adjacent keys a span.
      const rows = rectangle([from, 0], [to, 0]).map(([at]) => at);
      if (sorted) pinDragged(ctx, rows.map(cellIn), adds);
      else chooseSpan(ctx, "key", keys.keyIn(from), keys.keyIn(to));
    },
  });
  on(keys.list, signal, {
    pointermove: (event) => ctx.selection.hover(cellAt(event)),
    pointerleave: () => ctx.selection.hover(null),
    click(event) {
      const cell = cellAt(event);
      const now = ctx.cell("pinned");
      if (cell) ctx.selection.pin(now?.query === cell.query && now.key === cell.key ? null : cell);
    },
  });
  const walking: KeyHandlers = {
    ArrowLeft: () => walkBy(-1),
    ArrowRight: () => walkBy(1),
    ArrowUp: () => move(0, -1),
    ArrowDown: () => move(0, 1),
    "Shift+ArrowUp": () => move(-1, 0),
    "Shift+ArrowDown": () => move(1, 0),
    Home: () => walkBy(-Infinity),
    End: () => walkBy(Infinity),
    Escape: () => ctx.selection.clear(),
  };
  const keyWords = "← → Home End: step · ↑ ↓: key · Shift+↑ ↓: query · Esc: unpin";
  for (const plot of [lanes.plot, chain.element, keys.list]) keyboard(plot, signal, walking, keyWords);
  atEnd(signal, () => cancelAnimationFrame(growing));
  onResize(body, signal, (box) => {
    width = Math.floor(box.width);
    const two = width >= TWO_COLUMNS;
    tall = two ? Math.floor(box.height) : 0;
    body.toggleAttribute("data-two", two);
    draw();
    keys.reveal(pinnedKey);
  });
  return (changed) => {
    if (changed.has("theme")) ink = null;
    if (only(changed, "hover")) draw(true);
    else if (!only(changed, "tiles", "target", "foil", "method", "unit")) update();
  };
});
