/**
 * A sound on one axis of seconds: wave, spectrogram, words, and a map below them. What is chosen is marked through all of
 * it, can be heard, and is the row that linked views show.
 */

import { heatMap } from "../../colour.ts";
import {
  assign,
  createWatch,
  h,
  iconButton,
  keyboard,
  on,
  onResize,
  reserve,
  setChildren,
  setFlag,
  setText,
  shortLabel,
} from "../../dom.ts";
import { withinError } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createScale } from "../base/colourScale.ts";
import { createCopyButton, type NumberPlace } from "../base/copyPython.ts";
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
  type MapChoice,
  peakOf,
  type Rows,
  rowsOf,
  type SpokenWord,
  type SpokenWords,
  seconds,
  wordAt,
} from "./audio/heard.ts";
import { createPanel } from "./audio/panel.ts";
import { createPlayer, type SoundPlayer } from "./audio/player.ts";
import { createStage, type Shown, type Spot } from "./audio/stage.ts";
import { moved, type Stretch, zoomed } from "./audio/stretch.ts";
import { createText } from "./audio/text.ts";
import { pyramidOf } from "./audio/wave.ts";
import { mediaOf } from "./media.ts";

const ROWS: Record<Rows, string> = { words: "words", tokens: "tokens", time: "time", targets: "targets" };
/** px that the pointer moves before it marks a span. */
const FAR = 4;
const ZOOM = 1.6;
const KEYS = "← →: word · Space: play it · + −: zoom · Shift + ← →: move · 0: all of it · Escape: let go";
const NONE: readonly SpokenWord[] = [];

