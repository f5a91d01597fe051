/** Both texts with aligned tokens, differences marked; next to them, the target in each run. */
import type { ViewContext } from "../../../context.ts";
import { assign, createWatch, directionOf, h, on, setChildren, setText } from "../../../dom.ts";
import { decimal, word } from "../words.ts";
import type { Outcome, Patching } from "./patching.ts";

export interface Texts {
  element: HTMLElement;
  show(patching: Patching, column: number, chosen: readonly number[]): void;
}

/** `pick` is called with the position of a token that is clicked. */
export function createTexts(ctx: ViewContext, signal: AbortSignal, pick: (token: number) => void): Texts {
  const rows = h("div.patch-texts", { role: "group", "aria-label": "both texts" });
  const target = h("span.patch-target.fine");
  const ends = [0, 1].map(() => [h("span.patch-answer"), h("span.patch-number")] as const);
  const side = h("div.patch-ends", target, ...ends.flat());
  const element = h("div.patch-lead", rows, side);
  const isOther = createWatch();
  let spans: HTMLElement[][] = [];
  let isScrolled = false;
  on(rows, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      if (at !== undefined) pick(Number(at));
    },
    pointermove(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-i]")?.dataset.i;
      ctx.selection.hover(at === undefined ? null : { unit: "token", query: Number(at), key: -1 });
    },
    pointerleave: () => ctx.selection.hover(null),
  });

  const build = (patching: Patching): void => {
    const texts = [patching.cleanTokens, patching.corruptTokens];
    rows.dir = directionOf(texts.flat());
    rows.style.setProperty("--aw-columns", String(patching.cleanTokens.length));
    spans = texts.map((tokens, row) =>
      tokens.map((label, i) => {
        const span = h("span.patch-token", { "data-i": String(i) }, h("bdi", word(label)));
        if (patching.differs.includes(i) && patching.differs.length < tokens.length)
          span.dataset.differs = row ? "corrupt" : "clean";
        return span;
      }),
    );
    setChildren(
      rows,
      ...["clean", "corrupt"].flatMap((name, row) => [h("span.patch-row.fine", name), ...(spans[row] ?? [])]),
    );
    isScrolled = false;
  };
  /** Scroll a long text to the first difference, with as much before it as leaves room for the rest. */
  const scroll = ({ first }: Patching): void => {
    if (isScrolled || rows.clientWidth <= 0) return;
    isScrolled = true;
    const span = spans[0]?.[first];
    if (span && rows.scrollWidth > rows.clientWidth)
      rows.scrollLeft = span.offsetLeft - Math.min(160, rows.clientWidth / 4);
  };
  const answer = (outcomes: readonly Outcome[] | null, fallback: string): string => {
    const best = outcomes?.[0]?.[0] ?? fallback;
    return best ? `→ ${word(best)}` : "";
  };
  return {
    element,
    show(patching, column, chosen) {
      if (isOther(patching.cleanTokens, patching.corruptTokens)) build(patching);
      const { target: name, foil, clean, corrupt, predicted } = patching;
      setText(target, `${word(name)}${foil ? ` − ${word(foil)}` : ""}`);
      assign(target, { title: "the target, less its foil" });
      setText(ends[0]?.[0] as HTMLElement, answer(predicted[0], name));
      setText(ends[1]?.[0] as HTMLElement, answer(predicted[1], foil ?? ""));
      setText(ends[0]?.[1] as HTMLElement, decimal(clean, 2, true));
      setText(ends[1]?.[1] as HTMLElement, decimal(corrupt, 2, true));
      scroll(patching); // after the layout of the answers
      for (const row of spans) {
        row.forEach((span, i) => {
          span.toggleAttribute("data-over", i === column);
          span.toggleAttribute("data-chosen", chosen.includes(i));
        });
      }
    },
  };
}
