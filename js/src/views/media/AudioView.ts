/**
 * A sound on a common axis of seconds: wave, spectrogram, words, and a map below them. A chosen stretch is marked
 * through all of it, can be played, and is the row that linked views show.
 *
 * `update` reads words, map and values, and draws all of it; `mark` redraws the marks of the picture, for a pointer
 * that moves. The stage (audio/stage.ts) turns seconds into px, and the pointer into a second, a lane and a row.
 */

import { heatMap } from "../../colour.ts";
import type { Change } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  iconButton,
  type KeyHandlers,
  keyboard,
  on,
  onResize,
  reserve,
  setChildren,
  setFlag,
  setText,
} from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { SelectionState } from "../../wire/wire.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { type Missing, missingAnswer } from "../base/missing.ts";
import { whereWords } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createHeadControl, createLayerControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import {
  ALIGNMENT,
  type HeardMap,
  isHeard,
  type Rows,
  type SpokenWord,
  type SpokenWords,
  seconds,
} from "./audio/heard.ts";
import { createPanel } from "./audio/panel.ts";
import { createPlayer } from "./audio/player.ts";
import { createStage, type Spot } from "./audio/stage.ts";
import {
  type AudioState,
  args,
  cellOf,
  choice,
  focus,
  marked,
  numberAddress,
  numberText,
  pinned,
  range,
  rows,
  sentence,
  shown,
  sideOf,
  stackOfMap,
  whole,
  wordAtSpot,
  wordOf,
  words,
} from "./audio/state.ts";
import { moved, type Stretch, zoomed } from "./audio/stretch.ts";
import { createText } from "./audio/text.ts";
import { pyramidOf } from "./audio/wave.ts";
import { mediaOf } from "./media.ts";

const ROWS: Record<Rows, string> = { words: "words", tokens: "tokens", time: "time", targets: "targets" };
/** px that the pointer moves before it marks a span. */
const FAR = 4;
const ZOOM = 1.6;
const KEYS = "← →: word · Space: play it · + −: zoom · Shift + ← →: move · 0: all of it · Escape: let go";

export const renderAudioView = view((ctx, root, signal) => {
  const { selection } = ctx;
  // Inside another view, the outer view's choice is drawn: its method, stack, unit, layer and head.
  const isInside = root !== ctx.el;
  const answers = createAnswers(ctx, signal, () => update(state));
  const maps = createMenu("map", signal, (name) => chooseMap(state, name));
  const rowKinds = createSegments<Rows>("rows", { words: "words" }, signal, () => update(state));
  const layerAndHead = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const playMarked = h("button.button.audio-play", { type: "button" });
  const playAll = h("button.button.audio-all", { type: "button" }, "▶ all");
  const less = iconButton(signal, "−", "show more of the sound", () => zoom(state, ZOOM));
  const more = iconButton(signal, "+", "zoom in", () => zoom(state, 1 / ZOOM));
  const text = createText(
    signal,
    (word) => pin(state, word),
    (word) => hover(state, word),
  );
  const stage = createStage(() => ctx.theme);
  const legend = createScale();
  const [scaleTitle, where] = [h("span.audio-what"), h("span.where")];
  const panel = createPanel(
    signal,
    (value) => numberText(state, value),
    (word) => pin(state, word),
  );
  const copy = createCopyButton(ctx, signal, () => numberAddress(state));
  const pane = h("div.audio-pane", stage.element);
  const frame = createFrame(ctx, root, {
    controls: [
      maps.field,
      ...layerAndHead.elements,
      rowKinds.element,
      h("span.group.audio-zoom", less, more),
      playMarked,
      playAll,
    ],
    lead: [text.element],
    legend: h("span.audio-legend.inline", scaleTitle, legend.element),
    tags: isInside ? [h("span.group", less, more), playMarked, playAll] : [where],
    body: [h("div.audio-main", pane, ...(isInside ? [] : [panel.element]))],
    skeleton: "chart",
    hint: "Click a word to mark and hear it.",
    says: true,
    actions: [copy.element],
  });
  const isOffered = createWatch();
  const isLoaded = createWatch();

  const state: AudioState = {
    ctx,
    root,
    signal,
    isInside,
    answers,
    maps,
    rowKinds,
    layerAndHead,
    playMarked,
    playAll,
    less,
    text,
    stage,
    legend,
    scaleTitle,
    where,
    panel,
    copy,
    frame,
    isOffered,
    isLoaded,
    player: null,
    spoken: null,
    map: null,
    values: new Float32Array(),
    name: "",
    stretch: { from: 0, to: 1 },
    wordOutside: -1,
    span: null,
    over: null,
    width: 0,
    height: 0,
    lastStack: selection.get("stack"),
  };
  listen(state, pane);
  return (changed) => onChange(state, changed);
});

