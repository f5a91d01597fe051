/** The picture beneath maps: the part of it that the model saw. */
import type { ViewContext } from "../../context.ts";
import type { PictureMedia } from "../../wire/mediaState.ts";
import { mediaOf, type ShownMedia } from "./media.ts";

/** The look of a picture beneath a map: less coloured and less bright; as in figures/parts/media.py. */
export const [GREY, DIM] = [0.9, 0.74];

export interface Picture {
  /** Height of the model's input as a share of its width; null where it is not available. */
  ratio(): number | null;
  /** Pixels of the model's input, rows and columns; null where they are not available. */
  seen(): readonly [number, number] | null;
  /** Draw the model's input unchanged; nothing before it has arrived. */
  draw(canvas: HTMLCanvasElement, width: number, height: number): void;
  /** The same as drawn beneath a map, cached for small pictures of this size; null before it has arrived. */
  dimmed(width: number, height: number): HTMLCanvasElement | null;
}

/** Read the picture of a view; `arrived` is called when it can be drawn. */
export function createPicture(ctx: ViewContext, arrived: () => void): Picture {
  let [image, media]: [ImageBitmap | null, PictureMedia | null] = [null, null];
  const canvases = new Map<string, HTMLCanvasElement>();
  const load = async (): Promise<void> => {
    const shown = (await mediaOf(ctx)) as ShownMedia<PictureMedia> | null;
    if (shown?.media.kind !== "picture" || !shown.buffers[0]) return;
    const bitmap = await createImageBitmap(new Blob([shown.buffers[0]], { type: "image/jpeg" }));
    if (ctx.signal.aborted) return;
    [image, media] = [bitmap, shown.media];
    arrived();
  };
  load().catch((error) => console.warn("attnwidgets: no picture", error));
  /** Where in the picture that was sent the model saw: left, top, width, height. */
  const part = (): [number, number, number, number] => {
    const { seen, scale, shift, size } = media as PictureMedia;
    if (!seen || !scale || !shift) return [0, 0, size[1], size[0]];
    return [shift[1], shift[0], scale[1] * seen[1], scale[0] * seen[0]];
  };
  const draw: Picture["draw"] = (canvas, width, height) => {
    [canvas.width, canvas.height] = [Math.max(1, width), Math.max(1, height)];
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.fillStyle = "#808080";
    pen.fillRect(0, 0, width, height);
    if (!image) return;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image, ...part(), 0, 0, width, height);
  };
  return {
    ratio() {
      if (!media) return null;
      const [, , wide, high] = part();
      return high / wide;
    },
    seen: () => media?.seen ?? null,
    draw,
    dimmed(width, height) {
      if (!image) return null;
      const name = `${width} ${height}`;
      let canvas = canvases.get(name);
      if (canvas) return canvas;
      canvas = document.createElement("canvas");
      draw(canvas, width, height);
      const pen = canvas.getContext("2d");
      const pixels = pen?.getImageData(0, 0, canvas.width, canvas.height);
      if (pen && pixels) {
        dim(pixels.data);
        pen.putImageData(pixels, 0, 0);
      }
      canvases.set(name, canvas);
      return canvas;
    },
  };
}

/** Take most of the colour and some of the light from RGBA pixels. */
export function dim(pixels: Uint8ClampedArray): void {
  for (let i = 0; i < pixels.length; i += 4) {
    const [r = 0, g = 0, b = 0] = pixels.subarray(i, i + 3);
    const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    for (const [j, channel] of [r, g, b].entries()) pixels[i + j] = DIM * (channel + GREY * (light - channel));
  }
}
