/** The state of an AudioView, and the words, rows and numbers that follow from it. */
import type { ViewContext } from "../../../context.ts";
import { shortLabel } from "../../../dom.ts";
import { withinError } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { ColourScale } from "../../base/colourScale.ts";
import type { CopyButton, NumberAddress } from "../../base/copyPython.ts";
import type { Frame } from "../../base/frame.ts";
import type { Menu } from "../../base/menu.ts";
import type { Segments } from "../../base/segmentedControl.ts";
import type { Control } from "../../base/toolbar.ts";
import {
  ALIGNMENT,
  type HeardMap,
  type MapChoice,
  peakOf,
  type Rows,
  rowsOf,
  type SpokenWord,
  type SpokenWords,
  seconds,
  wordAt,
} from "./heard.ts";
import type { Panel } from "./panel.ts";
import type { SoundPlayer } from "./player.ts";
import type { Shown, Spot, Stage } from "./stage.ts";
import type { Stretch } from "./stretch.ts";
import type { Text } from "./text.ts";

const NONE: readonly SpokenWord[] = [];

/** The elements of the view, and the state that they show. */
export interface AudioState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  /** Inside another view, the outer view's choice is drawn: its method, stack, unit, layer and head. */
  readonly isInside: boolean;
  readonly answers: Answers;
  readonly maps: Menu;
  readonly rowKinds: Segments<Rows>;
  readonly layerAndHead: Control;
  readonly playMarked: HTMLButtonElement;
  readonly playAll: HTMLButtonElement;
  readonly less: HTMLButtonElement;
  readonly text: Text;
  readonly stage: Stage;
  readonly legend: ColourScale;
  readonly scaleTitle: HTMLSpanElement;
  readonly where: HTMLSpanElement;
  readonly panel: Panel;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly isOffered: (...values: unknown[]) => boolean;
  readonly isLoaded: (...values: unknown[]) => boolean;
  /** Plays the sound; null until it is loaded. */
  player: SoundPlayer | null;
  /** The words with their times. */
  spoken: SpokenWords | null;
  /** The map and its values; null: it is awaited, or there is none. */
  map: HeardMap | null;
  values: Float32Array;
  /** The shown kind of map. */
  name: string;
  /** The seconds that are shown. */
  stretch: Stretch;
  /** A pinned word that is not an element of the map, so that the selection cannot hold it; -1: none. */
  wordOutside: number;
  /** A span that was dragged, in seconds; null: that of the pinned word. */
  span: readonly [number, number] | null;
  /** The second, lane and row under the pointer. */
  over: Spot | null;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  height: number;
  /** The stack after this view's last update, to tell when another view chooses a stack. */
  lastStack: string;
}

export function words(state: AudioState): readonly SpokenWord[] {
  return state.spoken?.words ?? NONE;
}

export function whole(state: AudioState): number {
  return state.spoken?.seconds || 1;
}

export function choice(state: AudioState): MapChoice | undefined {
  return state.spoken?.maps.find((map) => map.name === state.name) ?? state.spoken?.maps[0];
}

/** The side of the map that the selection's stack refers to: the written text, or the sound. */
export function sideOf(stack: string): "written" | "spoken" {
  return /cross|decoder/.test(stack) ? "written" : "spoken";
}

export function wordOf(state: AudioState, which: "pinned" | "hover"): number {
  const { selection } = state.ctx;
  const cell = selection.get(which);
  if (cell?.unit !== "word" || cell.query < 0) return -1;
  const side = sideOf(selection.get("stack"));
  return words(state).findIndex((word) => word[side] === cell.query);
}

export function pinned(state: AudioState): number {
  return state.wordOutside >= 0 ? state.wordOutside : wordOf(state, "pinned");
}

export function stackOfMap(state: AudioState): string {
  const { ctx, name } = state;
  if (name !== ALIGNMENT) return name;
  return ctx.header().sources.some(({ stack }) => stack === "cross") ? "cross" : ctx.selection.get("stack");
}

export function cellOf(state: AudioState, word: number): { unit: string; query: number; key: number } | null {
  const query = words(state)[word]?.[sideOf(stackOfMap(state))] ?? -1;
  return query < 0 ? null : { unit: "word", query, key: -1 };
}

export function marked(state: AudioState): readonly [number, number] | null {
  const word = words(state)[pinned(state)];
  return state.span ?? (word ? [word.start, word.end] : null);
}

/** The chosen word; by default, the word of which the model was least sure. */
export function focus(state: AudioState): number {
  const chosen = wordOf(state, "hover") >= 0 ? wordOf(state, "hover") : pinned(state);
  if (chosen >= 0) return chosen;
  const least = words(state).reduce((best, { p }, i) => ((p ?? 1) < (words(state)[best]?.p ?? 1) ? i : best), 0);
  return words(state).length ? least : -1;
}