/** Handle buttons, keys and the pointer, which play, mark and zoom. */
function listen(state: AudioState, pane: HTMLDivElement): void {
  const { ctx, isInside, root, signal, playMarked, playAll, text, stage } = state;

  root.classList.add("aw-audio");
  setFlag(root, "data-inside", isInside);
  root.role = "group";
  reserve(playMarked, "▶ 00.00 – 00.00 s");

  on(playMarked, signal, { click: () => (state.player?.at() != null ? state.player.stop() : playSpan(state)) });
  on(playAll, signal, { click: () => play(state, 0, whole(state)) });
  const keys = keysOf(state);
  keyboard(stage.element, signal, keys, KEYS);
  keyboard(text.element, signal, keys);

  listenToDrag(state);
  stage.element.addEventListener(
    "wheel",
    (event) => {
      // The wheel scrolls the page as usual: only a pinch, and a sideways movement, are for the sound.
      const isZoom = event.ctrlKey || event.metaKey;
      if (!isZoom && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (isZoom) zoom(state, Math.exp(event.deltaY / 200), stage.spot(event).second);
      else pan(state, event.deltaX / 800);
    },
    { signal, passive: false },
  );
  onResize(pane, signal, (box) => {
    const now = [Math.floor(box.width), Math.floor(box.height)] as const;
    if (now[0] <= 0 || (now[0] === state.width && now[1] === state.height)) return;
    [state.width, state.height] = now;
    update(state);
  });
  void mediaOf(ctx).then((sound) => {
    if (signal.aborted || sound?.media.kind !== "sound") return;
    const [bytes, bins = new Uint8Array()] = sound.buffers;
    const samples = new Int16Array(bytes?.buffer ?? new ArrayBuffer(0));
    state.player = createPlayer(samples, sound.media.rate, signal, () => {
      mark(state);
      follow(state);
    });
    stage.load({ media: sound.media, wave: pyramidOf(samples), bins });
    update(state);
  });
  setChildren(playAll, "▶ all");
  setFlag(playMarked, "data-primary", true);
}

/** The keys of the stage and of the text above it. */
function keysOf(state: AudioState): KeyHandlers {
  return {
    ArrowLeft: () => step(state, -1),
    ArrowRight: () => step(state, 1),
    " ": () => playSpan(state),
    "+": () => zoom(state, 1 / ZOOM),
    "Shift++": () => zoom(state, 1 / ZOOM),
    "=": () => zoom(state, 1 / ZOOM),
    "-": () => zoom(state, ZOOM),
    "0": () => zoom(state, Number.POSITIVE_INFINITY),
    "Shift+ArrowLeft": () => pan(state, -0.25),
    "Shift+ArrowRight": () => pan(state, 0.25),
    Escape: () => release(state),
  };
}

/** A drag along the axis moves the sound, a drag elsewhere marks a span, and a click pins a word. */
function listenToDrag(state: AudioState): void {
  const { stage, signal } = state;
  let drag: { x: number; second: number; lane: Spot["lane"]; from: Stretch; has: boolean } | null = null;
  on(stage.element, signal, {
    pointerdown(event) {
      if (event.button !== 0) return;
      const { second, lane } = stage.spot(event);
      drag = { x: event.clientX, second, lane, from: state.stretch, has: false };
    },
    pointermove(event) {
      state.over = stage.spot(event);
      if (drag && !drag.has && Math.abs(event.clientX - drag.x) > FAR) {
        drag.has = true;
        stage.element.setPointerCapture(event.pointerId);
      }
      if (drag?.has && drag.lane === "axis") {
        state.stretch = moved(drag.from, (drag.x - event.clientX) / stage.scale(), whole(state));
        update(state);
      } else if (drag?.has) {
        state.span =
          drag.second < state.over.second ? [drag.second, state.over.second] : [state.over.second, drag.second];
        mark(state);
      } else {
        hover(state, wordAtSpot(state, state.over));
        mark(state);
      }
    },
    pointerup(event) {
      const now = drag;
      drag = null;
      if (!now) return;
      const spot = stage.spot(event);
      if (now.has && now.lane !== "axis") take(state, now.second, spot.second);
      else if (!now.has) {
        const word = wordAtSpot(state, spot);
        if (word >= 0) pin(state, word);
        else if (spot.lane !== "axis") release(state);
      }
    },
    pointercancel() {
      drag = null;
    },
    pointerleave() {
      state.over = null;
      hover(state, -1);
      mark(state);
    },
  });
}

function chooseMap(state: AudioState, next: string): void {
  const { selection } = state.ctx;
  state.name = next;
  if (state.name !== ALIGNMENT) selection.set({ stack: state.name, ...repinned(state, state.name) });
  state.lastStack = selection.get("stack");
  update(state);
}

/** The pinned word, counted as another stack counts words. */
function repinned(state: AudioState, stack: string): Partial<Omit<SelectionState, "hover">> {
  const word = words(state)[wordOf(state, "pinned")];
  const query = word?.[sideOf(stack)] ?? -1;
  return query < 0 ? {} : { pinned: { unit: "word", query, key: -1 } };
}

function pin(state: AudioState, word: number): void {
  const { selection } = state.ctx;
  state.span = null;
  state.player?.stop();
  const isSame = word === pinned(state);
  state.wordOutside = isSame || cellOf(state, word) ? -1 : word;
  selection.set({ stack: stackOfMap(state), pinned: isSame ? null : cellOf(state, word), span: null });
  state.lastStack = selection.get("stack");
  bringInSight(state, words(state)[word]);
  update(state);
}

function hover(state: AudioState, word: number): void {
  state.ctx.selection.hover(word < 0 ? null : cellOf(state, word));
}

function bringInSight(state: AudioState, word: SpokenWord | undefined): void {
  if (!word || (word.start >= state.stretch.from && word.end <= state.stretch.to)) return;
  state.stretch = moved(
    state.stretch,
    (word.start + word.end - state.stretch.from - state.stretch.to) / 2,
    whole(state),
  );
}

function offer(state: AudioState): void {
  const { rowKinds, layerAndHead, spoken } = state;
  if (!spoken) return;
  if (!spoken.maps.some((map) => map.name === state.name)) state.name = spoken.maps[0]?.name ?? "";
  const stack = state.ctx.selection.get("stack");
  // A linked view went to another stack.
  if (stack !== state.lastStack && state.name !== ALIGNMENT && spoken.maps.some((map) => map.name === stack))
    state.name = stack;
  state.lastStack = stack;
  state.maps.offer(
    spoken.maps.map((map) => ({ value: map.name, label: map.label, note: map.note })),
    state.name,
  );
  const kinds = choice(state)?.rows ?? [];
  if (state.isOffered(kinds.join())) {
    const before = rowKinds.value();
    rowKinds.offer(Object.fromEntries(kinds.map((kind) => [kind, ROWS[kind]])));
    if (kinds.includes(before)) rowKinds.choose(before);
  }
  assign(rowKinds.element, { hidden: kinds.length < 2 });
  layerAndHead.show();
  if (state.name === ALIGNMENT) for (const element of layerAndHead.elements) assign(element, { hidden: true });
}

function read(state: AudioState): Missing | null {
  const { ctx, isInside, answers } = state;
  state.spoken = answers.get<SpokenWords>("words")?.meta ?? state.spoken;
  if (!state.spoken) return missingAnswer(answers, "words", {}, "sound");
  const { source, layer } = ctx.resolved();
  if (isInside) state.name = source.stack;
  else offer(state);
  if (isInside && source.computed && !source.computed.includes(layer)) {
    const request = { source: source.id, layer };
    answers.get("layer", request);
    return missingAnswer(answers, "layer", request, `layer ${ctx.layerName(layer)}`);
  }
  const answer = answers.get<HeardMap>("heard", args(state));
  if (!answer) return missingAnswer(answers, "heard", args(state), "map");
  if (state.isLoaded(answer)) {
    state.map = answer.meta;
    const bytes = answer.buffers[0];
    state.values = bytes
      ? new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength))
      : state.values;
  }
  return null;
}

