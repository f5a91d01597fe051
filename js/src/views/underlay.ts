/**
 * Colour behind running text: canvases under chunks of spans. The boxes of the spans are measured once and
 * again only when the strip changes its size, so a change of colour costs no layout. Texts above
 * `LAZY_ABOVE` elements are measured and painted chunk by chunk as they come into sight.
 */

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

export class Underlay {
  readonly #sheets: Sheet[];
  readonly #strip: HTMLElement;
  #shade: (index: number) => string = () => "";
  #size = "";
  #frame = 0;

  /** Puts one canvas for each chunk into `layer`, which lies under the text of `strip`. Dies with `signal`. */
  constructor(strip: HTMLElement, layer: HTMLElement, chunks: readonly Chunk[], signal: AbortSignal) {
    this.#strip = strip;
    const count = chunks.reduce((n, chunk) => n + chunk.spans.length, 0);
    const lazy = count > LAZY_ABOVE && typeof IntersectionObserver === "function";
    this.#sheets = chunks.map((chunk) => {
      const canvas = strip.ownerDocument.createElement("canvas");
      layer.append(canvas);
      const empty = { boxes: new Float32Array(0), owners: new Uint32Array(0), scale: 1 };
      return { ...chunk, canvas, ...empty, measured: false, visible: !lazy };
    });
    // Only widths and heights of the strip itself are watched; canvases lie outside the flow, so nothing feeds back.
    const resized = new ResizeObserver((entries) => {
      const box = entries[entries.length - 1]?.contentRect;
      const size = `${Math.round(box?.width ?? 0)}x${Math.round(box?.height ?? 0)}`;
      if (size === this.#size) return;
      this.#size = size;
      this.remeasure();
    });
    resized.observe(strip);
    const seen = lazy
      ? new IntersectionObserver(
          (entries) => {
            for (const entry of entries) {
              const sheet = this.#sheets.find((s) => s.holder === entry.target);
              if (sheet) sheet.visible = entry.isIntersecting;
            }
            this.#later();
          },
          { rootMargin: "300px 0px" },
        )
      : null;
    for (const sheet of this.#sheets) seen?.observe(sheet.holder);
    signal.addEventListener("abort", () => {
      resized.disconnect();
      seen?.disconnect();
      cancelAnimationFrame(this.#frame);
    });
  }

  /** Colours every element with the CSS colour `shade` gives for its index ("" for none). */
  paint(shade: (index: number) => string): void {
    this.#shade = shade;
    this.#draw();
  }

  /** Measures again before the next frame, as after a change of width or fonts. */
  remeasure(): void {
    for (const sheet of this.#sheets) sheet.measured = false;
    this.#later();
  }

  #later(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #draw(): void {
    const shown = this.#sheets.filter((sheet) => sheet.visible);
    // All reading of layout comes before all writing.
    const stale = shown.filter((sheet) => !sheet.measured);
    if (stale.length > 0) {
      const origin = this.#strip.getBoundingClientRect();
      if (origin.width === 0) return;
      const areas = stale.map((sheet) => measure(sheet, origin));
      for (const [i, sheet] of stale.entries()) place(sheet, areas[i] as Area);
    }
    for (const sheet of shown) this.#fill(sheet);
  }

  #fill(sheet: Sheet): void {
    const pen = sheet.canvas.getContext("2d");
    if (!pen) return;
    const { boxes, owners, scale } = sheet;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, sheet.canvas.width, sheet.canvas.height);
    for (let i = 0; i < owners.length; i += 1) {
      const colour = this.#shade(owners[i] as number);
      if (colour === "") continue;
      pen.fillStyle = colour;
      pen.beginPath();
      pen.roundRect(
        (boxes[4 * i] as number) + 0.5,
        boxes[4 * i + 1] as number,
        Math.max(1, (boxes[4 * i + 2] as number) - 1),
        boxes[4 * i + 3] as number,
        3,
      );
      pen.fill();
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

function place(sheet: Sheet, area: Area): void {
  const { canvas } = sheet;
  const density = globalThis.devicePixelRatio || 1;
  sheet.scale = Math.min(density, LONGEST / area.height, LONGEST / area.width);
  canvas.width = Math.max(1, Math.round(area.width * sheet.scale));
  canvas.height = Math.max(1, Math.round(area.height * sheet.scale));
  canvas.style.left = `${area.x}px`;
  canvas.style.top = `${area.y}px`;
  canvas.style.width = `${area.width}px`;
  canvas.style.height = `${area.height}px`;
}
