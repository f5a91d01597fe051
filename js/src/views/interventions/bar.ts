/** The list of active interventions, each with a button to remove it; undo and clear all. */
import type { ViewContext } from "../../context.ts";
import { atEnd, h, on, setChildren, setText } from "../../dom.ts";
import { view } from "../base/view.ts";
import { release, specsOf, specWords } from "./list.ts";

export interface Bar {
  element: HTMLElement;
  show(): void;
}

/** `empty` is shown if nothing is active; "": the list is hidden then. */
export function createActiveList(ctx: ViewContext, signal: AbortSignal, empty: string): Bar {
  const title = h("b.active-count");
  const items = h("ol.active-list", { "aria-label": "active interventions" });
  const undo = h("button.button", { type: "button", title: "Undo the last one" }, "undo");
  const clear = h("button.button", { type: "button" }, "clear all");
  const announcement = h("div.sr", { role: "status" });
  const buttons = h("span.row", undo, clear);
  const note = h("div.line");
  const element = h("div.active-bar", title, items, buttons, note, announcement);
  let drawnKey = "[]";
  const refocus = (at: number): void => {
    const crosses = items.querySelectorAll("button");
    (crosses[Math.min(at, crosses.length - 1)] ?? undo).focus();
  };
  on(undo, signal, {
    click: () => ctx.selection.set({ interventions: specsOf(ctx).slice(0, -1) }),
  });
  on(clear, signal, { click: () => ctx.selection.set({ interventions: [] }) });
  on(items, signal, {
    click({ target }) {
      const at = [...items.children].findIndex((item) => item.lastElementChild?.contains(target as Node));
      const spec = specsOf(ctx)[at];
      if (!spec) return;
      release(ctx, spec);
      show();
      if (specsOf(ctx).length > 0) refocus(at);
    },
  });
  const show = (): void => {
    const words = specsOf(ctx).map((spec) => specWords(ctx, spec));
    const none = words.length === 0;
    element.hidden = none && !empty;
    buttons.hidden = items.hidden = title.hidden = none;
    clear.hidden = words.length < 2;
    setText(note, none ? empty : "");
    setText(title, words.length > 2 ? `changed (${words.length}):` : "changed:");
    const stateKey = JSON.stringify(words);
    if (stateKey === drawnKey) return;
    drawnKey = stateKey;
    setChildren(
      items,
      ...words.map((text) =>
        h(
          "li.active",
          h("span", text),
          h("button.active-cross", { type: "button", "aria-label": `remove: ${text}`, title: "Remove" }, "×"),
        ),
      ),
    );
    setText(announcement, none ? "no changes" : `changed: ${words.join("; ")}`);
  };
  return { element, show };
}

/** The top edge of the visible part of an element's surroundings, in px of the window. */
function edgeOf(el: Element): number {
  for (let at: Element | null = el; at; ) {
    const parent: Element | null = at.parentElement ?? (at.getRootNode() as ShadowRoot).host ?? null;
    const scrolls = parent && parent.scrollHeight > parent.clientHeight + 1;
    if (scrolls && /auto|scroll/.test(getComputedStyle(parent).overflowY)) {
      return Math.max(0, parent.getBoundingClientRect().top);
    }
    at = parent;
  }
  return 0;
}

/** Keep an element in view while any part of `host` is. Notebooks nest scrolling boxes, where CSS `sticky` fails. */
function keepInSight(el: HTMLElement, host: HTMLElement, signal: AbortSignal): void {
  let shift = 0;
  let frame = 0;
  const move = (): void => {
    frame = 0;
    if (el.hidden) return;
    const box = el.getBoundingClientRect();
    const natural = box.top - shift;
    const last = host.getBoundingClientRect().bottom - natural - box.height;
    shift = Math.max(0, Math.min(edgeOf(host) - natural, last));
    el.style.top = `${shift}px`;
  };
  const soon = (): void => {
    frame ||= requestAnimationFrame(move);
  };
  document.addEventListener("scroll", soon, { capture: true, passive: true, signal });
  atEnd(signal, () => cancelAnimationFrame(frame));
}

/** The list alone, hidden while nothing is active; it stays in view. */
export const renderActiveList = view((ctx, root, signal) => {
  keepInSight(root, ctx.el, signal);
  const bar = createActiveList(ctx, signal, "");
  root.role = "region";
  root.ariaLabel = "changes to the model";
  root.classList.add("aw-interventions");
  setChildren(root, bar.element);
  return () => {
    bar.show();
    root.hidden = Boolean(bar.element.hidden);
  };
});
