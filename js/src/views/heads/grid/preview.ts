/** The map under the pointer, enlarged: first its thumbnail, then the matrix when it arrives. */
import { lut } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { atEnd, h, setFlag, setSizes, setText } from "../../../dom.ts";
import { thumbOffsets } from "../../../wire/sheets.ts";
import { insideOf, showsSpecial } from "../../base/filters.ts";
import { gather, maxPool, paintCells } from "../../maps/paint.ts";
import { peakInside } from "../../maps/peak.ts";
import type { Spot } from "./arrange.ts";
import { type Atlas, tableOf } from "./atlas.ts";

/** Milliseconds after which the pointer counts as resting on a head. */
const RESTS_MS = 120;

export interface Preview {
  element: HTMLElement;
  show(atlas: Atlas, spot: Spot | null, side: number, words: string): void;
}

export function createPreview(ctx: ViewContext, signal: AbortSignal): Preview {
  const canvas = h("canvas.cells");
  const picture = h("div.grid-large", canvas);
  const caption = h("div.line");
  const element = h("div.grid-preview", { "aria-hidden": "true" }, picture, caption);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let painted = "";
  let requested = "";
  atEnd(signal, () => clearTimeout(timer));

  return {
    element,
    show(atlas, spot, side, words) {
      const { source, sheet, map, mode } = atlas;
      setText(caption, words);
      element.hidden = !spot;
      if (!spot) return;
      const layer = source.layers[spot.layer] as number;
      const head = source.heads ? (source.heads[spot.head] as number) : "-";
      const tile = ctx.tiles.get(source.id, layer, head);
      const name = [source.id, layer, head, Boolean(tile), side, map, mode, atlas.common, sheet.meta.special].join();
      const mapKey = [source.id, layer, head].join();
      if (!tile && requested !== mapKey && source.computed?.includes(layer) !== false) {
        clearTimeout(timer);
        requested = mapKey;
        timer = setTimeout(() => ctx.tiles.request(source.id, layer, head, "preview"), RESTS_MS);
      }
      if (name === painted) return;
      painted = name;
      setSizes(element, { large: side });
      const { meta, codes } = sheet;
      const sized = ({ rows, cols }: { rows: number; cols: number }) => ({
        rows,
        cols,
        causal: source.causal && rows === cols,
      });
      const start = thumbOffsets(meta)[spot.layer]?.[spot.head];
      if (!tile && start === undefined) return;
      // Like the thumbnail, with or without the elements apart from the map.
      const special = tile?.meta.whole || showsSpecial(ctx, source) ? "show" : "apart";
      const [rows, cols] = [source.query, source.key].map((id) => insideOf(ctx.axisOf(id).special, { special })) as [
        readonly number[],
        readonly number[],
      ];
      const fullMatrix = !tile
        ? { codes, start: start as number, ...sized(meta) }
        : tile.meta.whole
          ? { codes: tile.codes, start: 0, ...sized(tile.meta) }
          : {
              codes: gather(tile.codes, tile.meta.cols, rows, cols, source.causal),
              start: 0,
              ...sized({ rows: rows.length, cols: cols.length }),
            };
      const matrix = maxPool(
        fullMatrix,
        Math.max(1, Math.ceil(Math.max(fullMatrix.rows, fullMatrix.cols) / (2 * side))),
      );
      const top = atlas.common ?? (tile ? peakInside(tile, rows, cols) : 0);
      const table = tile
        ? lut(map, {
            ...tile.meta,
            range: [source.signed ? -top : 0, top],
            mode,
            signed: tile.meta.codec === "i8",
          })
        : tableOf(atlas, spot);
      const image = new ImageData(matrix.cols, matrix.rows);
      paintCells(new Uint32Array(image.data.buffer), matrix, table);
      [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d")?.putImageData(image, 0, 0);
      picture.style.aspectRatio = `${matrix.cols} / ${matrix.rows}`;
      setFlag(picture, "data-causal", fullMatrix.causal);
    },
  };
}
