/** Elements of SVG pictures. */
const NAMESPACE = "http://www.w3.org/2000/svg";

type Attributes = Record<string, string | number>;

/** Set attributes of an element. */
export function setAttributes<E extends Element>(element: E, attributes: Attributes): E {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** An element with attributes and, optionally, text. */
export function svg(tag: string, attributes: Attributes = {}, text = ""): SVGElement {
  const element = setAttributes(document.createElementNS(NAMESPACE, tag) as SVGElement, attributes);
  if (text) element.textContent = text;
  return element;
}

/** A drawing of a single path, in a box from 0, 0 to `size`; hidden from screen readers. */
export function drawing(path: string, size = "12 12"): SVGElement {
  const element = svg("svg", { viewBox: `0 0 ${size}`, "aria-hidden": "true" });
  element.append(svg("path", { d: path }));
  return element;
}

/** A straight line between two points. */
export const rule = (x1: number, y1: number, x2: number, y2: number, attributes: Attributes = {}): SVGElement =>
  svg("line", { ...attributes, x1, x2, y1, y2 });
