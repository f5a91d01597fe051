/** The list of what is active, each with a cross; undo and clear all. */
import type { ViewContext } from "../../context.ts";
import { fill, h, on, put } from "../../dom.ts";
import { view } from "../frame.ts";
import { release, wiresOf, wireWords } from "./list.ts";

export interface Bar {
  element: HTMLElement;
  show(): void;
}

/** `empty` is said where nothing is active; "": the list is hidden then. */
export function createBar(ctx: ViewContext, signal: AbortSignal, empty: string): Bar {
  const title = h("b.wire-count");
  const items = h("ol.wire-list", { "aria-label": "active interventions" });
  const undo = h("button.button", { type: "button", title: "Take the last one back" }, "undo");
  const clear = h("button.button", { type: "button" }, "clear all");
  const said = h("div.sr", { role: "status" });
  const buttons = h("span.row", undo, clear);
  const note = h("div.line");
  const element = h("div.wire-bar", title, items, buttons, note, said);
  let drawn = "[]";
  const refocus = (at: number): void => {
    const crosses = items.querySelectorAll("button");
    (crosses[Math.min(at, crosses.length - 1)] ?? undo).focus();
  };
  on(undo, signal, {
    click: () => ctx.selection.set({ interventions: wiresOf(ctx).slice(0, -1) }),
  });
  on(clear, signal, { click: () => ctx.selection.set({ interventions: [] }) });
  on(items, signal, {
    click({ target }) {
      const at = [...items.children].findIndex((item) => item.lastElementChild?.contains(target as Node));
      const wire = wiresOf(ctx)[at];
      if (!wire) return;
      release(ctx, wire);
      show();
      if (wiresOf(ctx).length > 0) refocus(at);
    },
  });
  const show = (): void => {
    const words = wiresOf(ctx).map((wire) => wireWords(ctx, wire));
    const none = words.length === 0;
    element.hidden = none && !empty;
    buttons.hidden = items.hidden = title.hidden = none;
    clear.hidden = words.length < 2;
    put(note, none ? empty : "");
    put(title, "changed:");
    const look = JSON.stringify(words);
    if (look === drawn) return;
    drawn = look;
    fill(
      items,
      ...words.map((text) =>
        h(
          "li.wire",
          h("span", text),
          h("button.wire-cross", { type: "button", "aria-label": `take back: ${text}`, title: "Take back" }, "×"),
        ),
      ),
    );
    put(said, none ? "nothing is changed" : `changed: ${words.join("; ")}`);
  };
  return { element, show };
}

/** The list alone, hidden while nothing is active. */
export const renderWireList = view((ctx, root, signal) => {
  const bar = createBar(ctx, signal, "");
  root.role = "region";
  root.ariaLabel = "what is changed in the model";
  root.classList.add("aw-wires");
  fill(root, bar.element);
  return () => {
    bar.show();
    root.hidden = Boolean(bar.element.hidden);
  };
});
