/** Every head of the layer, or every target, as a small picture with its map; a click shows it. */
import {
  assign,
  createWatch,
  density,
  h,
  on,
  setChildren,
  setFlag,
  setSizes,
  setStyles,
  setText,
  walkList,
} from "../../dom.ts";
import { printed } from "../../numbers.ts";
import { paintHeat, type Shade } from "./heat.ts";
import type { Picture } from "./picture.ts";
import type { PatchRows } from "./rows.ts";

/** A small picture. */
export interface Entry {
  name: string;
  /** The meaning of the number next to it: "to [CLS]"; "" for none. */
  about: string;
  value: number;
  shade: Shade;
}

export interface Column {
  element: HTMLElement;
  /** Show heads of a layer, by its index, in a column of this height in px. */
  show(
    rows: PatchRows,
    layer: number,
    entries: readonly Entry[],
    current: number,
    isWide: boolean,
    height: number,
  ): void;
}

/** px of the longer side of a small picture, at most where there is room for words and where not, and at least; and between them. */
const [LARGEST, NARROWER, SMALLEST, GAP] = [64, 48, 20, 4];

export function createColumn(signal: AbortSignal, picture: Picture, choose: (at: number) => void): Column {
  const element = h("div.image-column", { role: "group", "aria-label": "heads of this layer" });
  const small = document.createElement("canvas");
  let lines: { button: HTMLButtonElement; canvas: HTMLCanvasElement; texts: HTMLElement[] }[] = [];
  const isOther = createWatch();
  on(element, signal, {
    click({ target }) {
      const at = lines.findIndex(({ button }) => button.contains(target as Node));
      if (at >= 0) choose(at);
    },
  });
  walkList(element, signal);
  const build = (count: number): void => {
    lines = Array.from({ length: count }, () => {
      const canvas = h("canvas.image-small");
      const texts = [h("b"), h("span.where"), h("span.image-value"), h("i.image-bar")];
      return { canvas, texts, button: h("button.image-line", { type: "button" }, canvas, ...texts) };
    });
    setChildren(element, ...lines.map(({ button }) => button));
  };
  return {
    element,
    show(rows, layer, entries, current, isWide, height) {
      assign(element, { hidden: entries.length < 2, ariaLabel: entries[0]?.about ? "heads of this layer" : "maps" });
      if (entries.length < 2) return;
      if (lines.length !== entries.length) build(entries.length);
      const side = Math.max(
        SMALLEST,
        Math.min(isWide ? LARGEST : NARROWER, Math.floor((height + GAP) / entries.length) - GAP),
      );
      const dots = Math.min(2, density());
      const [down, across] = rows.grid;
      const ratio = (picture.ratio() ?? down / across) || 1;
      const [wide, high] = ratio > 1 ? [Math.round(side / ratio), side] : [side, Math.round(side * ratio)];
      const below = picture.dimmed(Math.round(wide * dots), Math.round(high * dots));
      setSizes(element, { small: side });
      const repaints = isOther(rows, layer, below, side, entries.map(({ shade }) => JSON.stringify(shade)).join());
      entries.forEach(({ name, about, value, shade }, i) => {
        const { button, canvas, texts } = lines[i] as (typeof lines)[number];
        const [title, description, number, bar] = texts as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
        setText(title, name);
        setText(description, about);
        const isMissing = Number.isNaN(rows.peak(layer, i));
        setText(
          number,
          Number.isNaN(value) || isMissing
            ? ""
            : isWide
              ? value.toFixed(3).replace("-", "−")
              : value.toFixed(2).replace("0.", "."),
        );
        setStyles(bar, { width: about && value > 0 ? `${Math.min(100, 100 * value)}%` : "0" });
        const words = [name, isMissing ? "pruned" : about && `${about} ${printed(value, true)}`]
          .filter(Boolean)
          .join(", ");
        // Its name describes the picture; the title has the exact number.
        assign(button, { title: words, ariaPressed: String(i === current), disabled: isMissing });
        button.tabIndex = i === Math.max(0, current) ? 0 : -1;
        setFlag(button, "data-current", i === current);
        if (!repaints) return;
        [canvas.width, canvas.height] = [Math.round(wide * dots), Math.round(high * dots)];
        setStyles(canvas, { width: `${wide}px`, height: `${high}px` });
        const pen = canvas.getContext("2d");
        if (!pen || isMissing) return;
        pen.fillStyle = "#808080";
        if (below) pen.drawImage(below, 0, 0);
        else pen.fillRect(0, 0, canvas.width, canvas.height);
        paintHeat(small, rows.map(layer, i), rows.grid, shade);
        pen.imageSmoothingEnabled = false;
        pen.drawImage(small, 0, 0, canvas.width, canvas.height);
      });
    },
  };
}
