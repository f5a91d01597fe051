/** Names of layers and heads: at the edges of the grid, and beneath thumbnails that are sorted. */

import type { ViewContext } from "../../../context.ts";
import { h, setChildren, thinned } from "../../../dom.ts";
import type { Source } from "../../../wire/wire.ts";
import { headlessWords, kindWords } from "../../base/mixers.ts";
import { headAddress } from "../../base/navigation.ts";
import { styleValue } from "../../base/styleValue.ts";
import type { Size } from "./arrange.ts";
import { FOOT, type Layout } from "./layout.ts";

/** Height of a line of labels in px. */
const LINE = 14;

export interface Names {
  rows: HTMLElement;
  cols: HTMLElement;
  /** Names at the edges. */
  show(source: Source, layout: Layout): void;
  /** Names beneath thumbnails, in a canvas whose cells are of `size` pixels; the last `foot` of them are for names. */
  paint(canvas: HTMLCanvasElement, source: Source, layout: Layout, size: Size, foot: number): void;
}

export function createNames(ctx: ViewContext): Names {
  const rows = h("div.grid-rows", { "aria-hidden": "true" });
  const cols = h("div.grid-cols", { "aria-hidden": "true" });
  return {
    rows,
    cols,
    show(source, { lines, size, order, isTable }) {
      const label = (text: string, at: number, edge: "left" | "top"): HTMLElement => {
        const span = h("span", text);
        span.style[edge] = `${(at + 0.5) * (edge === "top" ? size.height : size.width)}px`;
        return span;
      };
      const isGroups = !isTable && order === "groups";
      const all = isGroups ? lines.map((_, i) => i) : thinned(lines.length, size.height, LINE);
      let free = 0;
      const shown = all.filter((i) => {
        // Groups may be a single thin line each: labels that do not fit are omitted.
        if (!lines[i]?.label || (isGroups && i * size.height < free)) return false;
        free = i * size.height + LINE;
        return true;
      });
      setChildren(
        rows,
        ...shown.map((i) => {
          const row = label(lines[i]?.label ?? "", i, "top");
          const layer = order === "layers" && !isTable ? source.layers[i] : undefined;
          if (layer !== undefined) row.title = kindWords(source, layer);
          return row;
        }),
      );
      const columns = isTable
        ? source.layers.map((layer) => ctx.layerName(layer))
        : order === "layers"
          ? (source.heads ?? []).map((head) => ctx.headName(head))
          : [];
      const shownColumns = thinned(columns.length, size.width, 8 + 8 * (columns.at(-1)?.length ?? 0));
      setChildren(cols, ...shownColumns.map((i) => label(columns[i] as string, i, "left")));
    },
    paint(canvas, source, { lines, order }, { width, height }, foot) {
      const pen = canvas.getContext("2d");
      if (!pen) return;
      pen.fillStyle = styleValue(ctx, canvas, "color");
      pen.font = `${Math.round((12 * foot) / FOOT)}px ${styleValue(ctx, canvas, "font-family")}`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      const isNarrow = order === "within"; // the layer is named at the left
      for (const [row, { spots }] of lines.entries()) {
        for (const [col, at] of spots.entries()) {
          if (!at) continue;
          const [layer, head] = [source.layers[at.layer] as number, source.heads?.[at.head]];
          const isHead = head !== undefined && !headlessWords(source, layer, head);
          const name = isHead ? headAddress(ctx, layer, head) : ctx.layerName(layer);
          const short = isNarrow && head !== undefined ? ctx.headName(head) : name;
          pen.fillText(short, (col + 0.5) * width, (row + 1) * height - foot / 2 - 1, width);
        }
      }
    },
  };
}
