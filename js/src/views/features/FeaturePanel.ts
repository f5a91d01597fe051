/**
 * A feature: how often it fires, where, which tokens it promotes, and which features are similar. A message per
 * feature.
 */

import type { Theme } from "../../colour.ts";
import { directionOf, h, iconButton, on, setChildren, setFlag, setStyles } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { bytesOf, shortsOf } from "../../wire/buffers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { amountText } from "../base/meters.ts";
import { missingAnswer } from "../base/missing.ts";
import { only, view } from "../base/view.ts";
import { carriesSpaces, continues } from "../text/rowValues.ts";
import { fillOf } from "../text/stripColour.ts";
import { type Bar, barList } from "./bars.ts";
import { createFeatureNames, nameField } from "./featureNames.ts";
import {
  createSaeControl,
  featureButton,
  nameOfFeature,
  optionsOf,
  percentage,
  type Sae,
  shownSae,
  tokenSpan,
} from "./features.ts";

/** The twin of `page_of` in attnwidgets/views/features/payloads.py. */
interface Page {
  feature: number;
  count: number;
  density: number;
  maximum: number;
  mean: number;
  top: number;
  histogram: number[];
  pieces: string[];
  examples: [group: number, at: number, length: number, activation: number, text: number, place: number][];
  intervals: [low: number, high: number, tokens: number, share: number][];
  promoted: [string, number][];
  suppressed: [string, number][];
  near: [number, number][];
  along: [feature: number, share: number, jaccard: number][];
  left: number;
}

interface Example {
  group: number;
  at: number;
  activation: number;
  text: number;
  position: number;
  tokens: string[];
  shares: number[];
}

function examplesOf({ pieces, examples }: Page, [first, second]: DataView[]): Example[] {
  const [tokens, codes] = [first ? shortsOf(first) : [], second ? bytesOf(second) : []];
  let start = 0;
  return examples.map(([group, at, length, activation, text, position]) => {
    const slice = <T>(from: T[]): T[] => from.slice(start, start + length);
    const columns = {
      group,
      at,
      activation,
      text,
      position,
      tokens: slice(tokens).map((i) => pieces[i] ?? ""),
      shares: slice(codes).map((code) => code / 255),
    };
    start += length;
    return columns;
  });
}

/** A context, with its token in the middle column. */
function line(example: Example, theme: Theme): HTMLElement {
  const { tokens, shares, at, activation, text, position } = example;
  const apart = !carriesSpaces(tokens);
  const spans = tokens.map((token, i) => tokenSpan(token, fillOf(shares[i] ?? 0, theme, false)));
  const from = (first: number, end: number): (HTMLElement | string)[] =>
    spans.slice(first, end).flatMap((span, i) => {
      const gap = apart && first + i > 0 && !continues(tokens[first + i] as string);
      return gap ? [" ", span] : [span];
    });
  const contextText = from(0, tokens.length)
    .map((part) => (typeof part === "string" ? part : part.textContent))
    .join("");
  spans[at]?.classList.add("aw-own");
  return h(
    "li.context",
    { title: `${contextText}\ntext ${text}, token ${position}`, dir: directionOf(tokens) },
    h("span.value", printed(activation, false)),
    h("span.before", h("span", ...from(0, at), apart ? " " : "")),
    spans[at] ?? "",
    h("span.after", ...from(at + 1, tokens.length)),
  );
}

function histogram({ histogram, top, count }: Page): HTMLElement {
  const most = Math.max(1, ...histogram);
  const bars = histogram.map((n, i) => {
    const bar = h("span");
    if (n > 0) bar.style.height = `${Math.max(2, 100 * Math.sqrt(n / most)).toFixed(1)}%`;
    bar.title = `${printed((i * top) / histogram.length, false)} to ${printed(((i + 1) * top) / histogram.length, false)}: ${n}`;
    return bar;
  });
  const label = `activations of the ${count} tokens it fires on, from 0 to ${printed(top, false)}`;
  return h(
    "div.histogram",
    h("div.bars", { role: "img", "aria-label": label }, ...bars),
    h("div.ticks", h("span", "0"), h("span", "activation (heights: √ of counts)"), h("span", printed(top, false))),
  );
}

