/**
 * Colour behind running text: canvases under chunks of spans. The boxes of the spans are measured once and
 * again only when the strip changes its size, so a change of colour costs no layout. Texts above
 * `LAZY_ABOVE` elements are measured and painted chunk by chunk as they come into sight.
 */

import { atEnd, density, h, onResize } from "../dom.ts";

export const LAZY_ABOVE = 2048;
export const CHUNK = 1024;
/** Longest side of a canvas that every browser takes. */
const LONGEST = 16000;

/** A run of elements whose boxes share one canvas. */
export interface Chunk {
  /** Inline element around the run: what is watched for coming into sight. */
  holder: HTMLElement;
  spans: HTMLElement[];
  /** Index of the first element. */
  start: number;
}

interface Sheet extends Chunk {
  canvas: HTMLCanvasElement;
  /** x, y, width, height of every box, relative to the canvas. */
  boxes: Float32Array;
  owners: Uint32Array;
  scale: number;
  measured: boolean;
  visible: boolean;
}

export interface Underlay {
  /**
   * Colours every element with the CSS colour `shade` gives for its index ("" for none): behind it, or (`line`) below it;
   * `edge` gives the width of a line of its text's colour around it.
   */
  paint(shade: (index: number) => string, line?: boolean, edge?: (index: number) => number): void;
}

/** Puts one canvas for each chunk into `layer`, which lies under the text of `strip`. Dies with `signal`. */
export function createUnderlay(
  strip: HTMLElement,
  layer: HTMLElement,
  chunks: readonly Chunk[],
  signal: AbortSignal,
): Underlay {
  let paints: Paints = { shade: () => "", line: false, edge: () => 0 };
  let size = "";
  let frame = 0;
  const count = chunks.reduce((n, chunk) => n + chunk.spans.length, 0);
  const lazy = count > LAZY_ABOVE;
  const sheets = chunks.map((chunk): Sheet => {
    const canvas = h("canvas");
    layer.append(canvas);
    const empty = { boxes: new Float32Array(0), owners: new Uint32Array(0), scale: 1 };
    return { ...chunk, canvas, ...empty, measured: false, visible: !lazy };
  });

  const draw = (): void => {
    const shown = sheets.filter((sheet) => sheet.visible);
    // All reading of layout comes before all writing.
    const stale = shown.filter((sheet) => !sheet.measured);
    if (stale.length > 0) {
      const origin = strip.getBoundingClientRect();
      if (origin.width === 0) return;
      const areas = stale.map((sheet) => measure(sheet, origin));
      for (const [i, sheet] of stale.entries()) position(sheet, areas[i] as Area);
    }
    for (const sheet of shown) fill(sheet, paints, getComputedStyle(strip).color);
  };
  const later = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  // Only widths and heights of the strip itself are watched; canvases lie outside the flow, so nothing feeds back.
  const look = (box: DOMRectReadOnly): void => {
    const now = `${Math.round(box.width)}x${Math.round(box.height)}`;
    if (now === size) return;
    size = now;
    for (const sheet of sheets) sheet.measured = false;
    later();
  };
  onResize(strip, look, signal);
  if (lazy) {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          const sheet = sheets.find((s) => s.holder === entry.target);
          if (sheet) sheet.visible = entry.isIntersecting;
        }
        later();
      },
      { rootMargin: "300px 0px" },
    );
    for (const sheet of sheets) seen.observe(sheet.holder);
    atEnd(signal, () => seen.disconnect());
  }
  atEnd(signal, () => cancelAnimationFrame(frame));
  return {
    paint(shade, line = false, edge = () => 0) {
      paints = { shade, line, edge };
      draw();
    },
  };
}

interface Paints {
  shade(index: number): string;
  line: boolean;
  edge(index: number): number;
}

const LINE = 4;

function fill({ canvas, boxes, owners, scale }: Sheet, { shade, line, edge }: Paints, ink: string): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (const [i, owner] of owners.entries()) {
    const colour = shade(owner);
    const around = edge(owner);
    if (!colour && !around) continue;
    const at = 4 * i;
    const [x, y] = [boxes[at] as number, boxes[at + 1] as number];
    const [width, height] = [boxes[at + 2] as number, boxes[at + 3] as number];
    if (colour) {
      const high = line ? LINE : height;
      pen.fillStyle = colour;
      pen.beginPath();
      pen.roundRect(x + 0.5, y + height - high, Math.max(1, width - 1), high, Math.min(3, high / 2));
      pen.fill();
    }
    if (around) {
      pen.strokeStyle = ink;
      pen.lineWidth = around;
      pen.strokeRect(x + around / 2, y + around / 2, Math.max(1, width - around), height - around);
    }
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
}
