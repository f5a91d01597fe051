/** The picture: wave, spectrogram, words and map below each other, on one axis of seconds. */
import { colourAt, heatMap, type MapName, place, type Theme } from "../../../colour.ts";
import { assign, density, h, setChildren, setFlag, setStyles, shortLabel, thinned } from "../../../dom.ts";
import type { SoundMedia } from "../../../wire/mediaState.ts";
import { rule, setAttributes, svg } from "../../charts/svg.ts";
import { textWidth } from "../../maps/labels.ts";
import { type HeardMap, type SpokenWord, seconds } from "./heard.ts";
import { type Stretch, ticksOf } from "./stretch.ts";
import { extent, type Pyramid } from "./wave.ts";

/** px: room for names at the left, at most and at least; the margin at the right. */
const [NAMES, FEWER, MARGIN] = [84, 40, 14];
/** px: wave, spectrogram, boxes of words, the lowest map, the axis, and what is between. */
const [BOX, LOWEST, AXIS, GAP] = [24, 60, 28, 8];
/** px of wave and spectrogram, and of both where there is little room: less than the last. */
const [TALL, SMALL, LITTLE] = [[52, 76], [34, 50], 350] as const;
/** px that a tick keeps from the next one, and from a marked second. */
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
  /** The pinned word, and the one pointed at; -1: none. */
  word: number;
  hovered: number;
}

/** Where something is: a second, in a lane, and in the map in a row. */
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
  /** Draw what marks the picture, and nothing else. */
  mark(shown: Shown): void;
  load(sound: Sound | null): void;
  spot(event: MouseEvent): Spot;
  /** The second that is heard now; null: none. */
  hear(second: number | null): void;
  /** px of a second, for dragging. */
  scale(): number;
}

