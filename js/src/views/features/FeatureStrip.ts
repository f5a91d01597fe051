/**
 * A text coloured by one of several features (tabs), the values of all of them, and the features that fire on a token.
 */

import { h, on, quoted, setChildren, setFlag, setText } from "../../dom.ts";
import { printed, tickText } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import type { Axis, Cell } from "../../wire/wire.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFetchStatus } from "../base/fetchStatus.ts";
import { chooseSpan, togglePin } from "../base/gestures.ts";
import { only, view } from "../base/view.ts";
import { peak } from "../text/rowValues.ts";
import { createStrip, type Strip } from "../text/strip.ts";
import { fills, gradient, NOTHING } from "../text/stripColour.ts";
import { activationsOf, type Fired } from "./activations.ts";
import { axisOfText, nameOfFeature, optionsOf, type Sae, shownSae, tokenAt } from "./features.ts";

const RANKED = 8;
const TABS = 5;

export const renderFeatureStrip = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const state = createFetchStatus(() => answers);
  const title = h("b.title");
  const place = h("span.where");
  const tabList = h("div.feature-tabs", { role: "tablist", "aria-label": "features" });
  const text = h("div.texts");
  const [low, ramp, high] = [h("span", "0"), h("span.ramp"), h("span")];
  const values = h("div.readout.feature-values");
  const region = h("div.sr", { role: "status" });
  const rankedTitle = h("b");
  const ranked = h("ol.feature-ranked");
  const panel = h("div.panel");
  let tabs: number[] = [];
  let startedFor = "";
  let strip: Strip | null = null;
  let builtFor = "";
  let tabbed = "";
  let listed = "";
  let bound = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;

  root.classList.add("aw-feature-strip");
  root.role = "group";
  const side = h("div.block.feature-side", rankedTitle, ranked);
  const main = h("div.column", tabList, text, h("div.row", h("span.field", low, ramp, high)), values, region);
  setChildren(root, h("div.row.head", title, place), state.element, h("div.feature-two", main, side), panel);
  if (optionsOf(ctx).saes?.some(({ counted }) => counted)) ctx.views.FeaturePanel?.(ctx.child({ title: "" }), panel);
  else panel.hidden = true;

  const sae = (): Sae | undefined => optionsOf(ctx).saes?.[shownSae(ctx)];
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
    tabs = tabs.filter((one) => one !== feature);
    const next = tabs[Math.min(at, tabs.length - 1)];
    if (ctx.selection.get("feature") === feature && next !== undefined) ctx.selection.set({ feature: next });
    else update();
  };

  const drawTabs = (current: Sae, shown: number): void => {
    const stateKey = JSON.stringify([tabs, shown, current.names]);
    if (stateKey === tabbed) return;
    tabbed = stateKey;
    const hadFocus = tabList.contains(document.activeElement);
    const buttons = tabs.map((feature) => {
      const name = nameOfFeature(current, feature);
      const chosen = feature === shown;
      const tab = h("button.button.tab", { type: "button", role: "tab", "aria-selected": String(chosen) }, name);
      tab.tabIndex = chosen ? 0 : -1;
      tab.title = tabs.length > 1 ? `${name} (Delete closes it)` : name;
      on(tab, signal, { click: () => ctx.selection.set({ feature }) });
      const shut = h("span.button.shut", { "aria-hidden": "true" }, "×"); // on the keyboard: Delete
      on(shut, signal, { click: () => close(feature) });
      return h("span.feature-tab", { role: "presentation" }, tab, ...(tabs.length > 1 ? [shut] : []));
    });
    setChildren(tabList, ...buttons);
    if (hadFocus) tabList.querySelector<HTMLElement>("[aria-selected=true]")?.focus();
  };

  const drawRanked = (current: Sae, rows: Fired[], words: string): void => {
    setText(rankedTitle, words);
    const stateKey = JSON.stringify([rows, current.names, ctx.selection.get("feature")]);
    if (stateKey === listed) return;
    listed = stateKey;
    const top = Math.max(1e-9, ...rows.map(({ activation }) => activation));
    setChildren(
      ranked,
      ...rows.map(({ feature, activation }) => {
        const bar = h("span");
        bar.style.width = `${((100 * activation) / top).toFixed(1)}%`;
        const name = nameOfFeature(current, feature);
        const button = h("button.button.feature", { type: "button", title: name }, name);
        button.ariaPressed = String(feature === ctx.selection.get("feature"));
        on(button, signal, { click: () => ctx.selection.set({ feature }) });
        return h("li", button, h("span.bar", bar), h("span.value", printed(activation, false)));
      }),
    );
    if (rows.length === 0) setChildren(ranked, h("li.note", "no feature fires"));
  };

  const copy = createCopyButton(ctx, signal, () => {
    const current = sae();
    const token = current ? tokenAt(ctx, "pinned", current) : -1;
    if (!current || token < 0) return null;
    const feature = ctx.selection.get("feature") ?? tabs[0] ?? 0;
    return { of: "activation", sae: shownSae(ctx), feature, token, unit: axisOfText(ctx, current).unit };
  });
  if (root === ctx.el) root.append(copy.element);
  /** Whether the elements of the text are those of the shown source, in which pins and spans are counted. */
  const isShown = (axis: Axis): boolean => ctx.axisOf(ctx.source().key) === axis;
  const toggle = (i: number): void => {
    const cell = cellAt(i);
    if (cell) togglePin(ctx, cell);
  };
  const span = (first: number, last: number): void => chooseSpan(ctx, "key", first, last);

  const update = (): void => {
    copy.show();
    const current = sae();
    const { saes = [], tabs: first = [] } = optionsOf(ctx);
    if (!current) return;
    const { axis, unit } = axisOfText(ctx, current);
    setText(title, ctx.options.title || "SAE features");
    const layers = saes.flatMap(({ layer }) => (layer === null ? [] : [ctx.layerName(layer)]));
    const several = layers.length > 1 ? ` (SAEs of layers ${layers.join(", ")})` : "";
    setText(place, `${current.site}${several}`);
    root.ariaLabel = `text coloured by a feature of ${current.site}`;
    const data = activationsOf(ctx, answers);
    state.show("activations", answers.failure("activations", { of: shownSae(ctx), unit }));
    const start = JSON.stringify([shownSae(ctx), first]);
    if (data && start !== startedFor) {
      const most = [...data.largest].sort((a, b) => b[1] - a[1]).map(([feature]) => feature);
      tabs = first.length && shownSae(ctx) === 0 ? [...first] : most.slice(0, TABS);
      // Features of another SAE are unrelated: the selected number means nothing there.
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
        ...(isShown(axis) ? { toggle, span } : {}),
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
    setText(high, top > 0 ? tickText(top) : "it does not fire here");
    const label = token >= 0 ? quoted(axis.labels, token, ctx.options.indexBase) : "";
    const rows =
      token >= 0
        ? (data.fired[token] ?? []).slice(0, RANKED)
        : [...data.largest]
            .map(([feature, activation]) => ({ feature, activation }))
            .sort((a, b) => b.activation - a.activation)
            .slice(0, RANKED);
    drawRanked(current, rows, token >= 0 ? `fire most on ${label}` : "fire most in this text");
    say(current, token, shown, label, unit, data.of);
  };

  /** The values of all tabs; the shown one is bold. */
  const say = (
    current: Sae,
    token: number,
    shown: number,
    label: string,
    unit: string,
    of: (j: number) => number[],
  ): void => {
    if (token < 0) {
      setChildren(values, `Hover a ${unit} to read its features, click to pin it.`);
      return;
    }
    const parts = tabs.map((feature) => {
      const value = of(feature)[token] ?? 0;
      return h(
        feature === shown ? "b" : "span",
        `${nameOfFeature(current, feature)} ${value ? printed(value, false) : "0"}`,
      );
    });
    setChildren(values, `${label}: `, ...parts.flatMap((part, i) => (i ? [" · ", part] : [part])));
    clearTimeout(timer);
    timer = setTimeout(() => setText(region, values.textContent ?? ""), 150);
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
  signal.addEventListener("abort", () => {
    bound.abort();
    clearTimeout(timer);
  });
  return (changed) => {
    if (!only(changed, "tiles", "head", "target", "foil")) update();
  };
});
