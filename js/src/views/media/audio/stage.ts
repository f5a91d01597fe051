/**
 * The picture: wave, spectrogram, words and map below each other, on a common axis of seconds.
 *
 * `tops` is where each lane begins; each has a function that draws it. `draw` draws everything, `mark` only the
 * overlay.
 */
import { colourAt, heatMap, type MapName, scalePosition, type Theme } from "../../../colour.ts";
import { assign, density, h, setChildren, setFlag, setStyles, shortLabel, thinned } from "../../../dom.ts";
import type { SoundMedia } from "../../../wire/mediaState.ts";
import { rule, setAttributes, svg } from "../../charts/svg.ts";
import { textWidth } from "../../maps/labels.ts";
import { type HeardMap, type SpokenWord, seconds } from "./heard.ts";
import { type Stretch, ticksOf } from "./stretch.ts";
import { extent, type Pyramid } from "./wave.ts";

/** px: room for names at the left, at most and at least; the margin at the right. */
const [NAMES, FEWER, MARGIN] = [84, 40, 14];
/** px: wave, spectrogram, boxes of words, the lowest map, the axis, and the gaps between. */
const [BOX, LOWEST, AXIS, GAP] = [24, 60, 28, 8];
/** px of wave and spectrogram, and of both where there is little room: less than the last. */
const [TALL, SMALL, LITTLE] = [[52, 76], [34, 50], 350] as const;
/** px between ticks, and between a tick and a marked second. */
const [APART, CLEAR] = [90, 34];
/** Spectrograms are mostly middling: their loud parts are to be seen. */
const LOUD = 1.6;

export interface Shown {
  stretch: Stretch;
  words: readonly SpokenWord[];
  map: HeardMap | null;
  values: Float32Array;
  range: readonly [number, number];
  /** Rows of the map that are pinned, and pointed at. */
  rows: readonly [number, number] | null;
  over: readonly [number, number] | null;
  /** Seconds that are marked. */
  marked: readonly [number, number] | null;
  /** The pinned word, and the hovered word; -1: none. */
  word: number;
  hovered: number;
}

/** A position in the picture: a second, in a lane, and in the map in a row. */
export interface Spot {
  second: number;
  lane: "wave" | "mel" | "words" | "map" | "axis";
  row: number;
}

export interface Sound {
  media: SoundMedia;
  wave: Pyramid;
  bins: Uint8Array;
}

export interface Stage {
  element: HTMLElement;
  /** Draw everything in a box of this size, in px. */
  draw(shown: Shown, width: number, height: number): void;
  /** Draw only the marks of the picture. */
  mark(shown: Shown): void;
  load(sound: Sound | null): void;
  spot(event: MouseEvent): Spot;
  /** The second that is heard now; null: none. */
  hear(second: number | null): void;
  /** px of a second, for dragging. */
  scale(): number;
}

/** Its elements, and the state that they show. */
interface StageState {
  readonly theme: () => Theme;
  readonly waveCanvas: HTMLCanvasElement;
  readonly melCanvas: HTMLCanvasElement;
  readonly mapCanvas: HTMLCanvasElement;
  readonly boxes: HTMLDivElement;
  readonly back: SVGElement;
  readonly front: SVGElement;
  readonly element: HTMLDivElement;
  /** The sound; null until it is loaded. */
  sound: Sound | null;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
  /** px of the names, the number of rows of the map, and the font of the words. */
  left: number;
  rows: number;
  font: string;
  /** The drawn state; null before the first. */
  now: Shown | null;
  /** The spectrogram and the map, a pixel per number, with their cache keys. */
  readonly cells: Record<"mel" | "map", { canvas: HTMLCanvasElement; key: unknown[] }>;
}

