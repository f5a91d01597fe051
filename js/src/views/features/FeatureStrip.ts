/**
 * A text coloured by a feature (several as chips, with their values at the pointer), and the features that fire on a
 * token.
 */

import { assign, h, on, quoted, reserve, setChildren, setFlag, setStyles, setText, walkList } from "../../dom.ts";
import { printed, tickText } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Axis, Cell } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { textPicks } from "../base/gestures.ts";
import { missingAnswer } from "../base/missing.ts";
import { createUnitControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { peak } from "../text/rowValues.ts";
import { createStrip, type Strip } from "../text/strip.ts";
import { fills, gradient, NOTHING } from "../text/stripColour.ts";
import { type Activations, activationsOf, type Fired } from "./activations.ts";
import { barOf } from "./bars.ts";
import { axisOfText, createSaeControl, nameOfFeature, optionsOf, type Sae, shownSae, tokenAt } from "./features.ts";

const RANKED = 8;
const TABS = 5;

/** The parts of a tab that follow the pointer. */
interface Tab {
  feature: number;
  value: HTMLElement;
  bar: HTMLElement;
}

/** A feature's activation on a token, or with -1 its largest. */
function activationAt({ fired, largest }: Activations, feature: number, token: number): number {
  if (token < 0) return largest.get(feature) ?? 0;
  return fired[token]?.find((firing) => firing.feature === feature)?.activation ?? 0;
}

export const renderFeatureStrip = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const controls = together(createSaeControl(ctx, signal), createUnitControl(ctx, signal));
  const tabList = h("div.feature-tabs", { role: "tablist", "aria-label": "features" });
  const text = h("div.texts.feature-text");
  const [ramp, high] = [h("span.ramp"), h("span")];
  const rankedTitle = h("b");
  const ranked = h("div.feature-ranked");
  const panel = h("div.panel");
  const isInside = root !== ctx.el;
  let tabs: number[] = [];
  let drawn: Tab[] = [];
  let startedFor = "";
  let strip: Strip | null = null;
  let builtFor = "";
  let tabbed = "";
  let listed: readonly Fired[] = [];
  let bound = new AbortController();

  const sae = (): Sae | undefined => optionsOf(ctx).saes?.[shownSae(ctx)];
  const copy = createCopyButton(ctx, signal, () => {
    const current = sae();
    const token = current ? tokenAt(ctx, "pinned", current) : -1;
    if (!current || token < 0) return null;
    const feature = ctx.selection.get("feature") ?? tabs[0] ?? 0;
    return { of: "activation", sae: shownSae(ctx), feature, token, unit: axisOfText(ctx, current).unit };
  });
  const side = h("div.feature-side", { role: "group", "aria-label": "strongest features" }, rankedTitle, ranked);
  const lead = [tabList, text];
  const frame = createFrame(ctx, root, {
    controls: controls.elements,
    lead,
    legend: h("span.scale", "0", ramp, high),
    body: [...(isInside ? lead : []), h("div.feature-two", side, panel)],
    hint: "Click a token to see which features fire on it.",
    actions: [copy.element],
  });
  root.classList.add("aw-feature-strip");
  root.role = "group";
  reserve(high, "0.0000");
  if (optionsOf(ctx).saes?.some(({ counted }) => counted)) ctx.views.FeaturePanel?.(ctx.child({ title: "" }), panel);
  else panel.hidden = true;

  /** If tokens have rows, the hovered token is the query; otherwise a key. */
  const cellAt = (i: number): Cell | null => {
    const current = sae();
    if (i < 0 || !current) return null;
    const { unit } = axisOfText(ctx, current);
    const isMap = ctx.source().kind === "map";
    return { unit, query: isMap ? i : -1, key: isMap ? -1 : i };
  };
  const close = (feature: number): void => {
    const at = tabs.indexOf(feature);
    tabs = tabs.filter((tab) => tab !== feature);
    const next = tabs[Math.min(at, tabs.length - 1)];
    if (ctx.selection.get("feature") === feature && next !== undefined) ctx.selection.set({ feature: next });
    else update();
  };

  const drawTabs = (current: Sae, shown: number): void => {
    const stateKey = JSON.stringify([tabs, shown, current.names]);
    if (stateKey === tabbed) return;
    tabbed = stateKey;
    drawn = [];
    const hadFocus = tabList.contains(document.activeElement);
    const buttons = tabs.map((feature) => {
      const name = nameOfFeature(current, feature);
      const chosen = feature === shown;
      const [value, bar] = [h("span.dim.feature-value"), h("i.feature-bar")];
      const tab = h(
        "button.chip",
        { type: "button", role: "tab", "aria-selected": String(chosen) },
        h("b", name),
        value,
        bar,
      );
      tab.tabIndex = chosen ? 0 : -1;
      tab.title = tabs.length > 1 ? `${name} (Delete closes it)` : name;
      on(tab, signal, { click: () => ctx.selection.set({ feature }) });
      const shut = h("span.chip.shut", { "aria-hidden": "true" }, "×"); // on the keyboard: Delete
      on(shut, signal, { click: () => close(feature) });
      drawn.push({ feature, value, bar });
      return h("span.feature-tab", { role: "presentation" }, tab, ...(tabs.length > 1 ? [shut] : []));
    });
    setChildren(tabList, ...buttons);
    const selected = tabList.querySelector<HTMLElement>("[aria-selected=true]");
    if (hadFocus) selected?.focus();
    if (selected) tabList.scrollLeft = Math.min(tabList.scrollLeft, (selected.parentElement as HTMLElement).offsetLeft);
  };

  /** The activations of all tabs on a token, or their largest activations, on a common scale. */
  const fillTabs = (data: Activations, token: number): void => {
    const top = Math.max(1e-9, ...drawn.map(({ feature }) => data.largest.get(feature) ?? 0));
    for (const { feature, value, bar } of drawn) {
      const here = activationAt(data, feature, token);
      setText(value, here ? printed(here, false) : "0");
      setStyles(bar, { width: `${(100 * Math.min(1, here / top)).toFixed(1)}%` });
    }
  };

  const lines = Array.from({ length: RANKED }, (_, i) => {
    const button = h("button.button.feature", { type: "button" });
    const [bar, value] = [barOf(0, "amount"), h("span.meter-value")];
    on(button, signal, { click: () => ctx.selection.set({ feature: listed[i]?.feature ?? 0 }) });
    const line = h("div.meter", { role: "listitem", hidden: "" }, h("span.meter-name", button), bar, value);
    return { line, button, bar: bar.firstElementChild as HTMLElement, value };
  });
  const list = h("div.meters", { role: "list" }, ...lines.map(({ line }) => line));
  const none = h("div.note", "no feature fires");
  setChildren(ranked, list, none);
  walkList(list, signal);

  /** Lines are rewritten, never recreated: one of them may have the focus. */
  const drawRanked = (current: Sae, rows: Fired[], words: string): void => {
    listed = rows;
    setText(rankedTitle, words);
    assign(list, { ariaLabel: words, hidden: rows.length === 0 });
    assign(none, { hidden: rows.length > 0 });
    const [chosen, previewed] = [ctx.selection.get("feature"), ctx.selection.get("hover")?.feature];
    const top = Math.max(1e-9, ...rows.map(({ activation }) => activation));
    const stop = Math.max(
      0,
      rows.findIndex(({ feature }) => feature === chosen),
    );
    for (const [i, { line, button, bar, value }] of lines.entries()) {
      const row = rows[i];
      assign(line, { hidden: !row });
      if (!row) continue;
      setFlag(line, "data-previewed", row.feature === previewed);
      const name = nameOfFeature(current, row.feature);
      setText(button, name);
      assign(button, { title: name, ariaPressed: String(row.feature === chosen) });
      button.tabIndex = i === stop ? 0 : -1;
      setStyles(bar, { width: `${(100 * Math.min(1, row.activation / top)).toFixed(1)}%` });
      setText(value, printed(row.activation, false));
    }
  };

  /** Whether the elements of the text are those of the shown source, in which pins and spans are counted. */
  const isShown = (axis: Axis): boolean => ctx.axisOf(ctx.source().key) === axis;

  const update = (): void => {
    copy.show();
    controls.show();
    const current = sae();
    const { saes = [], tabs: first = [] } = optionsOf(ctx);
    if (!current) return;
    const { axis, unit } = axisOfText(ctx, current);
    const layers = saes.flatMap(({ layer }) => (layer === null ? [] : [ctx.layerName(layer)]));
    const several = layers.length > 1 ? ` (SAEs of layers ${layers.join(", ")})` : "";
    frame.show(`${current.site}${several}`, "SAE features");
    root.ariaLabel = `text coloured by a feature of ${current.site}`;
    const data = activationsOf(ctx, answers);
    const args = { of: shownSae(ctx), unit };
    frame.lacks(data ? null : missingAnswer(answers, "activations", args, "activations"));
    const start = JSON.stringify([shownSae(ctx), first]);
    if (data && start !== startedFor) {
      const most = [...data.largest].sort((a, b) => b[1] - a[1]).map(([feature]) => feature);
      tabs = first.length && shownSae(ctx) === 0 ? [...first] : most.slice(0, TABS);
      // Features of another SAE are unrelated: the selected number would be meaningless.
      if (startedFor && tabs[0] !== undefined) ctx.selection.set({ feature: tabs[0] });
      startedFor = start;
    }
    const shown = ctx.selection.get("feature") ?? tabs[0] ?? 0;
    if (!tabs.includes(shown)) tabs = [...tabs, shown];
    drawTabs(current, shown);
    const name = JSON.stringify([axis.labels, unit, isShown(axis)]);
    if (name !== builtFor) {
      builtFor = name;
      bound.abort();
      bound = new AbortController();
      const events = {
        hover: (i: number) => ctx.selection.hover(cellAt(i)),
        pin: (i: number) => {
          const again = tokenAt(ctx, "pinned", current) === i;
          ctx.selection.pin(again ? null : cellAt(i));
        },
        ...(isShown(axis) ? textPicks(ctx, "key", cellAt) : {}),
      };
      strip = createStrip(ctx, axis, "", new Set(), events, bound.signal);
      setChildren(text, strip.box);
    }
    setFlag(text, "data-stale", !data);
    const [pinned, hovered] = [tokenAt(ctx, "pinned", current), tokenAt(ctx, "hover", current)];
    strip?.mark("aw-query", pinned);
    strip?.mark("aw-key", hovered);
    const pins = isShown(axis) ? ctx.pins() : [];
    const together = pins.length > 1 ? pins.map(({ query, key }) => (key < 0 ? query : key)) : [];
    strip?.choose(together, [], isShown(axis) ? ctx.span("key") : null);
    const token = hovered >= 0 ? hovered : pinned;
    if (!data) return;
    const values = data.of(shown);
    // SAEs are not trained on special tokens, where activations may have any size: they do not set the scale.
    const top = peak(values.filter((_, i) => !axis.special[i] && !(current.skipsFirst && i === 0))) || peak(values);
    const colours = fills(ctx.theme, false);
    strip?.underlay.paint((i) => (top > 0 ? colours((values[i] ?? 0) / top) : NOTHING));
    ramp.style.background = gradient(ctx.theme, false);
    setText(high, tickText(top));
    fillTabs(data, token);
    const label = token >= 0 ? quoted(axis.labels, token, ctx.options.indexBase) : "";
    const rows =
      token >= 0
        ? (data.fired[token] ?? []).slice(0, RANKED)
        : [...data.largest]
            .map(([feature, activation]) => ({ feature, activation }))
            .sort((a, b) => b.activation - a.activation)
            .slice(0, RANKED);
    drawRanked(current, rows, token >= 0 ? `fire most on ${label}` : "fire most in this text");
    frame.readout.show(
      token < 0
        ? `Hover a ${unit} to read its features, click to pin it.`
        : `${label}: ${[shown, ...tabs.filter((tab) => tab !== shown)]
            .map(
              (feature) => `${nameOfFeature(current, feature)} ${printed(activationAt(data, feature, token), false)}`,
            )
            .join(" · ")}`,
      token >= 0,
    );
  };

  tabList.addEventListener("keydown", (event) => {
    const shown = ctx.selection.get("feature") ?? 0;
    const at = tabs.indexOf(shown);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = tabs[at + (step ?? 0)];
    if (step && next !== undefined) {
      event.preventDefault();
      ctx.selection.set({ feature: next });
    }
    if (event.key === "Delete" && tabs.length > 1) close(shown);
  });
  signal.addEventListener("abort", () => bound.abort());
  return (changed) => {
    if (!only(changed, "tiles", "head", "target", "foil")) update();
  };
});
