/** The line under a heatmap: what is hovered and pinned, approximately from the tile or exactly from the kernel. */
import { exactText } from "../codec.ts";
import type { Tile, ViewContext } from "../context.ts";
import { quoted } from "../dom.ts";
import type { Cell } from "../wire.ts";

const whole = (cell: Cell | null): cell is Cell => cell !== null && cell.query >= 0 && cell.key >= 0;

export class CellReader {
  readonly #ctx: ViewContext;
  readonly #arrived: () => void;
  #exact: { name: string; values: Float32Array } | null = null;
  #asked = "";

  /** `arrived` is called when exact values came. */
  constructor(ctx: ViewContext, arrived: () => void) {
    this.#ctx = ctx;
    this.#arrived = arrived;
  }

  /** Words for the hovered and the pinned cell. A pin asks for its exact row. */
  read(tile: Tile | null, hover: Cell | null, pinned: Cell | null): string {
    if (pinned && pinned.query >= 0) this.#fetch(pinned.query);
    const parts: string[] = [];
    if (whole(pinned)) parts.push(`pinned ${this.#cell(tile, pinned)}`);
    const same = hover?.query === pinned?.query && hover?.key === pinned?.key;
    if (whole(hover) && !same) parts.push(this.#cell(tile, hover));
    if (parts.length > 0) return parts.join(" · ");
    const half = hover ?? pinned;
    const source = this.#ctx.source();
    if (half && half.query >= 0) return `query ${this.#name(source.query, half.query)}`;
    if (half && half.key >= 0) return `key ${this.#name(source.key, half.key)}`;
    return "Hover a cell to read it, click to pin it.";
  }

  #name(axis: string, i: number): string {
    return quoted(this.#ctx.axisOf(axis).labels, i, this.#ctx.options.indexBase);
  }

  #cell(tile: Tile | null, { query, key }: Cell): string {
    const source = this.#ctx.source();
    const between = `${this.#name(source.query, query)} → ${this.#name(source.key, key)}`;
    if (source.causal && tile?.meta.rows === tile?.meta.cols && key > query) return `${between}: masked, comes later`;
    const exact = this.#exact?.name === this.#row(query) ? this.#exact.values[key] : undefined;
    if (exact !== undefined) return `${between} = ${exactText(exact)}`;
    return tile ? `${between} ≈ ${tile.text(query, key)}` : between;
  }

  #row(row: number): string {
    const { source, layer, head } = this.#ctx.resolved();
    return `${source.id}|${layer}|${head}|${row}`;
  }

  #fetch(row: number): void {
    const name = this.#row(row);
    if (this.#exact?.name === name || this.#asked === name) return;
    this.#asked = name;
    const { source, layer, head } = this.#ctx.resolved();
    void this.#ctx.tiles.row(source.id, layer, head, row).then((values) => {
      if (this.#asked !== name || this.#ctx.signal.aborted) return;
      this.#asked = ""; // without values: asked again when something changes
      if (!values) return;
      this.#exact = { name, values };
      this.#arrived();
    });
  }
}