export function createStage(theme: () => Theme): Stage {
  const [waveCanvas, melCanvas, mapCanvas] = [h("canvas"), h("canvas.audio-mel"), h("canvas.audio-map")];
  const boxes = h("div.audio-boxes");
  const [back, front] = [svg("svg", { class: "aw-audio-back" }), svg("svg", { class: "aw-audio-front" })];
  const head = h("div.audio-head.overlaid", { hidden: "" });
  const element = h(
    "div.audio-stage",
    { tabindex: "0", role: "application", "aria-roledescription": "sound" },
    back as unknown as HTMLElement,
    waveCanvas,
    melCanvas,
    boxes,
    mapCanvas,
    front as unknown as HTMLElement,
    head,
  );
  /** The spectrogram and the map, a pixel per number, with their cache keys. */
  const cells: Record<"mel" | "map", { canvas: HTMLCanvasElement; key: unknown[] }> = {
    mel: { canvas: h("canvas"), key: [] },
    map: { canvas: h("canvas"), key: [] },
  };

  const state: StageState = {
    theme,
    waveCanvas,
    melCanvas,
    mapCanvas,
    boxes,
    back,
    front,
    element,
    sound: null,
    width: 0,
    height: 0,
    left: NAMES,
    rows: 0,
    font: "12px sans-serif",
    now: null,
    cells,
  };
  return {
    element,
    draw: (shown, across, down) => draw(state, shown, across, down),
    mark: (shown) => mark(state, shown),
    load(given) {
      state.sound = given;
      for (const cell of Object.values(cells)) cell.key = [];
    },
    spot: (event) => spot(state, event),
    hear(second) {
      assign(head, {
        hidden: second === null || !state.now || second < state.now.stretch.from || second > state.now.stretch.to,
      });
      if (second !== null && state.now)
        setStyles(head, { transform: `translateX(${x(state, second)}px)`, height: `${tops(state).axis}px` });
    },
    scale: () => wide(state) / Math.max(1e-9, (state.now?.stretch.to ?? 1) - (state.now?.stretch.from ?? 0)),
  };
}

function wide(state: StageState): number {
  return Math.max(1, state.width - state.left - MARGIN);
}

function lanes(state: StageState): readonly [wave: number, mel: number] {
  return state.height < LITTLE ? SMALL : TALL;
}

function hasMel(state: StageState): boolean {
  return Boolean(state.sound?.bins.length);
}

function tops(state: StageState): { wave: number; mel: number; words: number; map: number; axis: number } {
  const mel = lanes(state)[0] + GAP;
  const words = mel + (hasMel(state) || !state.sound ? lanes(state)[1] + GAP : 0);
  const map = words + (state.now?.words.length ? BOX + GAP : 0);
  return { wave: 0, mel, words, map, axis: Math.max(map + LOWEST, state.height - AXIS) };
}

function tall(state: StageState): number {
  return Math.max(LOWEST, state.height - tops(state).map - AXIS - 2);
}

function x(state: StageState, second: number): number {
  const { from, to } = (state.now as Shown).stretch;
  return state.left + ((second - from) / (to - from || 1)) * wide(state);
}

function colours(state: StageState): MapName {
  return heatMap((state.now?.range[0] ?? 0) < 0, state.theme());
}

/** Size a canvas for the screen, and return a context that draws on it in CSS px. */
function pen(
  state: StageState,
  canvas: HTMLCanvasElement,
  top: number,
  height: number,
): CanvasRenderingContext2D | null {
  const ratio = density();
  assign(canvas, { width: Math.round(wide(state) * ratio), height: Math.round(height * ratio) });
  setStyles(canvas, { left: `${state.left}px`, top: `${top}px`, width: `${wide(state)}px`, height: `${height}px` });
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, wide(state), height);
  return context;
}