export const renderAudioView = view((ctx, root, signal) => {
  const { selection } = ctx;
  // Inside another view, what that one shows is drawn: its method, stack, unit, layer and head.
  const isInside = root !== ctx.el;
  const answers = createAnswers(ctx, signal, () => update());
  const maps = createMenu("map", signal, (name) => chooseMap(name));
  const rowKinds = createSegments<Rows>("rows", { words: "words" }, signal, () => update());
  const place = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const playMarked = h("button.button.audio-play", { type: "button" });
  const playAll = h("button.button.audio-all", { type: "button" }, "▶ all");
  const less = iconButton(signal, "−", "show more of the sound", () => zoom(ZOOM));
  const more = iconButton(signal, "+", "zoom in", () => zoom(1 / ZOOM));
  const text = createText(
    signal,
    (word) => pin(word),
    (word) => hover(word),
  );
  const stage = createStage(() => ctx.theme);
  const legend = createScale();
  const [what, where] = [h("span.audio-what"), h("span.where")];
  const panel = createPanel(
    signal,
    (value) => numberText(value),
    (word) => pin(word),
  );
  const copy = createCopyButton(ctx, signal, () => numberPlace());
  const pane = h("div.audio-pane", stage.element);
  const frame = createFrame(ctx, root, {
    controls: [
      maps.field,
      ...place.elements,
      rowKinds.element,
      h("span.group.audio-zoom", less, more),
      playMarked,
      playAll,
    ],
    lead: [text.element],
    legend: h("span.audio-legend", what, legend.element),
    tags: isInside ? [h("span.group", less, more), playMarked, playAll] : [where],
    body: [h("div.audio-main", pane, ...(isInside ? [] : [panel.element]))],
    skeleton: "chart",
    hint: "Click a word to mark and hear it.",
    says: true,
    actions: [copy.element],
  });
  const isOffered = createWatch();
  const isLoaded = createWatch();
  let player: SoundPlayer | null = null;
  let said: SpokenWords | null = null;
  let map: HeardMap | null = null;
  let values: Float32Array = new Float32Array();
  let name = "";
  let stretch: Stretch = { from: 0, to: 1 };
  /** A pinned word that is not an element of the map, so that the selection cannot hold it; -1: none. */
  let own = -1;
  /** A span that was dragged, in seconds; null: that of the pinned word. */
  let span: readonly [number, number] | null = null;
  let over: Spot | null = null;
  let [width, height] = [0, 0];
  let lastStack = selection.get("stack");

  root.classList.add("aw-audio");
  setFlag(root, "data-inside", isInside);
  root.role = "group";
  reserve(playMarked, "▶ 00.00 – 00.00 s");

  const words = (): readonly SpokenWord[] => said?.words ?? NONE;
  const whole = (): number => said?.seconds || 1;
  const choice = (): MapChoice | undefined => said?.maps.find((one) => one.name === name) ?? said?.maps[0];
  /** Which side of the map the words of the selection are: what was written, or what was heard. */
  const sideOf = (stack: string): "written" | "spoken" => (/cross|decoder/.test(stack) ? "written" : "spoken");
  const wordOf = (which: "pinned" | "hover"): number => {
    const cell = selection.get(which);
    if (cell?.unit !== "word" || cell.query < 0) return -1;
    const side = sideOf(selection.get("stack"));
    return words().findIndex((word) => word[side] === cell.query);
  };
  const pinned = (): number => (own >= 0 ? own : wordOf("pinned"));
  const stackOfMap = (): string => {
    if (name !== ALIGNMENT) return name;
    return ctx.header().sources.some(({ stack }) => stack === "cross") ? "cross" : selection.get("stack");
  };
  const chooseMap = (next: string): void => {
    name = next;
    if (name !== ALIGNMENT) selection.set({ stack: name, ...repinned(name) });
    lastStack = selection.get("stack");
    update();
  };
  /** The pinned word, counted as another stack counts words. */
  const repinned = (stack: string): Parameters<typeof selection.set>[0] => {
    const word = words()[wordOf("pinned")];
    const query = word?.[sideOf(stack)] ?? -1;
    return query < 0 ? {} : { pinned: { unit: "word", query, key: -1 } };
  };
  const cellOf = (word: number) => {
    const query = words()[word]?.[sideOf(stackOfMap())] ?? -1;
    return query < 0 ? null : { unit: "word", query, key: -1 };
  };
  const pin = (word: number): void => {
    span = null;
    player?.stop();
    const isSame = word === pinned();
    own = isSame || cellOf(word) ? -1 : word;
    selection.set({ stack: stackOfMap(), pinned: isSame ? null : cellOf(word), span: null });
    lastStack = selection.get("stack");
    bringInSight(words()[word]);
    update();
  };
  const hover = (word: number): void => selection.hover(word < 0 ? null : cellOf(word));
  const bringInSight = (word: SpokenWord | undefined): void => {
    if (!word || (word.start >= stretch.from && word.end <= stretch.to)) return;
    stretch = moved(stretch, (word.start + word.end - stretch.from - stretch.to) / 2, whole());
  };
  const marked = (): readonly [number, number] | null => {
    const word = words()[pinned()];
    return span ?? (word ? [word.start, word.end] : null);
  };
  /** The chosen word; without one, that of which the model was least sure. */
  const focus = (): number => {
    const chosen = wordOf("hover") >= 0 ? wordOf("hover") : pinned();
    if (chosen >= 0) return chosen;
    const least = words().reduce((best, { p }, i) => ((p ?? 1) < (words()[best]?.p ?? 1) ? i : best), 0);
    return words().length ? least : -1;
  };
  const args = (): Record<string, unknown> => {
    const { source, layer, head } = ctx.resolved();
    if (isInside) return { source: source.id, layer, head };
    const fixed = name === ALIGNMENT;
    return { map: name, rows: rowKinds.value(), layer: fixed ? 0 : layer, head: fixed ? "-" : head };
  };
  const numberText = (value: number): string => {
    const unit = map?.what.endsWith("in sd") ? " sd" : "";
    return `${withinError(value, unit ? 0.005 : 0.0005)}${unit}`;
  };
  const isByWord = (): boolean => map?.rows === "words" && map.labels.length === words().length;
  const rows = (word: number): [number, number] | null => {
    const own = words()[word];
    if (!map || !own) return null;
    return isByWord() ? [word, word] : rowsOf(map, own);
  };
  const numberPlace = (): NumberPlace | null => {
    const word = pinned();
    const row = rows(word)?.[0];
    if (!map || row === undefined) return null;
    const second = Number(((peakOf(values, row, map.columns)[0] + 0.5) * map.step).toFixed(3));
    const { map: of, rows: kind, layer, head } = args();
    return { of: "heard", row, second, map: of, rows: kind, ...(of !== ALIGNMENT && { layer, head }) };
  };

  const shown = (): Shown => {
    const [chosen, pointed] = [pinned(), wordOf("hover")];
    return {
      stretch,
      words: words(),
      map,
      values,
      range: range(),
      rows: rows(chosen),
      over: pointed >= 0 && pointed !== chosen ? rows(pointed) : null,
      marked: marked(),
      word: chosen,
      hovered: pointed,
    };
  };
  /** From zero, or of signed values from below it as far as above. */
  const range = (): [number, number] => {
    const low = values.reduce((least, value) => Math.min(least, value), 0);
    const high = values.reduce((most, value) => Math.max(most, value), 0);
    return low < 0 && name !== ALIGNMENT ? [Math.min(low, -high), Math.max(-low, high)] : [0, high || 1];
  };

  const offer = (): void => {
    if (!said) return;
    if (!said.maps.some((one) => one.name === name)) name = said.maps[0]?.name ?? "";
    const stack = selection.get("stack");
    // A linked view went to another stack.
    if (stack !== lastStack && name !== ALIGNMENT && said.maps.some((one) => one.name === stack)) name = stack;
    lastStack = stack;
    maps.offer(
      said.maps.map((one) => ({ value: one.name, label: one.label, note: one.note })),
      name,
    );
    const kinds = choice()?.rows ?? [];
    if (isOffered(kinds.join())) {
      const before = rowKinds.value();
      rowKinds.offer(Object.fromEntries(kinds.map((kind) => [kind, ROWS[kind]])));
      if (kinds.includes(before)) rowKinds.choose(before);
    }
    assign(rowKinds.element, { hidden: kinds.length < 2 });
    place.show();
    if (name === ALIGNMENT) for (const element of place.elements) assign(element, { hidden: true });
  };

  const read = (): Missing | null => {
    said = answers.get<SpokenWords>("words")?.meta ?? said;
    if (!said) return missingAnswer(answers, "words", {}, "sound");
    const { source, layer } = ctx.resolved();
    if (isInside) name = source.stack;
    else offer();
    if (isInside && source.computed && !source.computed.includes(layer)) {
      const wanted = { source: source.id, layer };
      answers.get("layer", wanted);
      return missingAnswer(answers, "layer", wanted, `layer ${ctx.layerName(layer)}`);
    }
    const answer = answers.get<HeardMap>("heard", args());
    if (!answer) return missingAnswer(answers, "heard", args(), "map");
    if (isLoaded(answer)) {
      map = answer.meta;
      const bytes = answer.buffers[0];
      values = bytes
        ? new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength))
        : values;
    }
    return null;
  };
  const update = (): void => {
    if (isInside && !isHeard(ctx, ctx.source())) return;
    const wasReady = said !== null;
    const missing = read();
    if (said && !wasReady) stretch = { from: 0, to: whole() };
    frame.lacks(missing);
    const at = name === ALIGNMENT ? "" : whereWords(ctx);
    const title = frame.show("", isInside ? "" : "What the model hears");
    setText(where, [choice()?.label, at].filter(Boolean).join(" · "));
    assign(root, { ariaLabel: `${title}: ${words().length} words in ${seconds(whole())} s of sound` });
    if (!said || width <= 0) return;
    text.offer(words(), said.why);
    panel.offer(words());
    const ends = range();
    setText(what, map?.what ?? "");
    legend.show({ map: heatMap(ends[0] < 0, ctx.theme), range: ends, words: map?.what ?? "" });
    stage.draw(shown(), width, height);
    mark();
  };
  /** What depends on the pointer and on what is marked. */
  const mark = (): void => {
    if (!said || width <= 0) return;
    const now = shown();
    stage.mark(now);
    text.mark(now.word, now.hovered);
    const at = focus();
    const span = marked();
    panel.show(at, map, values, rows(at)?.[0] ?? -1, span);
    copy.show();
    const isPlaying = player?.at() != null;
    setText(playMarked, isPlaying ? "■ stop" : span ? `▶ ${seconds(span[0])} – ${seconds(span[1])} s` : "▶ –");
    assign(playMarked, { disabled: !player || !(span || isPlaying) });
    assign(playAll, { disabled: !player });
    assign(less, { disabled: stretch.to - stretch.from >= whole() });
    const words = sentence(now);
    frame.readout.show(words, true);
    assign(stage.element, { ariaLabel: `Sound of ${seconds(whole())} s. ${words}`.trim() });
  };
  const sentence = ({ word, hovered }: Shown): string => {
    const { window: frames, seconds: heard } = said as SpokenWords;
    const padding =
      frames > heard + 1
        ? `${seconds(heard)} s of the ${frames.toFixed(0)} s window hold sound; the rest is padding, not drawn`
        : "";
    if (over && (over.lane === "map" || over.lane === "wave" || over.lane === "mel")) {
      const column = map ? Math.floor(over.second / map.step) : -1;
      const value = over.row >= 0 && map && column < map.columns ? values[over.row * map.columns + column] : undefined;
      const about =
        value === undefined ? "" : `“${shortLabel(map?.labels[over.row] ?? "", 24)}”: ${numberText(value)} · `;
      return `${about}${seconds(over.second)} s`;
    }
    const one = words()[hovered >= 0 ? hovered : word];
    if (!one) return [span ? `${seconds(span[0])} – ${seconds(span[1])} s` : "", padding].filter(Boolean).join(" · ");
    const row = rows(hovered >= 0 ? hovered : word)?.[0];
    const [at, value] = map && row !== undefined ? peakOf(values, row, map.columns) : [0, NaN];
    const outside = row === undefined ? undefined : map?.outside?.[row];
    return [
      `“${shortLabel(one.word, 24)}” ${seconds(one.start)} – ${seconds(one.end)} s`,
      map && row !== undefined ? `peak ${numberText(value)} at ${seconds(at * map.step)} s` : "",
      one.p === null ? "" : `p ${one.p.toFixed(2)}`,
      outside === undefined ? "" : `${(100 * outside).toFixed(0)} % on padding`,
      hovered >= 0 ? "" : "pinned",
      padding,
    ]
      .filter(Boolean)
      .join(" · ");
  };

  const zoom = (factor: number, second?: number): void => {
    const held = marked();
    const middle = held ? (held[0] + held[1]) / 2 : (stretch.from + stretch.to) / 2;
    stretch = zoomed(stretch, factor, second ?? middle, whole());
    update();
  };
  const pan = (share: number): void => {
    stretch = moved(stretch, share * (stretch.to - stretch.from), whole());
    update();
  };
  const follow = (): void => {
    const second = player?.at() ?? null;
    stage.hear(second);
    if (second !== null && !signal.aborted) requestAnimationFrame(follow);
  };
  const play = (from: number, to: number): void => {
    if (player?.at() != null) player.stop();
    else player?.play(from, to);
  };
  const playSpan = (): void => {
    const held = marked();
    if (held) play(...held);
    else play(0, whole());
  };
  const step = (by: number): void => {
    const now = pinned();
    const next = now < 0 ? (by > 0 ? 0 : words().length - 1) : now + by;
    if (words()[next]) pin(next);
  };
  const release = (): void => {
    [span, own] = [null, -1];
    selection.clear();
    update();
  };
  /** Mark a span, and in linked views the words that it covers. */
  const take = (from: number, to: number): void => {
    span = from < to ? [from, to] : [to, from];
    own = -1;
    const inside = words().filter(({ start, end, spoken }) => spoken >= 0 && start < span![1] && end > span![0]);
    const [first, last] = [inside[0], inside.at(-1)];
    const covered =
      first && last ? { start: first.spoken, stop: last.spoken + 1, unit: "word", side: "key" as const } : null;
    selection.set({ pinned: null, span: covered });
    update();
  };

  on(playMarked, signal, { click: () => (player?.at() != null ? player.stop() : playSpan()) });
  on(playAll, signal, { click: () => play(0, whole()) });
  const keys = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    " ": playSpan,
    "+": () => zoom(1 / ZOOM),
    "Shift++": () => zoom(1 / ZOOM),
    "=": () => zoom(1 / ZOOM),
    "-": () => zoom(ZOOM),
    "0": () => zoom(Number.POSITIVE_INFINITY),
    "Shift+ArrowLeft": () => pan(-0.25),
    "Shift+ArrowRight": () => pan(0.25),
    Escape: release,
  };
  keyboard(stage.element, signal, keys, KEYS);
  keyboard(text.element, signal, keys);

  let drag: { x: number; second: number; lane: Spot["lane"]; from: Stretch; has: boolean } | null = null;
  const wordAtSpot = ({ second, lane, row }: Spot): number => {
    if (lane !== "map") return lane === "axis" ? -1 : wordAt(words(), second);
    if (isByWord()) return row;
    const own = row >= 0 ? map?.spans[row] : null;
    return own ? wordAt(words(), (own[0] + own[1]) / 2) : -1;
  };
  on(stage.element, signal, {
    pointerdown(event) {
      if (event.button !== 0) return;
      const { second, lane } = stage.spot(event);
      drag = { x: event.clientX, second, lane, from: stretch, has: false };
    },
    pointermove(event) {
      over = stage.spot(event);
      if (drag && !drag.has && Math.abs(event.clientX - drag.x) > FAR) {
        drag.has = true;
        stage.element.setPointerCapture(event.pointerId);
      }
      if (drag?.has && drag.lane === "axis") {
        stretch = moved(drag.from, (drag.x - event.clientX) / stage.scale(), whole());
        update();
      } else if (drag?.has) {
        span = drag.second < over.second ? [drag.second, over.second] : [over.second, drag.second];
        mark();
      } else {
        hover(wordAtSpot(over));
        mark();
      }
    },
    pointerup(event) {
      const now = drag;
      drag = null;
      if (!now) return;
      const spot = stage.spot(event);
      if (now.has && now.lane !== "axis") take(now.second, spot.second);
      else if (!now.has) {
        const word = wordAtSpot(spot);
        if (word >= 0) pin(word);
        else if (spot.lane !== "axis") release();
      }
    },
    pointercancel() {
      drag = null;
    },
    pointerleave() {
      over = null;
      hover(-1);
      mark();
    },
  });
  stage.element.addEventListener(
    "wheel",
    (event) => {
      // A page scrolls as ever: only a pinch, and a movement sideways, are for the sound.
      const isZoom = event.ctrlKey || event.metaKey;
      if (!isZoom && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (isZoom) zoom(Math.exp(event.deltaY / 200), stage.spot(event).second);
      else pan(event.deltaX / 800);
    },
    { signal, passive: false },
  );
  onResize(pane, signal, (box) => {
    const now = [Math.floor(box.width), Math.floor(box.height)] as const;
    if (now[0] <= 0 || (now[0] === width && now[1] === height)) return;
    [width, height] = now;
    update();
  });
  void mediaOf(ctx).then((found) => {
    if (signal.aborted || found?.media.kind !== "sound") return;
    const [bytes, bins = new Uint8Array()] = found.buffers;
    const samples = new Int16Array(bytes?.buffer ?? new ArrayBuffer(0));
    player = createPlayer(samples, found.media.rate, signal, () => {
      mark();
      follow();
    });
    stage.load({ media: found.media, wave: pyramidOf(samples), bins });
    update();
  });
  setChildren(playAll, "▶ all");
  setFlag(playMarked, "data-primary", true);
  return (changed) => {
    if (only(changed, "hover")) mark();
    else {
      if (changed.has("pinned") && selection.get("pinned")) own = -1;
      if (changed.has("pinned")) span = selection.get("pinned") || !selection.get("span") ? null : span;
      update();
    }
  };
});
