/**
 * Colour behind running text: canvases under chunks of spans. The boxes of the spans are measured only when the strip
 * changes its size, so recolouring needs no layout. Of a text of several chunks only the visible ones are measured and
 * painted: most of a long text is scrolled away.
 */

import { atEnd, density, h, onResize, setFlag } from "../../dom.ts";
import { type Fill, NOTHING } from "./stripColour.ts";

export const CHUNK = 64;
/** How far from sight, inside the box that scrolls the text, a chunk is painted already. */
const NEAR = "100px 0px";
/** The largest side of a canvas that every browser supports. */
const LONGEST = 16000;

/** A run of elements whose boxes share a canvas. */
export interface Chunk {
  /** The inline element around the run, observed for scrolling into view. */
  holder: HTMLElement;
  spans: HTMLElement[];
  /** Index of the first element. */
  start: number;
}

interface Sheet extends Chunk {
  canvas: HTMLCanvasElement;
  /** x, y, width, height of every box, relative to the canvas. */
  boxes: Float32Array;
  /** The same in whole pixels of the canvas: boxes do not overlap, and rounded corners are inside. */
  cells: Uint16Array;
  owners: Uint32Array;
  scale: number;
  measured: boolean;
  /** 1 for every element whose text is flipped. */
  flipped: Uint8Array;
  visible: boolean;
  /** The mask of the coloured shapes: drawn once per `look`, so that recolouring only draws rectangles. */
  mask: HTMLCanvasElement;
  look: string;
}

export interface Underlay {
  /**
   * Fills the box behind every element, or a line (`line`) below it, and flips the text over dark fills; `edge`, if
   * given, returns the width of an outline in its text colour.
   */
  paint(fill: (index: number) => Fill, line?: boolean, edge?: ((index: number) => number) | undefined): void;
}

/** Creates a canvas per chunk in `layer`, which is under the text of `strip`. Ends with `signal`. */
export function createUnderlay(
  strip: HTMLElement,
  layer: HTMLElement,
  chunks: readonly Chunk[],
  signal: AbortSignal,
): Underlay {
  let paints: Paints = { fill: () => NOTHING, line: false, edge: undefined };
  let size = "";
  let isMeasurable = false;
  let frame = 0;
  const sheets = chunks.map((chunk, i): Sheet => {
    const [canvas, mask] = [h("canvas"), h("canvas")];
    layer.append(canvas);
    const empty = { boxes: new Float32Array(0), cells: new Uint16Array(0), owners: new Uint32Array(0), scale: 1 };
    const flipped = new Uint8Array(chunk.spans.length);
    return { ...chunk, canvas, mask, look: "", ...empty, measured: false, flipped, visible: i === 0 };
  });

  const draw = (): void => {
    const shown = sheets.filter((sheet) => sheet.visible);
    // Read all layout before writing any.
    const stale = shown.filter((sheet) => !sheet.measured);
    if (stale.length > 0) {
      const origin = strip.getBoundingClientRect();
      if (origin.width === 0) return;
      const areas = stale.map((sheet) => measure(sheet, origin));
      for (const [i, sheet] of stale.entries()) position(sheet, areas[i] as Area);
    }
    for (const sheet of shown) {
      const { line, fill: fillOf } = paints;
      const fills = sheet.spans.map((_, i) => fillOf(sheet.start + i));
      fill(sheet, fills, line);
      flip(sheet, fills, line);
    }
    // Read the page's colour only if an outline needs it: that forces layout.
    if (paints.edge) for (const sheet of shown) outline(sheet, paints.edge);
  };
  const later = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  // Only the size of the strip is observed; canvases are out of the flow, which prevents feedback.
  const resized = (box: DOMRectReadOnly): void => {
    const now = `${Math.round(box.width)}x${Math.round(box.height)}`;
    if (now === size) return;
    size = now;
    isMeasurable = box.width > 0;
    for (const sheet of sheets) sheet.measured = false;
    // The page is laid out just now, and not yet painted.
    draw();
  };
  onResize(strip, signal, resized);
  if (sheets.length > 1) {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          const sheet = sheets.find((s) => s.holder === entry.target);
          if (sheet) sheet.visible = entry.isIntersecting;
        }
        later();
      },
      { rootMargin: "300px 0px", scrollMargin: NEAR },
    );
    for (const sheet of sheets) seen.observe(sheet.holder);
    atEnd(signal, () => seen.disconnect());
  }
  atEnd(signal, () => cancelAnimationFrame(frame));
  return {
    paint(fill, line = false, edge = undefined) {
      paints = { fill, line, edge };
      // Before the page knows the size of the strip, measuring would force it to lay out all of the view once more.
      if (isMeasurable) draw();
    },
  };
}

interface Paints {
  fill(index: number): Fill;
  line: boolean;
  edge: ((index: number) => number) | undefined;
}

const LINE = 4;