function drawWave(state: StageState, shown: Shown): void {
  const { sound } = state;
  const context = pen(state, state.waveCanvas, tops(state).wave, lanes(state)[0]);
  if (!context || !sound) return;
  const style = getComputedStyle(state.element);
  const [plain, chosen] = ["--aw-apart", "--aw-accent"].map((name) => style.getPropertyValue(name));
  const { wave, media } = sound;
  const [low, high] = extent(wave, 0, wave.samples.length);
  const peak = Math.max(1, -low, high);
  const { from, to } = shown.stretch;
  const step = 1 / density();
  for (let at = 0; at < wide(state); at += step) {
    const begin = from + (at / wide(state)) * (to - from);
    const end = from + ((at + step) / wide(state)) * (to - from);
    const [least, most] = extent(wave, begin * media.rate, Math.max(end * media.rate, begin * media.rate + 1));
    const isMarked = shown.marked !== null && begin >= shown.marked[0] && begin < shown.marked[1];
    context.fillStyle = (isMarked ? chosen : plain) as string;
    const half = lanes(state)[0] / 2;
    const [upper, lower] = [half - (most / peak) * half, half - (least / peak) * half];
    context.fillRect(at, upper, step, Math.max(1, lower - upper));
  }
}

/** Numbers as pixels, redrawn only when they differ. */
function pixels(
  state: StageState,
  kind: "mel" | "map",
  across: number,
  down: number,
  key: unknown[],
  at: (i: number) => number,
): HTMLCanvasElement {
  const cached = state.cells[kind];
  if (cached.key.length === key.length && cached.key.every((part, i) => part === key[i])) return cached.canvas;
  cached.key = key;
  assign(cached.canvas, { width: across, height: down });
  const context = cached.canvas.getContext("2d");
  const image = context?.createImageData(across, down);
  if (!context || !image) return cached.canvas;
  const name = kind === "mel" ? heatMap(false, state.theme()) : colours(state);
  for (let i = 0; i < across * down; i += 1) image.data.set([...colourAt(name, at(i)), 255], 4 * i);
  context.putImageData(image, 0, 0);
  return cached.canvas;
}

function drawMel(state: StageState, shown: Shown): void {
  const { melCanvas, sound } = state;
  const shape = sound?.media.spectrogram;
  assign(melCanvas, { hidden: !hasMel(state) });
  const context = hasMel(state) ? pen(state, melCanvas, tops(state).mel, lanes(state)[1]) : null;
  if (!context || !sound || !shape) return;
  const { bins, frames, step } = shape;
  const codes = sound.bins;
  const image = pixels(state, "mel", frames, bins, [codes, state.theme()], (i) => {
    const [row, column] = [bins - 1 - Math.floor(i / frames), i % frames];
    return ((codes[row * frames + column] as number) / 255) ** LOUD;
  });
  const { from, to } = shown.stretch;
  context.drawImage(image, from / step, 0, (to - from) / step, bins, 0, 0, wide(state), lanes(state)[1]);
}

function drawMap(state: StageState, shown: Shown): void {
  const { map, values, range } = shown;
  const context = map && pen(state, state.mapCanvas, tops(state).map, tall(state));
  if (!context || !map) return;
  const image = pixels(state, "map", map.columns, map.labels.length, [values, state.theme(), ...range], (i) =>
    scalePosition(range[0] < 0 ? (values[i] as number) : Math.max(0, values[i] as number), range, "linear"),
  );
  const { from, to } = shown.stretch;
  context.imageSmoothingEnabled = false;
  const [first, last] = [from / map.step, Math.min(map.columns, to / map.step)];
  const end = x(state, last * map.step) - state.left;
  if (last > first) context.drawImage(image, first, 0, last - first, map.labels.length, 0, 0, end, tall(state));
}