/** A part of the card under its name. */
const block = (words: string, ...parts: HTMLElement[]): HTMLElement => h("div.block", h("b", words), ...parts);

/** How often and how strongly a feature fires. */
function statistics({ count, density, maximum, mean }: Page): HTMLElement {
  const strength = (value: number): Omit<Bar, "name"> => ({
    share: maximum > 0 ? value / maximum : 0,
    text: printed(value, false),
    kind: "amount",
  });
  return barList("statistics", [
    { name: "of tokens", share: density, text: `${percentage(density)} (${count})`, kind: "amount" },
    { name: "on average", ...strength(mean) },
    { name: "at most", ...strength(maximum) },
  ]);
}

/** The tokens whose logits a feature raises and lowers, on a common scale. */
function effects({ promoted, suppressed }: Page): HTMLElement {
  const top = Math.max(1e-9, ...[...promoted, ...suppressed].map(([, effect]) => Math.abs(effect)));
  const list = (words: string, tokens: [string, number][], kind: Bar["kind"]): HTMLElement =>
    block(
      words,
      barList(
        words,
        tokens.map(([token, effect]) => ({
          name: tokenSpan(token),
          share: Math.abs(effect) / top,
          text: `${effect > 0 ? "+" : ""}${amountText(effect, top)}`,
          kind,
        })),
      ),
    );
  return h(
    "div.feature-effects",
    ...(promoted.length ? [list("raises the logits of", promoted, "for")] : []),
    ...(suppressed.length ? [list("lowers the logits of", suppressed, "against")] : []),
  );
}

