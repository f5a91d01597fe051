/** The form for a view's filters and colours, and a summary of them. */
import { PALETTES } from "../../colour.ts";
import { h, keyboard, on, setChildren, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Filters, Source } from "../../wire/wire.ts";
import { filtersOf, hidesValues, setFilters } from "./filters.ts";
import { only, view } from "./view.ts";

/** Pairs, for the build may rename what looks like a property of ours. */
const SPECIAL: [Filters["special"], string][] = [
  ["apart", "apart"],
  ["show", "shown"],
  ["hide", "left out"],
  ["renormalise", "left out, rows rescaled"],
];

const SCALES: [string, string][] = [
  ["", "default"],
  ["linear", "linear"],
  ["sqrt", "square root"],
  ["log", "logarithm"],
];
const EXTENTS: [string, string][] = [
  ["", "default"],
  ["map", "one per map"],
  ["all", "one for all"],
];

/** What the filters do to the numbers, in words; empty if nothing. */
export function filterWords(filters: Filters, { stochastic }: Source): string {
  const { special, mass, least } = filters;
  const words: string[] = [];
  if (special === "renormalise") {
    words.push(`special tokens left out, ${stochastic ? "the rest of a row divided by its sum" : "nothing rescaled"}`);
  } else if (special === "hide") {
    words.push(`special tokens left out${stochastic ? ", the rest as it was: rows sum to less than 1" : ""}`);
  }
  if (mass < 1) words.push(`the largest values, ${Number((100 * mass).toFixed(1))} % of each row`);
  if (least > 0) words.push(`nothing below ${tickText(least)}`);
  return words.join(" · ");
}

export const renderFilters = view((ctx, root, signal) => {
  const named = (names: [string, string][]): HTMLElement[] =>
    names.map(([value, name]) => h("option", { value }, name));
  const special = h("select.button", ...named(SPECIAL));
  const mass = h("input.range", { type: "range", min: "5", max: "100", step: "5" });
  const share = h("output");
  const least = h("input.button", { type: "number", min: "0", step: "any" });
  const palette = h("select.button");
  const scale = h("select.button", ...named(SCALES));
  const extent = h("select.button", ...named(EXTENTS));
  const all = h("button.button", { type: "button" }, "show everything");
  const button = h("summary.button", "filters");
  const box = h(
    "details.choice",
    button,
    h(
      "div.menu.form",
      h("label", "special tokens", special),
      h("label", "largest values, share of each row", mass, share),
      h("label", "hide values below", least),
      h("label", "colours", palette),
      h("label", "colour scale", scale),
      h("label", "range of colours", extent),
      all,
    ),
  );
  const words = h("span.note");
  let drawnState = "";

  const set =
    (save: boolean) =>
    ({ target }: Event): void =>
      setFilters(
        ctx,
        {
          special: special.value as Filters["special"],
          mass: Number(mass.value) / 100,
          least: Math.max(0, Number(least.value) || 0),
          // A value that the menu does not offer is kept.
          ...(target === palette ? { palette: palette.value } : {}),
          scale: scale.value as Filters["scale"],
          extent: extent.value as Filters["extent"],
        },
        save,
      );
  on(box, signal, {
    input: set(false),
    change: set(true),
    focusout({ relatedTarget }) {
      if (relatedTarget && !box.contains(relatedTarget as Node)) box.open = false;
    },
  });
  on(all, signal, { click: () => setFilters(ctx, { special: "show", mass: 1, least: 0 }) });
  on(document, signal, {
    pointerdown: (event) => {
      if (!event.composedPath().includes(box)) box.open = false;
    },
  });
  keyboard(box, signal, {
    Escape() {
      box.open = false;
      button.focus();
    },
  });
  setChildren(root, box, words);
  return (changed) => {
    if (only(changed, "hover", "pinned", "tiles", "layer", "head")) return;
    const source = ctx.source();
    const filters = filtersOf(ctx);
    const [first = "", ...others] = Object.keys(PALETTES[source.signed ? 1 : 0]);
    if (first !== drawnState) {
      drawnState = first;
      setChildren(palette, h("option", { value: "" }, first), ...others.map((value) => h("option", { value }, value)));
    }
    special.value = filters.special;
    mass.value = String(100 * filters.mass);
    setText(share, `${Number((100 * filters.mass).toFixed(1))} %`);
    if (Number(least.value) !== filters.least) least.value = filters.least ? String(filters.least) : "";
    palette.value = others.includes(filters.palette) ? filters.palette : "";
    [scale.value, extent.value] = [filters.scale, filters.extent];
    all.disabled = !hidesValues(filters) && filters.special === "show";
    setText(words, filterWords(filters, source));
  };
});
