/**
 * Panels in the top layer of the page, next to the element that they belong to: nothing clips or covers them, and the
 * browser closes them. They are positioned by script, not by anchors of the style sheet: with `position-try-fallbacks`,
 * WebKit 2.50 (Safari 26) lays out a page without an end.
 */
import { h, on, onResize } from "../../dom.ts";

/** Space in px around a panel. */
const GAP = 4;

/** A name for an element's id. */
export const uniqueName = (): string => `aw-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;

/** Whether a panel is open. */
export const isOpen = (panel: HTMLElement): boolean => panel.matches(":popover-open");

/** Where a panel of this size starts along an axis: after `start`–`end` if it fits there, else before, else inside. */
export function besideIn(room: number, start: number, end: number, size: number): number {
  if (end + GAP + size <= room) return end + GAP;
  return start - GAP >= size ? start - GAP - size : Math.max(0, room - size);
}

/** Position a panel next to `el` when it opens, and whenever either moves or grows. */
export function anchor(panel: HTMLElement, el: HTMLElement, signal: AbortSignal): void {
  const reposition = (): void => {
    if (!isOpen(panel)) return;
    panel.style.inset = "0 auto auto 0"; // its width depends on where it is
    const { left, top, bottom } = el.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    // Inside the view, if that is wide enough, and always inside the page.
    const { right = clientWidth } = el.closest(".aw-root")?.getBoundingClientRect() ?? {};
    const x = Math.max(0, Math.min(left, clientWidth - panel.offsetWidth, right - panel.offsetWidth));
    panel.style.inset = `${besideIn(clientHeight, top, bottom, panel.offsetHeight)}px auto auto ${x}px`;
  };
  onResize(panel, signal, reposition);
  on(window, signal, { resize: reposition });
  window.addEventListener("scroll", reposition, { capture: true, passive: true, signal });
}

/**
 * Open and close a panel by a button. A click elsewhere and Escape close it as well, and the focus returns to the
 * button. `opening` runs just before it opens.
 */
export function createPopover(
  button: HTMLButtonElement,
  panel: HTMLElement,
  signal: AbortSignal,
  opening: () => void,
): void {
  panel.popover = "auto";
  button.popoverTargetElement = panel;
  button.ariaExpanded = "false";
  anchor(panel, button, signal);
  on(panel, signal, {
    beforetoggle({ newState }) {
      button.ariaExpanded = String(newState === "open");
      if (newState === "open") opening();
    },
  });
}

/** Milliseconds that the pointer or the focus rests on an element before its tip appears. */
const RESTS_MS = 400;

/** Describe an element: for screen readers, and in a tip under the pointer or the keyboard's focus. */
export function tip(el: HTMLElement, text: string, signal: AbortSignal): void {
  const panel = h("div.tip", { "aria-hidden": "true" }, text);
  panel.popover = "manual"; // it must not close the menu that it explains
  el.ariaDescription = text;
  anchor(panel, el, signal);
  let resting: ReturnType<typeof setTimeout> | undefined;
  const hide = (): void => {
    clearTimeout(resting);
    panel.remove();
  };
  const show = (): void => {
    if (signal.aborted || !el.isConnected) return;
    el.after(panel);
    panel.showPopover();
  };
  signal.addEventListener("abort", hide);
  const soon = (): void => {
    clearTimeout(resting);
    resting = setTimeout(show, RESTS_MS);
  };
  on(el, signal, {
    pointerenter: soon,
    focus: () => el.matches(":focus-visible") && soon(),
    pointerleave: hide,
    pointerdown: hide,
    blur: hide,
    keydown: hide,
  });
}
