/** A view as an image: an SVG that contains the elements of the view, or the same drawn as PNG. */
import { density } from "./dom.ts";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 8;
const INHERITED = ["color", "font-family", "font-size", "line-height"];

/** The background colour behind an element. */
function backdrop(el: Element): string {
  for (let at: Element | null = el; at; at = at.parentElement ?? ((at.getRootNode() as ShadowRoot).host as Element)) {
    const { backgroundColor } = getComputedStyle(at);
    if (backgroundColor && !/^(transparent|rgba\(.*, 0\))$/.test(backgroundColor)) return backgroundColor;
  }
  return "Canvas";
}

/** Copy the state that cloning an element loses: canvases, input values and scroll positions. */
function copyState(from: Element, to: Element): void {
  const [old, copies] = [from.querySelectorAll("*"), to.querySelectorAll<HTMLElement>("*")];
  old.forEach((original, i) => {
    const copy = copies[i];
    if (!copy) return;
    // A clone starts at the top.
    if (original.scrollTop) (copy.firstElementChild as HTMLElement).style.marginTop = `${-original.scrollTop}px`;
    if (original instanceof HTMLCanvasElement) {
      const image = document.createElement("img");
      for (const { name, value } of original.attributes) image.setAttribute(name, value);
      image.src = original.toDataURL();
      const box = getComputedStyle(original);
      image.style.width = box.width;
      image.style.height = box.height;
      copy.replaceWith(image);
    } else if (original instanceof HTMLInputElement) {
      copy.setAttribute("value", original.value);
      copy.toggleAttribute("checked", original.checked);
    } else if (original instanceof HTMLSelectElement) {
      for (const [j, option] of [...copy.children].entries())
        option.toggleAttribute("selected", j === original.selectedIndex);
    }
  });
}

/** The height of a copy that is not in the page: that of its original. */
function heightOf(copy: HTMLElement, original: HTMLElement): number {
  const stage = document.createElement("div");
  Object.assign(stage.style, { position: "fixed", visibility: "hidden", left: "0", top: "0" });
  stage.inert = true;
  const twin = copy.cloneNode(true);
  stage.append(twin);
  original.parentElement?.append(stage);
  const { height } = (twin as HTMLElement).getBoundingClientRect();
  stage.remove();
  return height;
}

/** The text of an SVG file with this style, without the elements that match `without`. */
export function toSvg(root: HTMLElement, css: string, without: string): string {
  const { width } = root.getBoundingClientRect();
  const copy = root.cloneNode(true) as HTMLElement;
  copyState(root, copy);
  for (const el of copy.querySelectorAll(`${without}, [hidden], .aw-sr`)) el.remove();
  const computed = getComputedStyle(root);
  // The file cannot access the page's colours and fonts: store their current values.
  for (const name of new Set(css.match(/--(?:aw|jp|vscode)-[\w-]+/g))) {
    const value = computed.getPropertyValue(name);
    if (value) copy.style.setProperty(name, value);
  }
  for (const name of INHERITED) copy.style.setProperty(name, computed.getPropertyValue(name));
  Object.assign(copy.style, { width: `${width}px`, height: "auto" });
  const height = heightOf(copy, root);
  const style = document.createElement("style");
  style.textContent = css;
  const page = document.createElement("div");
  page.style.padding = `${MARGIN}px`;
  page.append(style, copy);
  const svg = document.createElementNS(SVG, "svg");
  const [w, h] = [Math.ceil(width) + 2 * MARGIN, Math.ceil(height) + 2 * MARGIN];
  for (const [name, value] of Object.entries({ width: w, height: h, viewBox: `0 0 ${w} ${h}` })) {
    svg.setAttribute(name, String(value));
  }
  svg.style.background = backdrop(root);
  const inside = document.createElementNS(SVG, "foreignObject");
  inside.setAttribute("width", "100%");
  inside.setAttribute("height", "100%");
  inside.append(page);
  svg.append(inside);
  return new XMLSerializer().serializeToString(svg);
}

/** The same as PNG, at least at twice the size. */
export async function toPng(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = Math.max(2, density());
  const canvas = document.createElement("canvas");
  canvas.width = image.width * scale;
  canvas.height = image.height * scale;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("the picture is too large for this browser")))),
  );
}

/** Offer a file for download. */
export function download(name: string, data: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