function update(state: AudioState): void {
  const { ctx, isInside, frame, width } = state;
  if (isInside && !isHeard(ctx, ctx.source())) return;
  const wasReady = state.spoken !== null;
  const missing = read(state);
  if (state.spoken && !wasReady) state.stretch = { from: 0, to: whole(state) };
  frame.lacks(missing);
  const at = state.name === ALIGNMENT ? "" : whereWords(ctx);
  const title = frame.show("", isInside ? "" : "What the model hears");
  setText(state.where, [choice(state)?.label, at].filter(Boolean).join(" · "));
  assign(state.root, { ariaLabel: `${title}: ${words(state).length} words in ${seconds(whole(state))} s of sound` });
  if (!state.spoken || width <= 0) return;
  state.text.offer(words(state), state.spoken.why);
  state.panel.offer(words(state));
  const ends = range(state);
  setText(state.scaleTitle, state.map?.what ?? "");
  state.legend.show({ map: heatMap(ends[0] < 0, ctx.theme), range: ends, words: state.map?.what ?? "" });
  state.stage.draw(shown(state), width, state.height);
  mark(state);
}

/** Redraw only the parts that depend on the pointer and on the marked span. */
function mark(state: AudioState): void {
  const { playMarked, stage, player, stretch } = state;
  if (!state.spoken || state.width <= 0) return;
  const now = shown(state);
  stage.mark(now);
  state.text.mark(now.word, now.hovered);
  const at = focus(state);
  const span = marked(state);
  state.panel.show(at, state.map, state.values, rows(state, at)?.[0] ?? -1, span);
  state.copy.show();
  const isPlaying = player?.at() != null;
  setText(playMarked, isPlaying ? "■ stop" : span ? `▶ ${seconds(span[0])} – ${seconds(span[1])} s` : "▶ –");
  assign(playMarked, { disabled: !player || !(span || isPlaying) });
  assign(state.playAll, { disabled: !player });
  assign(state.less, { disabled: stretch.to - stretch.from >= whole(state) });
  const words = sentence(state, now);
  state.frame.readout.show(words, true);
  assign(stage.element, { ariaLabel: `Sound of ${seconds(whole(state))} s. ${words}`.trim() });
}