/** The mask through which colour is visible. */
function cut({ canvas, mask, boxes, scale }: Sheet, line: boolean): void {
  // Setting the size clears the canvas.
  [mask.width, mask.height] = [canvas.width, canvas.height];
  const pen = mask.getContext("2d");
  if (!pen) return;
  pen.scale(scale, scale);
  pen.beginPath();
  for (let i = 0; i < boxes.length; i += 4) {
    const [x, y] = [boxes[i] as number, boxes[i + 1] as number];
    const [width, height] = [boxes[i + 2] as number, boxes[i + 3] as number];
    const high = line ? LINE : height;
    pen.roundRect(x + 0.5, y + height - high, Math.max(1, width - 1), high, Math.min(3, high / 2));
  }
  pen.fill();
}

/** Flips the text of the elements whose fill crossed from pale to dark, or back. */
function flip({ spans, flipped }: Sheet, fills: readonly Fill[], line: boolean): void {
  for (let i = 0; i < spans.length; i += 1) {
    const flips = Number(!line && fills[i]?.flips);
    if (flips === flipped[i]) continue;
    flipped[i] = flips;
    setFlag(spans[i] as HTMLElement, "data-flip", !!flips);
  }
}

function fill(sheet: Sheet, fills: readonly Fill[], line: boolean): void {
  const { canvas, mask, cells, owners, start } = sheet;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const shapeKey = String(line);
  if (sheet.look !== shapeKey) {
    sheet.look = shapeKey;
    cut(sheet, line);
  }
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  let last = "";
  for (let i = 0; i < owners.length; i += 1) {
    const css = fills[(owners[i] as number) - start]?.css;
    if (!css) continue;
    if (css !== last) pen.fillStyle = css;
    last = css;
    const at = 4 * i;
    pen.fillRect(cells[at] as number, cells[at + 1] as number, cells[at + 2] as number, cells[at + 3] as number);
  }
  pen.globalCompositeOperation = "destination-in";
  pen.drawImage(mask, 0, 0);
  pen.globalCompositeOperation = "source-over";
}

/** Outlines of elements. */
function outline(sheet: Sheet, edge: (index: number) => number): void {
  const { canvas, boxes, owners, scale, spans, start } = sheet;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  for (let i = 0; i < owners.length; i += 1) {
    const lineWidth = edge(owners[i] as number);
    if (!lineWidth) continue;
    const at = 4 * i;
    const [x, y] = [boxes[at] as number, boxes[at + 1] as number];
    const [width, height] = [boxes[at + 2] as number, boxes[at + 3] as number];
    pen.strokeStyle = getComputedStyle(spans[(owners[i] as number) - start] as HTMLElement).color;
    pen.lineWidth = lineWidth;
    pen.strokeRect(x + lineWidth / 2, y + lineWidth / 2, Math.max(1, width - lineWidth), height - lineWidth);
  }
}

interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

function measure(sheet: Sheet, origin: DOMRect): Area {
  const boxes: number[] = [];
  const owners: number[] = [];
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  sheet.spans.forEach((span, i) => {
    for (const box of span.getClientRects()) {
      if (box.width === 0) continue;
      const [x, y] = [box.left - origin.left, box.top - origin.top];
      boxes.push(x, y, box.width, box.height);
      owners.push(sheet.start + i);
      [left, top] = [Math.min(left, x), Math.min(top, y)];
      [right, bottom] = [Math.max(right, x + box.width), Math.max(bottom, y + box.height)];
    }
  });
  if (owners.length === 0) [left, top, right, bottom] = [0, 0, 0, 0];
  [left, top] = [Math.floor(left), Math.floor(top)];
  for (let i = 0; i < boxes.length; i += 4) {
    boxes[i] = (boxes[i] as number) - left;
    boxes[i + 1] = (boxes[i + 1] as number) - top;
  }
  sheet.boxes = Float32Array.from(boxes);
  sheet.owners = Uint32Array.from(owners);
  sheet.measured = true;
  return { x: left, y: top, width: Math.ceil(right - left) + 1, height: Math.ceil(bottom - top) + 1 };
}

function position(sheet: Sheet, area: Area): void {
  const { canvas } = sheet;
  const { x, y, width, height } = area;
  sheet.scale = Math.min(density(), LONGEST / height, LONGEST / width);
  canvas.width = Math.max(1, Math.round(width * sheet.scale));
  canvas.height = Math.max(1, Math.round(height * sheet.scale));
  canvas.style.cssText = `left: ${x}px; top: ${y}px; width: ${width}px; height: ${height}px`;
  sheet.look = "";
  sheet.cells = new Uint16Array(sheet.boxes.length);
  for (let i = 0; i < sheet.boxes.length; i += 4) {
    const [left = 0, top = 0, wide = 0, high = 0] = sheet.boxes.subarray(i, i + 4).map((px) => px * sheet.scale);
    const [from, to] = [Math.round(left), Math.round(left + wide)];
    const [above, below] = [Math.floor(top), Math.ceil(top + high)];
    sheet.cells.set([from, above, to - from, below - above], i);
  }
}
