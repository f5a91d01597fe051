/** The form for a view's filters and colours, and a summary of them in words. */
import { PALETTES } from "../../colour.ts";
import type { Change } from "../../context.ts";
import { h, on, setChildren, setText } from "../../dom.ts";
import { tickText } from "../../numbers.ts";
import type { Filters } from "../../wire/viewState.ts";
import type { Source } from "../../wire/wire.ts";
import { adjustableOf, DEFAULTS, filtersOf, isFiltered, rescales, SPECIAL, setFilters } from "./filters.ts";
import { only, view } from "./view.ts";

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

/** Changes that leave filters, and the words about them, as they are. */
const UNRELATED: Change[] = ["hover", "pinned", "tiles", "layer", "head"];

/** The effect of the filters on the numbers, in words; empty without an effect. */
export function filterWords(filters: Filters, source: Source): string {
  const { special, mass, least } = filters;
  const words: string[] = [];
  if (special === "renormalise") {
    words.push(
      `special tokens left out, ${rescales(source) ? "the rest of a row divided by its sum" : "nothing rescaled"}`,
    );
  } else if (special === "hide") {
    words.push(`special tokens left out${source.stochastic ? ", the rest as it was: rows sum to less than 1" : ""}`);
  }
  if (mass < 1) words.push(`the largest values, ${Number((100 * mass).toFixed(1))} % of each row`);
  if (least > 0) words.push(`nothing below ${tickText(least)}`);
  return words.join(" · ");
}

/** The effect of a view's filters on its numbers, kept up to date. */
export const renderFilterWords = view((ctx, root) => {
  const words = h("span.note");
  setChildren(root, words);
  return (changed) => {
    if (!only(changed, ...UNRELATED)) setText(words, filterWords(filtersOf(ctx), ctx.source()));
  };
});

/** The form itself, in the view's menu. */
export const renderFilters = view((ctx, root, signal) => {
  const { hides = true, more = [] } = adjustableOf(ctx.el) ?? {};
  const named = (names: readonly (readonly [string, string])[]): HTMLElement[] =>
    names.map(([value, name]) => h("option", { value }, name));
  const special = h("select.button", ...named(SPECIAL));
  const mass = h("input.range", { type: "range", min: "5", max: "100", step: "5" });
  const share = h("output");
  const least = h("input.button", { type: "number", min: "0", step: "any" });
  const palette = h("select.button");
  const scale = h("select.button", ...named(SCALES));
  const extent = h("select.button", ...named(EXTENTS));
  const all = h("button.button", { type: "button" }, "show everything");
  const form = h(
    "div.form",
    ...(hides === "colours" ? [] : [h("label.form-line", "special tokens", special)]),
    ...(hides === true
      ? [
          h("label.form-line", h("span", "largest values, share of each row ", share), mass),
          h("label.form-line", "hide values below", least),
        ]
      : []),
    h("label.form-line", "colours", palette),
    h("label.form-line", "colour scale", scale),
    h("label.form-line", "range of colours", extent),
    all,
  );
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
          // Keep a value that the menu does not offer.
          ...(target === palette ? { palette: palette.value } : {}),
          scale: scale.value as Filters["scale"],
          extent: extent.value as Filters["extent"],
        },
        save,
      );
  on(form, signal, { input: set(false), change: set(true) });
  on(all, signal, { click: () => setFilters(ctx, DEFAULTS) });
  setChildren(root, form, ...more);
  return (changed) => {
    if (only(changed, ...UNRELATED)) return;
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
    all.disabled = !isFiltered(filters);
  };
});