export const renderFeaturePanel = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const layer = createSaeControl(ctx, signal);
  const name = h("span.field");
  const earlier = iconButton(signal, "‹", "previous feature", () => go(shown() - 1));
  const later = iconButton(signal, "›", "next feature", () => go(shown() + 1));
  const number = h("input.number.boxed", { type: "number", min: "0", "aria-label": "feature" });
  const stepper = h("span.group", { role: "group", "aria-label": "number" }, earlier, number, later);
  const wrap = h("button.button", { type: "button", "aria-pressed": "false" }, "whole contexts");
  const naming = createFeatureNames(() => answers);
  const facts = h("div.feature-facts", { role: "group", "aria-label": "statistics", tabindex: "0" });
  const contexts = h("div.feature-contexts", { role: "group", "aria-label": "contexts", tabindex: "0" });
  const card = h("div.feature-card", facts, contexts);
  const isInside = root !== ctx.el;
  let drawnKey = "";
  let bound = new AbortController();

  // How often the feature fires.
  const copy = createCopyButton(ctx, signal, () => {
    const of = shownSae(ctx);
    return optionsOf(ctx).saes?.[of]?.counted ? { of: "density", sae: of, feature: shown() } : null;
  });
  const controls = [stepper, name, wrap];
  const frame = createFrame(ctx, root, {
    controls: [...layer.elements, ...controls],
    body: [...(isInside ? [h("div.row", ...controls)] : []), card],
    hint: "Click a feature’s name to open it here.",
    says: true,
    actions: [copy.element],
  });
  root.classList.add("aw-feature-panel");
  root.role = "group";
  const shown = (): number => ctx.selection.get("feature") ?? 0;
  const go = (to: number): void => {
    const sae = optionsOf(ctx).saes?.[shownSae(ctx)];
    if (Number.isInteger(to) && to >= 0 && to < (sae?.features ?? 0)) ctx.selection.set({ feature: to });
    else number.value = String(shown());
  };
  on(number, signal, { change: () => go(number.valueAsNumber) });
  on(wrap, signal, {
    click: () => {
      wrap.ariaPressed = String(wrap.ariaPressed !== "true");
      setFlag(card, "data-whole", wrap.ariaPressed === "true");
    },
  });

  const draw = (page: Page, buffers: DataView[], sae: Sae): void => {
    const examples = examplesOf(page, buffers);
    /** Other features, as buttons that select them. */
    const others = (words: string, features: [number, ...number[]][], print: (x: number) => string): HTMLElement[] =>
      features.length === 0
        ? []
        : [
            block(
              words,
              barList(
                words,
                features.map(([feature, value = 0]) => ({
                  name: featureButton(ctx, sae, feature, bound.signal),
                  share: value,
                  text: print(value),
                  kind: "amount",
                })),
              ),
            ),
          ];
    const group = (of: number): HTMLElement =>
      h("ol.contexts", ...examples.filter((e) => e.group === of).map((e) => line(e, ctx.theme)));
    setChildren(
      facts,
      ...(page.count
        ? [block("fires on", statistics(page), histogram(page))]
        : [h("div.note", "never fired on this corpus")]),
      effects(page),
      ...others("nearest directions (cosine)", page.near, (x) => printed(x, false)),
      ...others("fires along with (share of its tokens)", page.along, percentage),
    );
    setChildren(
      contexts,
      ...(page.count ? [block("fires most", group(-1))] : []),
      ...page.intervals.map(([low, high, tokens, share], i) =>
        block(
          `${printed(low, false)} to ${printed(high, false)}: ${tokens} ${tokens === 1 ? "token" : "tokens"}, ${percentage(share)}`,
          group(i),
        ),
      ),
      ...(page.left ? [h("div.note", `${page.left} more contexts are not shown.`)] : []),
    );
    for (const pane of [facts, contexts]) pane.scrollTop = 0;
  };
  const empty = (): void => {
    drawnKey = "";
    setChildren(facts);
    setChildren(contexts);
    frame.readout.show("", false);
  };

  const update = (): void => {
    copy.show();
    layer.show();
    const of = shownSae(ctx);
    const sae = optionsOf(ctx).saes?.[of];
    const feature = shown();
    frame.show(sae?.site ?? "", `feature ${nameOfFeature(sae, feature)}`);
    root.ariaLabel = `feature ${nameOfFeature(sae, feature)}`;
    number.max = String((sae?.features ?? 1) - 1);
    setStyles(number, { "--aw-digits": String(number.max.length) });
    if (document.activeElement !== number) number.value = String(feature);
    earlier.disabled = feature === 0;
    later.disabled = feature + 1 >= (sae?.features ?? 0);
    if (!sae?.counted) {
      empty();
      frame.lacks({
        kind: "none",
        words: "No statistics for this SAE",
        advice: "Compute them with aw.feature_stats and pass them as stats=.",
      });
      return;
    }
    const args = { of, feature };
    const answer = answers.get<Page>("feature", args);
    const why = naming.why();
    const missing = missingAnswer(answers, "feature", args, "statistics of this feature");
    if (!answer) frame.lacks({ ...missing, other: missing.kind === "failed" });
    else frame.lacks(why ? { kind: "failed", words: why, part: true } : null);
    const stateKey = JSON.stringify([args, Boolean(answer), sae.names, ctx.theme]);
    if (stateKey === drawnKey) return;
    if (!name.contains(document.activeElement)) {
      setChildren(
        name,
        nameField(sae.names[feature] ?? "", feature, (text) => naming.tell(of, feature, text)),
      );
    }
    if (!answer) {
      frame.readout.show("", false);
      if (answers.failure("feature", args)) empty();
      return;
    }
    drawnKey = stateKey;
    const { meta, buffers } = answer;
    const { density, count } = meta;
    frame.readout.show(`density ${printed(density, false)} · ${count} ${count === 1 ? "token" : "tokens"}`, false);
    bound.abort();
    bound = new AbortController();
    draw(meta, buffers, sae);
  };
  signal.addEventListener("abort", () => bound.abort());
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles", "head", "unit", "method", "stack")) update();
  };
});