function zoom(state: AudioState, factor: number, second?: number): void {
  const span = marked(state);
  const middle = span ? (span[0] + span[1]) / 2 : (state.stretch.from + state.stretch.to) / 2;
  state.stretch = zoomed(state.stretch, factor, second ?? middle, whole(state));
  update(state);
}

function pan(state: AudioState, share: number): void {
  state.stretch = moved(state.stretch, share * (state.stretch.to - state.stretch.from), whole(state));
  update(state);
}

function follow(state: AudioState): void {
  const second = state.player?.at() ?? null;
  state.stage.hear(second);
  if (second !== null && !state.signal.aborted) requestAnimationFrame(() => follow(state));
}

function play(state: AudioState, from: number, to: number): void {
  const { player } = state;
  if (player?.at() != null) player.stop();
  else player?.play(from, to);
}

function playSpan(state: AudioState): void {
  const span = marked(state);
  if (span) play(state, ...span);
  else play(state, 0, whole(state));
}

function step(state: AudioState, by: number): void {
  const now = pinned(state);
  const next = now < 0 ? (by > 0 ? 0 : words(state).length - 1) : now + by;
  if (words(state)[next]) pin(state, next);
}

function release(state: AudioState): void {
  [state.span, state.wordOutside] = [null, -1];
  state.ctx.selection.clear();
  update(state);
}

/** Mark a span, and in linked views the words that it covers. */
function take(state: AudioState, from: number, to: number): void {
  state.span = from < to ? [from, to] : [to, from];
  state.wordOutside = -1;
  const inside = words(state).filter(
    ({ start, end, spoken }) => spoken >= 0 && start < state.span![1] && end > state.span![0],
  );
  const [first, last] = [inside[0], inside.at(-1)];
  const covered =
    first && last ? { start: first.spoken, stop: last.spoken + 1, unit: "word", side: "key" as const } : null;
  state.ctx.selection.set({ pinned: null, span: covered });
  update(state);
}

function onChange(state: AudioState, changed: ReadonlySet<Change>): void {
  const { selection } = state.ctx;
  if (only(changed, "hover")) mark(state);
  else {
    if (changed.has("pinned") && selection.get("pinned")) state.wordOutside = -1;
    if (changed.has("pinned")) state.span = selection.get("pinned") || !selection.get("span") ? null : state.span;
    update(state);
  }
}
