/** The map of a head at a step, drawn as in a heatmap; the scale is the same at every step. */
import { heatMap, lut } from "../../colour.ts";
import type { ViewContext } from "../../context.ts";
import { h, on, setFlag, setText, spotAt } from "../../dom.ts";
import { valueTable } from "../../wire/codec.ts";
import type { Tile } from "../../wire/tile.ts";
import { createScale } from "../base/colourScale.ts";
import { createAxisPart } from "../maps/axisPart.ts";
import { createFigure, LINED } from "../maps/figure.ts";
import { gather, maxPool, paintCells } from "../maps/paint.ts";
import type { Box, Size } from "../maps/size.ts";

/** Small weights are visible on this scale, and a weight has the same colour at every step. */
const MODE = "sqrt";
const RANGE = [0, 1] as const;

export function createStepMap(ctx: ViewContext, signal: AbortSignal, point: (cell: [number, number] | null) => void) {
  let [size, isWhole]: [Size | null, boolean] = [null, false];
  let draw = (): void => {};
  const figure = createFigure(ctx, "attention map", signal, {
    back() {},
    move(rows, cols) {
      const [query, key] = parts;
      const moved = [query.move(rows * Math.max(1, query.count - 2)), key.move(cols * Math.max(1, key.count - 2))];
      if (!moved.some(Boolean)) return;
      figure.label();
      draw();
    },
    whole() {
      isWhole = !isWhole;
      draw();
    },
  });
  const side = { labels: [] as string[], special: [] as number[] };
  let parts = [createAxisPart(side, []), createAxisPart(side, [])] as const;
  const scale = createScale();
  const lack = h("div.run-lack", { role: "note" });
  figure.plot.ariaLabel = "attention of the head at the step";
  scale.follow({ scale: MODE, extent: "map" });
  const over = (event: MouseEvent | null): void => {
    const spot = event && size ? spotAt(event, figure.plot, size.rows, size.cols) : null;
    const cell = spot && { query: spot[0], key: spot[1] };
    if (size) figure.crosshair.move(size, cell && { unit: "token", ...cell }, null);
    point(spot && [parts[0].drawn()[spot[0]] ?? -1, parts[1].drawn()[spot[1]] ?? -1]);
  };
  on(figure.plot, signal, { pointermove: over, pointerleave: () => over(null) });

  const paint = (tile: Tile): void => {
    if (!size) return;
    const { meta, codes } = tile;
    const isCausal = meta.codec === "u8tri";
    const [rows, cols] = parts.map((part) => part.drawn()) as [number[], number[]];
    const drawn = gather(codes, meta.cols, rows, cols, isCausal);
    const matrix = maxPool({ codes: drawn, start: 0, rows: rows.length, cols: cols.length, causal: false }, size.pool);
    const map = heatMap(false, ctx.theme);
    const table = lut(map, { gamma: meta.gamma, scale: meta.scale, range: RANGE, mode: MODE });
    const image = new ImageData(matrix.cols, matrix.rows);
    paintCells(new Uint32Array(image.data.buffer), matrix, table);
    figure.show(image);
    const values = valueTable(false, meta.gamma, meta.scale);
    if (size.pool > 1) figure.ink.clear();
    else figure.ink.write(size, drawn, table, (byte) => values[byte] as number, 1, true);
    setFlag(figure.plot, "data-lines", Math.min(size.cellWidth, size.cellHeight) >= LINED);
    setFlag(figure.plot, "data-holes", isCausal);
    scale.show({ map, range: RANGE, words: "share of the row, one scale for all steps" });
  };

  return {
    element: h("div.run-figure", figure.element, scale.element, lack),
    plot: figure.plot,
    /** Draw a tile; without a tile the earlier picture stays, dimmed, or `words` give the reason. */
    show(labels: readonly string[], special: readonly number[], tile: Tile | null, words: string, box: Box): void {
      draw = () => {
        if (box.width <= 0) return;
        size = figure.layout({ query: parts[0], key: parts[1], names: "", box, whole: isWhole, numbers: false });
        if (tile) paint(tile);
      };
      if (parts[0].names.length !== labels.length) {
        const axis = { labels: [...labels], special: [...special] };
        parts = [createAxisPart(axis, []), createAxisPart(axis, [])];
      }
      setFlag(figure.plot, "data-stale", !tile);
      setText(lack, words);
      lack.hidden = !words;
      for (const part of [figure.element, scale.element]) part.style.visibility = words ? "hidden" : "";
      draw();
    },
  };
}
