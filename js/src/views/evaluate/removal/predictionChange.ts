/** The prediction with all tokens and the current prediction as bars, with further facts in words. */

import { h, setChildren, setStyles, setText } from "../../../dom.ts";
import { plural } from "../../base/navigation.ts";
import { type Mode, predictedAt, type Removal, valueWithAll, valueWords, withoutWords } from "./steps.ts";

/** Values that differ by less are the same: a batch may compute them in another order. */
const SAME = 1e-5;

export interface PredictionChange {
  element: HTMLElement;
  /** `first` is the name of the first removed token. */
  show(removal: Removal, mode: Mode, step: number, unit: string, first: string): void;
}

export function createPredictionChange(): PredictionChange {
  const sides = ["was", "is"].map((side) => {
    const [name, when, value, bar] = [h("b"), h("span.dim"), h("b.removal-value"), h("span")];
    const track = h("span.removal-track", { "aria-hidden": "true" }, bar);
    const element = h("div.removal-side", { "data-side": side }, h("div.removal-name", name, when), value, track);
    return { element, name, when, value, bar, track };
  });
  const [predicted, chance] = [h("p"), h("p.dim")];

  /** How much of the prediction random and single removals leave. */
  const chanceWords = (
    { baselines, steps, values, score }: Removal,
    mode: Mode,
    step: number,
    unit: string,
    first: string,
  ) => {
    const k = steps[step] ?? 0;
    const at = baselines?.steps.indexOf(k) ?? -1;
    if (!baselines || at < 0 || k === 0) return "";
    const [mean, low, high, best] = [baselines.mean, baselines.low, baselines.high, baselines.best].map((part) =>
      valueWords({ score }, part[mode][at]),
    );
    const many = k === 1 ? `A random ${unit}` : `${k} random ${plural(unit)}`;
    const done = `${mode === "kept" ? "kept alone" : "removed"} ${k === 1 ? "leaves" : "leave"}`;
    const random = `${many} ${done} ${mean} on average, ${low} to ${high}.`;
    if (mode === "kept") return random;
    const [remaining, least] = [values.gone[step] ?? NaN, baselines.best.gone[at] ?? NaN];
    if (k === 1 && remaining <= least + SAME) return `${random} No other single ${unit} does more than ${first}.`;
    return k === 1
      ? `${random} The ${unit} that does most alone leaves ${best}.`
      : `${random} The ${k} that do most alone leave ${best}.`;
  };

  return {
    element: h("div.removal-change", ...sides.map(({ element }) => element), predicted, chance),
    show(removal, mode, step, unit, first) {
      const { target, score, values, steps } = removal;
      const now = withoutWords(mode, steps[step] ?? 0, unit, first);
      const shown = [valueWithAll(removal), values[mode][step] ?? NaN];
      for (const [i, { name, when, value, bar, track }] of sides.entries()) {
        setText(name, target);
        name.title = target;
        setText(when, i ? now || "now" : "before");
        setText(value, valueWords(removal, shown[i]));
        track.hidden = score !== "probability";
        setStyles(bar, { width: `${(100 * Math.max(0, Math.min(1, shown[i] || 0))).toFixed(1)}%` });
      }
      const prediction = predictedAt(removal, mode, step);
      // The probability of the target is shown above.
      const words = !prediction
        ? []
        : prediction.label === target
          ? [prediction.label]
          : [`${prediction.label} ${prediction.certainty}`];
      setChildren(predicted, ...words.flatMap((text) => ["Now predicted: ", h("b", text)]));
      setText(chance, chanceWords(removal, mode, step, unit, first));
    },
  };
}