export function args(state: AudioState): Record<string, unknown> {
  const { name } = state;
  const { source, layer, head } = state.ctx.resolved();
  if (state.isInside) return { source: source.id, layer, head };
  const fixed = name === ALIGNMENT;
  return { map: name, rows: state.rowKinds.value(), layer: fixed ? 0 : layer, head: fixed ? "-" : head };
}

export function numberText(state: AudioState, value: number): string {
  const unit = state.map?.what.endsWith("in sd") ? " sd" : "";
  return `${withinError(value, unit ? 0.005 : 0.0005)}${unit}`;
}

function isByWord(state: AudioState): boolean {
  return state.map?.rows === "words" && state.map.labels.length === words(state).length;
}

export function rows(state: AudioState, word: number): [number, number] | null {
  const { map } = state;
  const spoken = words(state)[word];
  if (!map || !spoken) return null;
  return isByWord(state) ? [word, word] : rowsOf(map, spoken);
}

export function numberAddress(state: AudioState): NumberAddress | null {
  const { map } = state;
  const word = pinned(state);
  const row = rows(state, word)?.[0];
  if (!map || row === undefined) return null;
  const second = Number(((peakOf(state.values, row, map.columns)[0] + 0.5) * map.step).toFixed(3));
  const { map: of, rows: kind, layer, head } = args(state);
  return { of: "heard", row, second, map: of, rows: kind, ...(of !== ALIGNMENT && { layer, head }) };
}

export function shown(state: AudioState): Shown {
  const [chosen, pointed] = [pinned(state), wordOf(state, "hover")];
  return {
    stretch: state.stretch,
    words: words(state),
    map: state.map,
    values: state.values,
    range: range(state),
    rows: rows(state, chosen),
    over: pointed >= 0 && pointed !== chosen ? rows(state, pointed) : null,
    marked: marked(state),
    word: chosen,
    hovered: pointed,
  };
}

/** From zero, or for signed values symmetric around it. */
export function range(state: AudioState): [number, number] {
  const { values } = state;
  const low = values.reduce((least, value) => Math.min(least, value), 0);
  const high = values.reduce((most, value) => Math.max(most, value), 0);
  return low < 0 && state.name !== ALIGNMENT ? [Math.min(low, -high), Math.max(-low, high)] : [0, high || 1];
}

export function sentence(state: AudioState, { word, hovered }: Shown): string {
  const { map, values, span, over } = state;
  const { window: frames, seconds: heard } = state.spoken as SpokenWords;
  const padding =
    frames > heard + 1
      ? `${seconds(heard)} s of the ${frames.toFixed(0)} s window hold sound; the rest is padding, not drawn`
      : "";
  if (over && (over.lane === "map" || over.lane === "wave" || over.lane === "mel")) {
    const column = map ? Math.floor(over.second / map.step) : -1;
    const value = over.row >= 0 && map && column < map.columns ? values[over.row * map.columns + column] : undefined;
    const about =
      value === undefined ? "" : `“${shortLabel(map?.labels[over.row] ?? "", 24)}”: ${numberText(state, value)} · `;
    return `${about}${seconds(over.second)} s`;
  }
  const spoken = words(state)[hovered >= 0 ? hovered : word];
  if (!spoken) return [span ? `${seconds(span[0])} – ${seconds(span[1])} s` : "", padding].filter(Boolean).join(" · ");
  const row = rows(state, hovered >= 0 ? hovered : word)?.[0];
  const [at, value] = map && row !== undefined ? peakOf(values, row, map.columns) : [0, NaN];
  const outside = row === undefined ? undefined : map?.outside?.[row];
  return [
    `“${shortLabel(spoken.word, 24)}” ${seconds(spoken.start)} – ${seconds(spoken.end)} s`,
    map && row !== undefined ? `peak ${numberText(state, value)} at ${seconds(at * map.step)} s` : "",
    spoken.p === null ? "" : `p ${spoken.p.toFixed(2)}`,
    outside === undefined ? "" : `${(100 * outside).toFixed(0)} % on padding`,
    hovered >= 0 ? "" : "pinned",
    padding,
  ]
    .filter(Boolean)
    .join(" · ");
}

export function wordAtSpot(state: AudioState, { second, lane, row }: Spot): number {
  if (lane !== "map") return lane === "axis" ? -1 : wordAt(words(state), second);
  if (isByWord(state)) return row;
  const span = row >= 0 ? state.map?.spans[row] : null;
  return span ? wordAt(words(state), (span[0] + span[1]) / 2) : -1;
}
