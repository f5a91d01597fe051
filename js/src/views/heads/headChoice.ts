/** Which heads of the layer a HeadView shows: the current head, or several, chosen by their chips. */
import type { Change, ViewContext } from "../../context.ts";
import { assign, h, on } from "../../dom.ts";
import type { HeadViewOptions } from "../../wire/viewState.ts";
import type { HeadKey } from "../../wire/wire.ts";
import { headAddress } from "../base/navigation.ts";
import { createChips } from "./chips.ts";
import { headColour, headInk } from "./colours.ts";

export interface HeadChoice {
  /** The button that shows several heads. */
  button: HTMLElement;
  chips: HTMLElement;
  /** The heads that are shown now. */
  gather(changed: ReadonlySet<Change>): readonly HeadKey[];
  /** Whether several heads may be shown. */
  several(): boolean;
  /** Index among the shown heads of the hovered chip; -1: none. */
  over(): number;
  show(): void;
}

/** `keep` changes the options; `changed` is called when another chip is pointed at. */
export function createHeadChoice(
  ctx: ViewContext,
  signal: AbortSignal,
  keep: (values: Partial<HeadViewOptions>) => void,
  changed: () => void,
): HeadChoice {
  const { selection } = ctx;
  const button = h("button.button", { type: "button", title: "Show several heads of the layer at once" }, "several");
  let heads: readonly HeadKey[] = [];
  /** Whether a single head is shown. */
  let alone = false;
  let over = -1;

  const chosen = (): readonly number[] | null => (ctx.options as HeadViewOptions).heads;
  const several = (): boolean => chosen() !== null && ctx.source().heads !== null;
  const choose = (shown: (head: number, index: number) => boolean, isAlone = false): void => {
    alone = isAlone;
    const all = ctx.source().heads ?? [];
    keep({ heads: all.filter(shown) });
  };
  const chips = createChips(signal, {
    toggle: (at) => choose((head, index) => heads.includes(head) !== (index === at)),
    solo(at) {
      const head = ctx.source().heads?.[at];
      if (head === undefined) return;
      const again = heads.length === 1 && heads[0] === head;
      choose((_, index) => again || index === at, !again);
      if (!again) selection.set({ head });
    },
    all: () => choose(() => true),
    over(at) {
      over = heads.indexOf(ctx.source().heads?.[at] ?? "-");
      changed();
    },
  });
  on(button, signal, {
    click() {
      const { head, source } = ctx.resolved();
      keep({ heads: chosen() ? null : [typeof head === "number" ? head : (source.heads?.[0] ?? 0)] });
    },
  });
  return {
    button,
    chips: chips.element,
    gather(changes) {
      const { source, head } = ctx.resolved();
      const all: HeadKey[] = source.heads ?? ["-"];
      // If only a single head is shown, linked views show it as well.
      const current = selection.get("head");
      if (alone && changes.has("head") && all.includes(current) && !heads.includes(current)) {
        keep({ heads: [current as number] });
      }
      const now = chosen();
      if (!source.heads) heads = all;
      else heads = now ? all.filter((index) => now.includes(index as number)) : [head];
      return heads;
    },
    several,
    over: () => over,
    show() {
      const { source, layer } = ctx.resolved();
      assign(button, { hidden: (source.heads?.length ?? 0) < 2, ariaPressed: String(several()) });
      assign(chips.element, { hidden: !several() });
      if (!several()) return;
      const current = selection.get("head");
      chips.show(
        (source.heads ?? []).map((head, index) => {
          const colour = source.signed ? "" : headColour(index, ctx.theme);
          return {
            name: ctx.headName(head),
            title: `head ${headAddress(ctx, layer, head)}: click shows or hides it, double-click it alone`,
            colour,
            ink: colour && headInk(colour),
            on: heads.includes(head),
            current: head === current,
          };
        }),
      );
    },
  };
}