function drawWords(state: StageState, shown: Shown): void {
  const { boxes, left } = state;
  setStyles(boxes, { left: `${left}px`, top: `${tops(state).words}px`, width: `${wide(state)}px` });
  const { from, to } = shown.stretch;
  const inside = shown.words.flatMap((word, i) => (word.end >= from && word.start <= to ? [i] : []));
  setChildren(
    boxes,
    ...inside.map((i) => {
      const { word, start, end } = shown.words[i] as SpokenWord;
      const [begin, room] = [x(state, start) - left, Math.max(2, x(state, end) - x(state, start) - 2)];
      const name = shortLabel(word, 24);
      const box = h("div.audio-box.boxed", { "aria-hidden": "true", "data-word": String(i), title: name });
      setStyles(box, { left: `${begin}px`, width: `${room}px` });
      // A name that does not fit (measured in bold, as when it is pinned) is shown in the text above.
      if (1.1 * textWidth(name, state.font) <= room - 4) box.append(h("bdi", name));
      return box;
    }),
  );
}

function names(state: StageState): string[] {
  return [
    ...["wave", ...(hasMel(state) ? ["mel"] : []), ...(state.now?.words.length ? ["words"] : [])],
    ...(state.now?.map?.labels ?? []).map((label) => shortLabel(label, 14)),
  ];
}

/** The name of a row, cut to the room at the left: bold as it is when it is pinned. */
function rowName(state: StageState, label: string): string {
  let most = 14;
  while (most > 2 && 1.1 * textWidth(shortLabel(label, most), state.font) > state.left - 12) most -= 1;
  return shortLabel(label, most);
}

function drawNames(state: StageState, shown: Shown): SVGElement[] {
  const { rows } = state;
  const at = tops(state);
  const text = (words: string, y: number, name = ""): SVGElement =>
    svg("text", { x: state.left - 10, y, "text-anchor": "end", ...(name && { class: name }) }, words);
  const texts = [text("wave", at.wave + lanes(state)[0] / 2 + 4)];
  if (hasMel(state)) {
    const top = `${(state.sound as Sound).media.rate / 2000} kHz`;
    texts.push(
      text(top, at.mel + 10),
      text("mel", at.mel + lanes(state)[1] / 2 + 4),
      text("0", at.mel + lanes(state)[1] - 1),
    );
  }
  if (shown.words.length) texts.push(text("words", at.words + 16));
  const high = tall(state) / Math.max(1, rows);
  for (const row of thinned(rows, high, 14)) {
    const isPinned = shown.rows && row >= shown.rows[0] && row <= shown.rows[1];
    const y = at.map + (row + 0.5) * high + 4;
    texts.push(text(rowName(state, shown.map?.labels[row] ?? ""), y, isPinned ? "aw-audio-pinned" : "aw-audio-name"));
  }
  return texts;
}

function drawAxis(state: StageState, shown: Shown): SVGElement[] {
  const { left } = state;
  const y = tops(state).axis;
  const marked = shown.marked?.map((second) => x(state, second)) ?? [];
  const ticks = [rule(left, y + 0.5, left + wide(state), y + 0.5, { class: "aw-audio-line" })];
  for (const [i, tick] of ticksOf(shown.stretch, wide(state), APART).entries()) {
    ticks.push(rule(x(state, tick), y, x(state, tick), y + 4));
    if (marked.some((at) => Math.abs(at - x(state, tick)) < CLEAR)) continue;
    const anchor = x(state, tick) - left < 8 ? "start" : left + wide(state) - x(state, tick) < 16 ? "end" : "middle";
    ticks.push(
      svg("text", { x: x(state, tick), y: y + 18, "text-anchor": anchor }, i === 0 ? `${tick} s` : String(tick)),
    );
  }
  return ticks;
}

