/** Elements of SVG pictures. */
const NAMESPACE = "http://www.w3.org/2000/svg";

/** An element with attributes; text is set as text. */
export function svg(tag: string, attributes: Record<string, string | number> = {}, text = ""): SVGElement {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}
