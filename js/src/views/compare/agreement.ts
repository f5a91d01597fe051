/** How similarly any two explanations rank the text, by a measure, and the limits of that measure. */

import type { ViewContext } from "../../context.ts";
import { assign, createWatch, h, on, setFlag, setText } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { NumberAddress } from "../base/copyPython.ts";
import { filtersOf } from "../base/filters.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createAgreementTable, type Ranking } from "./agreementTable.ts";
import type { Compared, Pair } from "./picture.ts";
import type { ExplanationRows } from "./rows.ts";

/** The answer of `CompareView._agreement`. */
interface Agreements {
  measures: Record<string, Ranking>;
  k: number;
  warning: string;
  caveat: string;
}

const MEASURES = { spearman: "Spearman", kendall: "Kendall", top_k: "top-k overlap" };
const WARNING =
  "Agreement is not faithfulness: it says that methods rank these elements alike, not that any of them is right.";

export interface Agreement {
  element: HTMLElement;
  /** Show the agreement of the explanations that `args` request, once it arrives. */
  show(args: Record<string, unknown>, pair: Pair): void;
  /** The address of the pair's agreement; null if none is shown. */
  numberAddress(): NumberAddress | null;
  /** The agreement of the pair: "Spearman 0.43 of attention and rollout"; "" if none is shown. */
  words(): string;
}

/**
 * `choose` is called with the row and column of a clicked cell, `point` with those under the pointer, `changed` when
 * the reader chooses another measure.
 */
export function createAgreement(
  ctx: ViewContext,
  signal: AbortSignal,
  explanations: ExplanationRows<Compared>,
  choose: (row: number, col: number) => void,
  point: (row: number, col: number) => void,
  changed: () => void,
): Agreement {
  const measures = createSegments("measure of agreement", MEASURES, signal, changed);
  const size = h("input", { type: "checkbox" });
  const sizes = h("label.field", size, "rank by magnitude");
  const table = createAgreementTable(signal, choose, point);
  const about = h("div.note");
  const caveat = h("p.note");
  const details = h("details", h("summary", "What it does and does not show"), caveat);
  const isRanked = createWatch();
  let shown: NumberAddress | null = null;
  let summary = "";
  on(size, signal, { change: changed });
  return {
    element: h(
      "div.compare-side",
      h("div.compare-measure", h("b.title", "Agreement"), measures.element, sizes),
      h("div.agree-scroll", table.element),
      about,
      h("div.warning", { role: "note" }, WARNING, details),
    ),
    numberAddress: () => shown,
    words: () => summary,
    show(args, pair) {
      [shown, summary] = [null, ""];
      if (!explanations.meta) return;
      const { names, signed } = explanations.meta;
      const anySigned = signed.some(Boolean);
      assign(sizes, { hidden: !anySigned });
      const { special: flags } = explanations.axis();
      const { special, mass, least } = filtersOf(ctx);
      const all = special === "show" || !flags.some(Boolean);
      const ranked = all ? flags.length : flags.filter((flag) => !flag).length;
      assign(table.element, { hidden: ranked < 2 });
      if (ranked < 2) {
        setText(about, `There is nothing to rank: ${ranked} ${ctx.source().unit}.`);
        return;
      }
      const by = anySigned && size.checked ? "magnitude" : "value";
      const request = { ...args, special: all, by };
      const agreements = explanations.answers.get<Agreements>("agreement", request);
      setFlag(table.element, "data-stale", !agreements);
      if (!agreements) {
        const why = explanations.answers.failure("agreement", request);
        setText(about, why ? `No agreement: ${why}` : "");
        return;
      }
      const { meta } = agreements;
      const [row, col] = pair;
      const measure = measures.value();
      const ranking = meta.measures[measure] as Ranking;
      const value = ranking.values[row]?.[col];
      shown = { of: "agreement", measure, row, col, ...request };
      summary = `${MEASURES[measure]} ${printed(value ?? NaN, true)} of ${names[row]} and ${names[col]}`;
      if (isRanked(names, ranking, pair, ctx.theme)) table.show(names, ranking, pair, ctx.theme);
      const chance = ranking.chance
        ? ` By chance ${ranking.chance.toFixed(2)}.`
        : " 1: the same order, 0: none, −1: reversed.";
      const small = mass < 1 || least > 0 ? " Values that the filters hide for their size are ranked as well." : "";
      const apart = all ? "" : " Special tokens are not ranked.";
      const warn = meta.warning ? ` ${meta.warning}.` : "";
      setText(about, `${ranking.title}.${chance}${warn}${apart}${small} Click a cell to compare two.`);
      setText(caveat, `${meta.caveat} ${ranking.paper}; Jain and Wallace 2019; Neely et al. 2021.`);
    },
  };
}