export function createStage(theme: () => Theme): Stage {
  const [waveCanvas, melCanvas, mapCanvas] = [h("canvas"), h("canvas.audio-mel"), h("canvas.audio-map")];
  const boxes = h("div.audio-boxes");
  const [back, front] = [svg("svg", { class: "aw-audio-back" }), svg("svg", { class: "aw-audio-front" })];
  const head = h("div.audio-head", { hidden: "" });
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
  let sound: Sound | null = null;
  let [width, height, left, rows, font] = [0, 0, NAMES, 0, "12px sans-serif"];
  let now: Shown | null = null;
  /** The spectrogram and the map, a pixel a number, with what they were drawn from. */
  const cells: Record<"mel" | "map", { canvas: HTMLCanvasElement; key: unknown[] }> = {
    mel: { canvas: h("canvas"), key: [] },
    map: { canvas: h("canvas"), key: [] },
  };

  const wide = (): number => Math.max(1, width - left - MARGIN);
  const lanes = (): readonly [wave: number, mel: number] => (height < LITTLE ? SMALL : TALL);
  const hasMel = (): boolean => Boolean(sound?.bins.length);
  const tops = () => {
    const mel = lanes()[0] + GAP;
    const words = mel + (hasMel() || !sound ? lanes()[1] + GAP : 0);
    const map = words + (now?.words.length ? BOX + GAP : 0);
    return { wave: 0, mel, words, map, axis: Math.max(map + LOWEST, height - AXIS) };
  };
  const tall = (): number => Math.max(LOWEST, height - tops().map - AXIS - 2);
  const x = (second: number): number => {
    const { from, to } = (now as Shown).stretch;
    return left + ((second - from) / (to - from || 1)) * wide();
  };
  const colours = (): MapName => heatMap((now?.range[0] ?? 0) < 0, theme());

  /** Size a canvas for the screen, and return what draws on it in CSS px. */
  const pen = (canvas: HTMLCanvasElement, top: number, height: number): CanvasRenderingContext2D | null => {
    const ratio = density();
    assign(canvas, { width: Math.round(wide() * ratio), height: Math.round(height * ratio) });
    setStyles(canvas, { left: `${left}px`, top: `${top}px`, width: `${wide()}px`, height: `${height}px` });
    const context = canvas.getContext("2d");
    context?.setTransform(ratio, 0, 0, ratio, 0, 0);
    context?.clearRect(0, 0, wide(), height);
    return context;
  };
  const drawWave = (shown: Shown): void => {
    const context = pen(waveCanvas, tops().wave, lanes()[0]);
    if (!context || !sound) return;
    const style = getComputedStyle(element);
    const [plain, chosen] = ["--aw-apart", "--aw-accent"].map((name) => style.getPropertyValue(name));
    const { wave, media } = sound;
    const [low, high] = extent(wave, 0, wave.samples.length);
    const peak = Math.max(1, -low, high);
    const { from, to } = shown.stretch;
    const step = 1 / density();
    for (let at = 0; at < wide(); at += step) {
      const begin = from + (at / wide()) * (to - from);
      const end = from + ((at + step) / wide()) * (to - from);
      const [least, most] = extent(wave, begin * media.rate, Math.max(end * media.rate, begin * media.rate + 1));
      const isMarked = shown.marked !== null && begin >= shown.marked[0] && begin < shown.marked[1];
      context.fillStyle = (isMarked ? chosen : plain) as string;
      const half = lanes()[0] / 2;
      const [upper, lower] = [half - (most / peak) * half, half - (least / peak) * half];
      context.fillRect(at, upper, step, Math.max(1, lower - upper));
    }
  };
  /** Numbers as pixels, drawn anew only when they are other ones. */
  const pixels = (kind: "mel" | "map", across: number, down: number, key: unknown[], at: (i: number) => number) => {
    const held = cells[kind];
    if (held.key.length === key.length && held.key.every((one, i) => one === key[i])) return held.canvas;
    held.key = key;
    assign(held.canvas, { width: across, height: down });
    const context = held.canvas.getContext("2d");
    const image = context?.createImageData(across, down);
    if (!context || !image) return held.canvas;
    const name = kind === "mel" ? heatMap(false, theme()) : colours();
    for (let i = 0; i < across * down; i += 1) image.data.set([...colourAt(name, at(i)), 255], 4 * i);
    context.putImageData(image, 0, 0);
    return held.canvas;
  };
  const drawMel = (shown: Shown): void => {
    const shape = sound?.media.spectrogram;
    assign(melCanvas, { hidden: !hasMel() });
    const context = hasMel() ? pen(melCanvas, tops().mel, lanes()[1]) : null;
    if (!context || !sound || !shape) return;
    const { bins, frames, step } = shape;
    const codes = sound.bins;
    const image = pixels("mel", frames, bins, [codes, theme()], (i) => {
      const [row, column] = [bins - 1 - Math.floor(i / frames), i % frames];
      return ((codes[row * frames + column] as number) / 255) ** LOUD;
    });
    const { from, to } = shown.stretch;
    context.drawImage(image, from / step, 0, (to - from) / step, bins, 0, 0, wide(), lanes()[1]);
  };
  const drawMap = (shown: Shown): void => {
    const { map, values, range } = shown;
    const context = map && pen(mapCanvas, tops().map, tall());
    if (!context || !map) return;
    const image = pixels("map", map.columns, map.labels.length, [values, theme(), ...range], (i) =>
      place(range[0] < 0 ? (values[i] as number) : Math.max(0, values[i] as number), range, "linear"),
    );
    const { from, to } = shown.stretch;
    context.imageSmoothingEnabled = false;
    const [first, last] = [from / map.step, Math.min(map.columns, to / map.step)];
    const end = x(last * map.step) - left;
    if (last > first) context.drawImage(image, first, 0, last - first, map.labels.length, 0, 0, end, tall());
  };
  const drawWords = (shown: Shown): void => {
    setStyles(boxes, { left: `${left}px`, top: `${tops().words}px`, width: `${wide()}px` });
    const { from, to } = shown.stretch;
    const inside = shown.words.flatMap((word, i) => (word.end >= from && word.start <= to ? [i] : []));
    setChildren(
      boxes,
      ...inside.map((i) => {
        const { word, start, end } = shown.words[i] as SpokenWord;
        const [begin, room] = [x(start) - left, Math.max(2, x(end) - x(start) - 2)];
        const name = shortLabel(word, 24);
        const box = h("div.audio-box", { "aria-hidden": "true", "data-word": String(i), title: name });
        setStyles(box, { left: `${begin}px`, width: `${room}px` });
        // A name that does not fit, bold as it is when it is pinned, stands in the text above.
        if (1.1 * textWidth(name, font) <= room - 4) box.append(h("bdi", name));
        return box;
      }),
    );
  };
  const names = (): string[] => [
    ...["wave", ...(hasMel() ? ["mel"] : []), ...(now?.words.length ? ["words"] : [])],
    ...(now?.map?.labels ?? []).map((label) => shortLabel(label, 14)),
  ];
  /** The name of a row, cut to the room at the left: bold as it is when it is pinned. */
  const rowName = (label: string): string => {
    let most = 14;
    while (most > 2 && 1.1 * textWidth(shortLabel(label, most), font) > left - 12) most -= 1;
    return shortLabel(label, most);
  };
  const drawNames = (shown: Shown): SVGElement[] => {
    const at = tops();
    const text = (words: string, y: number, name = ""): SVGElement =>
      svg("text", { x: left - 10, y, "text-anchor": "end", ...(name && { class: name }) }, words);
    const found = [text("wave", at.wave + lanes()[0] / 2 + 4)];
    if (hasMel()) {
      const top = `${(sound as Sound).media.rate / 2000} kHz`;
      found.push(text(top, at.mel + 10), text("mel", at.mel + lanes()[1] / 2 + 4), text("0", at.mel + lanes()[1] - 1));
    }
    if (shown.words.length) found.push(text("words", at.words + 16));
    const high = tall() / Math.max(1, rows);
    for (const row of thinned(rows, high, 14)) {
      const isPinned = shown.rows && row >= shown.rows[0] && row <= shown.rows[1];
      const y = at.map + (row + 0.5) * high + 4;
      found.push(text(rowName(shown.map?.labels[row] ?? ""), y, isPinned ? "aw-audio-pinned" : "aw-audio-name"));
    }
    return found;
  };
  const drawAxis = (shown: Shown): SVGElement[] => {
    const y = tops().axis;
    const marked = shown.marked?.map(x) ?? [];
    const found = [rule(left, y + 0.5, left + wide(), y + 0.5, { class: "aw-audio-line" })];
    for (const [i, tick] of ticksOf(shown.stretch, wide(), APART).entries()) {
      found.push(rule(x(tick), y, x(tick), y + 4));
      if (marked.some((at) => Math.abs(at - x(tick)) < CLEAR)) continue;
      const anchor = x(tick) - left < 8 ? "start" : left + wide() - x(tick) < 16 ? "end" : "middle";
      found.push(svg("text", { x: x(tick), y: y + 18, "text-anchor": anchor }, i === 0 ? `${tick} s` : String(tick)));
    }
    return found;
  };
  const drawMarks = (shown: Shown): void => {
    const { map, marked } = shown;
    const at = tops();
    const high = tall() / Math.max(1, rows);
    const [low, far] = [left, left + wide()];
    const behind: SVGElement[] = [];
    const found = [...drawNames(shown), ...drawAxis(shown)];
    if (map?.path.length) {
      const points = map.path
        .filter(([, second]) => x(second) >= low - 1 && x(second) <= far + 1)
        .map(([row, second]) => `${x(second).toFixed(1)},${(at.map + (row + 0.5) * high).toFixed(1)}`);
      found.push(svg("polyline", { points: points.join(" "), class: "aw-audio-path" }));
    }
    for (const [pair, name] of [
      [shown.over, "aw-audio-over"],
      [shown.rows, "aw-audio-row"],
    ] as const) {
      if (!pair || !map) continue;
      const [y, height] = [at.map + pair[0] * high, (pair[1] - pair[0] + 1) * high];
      found.push(svg("rect", { x: left - 1, y: y - 1, width: wide() + 2, height: height + 2, rx: 3, class: name }));
    }
    if (marked) {
      const [begin, end] = marked.map((second) => Math.max(low, Math.min(far, x(second)))) as [number, number];
      behind.push(svg("rect", { x: begin, y: 0, width: end - begin, height: at.axis, class: "aw-audio-band" }));
      for (const [i, second] of marked.entries()) {
        if (x(second) < low || x(second) > far) continue;
        found.push(rule(x(second), 0, x(second), at.axis + 5, { class: "aw-audio-edge" }));
        const near = x(marked[1]) - x(marked[0]) < 2 * CLEAR - 20;
        const anchor = near ? (i ? "start" : "end") : "middle";
        const by = near ? (i ? 3 : -3) : 0;
        const name = { x: x(second) + by, y: at.axis + 18, "text-anchor": anchor, class: "aw-audio-pinned" };
        found.push(svg("text", name, seconds(second)));
      }
    }
    back.replaceChildren(...behind);
    front.replaceChildren(...found);
    for (const box of boxes.children as unknown as HTMLElement[]) {
      const word = Number(box.dataset.word);
      setFlag(box, "data-pinned", word === shown.word);
      setFlag(box, "data-over", word === shown.hovered);
    }
  };

  return {
    element,
    draw(shown, across, down) {
      [now, width, height] = [shown, across, down];
      rows = shown.map?.labels.length ?? 0;
      font = getComputedStyle(element).font || font;
      left = Math.min(
        NAMES,
        Math.max(FEWER, 20 + 1.1 * Math.max(...names().map((name) => textWidth(name, font)), 0)),
        Math.round(width / 4),
      );
      left = Math.max(left, hasMel() ? 48 : FEWER);
      const whole = tops().axis + AXIS;
      setStyles(element, { height: `${whole}px` });
      const size = { viewBox: `0 0 ${width} ${whole}`, width, height: whole };
      for (const layer of [back, front]) setAttributes(layer, size);
      drawWave(shown);
      drawMel(shown);
      drawWords(shown);
      drawMap(shown);
      drawMarks(shown);
    },
    mark(shown) {
      if (!now || width <= 0) return;
      const isMoved = now.marked?.join() !== shown.marked?.join();
      now = shown;
      if (isMoved) drawWave(shown);
      drawMarks(shown);
    },
    load(given) {
      sound = given;
      for (const held of Object.values(cells)) held.key = [];
    },
    spot(event) {
      const box = element.getBoundingClientRect();
      const { from, to } = now?.stretch ?? { from: 0, to: 1 };
      const [across, down] = [event.clientX - box.left, event.clientY - box.top];
      const second = from + ((across - left) / wide()) * (to - from);
      const at = tops();
      const lane =
        down < at.mel ? "wave" : down < at.words ? "mel" : down < at.map ? "words" : down < at.axis ? "map" : "axis";
      const row = Math.floor(((down - at.map) / Math.max(1, tall())) * rows);
      return { second: Math.max(from, Math.min(to, second)), lane, row: lane === "map" && row < rows ? row : -1 };
    },
    hear(second) {
      assign(head, { hidden: second === null || !now || second < now.stretch.from || second > now.stretch.to });
      if (second !== null && now)
        setStyles(head, { transform: `translateX(${x(second)}px)`, height: `${tops().axis}px` });
    },
    scale: () => wide() / Math.max(1e-9, (now?.stretch.to ?? 1) - (now?.stretch.from ?? 0)),
  };
}
