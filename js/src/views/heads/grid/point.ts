/** The update of a HeadGrid on every pointer move: outlines, the enlarged map and the readout. */
import { setBox } from "../../../dom.ts";
import { tickText } from "../../../numbers.ts";
import { peaksOf } from "../../../wire/sheets.ts";
import type { Source } from "../../../wire/wire.ts";
import { addressWords } from "../../base/navigation.ts";
import { breadthAt, type Spot } from "./arrange.ts";
import { isPruned } from "./atlas.ts";
import { atlasOf, type HeadGridState, rankingOf } from "./state.ts";

/** Side in px of the enlarged map. */
const ENLARGED = 148;

/** Position of the selected head: line, column, and how many columns it spans. */
export function selectedAt(state: HeadGridState): [number, number, number] {
  const { controls, now } = state;
  const { source, layer, head } = state.ctx.resolved();
  const row = source.layers.indexOf(layer);
  if (source.heads && typeof head !== "number") {
    const isLayer = !now.isTable && (!controls.statistic() || ["layers", "within"].includes(controls.order()));
    return isLayer ? [row, 0, now.cols] : [-1, -1, 1];
  }
  const at = source.heads && typeof head === "number" ? source.heads.indexOf(head) : 0;
  return spread(state, now.positions.get(`${row} ${at}`) ?? [-1, -1]);
}

/** A position with the columns that it spans. */
function spread(state: HeadGridState, [row, col]: readonly [number, number]): [number, number, number] {
  const spots = state.now.lines[row]?.spots ?? [];
  const first = spots[col] ? spots.indexOf(spots[col]) : col;
  return [row, first, breadthAt(spots, first)];
}

/** Outline the heads chosen together. */
export function drawChosen(state: HeadGridState, { layers, heads }: Source): void {
  const { now } = state;
  const boxes = state.ctx.selection.get("heads").flatMap(([layer, head]): [number, number, number, number][] => {
    const at = now.positions.get(`${layers.indexOf(layer)} ${heads?.indexOf(head)}`);
    const { width: across, height: down } = now.size;
    return at ? [[at[1] * across, at[0] * down, across, down]] : [];
  });
  state.chosen.draw(boxes);
}

/** The position of the head that a linked view previews. */
export function previewed({ ctx, now }: HeadGridState): readonly [number, number] | undefined {
  const { layers, heads } = ctx.source();
  const [layer, head] = ctx.selection.get("hover")?.head ?? [-1, -1];
  return now.positions.get(`${layers.indexOf(layer)} ${heads?.indexOf(head)}`);
}

/** Update outlines, the enlarged map and the readout. Runs on every pointer move. */
export function point(state: HeadGridState): void {
  const { ctx, sheet, cursor, knockout } = state;
  const { source, layer, head } = ctx.resolved();
  const { size, positions, isTable } = state.now;
  const outline = (el: HTMLElement, row: number, col: number, cols: number): void =>
    setBox(el, col * size.width, row * size.height, cols * size.width, size.height);
  const spot = cursor.at() ?? previewed(state) ?? null;
  outline(state.hovered, ...spread(state, spot ?? [-1, -1]));
  outline(state.selected, ...selectedAt(state));
  const at = cursor.headAt(spot);
  knockout.show(positions, size);
  drawChosen(state, source);
  const text = at ? wordsAt(state, source, at) : `selected: ${addressWords(ctx, layer, head)}`;
  state.frame.readout.show(text + knockout.words(cursor.meant()), state.root.contains(document.activeElement));
  const chosen = typeof head === "number" ? (source.heads?.indexOf(head) ?? 0) : 0;
  const current = { layer: source.layers.indexOf(layer), head: chosen };
  state.ranked.show(
    {
      ranking: rankingOf(state),
      atlas: sheet ? atlasOf(state, source, sheet) : null,
      spots: state.best,
      isTable,
      selected: typeof head === "number" || !source.heads ? current : null,
      strongest: state.patterns.strongest,
    },
    `${state.drawnKey}|${Boolean(sheet)}`,
  );
  if (!state.isAlone || !sheet) return;
  const shown = at ?? current;
  const name = addressWords(ctx, source.layers[shown.layer] as number, source.heads?.[shown.head] ?? "-");
  state.preview.show(atlasOf(state, source, sheet), shown, ENLARGED, name);
}

function wordsAt(state: HeadGridState, source: Source, at: Spot): string {
  const { sheet } = state;
  const layer = source.layers[at.layer] as number;
  const name = addressWords(state.ctx, layer, source.heads?.[at.head] ?? "-");
  if (isPruned(sheet, at)) return `${name} · pruned from this layer`;
  const peak = sheet && peaksOf(sheet)[at.layer]?.[at.head];
  const later = source.computed?.includes(layer) === false ? " · computed when opened" : "";
  const most = peak === undefined ? later : ` · largest value ≈ ${tickText(peak)}`;
  const value = rankingOf(state)?.words(at);
  const pattern = state.patterns.strongest(at);
  return `${name}${value ? ` · ${value}` : ""}${pattern ? ` · ${pattern}` : ""}${most}`;
}
