/** One row of a map in every layer: rows are layers, columns are tokens. For attributions, the row of a target. */

import { heatMap, lut } from "../../colour.ts";
import { density, h, keyboard, on, reserve, setChildren, setFlag, setText, spotAt, watchWidth } from "../../dom.ts";
import { printed, roundUp } from "../../numbers.ts";
import { HIDDEN, LATER } from "../../wire/codec.ts";
import type { Cell, HeadKey, Source } from "../../wire/wire.ts";
import { nameOf } from "../base/cellValues.ts";
import { boxOf, createChosen } from "../base/chosen.ts";
import { createScale } from "../base/colourScale.ts";
import { pickCells, type Spot, togglePin } from "../base/gestures.ts";
import { moveLayer, navigation, plural } from "../base/navigation.ts";
import { createReadout, only, view } from "../base/view.ts";
import { peak, rowOf } from "../text/rowValues.ts";
import { createFigure } from "./figure.ts";
import { paintFrame } from "./paint.ts";
import type { Size } from "./size.ts";

/** The largest code of the picture. Codes are signed square roots of a value's share of the largest. */
const TOP = 127;

type Row = Float32Array | undefined;

export const renderLayerMap = view((ctx, root, signal) => {
  const { selection, tiles } = ctx;
  const { element, plot, crosshair, left, top, layout, show } = createFigure("layers by tokens");
  const title = h("b.title");
  const back = h("button.button", { type: "button" });
  const readout = createReadout();
  const scale = createScale(signal, true, () => draw());
  let width = 0;
  let size: Size | null = null;
  let laidOut = "";
  let rows: Row[] = [];
  let spot: [number, number] | null = null;

  const chosen = createChosen(plot);

  plot.dataset.empty = "";
  root.classList.add("aw-layermap");
  setChildren(root, h("div.row", title, back), element, ...readout.elements, scale.element);

  /** Whether rows are targets rather than tokens. */
  const ofTargets = ({ query, key }: Source): boolean => query !== key;

  /** The shown row (target or query): the pinned one, otherwise the position from which the model predicts. */
  const rowShown = (source: Source): number => {
    const count = ctx.axisOf(source.query).labels.length;
    const row = ctx.cell("pinned")?.query ?? -1;
    if (row >= 0 && row < count) return row;
    return source.causal ? count - 1 : 0;
  };

  /** Exact rows of coarse matrices; null: requested. */
  const exact = new Map<string, Float32Array | null>();
  const exactly = (...place: [string, number, HeadKey, number]): Row => {
    const name = place.join();
    if (!exact.has(name)) {
      exact.set(name, null);
      void tiles.row(...place, true).then((values) => {
        if (values) exact.set(name, values);
        else exact.delete(name); // requested again on the next change
        if (values && !signal.aborted) draw();
      });
    }
    return exact.get(name) ?? undefined;
  };

  /** The row in one layer if it is loaded; otherwise its matrix is requested, unless it is yet to be computed. */
  const read = (layer: number): Row => {
    const { source, head } = ctx.layered();
    if (source.coarse) return exactly(source.id, layer, head, rowShown(source));
    const tile = tiles.get(source.id, layer, head);
    if (tile) return rowOf(tile, rowShown(source));
    if (source.computed?.includes(layer) !== false) tiles.request(source.id, layer, head, `layer ${layer}`);
    return undefined;
  };

  const draw = (): void => {
    const { source } = ctx.layered();
    const { layers } = source;
    const key = ctx.axisOf(source.key);
    const about = `${ofTargets(source) ? "for" : "in the row of"} ${nameOf(ctx, source.query, rowShown(source))}`;
    setText(title, `${plural(source.unit)} in every layer, ${about}`);
    // The button keeps its place, so that a click does not move the picture away from the pointer.
    back.style.visibility = inside() ? "" : "hidden";
    plot.ariaLabel = `${title.textContent}. Up and down arrows change the layer, left and right the ${source.unit}; Enter shows the text in that layer, or at the input again.`;
    rows = layers.map(read);
    if (width <= 0) return;
    const name = [source.id, width, ctx.options.indexBase, key.labels].join("|");
    if (name !== laidOut) {
      laidOut = name;
      size = layout({ labels: layers.map((layer) => `layer ${ctx.layerName(layer)}`), special: [] }, key, width);
    }
    paint(source, key.labels.length);
    point();
    if (size) drawChosen(source, size);
  };

  /** The cell of a layer and token, in the shown row. */
  const cellAt = ([row, key]: Spot): Cell => {
    const { source } = ctx.layered();
    return { unit: source.unit, query: rowShown(source), key, layer: source.layers[row] as number };
  };

  /** Outline the cells chosen in one layer of this row, and draw the span. */
  const drawChosen = (source: Source, shown: Size): void => {
    const span = ctx.span("key");
    const row = rowShown(source);
    const here = ctx.pins().filter(({ layer = -1, query }) => query === row && source.layers.includes(layer));
    chosen.draw(
      here.map(({ layer = -1, key }) => boxOf({ query: source.layers.indexOf(layer), key }, shown)),
      null,
      span && [span[0] * shown.cellWidth, span[1] * shown.cellWidth],
    );
  };

  const paint = ({ signed }: Source, cols: number): void => {
    const high = rows.length;
    const end = roundUp(Math.max(...rows.map((values) => peak(values ?? []))));
    const codes = new Int16Array(high * cols).fill(HIDDEN); // missing or unread values are not zeros
    rows.forEach((values, r) => {
      values?.forEach((value, c) => {
        if (Number.isNaN(value)) return;
        codes[r * cols + c] = Math.sign(value) * Math.round(TOP * Math.sqrt(Math.abs(value) / (end || 1)));
      });
    });
    const range = [signed ? -end : 0, end] as const;
    const map = heatMap(signed, ctx.theme);
    const table = lut(map, { gamma: 0.5, scale: end, range, mode: scale.mode(), signed: true });
    const dots = Math.min(cols, Math.ceil((size?.width ?? 1) * density()));
    const image = new ImageData(dots, high);
    const pixels = new Uint32Array(image.data.buffer);
    const matrix = { codes, start: 0, rows: high, cols, causal: false };
    paintFrame(pixels, dots, { x: 0, y: 0, width: dots, height: high }, matrix, table);
    const missing = rows.filter((values) => !values).length;
    setFlag(
      plot,
      "data-holes",
      rows.some((values) => values?.some(Number.isNaN)),
    );
    show(image);
    const words = `one scale for all layers${missing ? `; ${missing} not computed yet` : ""}`;
    scale.show({ map, range, words, button: null });
  };

  /** Update outlines and readout. Runs on every pointer move. */
  const point = (): void => {
    if (!size) return;
    const { source, layer } = ctx.layered();
    const at = source.layers.indexOf(layer);
    const backWords = (at: number): string => `text: layer ${ctx.layerName(at)} · back to the input`;
    setText(back, backWords(layer));
    reserve(back, backWords(source.layers.at(-1) ?? layer));
    const [row, key] = spot ?? [at, ctx.cell("hover")?.key ?? -1];
    crosshair.move(size, { unit: "", query: spot ? row : -1, key }, { unit: "", query: at, key: -1 });
    left.mark(row, at);
    top.mark(key, -1);
    const values = rows[row] ?? new Float32Array();
    const word = (i: number): string => `${nameOf(ctx, source.key, i)} ${printed(values[i] ?? Number.NaN, false)}`;
    const sizeOf = (i: number): number => Math.abs(values[i] as number) || 0;
    const most = [...values.keys()].sort((a, b) => sizeOf(b) - sizeOf(a)).slice(0, 3);
    const what = !values.length
      ? "not computed yet, click to compute it"
      : key >= 0
        ? Number.isNaN(values[key])
          ? `${nameOf(ctx, source.key, key)}: ${LATER}`
          : `≈ ${word(key)}`
        : `largest ≈ ${most.map(word).join(", ")}`;
    readout.show(
      `layer ${ctx.layerName(source.layers[row] as number)}: ${what}`,
      root.contains(document.activeElement),
    );
  };

  const hover = (at: [number, number] | null): void => {
    spot = at;
    const { source } = ctx.layered();
    const query = ofTargets(source) ? rowShown(source) : -1;
    selection.hover(at && { unit: source.unit, query, key: at[1] });
    point();
  };
  const find = (event: MouseEvent): [number, number] | null => size && spotAt(event, plot, size.rows, size.cols);
  const step = (layers: number, keys: number) => (): void => {
    if (layers) moveLayer(ctx, layers);
    if (!size || !(keys || spot)) return;
    const { source, layer } = ctx.layered();
    const key = Math.max(0, Math.min(size.cols - 1, (spot?.[1] ?? -1) + keys));
    hover([source.layers.indexOf(layer), key]);
  };
  /** Whether the text shows a layer rather than the input. */
  const inside = (): boolean => ctx.source() === ctx.layered().source;

  /** Show the text in a layer; for the layer that is already shown, return to the input. */
  const open = (row: number): void => {
    const { source, layer: now, head } = ctx.layered();
    const layer = source.layers[row] as number;
    if (inside() && layer === now) {
      close();
      return;
    }
    // For maps with a row for every token, pin the shown row.
    const pinned = { unit: source.unit, query: rowShown(source), key: -1 };
    selection.set({ layer, inside: true, ...(ofTargets(source) ? {} : { pinned }) });
    tiles.request(source.id, layer, head);
  };
  const close = (): void => {
    const method = selection.get("method").replace(":layers", "");
    selection.set({ method, inside: false, ...(ofTargets(ctx.layered().source) ? {} : { pinned: null }) });
  };
  on(back, signal, { click: close });
  pickCells(ctx, { plot, left, top }, () => size, signal, cellAt, ["key"]);
  on(plot, signal, {
    pointermove: (event) => hover(find(event)),
    pointerleave: () => hover(null),
    blur: () => hover(null),
    click(event) {
      const row = find(event)?.[0] ?? -1;
      if (row >= 0) open(row);
    },
  });
  keyboard(plot, signal, {
    ...navigation(ctx),
    ArrowUp: step(-1, 0),
    ArrowDown: step(1, 0),
    ArrowLeft: step(0, -1),
    ArrowRight: step(0, 1),
    Enter: () => open(ctx.layered().source.layers.indexOf(ctx.layered().layer)),
    "Shift+Enter": () => spot && togglePin(ctx, cellAt(spot)),
  });
  watchWidth(root, signal, (now) => {
    width = now;
    draw();
  });
  return (changed) => {
    if (only(changed, "hover", "layer")) point();
    else draw();
  };
});