function drawMarks(state: StageState, shown: Shown): void {
  const { left } = state;
  const { map, marked } = shown;
  const at = tops(state);
  const high = tall(state) / Math.max(1, state.rows);
  const [low, far] = [left, left + wide(state)];
  const behind: SVGElement[] = [];
  const inFront = [...drawNames(state, shown), ...drawAxis(state, shown)];
  if (map?.path.length) {
    const points = map.path
      .filter(([, second]) => x(state, second) >= low - 1 && x(state, second) <= far + 1)
      .map(([row, second]) => `${x(state, second).toFixed(1)},${(at.map + (row + 0.5) * high).toFixed(1)}`);
    inFront.push(svg("polyline", { points: points.join(" "), class: "aw-audio-path" }));
  }
  for (const [pair, name] of [
    [shown.over, "aw-audio-over"],
    [shown.rows, "aw-audio-row"],
  ] as const) {
    if (!pair || !map) continue;
    const [y, height] = [at.map + pair[0] * high, (pair[1] - pair[0] + 1) * high];
    inFront.push(
      svg("rect", { x: left - 1, y: y - 1, width: wide(state) + 2, height: height + 2, rx: 3, class: name }),
    );
  }
  if (marked) {
    const [begin, end] = marked.map((second) => Math.max(low, Math.min(far, x(state, second)))) as [number, number];
    behind.push(svg("rect", { x: begin, y: 0, width: end - begin, height: at.axis, class: "aw-audio-band" }));
    for (const [i, second] of marked.entries()) {
      if (x(state, second) < low || x(state, second) > far) continue;
      inFront.push(rule(x(state, second), 0, x(state, second), at.axis + 5, { class: "aw-audio-edge" }));
      const near = x(state, marked[1]) - x(state, marked[0]) < 2 * CLEAR - 20;
      const anchor = near ? (i ? "start" : "end") : "middle";
      const by = near ? (i ? 3 : -3) : 0;
      const name = { x: x(state, second) + by, y: at.axis + 18, "text-anchor": anchor, class: "aw-audio-pinned" };
      inFront.push(svg("text", name, seconds(second)));
    }
  }
  state.back.replaceChildren(...behind);
  state.front.replaceChildren(...inFront);
  for (const box of state.boxes.children as unknown as HTMLElement[]) {
    const word = Number(box.dataset.word);
    setFlag(box, "data-pinned", word === shown.word);
    setFlag(box, "data-over", word === shown.hovered);
  }
}

function draw(state: StageState, shown: Shown, across: number, down: number): void {
  const { element } = state;
  [state.now, state.width, state.height] = [shown, across, down];
  state.rows = shown.map?.labels.length ?? 0;
  state.font = getComputedStyle(element).font || state.font;
  state.left = Math.min(
    NAMES,
    Math.max(FEWER, 20 + 1.1 * Math.max(...names(state).map((name) => textWidth(name, state.font)), 0)),
    Math.round(state.width / 4),
  );
  state.left = Math.max(state.left, hasMel(state) ? 48 : FEWER);
  const whole = tops(state).axis + AXIS;
  setStyles(element, { height: `${whole}px` });
  const size = { viewBox: `0 0 ${state.width} ${whole}`, width: state.width, height: whole };
  for (const layer of [state.back, state.front]) setAttributes(layer, size);
  drawWave(state, shown);
  drawMel(state, shown);
  drawWords(state, shown);
  drawMap(state, shown);
  drawMarks(state, shown);
}

function mark(state: StageState, shown: Shown): void {
  if (!state.now || state.width <= 0) return;
  const isMoved = state.now.marked?.join() !== shown.marked?.join();
  state.now = shown;
  if (isMoved) drawWave(state, shown);
  drawMarks(state, shown);
}

function spot(
  state: StageState,
  event: MouseEvent,
): { second: number; lane: "wave" | "mel" | "map" | "words" | "axis"; row: number } {
  const { rows } = state;
  const box = state.element.getBoundingClientRect();
  const { from, to } = state.now?.stretch ?? { from: 0, to: 1 };
  const [across, down] = [event.clientX - box.left, event.clientY - box.top];
  const second = from + ((across - state.left) / wide(state)) * (to - from);
  const at = tops(state);
  const lane =
    down < at.mel ? "wave" : down < at.words ? "mel" : down < at.map ? "words" : down < at.axis ? "map" : "axis";
  const row = Math.floor(((down - at.map) / Math.max(1, tall(state))) * rows);
  return { second: Math.max(from, Math.min(to, second)), lane, row: lane === "map" && row < rows ? row : -1 };
}
