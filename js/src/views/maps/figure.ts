/** A matrix on the page: its canvas, its overlays, and the labels beside it. */
import { assign, h, setSizes } from "../../dom.ts";
import type { Axis } from "../../wire/wire.ts";
import { createCrosshair } from "./crosshair.ts";
import { createLabels, labelRoom } from "./labels.ts";
import { fit, type Size } from "./size.ts";

type Side = Pick<Axis, "labels" | "special">;

/** `what` is its role description; `over` are overlays. */
export function createFigure(what: string, ...over: HTMLElement[]) {
  const [left, top] = [createLabels("left"), createLabels("top")];
  const canvas = h("canvas.cells");
  const crosshair = createCrosshair();
  const role = { tabindex: "0", role: "application", "aria-roledescription": what };
  const plot = h("div.plot", role, canvas, ...crosshair.elements, ...over);
  const element = h("div.figure", h("i"), top.element, left.element, plot);
  return {
    element,
    plot,
    canvas,
    crosshair,
    left,
    top,
    /** Lay out sizes and labels for a width of `width` px. */
    layout(query: Side, key: Side, width: number): Size {
      const style = getComputedStyle(left.element);
      const font = `${style.fontSize} ${style.fontFamily}`;
      const [rows, cols] = [query.labels.length, key.labels.length];
      const cell = fit(rows, cols, width).cellHeight;
      const leftRoom = labelRoom(query.labels, cell, font, Math.min(132, Math.floor(width * 0.28)));
      const size = fit(rows, cols, width - leftRoom - 2);
      const topRoom = labelRoom(key.labels, size.cellWidth, font, 110);
      left.layout({ ...query, cell: size.cellHeight, room: leftRoom });
      top.layout({ ...key, cell: size.cellWidth, room: topRoom });
      const above = top.flat() ? 18 : topRoom;
      setSizes(element, { left: leftRoom, top: above, width: size.width, height: size.height });
      return size;
    },
    /** Draw an image on the canvas. */
    show(image: ImageData): void {
      // Setting a size reallocates the canvas, even if it is the same.
      assign(canvas, { width: image.width, height: image.height });
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    },
  };
}
