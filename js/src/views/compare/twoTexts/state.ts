/** The state of TwoTexts, the requests that it needs, and its totals. */
import type { ViewContext } from "../../../context.ts";
import { shortLabel } from "../../../dom.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { Answer } from "../../../wire/embeddedAnswers.ts";
import type { Cell } from "../../../wire/wire.ts";
import type { CopyButton, NumberAddress } from "../../base/copyPython.ts";
import { filtersOf } from "../../base/filters.ts";
import type { Frame } from "../../base/frame.ts";
import type { Menu } from "../../base/menu.ts";
import { shownTargets } from "../../base/methodChoice.ts";
import { plural } from "../../base/navigation.ts";
import type { Segments } from "../../base/segmentedControl.ts";
import type { Control } from "../../base/toolbar.ts";
import type { MapsPicture } from "./maps.ts";
import type { Chip, Chosen, createBars, Outcomes } from "./outcomes.ts";
import type { RowsPicture, Shown } from "./rows.ts";
import {
  addressOf,
  type Columns,
  type MapsMeta,
  queriesOf,
  type Rows,
  type RowsMeta,
  settings,
  type Texts,
} from "./texts.ts";
import { signedText } from "./words.ts";

/** The pinned columns and those under the pointer; -1: none. */
export interface Spot {
  query: number;
  key: number;
}

/** The answers that have arrived for the shown comparison. */
interface Received {
  row: Answer<RowsMeta> | undefined;
  maps: Answer<MapsMeta> | undefined;
  /** Why a text is missing, or "". */
  why: string;
  /** The first columns of queries and keys of the maps. */
  first: [number, number];
}

/** The elements of the view, and the state that they show. */
export interface TwoTextsState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly answers: Answers;
  readonly methods: Menu;
  readonly stacks: Menu;
  readonly where: Control;
  readonly units: Control;
  readonly targets: Menu;
  readonly foils: Menu;
  readonly panes: Segments<"row" | "maps">;
  readonly sides: {
    name: HTMLElement;
    line: HTMLDivElement;
    chips: { element: HTMLElement; show(chips: Chip[], chosen: Chosen, title: string): void };
    element: HTMLDivElement;
  }[];
  readonly rowsPicture: RowsPicture;
  readonly mapsPicture: MapsPicture;
  readonly bars: ReturnType<typeof createBars>;
  readonly sentence: HTMLParagraphElement;
  readonly low: HTMLSpanElement;
  readonly ramp: HTMLSpanElement;
  readonly high: HTMLSpanElement;
  readonly legend: HTMLSpanElement;
  readonly pictures: HTMLDivElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly isOtherTexts: (...values: unknown[]) => boolean;
  readonly isOtherSight: (...values: unknown[]) => boolean;
  /** Both texts and their alignment; null until they arrive. */
  texts: Texts | null;
  /** The predictions after each text. */
  outcomes: Outcomes | null;
  /** The numbers of the rows, in words. */
  rowsMeta: RowsMeta | null;
  /** The values of the rows. */
  rows: Rows | null;
  /** The pinned column and row. */
  spot: Spot;
  /** The column and row under the pointer. */
  over: Spot;
  /** The pin that `spot` was read from; undefined: none was read yet. */
  pinnedFrom: Cell | null | undefined;
  /** The elements of the words, with the column of each. */
  tokens: [HTMLElement, number][];
}

/** Ids of the target and the foil. */
export function chosen(state: TwoTextsState): Chosen {
  const [target, foil] = shownTargets(state.ctx);
  return [target?.id ?? state.outcomes?.target ?? null, foil?.id ?? null];
}

/** A column as an element of the first text; -1: it has none in this column. */
function elementOf(columns: Columns | undefined, column: number): number {
  return columns?.elements[column]?.[0] ?? -1;
}

export function cellOf(state: TwoTextsState, { query, key }: Spot): Cell | null {
  const { texts } = state;
  if (!texts) return null;
  const cell = { query: elementOf(queriesOf(texts), query), key: elementOf(texts.keys, key) };
  return cell.query < 0 && cell.key < 0 ? null : { unit: state.ctx.source().unit, ...cell };
}

export function queryOf(state: TwoTextsState): number {
  return state.texts ? (state.spot.query >= 0 ? state.spot.query : state.texts.query) : -1;
}

