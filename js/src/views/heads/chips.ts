/**
 * A chip for each head: a click shows or hides it, a double click shows it alone, another double click shows all again.
 */
import { assign, h, keyboard, on, setChildren, setFlag, setStyles, setText } from "../../dom.ts";

export interface Chip {
  name: string;
  title: string;
  /** Empty: heads are not distinguished by colour. */
  colour: string;
  ink: string;
  on: boolean;
  /** The head that linked views show. */
  current: boolean;
}

export interface Chips {
  element: HTMLElement;
  show(chips: readonly Chip[]): void;
}

export interface ChipEvents {
  toggle(index: number): void;
  solo(index: number): void;
  all(): void;
  /** Called with the chip under the pointer or the focus; -1: none. */
  over(index: number): void;
}

export function createChips(signal: AbortSignal, events: ChipEvents): Chips {
  const list = h("span.hv-chips", { role: "group", "aria-label": "heads" });
  const all = h("button.button", { type: "button" }, "all");
  const element = h("div.hv-heads.inline", list, all);
  let buttons: HTMLButtonElement[] = [];
  /** The chip in the tab order. */
  let reached = 0;
  const chipIndex = (event: Event): number => buttons.findIndex((button) => button.contains(event.target as Node));
  const reach = (to: number): void => {
    reached = Math.max(0, Math.min(buttons.length - 1, to));
    buttons.forEach((button, i) => {
      button.tabIndex = i === reached ? 0 : -1;
    });
  };
  const step = (by: number) => (): void => {
    reach(reached + by);
    buttons[reached]?.focus();
  };
  const over = (event: Event): void => {
    const at = chipIndex(event);
    if (at < 0) return;
    if (event.type === "focusin") reach(at);
    events.over(at);
  };
  on(list, signal, {
    click(event) {
      const at = chipIndex(event);
      if (at >= 0) events.toggle(at);
    },
    dblclick(event) {
      const at = chipIndex(event);
      if (at >= 0) events.solo(at);
    },
    pointerover: over,
    pointerleave: () => events.over(-1),
    focusin: over,
    focusout: () => events.over(-1),
  });
  keyboard(list, signal, {
    ArrowLeft: step(-1),
    ArrowRight: step(1),
    ArrowUp: step(-1),
    ArrowDown: step(1),
    Home: step(-Infinity),
    End: step(Infinity),
    s: () => events.solo(reached),
    a: () => events.all(),
  });
  on(all, signal, { click: () => events.all() });
  return {
    element,
    show(chips) {
      if (buttons.length !== chips.length) {
        buttons = chips.map(() => h("button.chip.hv-chip", { type: "button" }));
        setChildren(list, ...buttons);
        reach(reached);
      }
      chips.forEach(({ name, title, colour, ink, on: shown, current }, i) => {
        const button = buttons[i] as HTMLButtonElement;
        setText(button, name);
        assign(button, { title, ariaLabel: title, ariaPressed: String(shown) });
        setFlag(button, "data-current", current);
        setStyles(button, { "--aw-colour": colour || "var(--aw-accent)", "--aw-on": ink || "var(--aw-back)" });
      });
      all.disabled = chips.every((chip) => chip.on);
    },
  };
}
