/**
 * One feature: how often it fires, where, what it promotes, and which features are similar. One message per feature.
 */

import { h, iconButton, on, setChildren, setFlag, setText } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { bytesOf, shortsOf } from "../../wire/buffers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFetchStatus } from "../base/fetchStatus.ts";
import { only, view } from "../base/view.ts";
import { carriesSpaces, continues } from "../text/rowValues.ts";
import { createFeatureNames, nameField } from "./featureNames.ts";
import { featureButton, nameOfFeature, optionsOf, percentage, type Sae, shownSae, tokenSpan } from "./features.ts";

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
  place: number;
  tokens: string[];
  shares: number[];
}

function examplesOf({ pieces, examples }: Page, [first, second]: DataView[]): Example[] {
  const [tokens, codes] = [first ? shortsOf(first) : [], second ? bytesOf(second) : []];
  let start = 0;
  return examples.map(([group, at, length, activation, text, place]) => {
    const slice = <T>(from: T[]): T[] => from.slice(start, start + length);
    const columns = {
      group,
      at,
      activation,
      text,
      place,
      tokens: slice(tokens).map((i) => pieces[i] ?? ""),
      shares: slice(codes).map((code) => code / 255),
    };
    start += length;
    return columns;
  });
}

/** One context, with its token in the middle column. */
function line(example: Example): HTMLElement {
  const { tokens, shares, at, activation, text, place } = example;
  const apart = !carriesSpaces(tokens);
  const spans = tokens.map((token, i) => tokenSpan(token, shares[i] ?? 0));
  const from = (first: number, end: number): (HTMLElement | string)[] =>
    spans.slice(first, end).flatMap((span, i) => {
      const gap = apart && first + i > 0 && !continues(tokens[first + i] as string);
      return gap ? [" ", span] : [span];
    });
  const rtl = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u.test(tokens.join(""));
  const contextText = from(0, tokens.length)
    .map((part) => (typeof part === "string" ? part : part.textContent))
    .join("");
  spans[at]?.classList.add("aw-own");
  return h(
    "li.context",
    { title: `${contextText}\ntext ${text}, token ${place}`, dir: rtl ? "rtl" : "ltr" },
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
  const what = `activations of the ${count} tokens it fires on, from 0 to ${printed(top, false)}`;
  return h(
    "div.histogram",
    h("div.bars", { role: "img", "aria-label": what }, ...bars),
    h("div.ticks", h("span", "0"), h("span", "activation (heights: √ of counts)"), h("span", printed(top, false))),
  );
}

function effects(title: string, tokens: [string, number][]): HTMLElement[] {
  if (tokens.length === 0) return [];
  const rows = tokens.map(([token, effect]) =>
    h("li", tokenSpan(token, 0), h("span.value", `${effect > 0 ? "+" : ""}${printed(effect, false)}`)),
  );
  return [h("div.block", h("b", title), h("ol.effects", ...rows))];
}

export const renderFeaturePanel = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const title = h("b.title");
  const name = h("span.field");
  const earlier = iconButton(signal, "←", "previous feature", () => go(shown() - 1));
  const later = iconButton(signal, "→", "next feature", () => go(shown() + 1));
  const number = h("input.number", { type: "number", min: "0", "aria-label": "feature" });
  const wrap = h("button.button", { type: "button", "aria-pressed": "false" }, "whole contexts");
  const state = createFetchStatus(() => answers);
  const naming = createFeatureNames(() => answers);
  const facts = h("div.note");
  const body = h("div.feature-body");
  let drawnKey = "";
  let bound = new AbortController();

  root.classList.add("aw-feature-panel");
  root.role = "group";
  setChildren(
    root,
    h("div.row.head", title, h("span.field.stepper", earlier, number, later), name, wrap),
    facts,
    state.element,
    body,
  );
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
      setFlag(body, "data-whole", wrap.ariaPressed === "true");
    },
  });

  const draw = (page: Page, buffers: DataView[], sae: Sae): void => {
    const examples = examplesOf(page, buffers);
    const others = (features: [number, ...number[]][], describe: (one: number[]) => string): HTMLElement =>
      h(
        "ul.others",
        ...features.map(([feature, ...rest]) =>
          h("li", featureButton(ctx, sae, feature, bound.signal), h("span.value", describe(rest))),
        ),
      );
    const group = (of: number): HTMLElement => h("ol.contexts", ...examples.filter((e) => e.group === of).map(line));
    const block = (words: string, ...parts: HTMLElement[]): HTMLElement => h("div.block", h("b", words), ...parts);
    const side = [
      block("how strongly it fires", histogram(page)),
      ...effects("raises the logits of", page.promoted),
      ...effects("lowers the logits of", page.suppressed),
      ...(page.near.length
        ? [
            block(
              "nearest directions (cosine)",
              others(page.near, ([c]) => printed(c ?? 0, false)),
            ),
          ]
        : []),
      ...(page.along.length
        ? [
            block(
              "fires along with (share of its tokens)",
              others(page.along, ([share]) => percentage(share ?? 0)),
            ),
          ]
        : []),
    ];
    const parts = page.intervals.map(([low, high, tokens, share], i) =>
      block(
        `${printed(low, false)} to ${printed(high, false)}: ${tokens} ${tokens === 1 ? "token" : "tokens"}, ${percentage(share)}`,
        group(i),
      ),
    );
    const top = block("fires most", group(-1));
    const left = page.left ? [h("div.note", `${page.left} more contexts are not shown.`)] : [];
    setChildren(body, h("div.column.feature-facts", ...side), h("div.column", top, ...parts, ...left));
  };

  // How often the feature fires.
  const copy = createCopyButton(ctx, signal, () => {
    const of = shownSae(ctx);
    return optionsOf(ctx).saes?.[of]?.counted ? { of: "density", sae: of, feature: shown() } : null;
  });
  if (root === ctx.el) root.append(copy.element);

  const update = (): void => {
    copy.show();
    const { saes = [] } = optionsOf(ctx);
    const of = shownSae(ctx);
    const sae = saes[of];
    const feature = shown();
    const heading = ctx.options.title ? `${ctx.options.title} · ` : "";
    const site = sae?.site ? ` of ${sae.site}` : "";
    setText(title, `${heading}feature${site}`);
    root.ariaLabel = `feature ${nameOfFeature(sae, feature)}`;
    number.max = String((sae?.features ?? 1) - 1);
    if (document.activeElement !== number) number.value = String(feature);
    earlier.disabled = feature === 0;
    later.disabled = feature + 1 >= (sae?.features ?? 0);
    if (!sae?.counted) {
      setText(
        facts,
        "There are no statistics for this SAE: compute them with aw.feature_stats and pass them as stats=.",
      );
      setChildren(body);
      return;
    }
    const args = { of, feature };
    const answer = answers.get<Page>("feature", args);
    state.show("feature", answers.failure("feature", args) ?? naming.why());
    setFlag(body, "data-stale", !answer);
    const stateKey = JSON.stringify([args, Boolean(answer), sae.names]);
    if (stateKey === drawnKey) return;
    drawnKey = stateKey;
    if (!name.contains(document.activeElement)) {
      setChildren(
        name,
        nameField(sae.names[feature] ?? "", feature, (text) => naming.tell(of, feature, text)),
      );
    }
    if (!answer) {
      if (answers.failure("feature", args)) setChildren(body);
      return;
    }
    const { meta, buffers } = answer;
    const { count, density, maximum, mean } = meta;
    setText(
      facts,
      count
        ? `fires on ${percentage(density)} of tokens (${count}), up to ${printed(maximum, false)}, ${printed(mean, false)} on average`
        : "never fired on this corpus",
    );
    bound.abort();
    bound = new AbortController();
    draw(meta, buffers, sae);
  };
  signal.addEventListener("abort", () => bound.abort());
  return (changed) => {
    if (!only(changed, "hover", "pinned", "tiles", "theme", "head", "unit", "method", "stack")) update();
  };
});
