/** Write to the clipboard, by the older way where a page may not use the new interface. */
import { h } from "../../dom.ts";

/** Write to the clipboard; returns whether the page was allowed to. The focus stays within `container` meanwhile. */
export async function toClipboard(text: string, container: Element = document.body): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writeSelected(text, container);
  }
}

/** The way of writing before there was a clipboard interface. */
function writeSelected(text: string, container: Element): boolean {
  const focused = document.activeElement as HTMLElement | null;
  const area = h("textarea", { "aria-hidden": "true", tabindex: "-1" });
  area.value = text;
  area.style.cssText = "position: fixed; opacity: 0; inset: 0 auto auto 0;";
  container.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
    focused?.focus();
  }
}