export function copied(state: TwoTextsState): NumberAddress | null {
  const { ctx, spot } = state;
  const { address, isMap } = addressOf(ctx);
  if (!state.rows || spot.key < 0 || filtersOf(ctx).special === "renormalise") return null;
  return { of: "difference", ...address, query: isMap ? queryOf(state) : null, column: spot.key };
}

/** Where the shown window of long maps starts, along an axis. */
function startOf(ctx: ViewContext, count: number, around: number): number {
  const { window } = settings(ctx);
  return count <= window ? 0 : Math.max(0, Math.min(count - window, around - (window >> 1)));
}

/** Request the shown comparison; returns the answers that have arrived, and why others have not. */
export function ask(state: TwoTextsState, now: Texts): Received {
  const { ctx, answers, spot } = state;
  const { address, isMap, recorded } = addressOf(ctx);
  const { window } = settings(ctx);
  const counts = [queriesOf(now), now.keys].map(({ same }) => same.length) as [number, number];
  const isWhole = Math.max(...counts) <= window;
  const prefix = recorded ? "" : "computed_";
  const first: [number, number] = [
    startOf(ctx, counts[0], queryOf(state)),
    startOf(ctx, counts[1], Math.max(0, spot.key)),
  ];
  const received: Received = { row: undefined, maps: undefined, why: "", first };
  const get = <T>(topic: string, args: Record<string, unknown>): Answer<T> | undefined => {
    const answer = answers.get<T>(`${prefix}${topic}`, args);
    if (answer) return answer;
    const { text, done, total } = answers.job(`${prefix}${topic}`) ?? { text: "" };
    received.why =
      answers.failure(`${prefix}${topic}`, args) ?? `${text || "computing"} ${total ? `${done} of ${total}` : "…"}`;
    return undefined;
  };
  if (isMap && (isWhole || state.panes.value() === "maps"))
    received.maps = get<MapsMeta>("maps", { ...address, first });
  if (!isMap || !isWhole) {
    const query = spot.query >= 0 && isMap ? spot.query : null;
    received.row = get<RowsMeta>("rows", { ...address, query });
  }
  return received;
}

/** Letters of the heading of the totals. */
const MOST_HEAD = 9;

/** The target and the foil, in a word each; "" without a foil. */
export function targetNames(state: TwoTextsState): [string, string] {
  return chosen(state).map((id) => {
    const label = state.outcomes?.rows.find(([row]) => row === id)?.[1] ?? "";
    return label && shortLabel(label.replace(/^[␣▁]/, "") || label, 12);
  }) as [string, string];
}

export function targetWords(state: TwoTextsState): string {
  const [target, foil] = targetNames(state);
  return foil ? `${target} − ${foil}` : target || "the target";
}

export function totalsOf(state: TwoTextsState, keys: Columns, values: Rows): Shown["totals"] {
  const { ctx, rowsMeta } = state;
  const unit = plural(ctx.source().unit);
  const sum = (row: Float32Array, keep: (i: number) => boolean): number =>
    row.reduce((total, value, i) => total + (keep(i) ? value : 0), 0);
  const wholes = values.map((row) => sum(row, () => true));
  if (rowsMeta?.about) {
    const rests = rowsMeta.rests ? [...rowsMeta.rests, rowsMeta.rests[0] - rowsMeta.rests[1]] : null;
    if (!rests) return { heads: [unit], rows: wholes.map((whole) => [signedText(whole)]) };
    return {
      heads: [unit, `no ${ctx.source().unit}`, targetWords(state).length > MOST_HEAD ? "total" : targetWords(state)],
      rows: wholes.map((whole, i) => [whole, rests[i] ?? 0, whole + (rests[i] ?? 0)].map((value) => signedText(value))),
    };
  }
  if (!keys.special.some(Boolean)) return { heads: ["row"], rows: wholes.map((whole) => [amount(whole)]) };
  const special = values.map((row) => sum(row, (i) => Boolean(keys.special[i])));
  return {
    heads: [unit, "special", "row"],
    rows: wholes.map((whole, i) =>
      [whole - (special[i] ?? 0), special[i] ?? 0, whole].map(i === 2 ? difference : amount),
    ),
  };
}

function amount(value: number): string {
  return value.toFixed(2).replace("-", "−");
}

/** Sums of shares differ by rounding errors, which do not count as a difference. */
function difference(value: number): string {
  return Math.abs(value) < 5e-6 ? "0" : signedText(value);
}
