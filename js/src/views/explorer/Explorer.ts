/** The whole analysis in a screen: predictions and text on top, all heads, a map, and a description of it in words. */

import type { Readout, ViewContext } from "../../context.ts";
import {
  assign,
  createWatch,
  h,
  iconButton,
  on,
  quoted,
  setChildren,
  setFlag,
  setText,
  watchWidth,
} from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createExactRows, describeCells } from "../base/cellValues.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { explanationAtRest, requestExplanation } from "../base/explained.ts";
import { createFrame } from "../base/frame.ts";
import { onLetter } from "../base/letters.ts";
import { fixedWords } from "../base/mixers.ts";
import { addressWords, whereWords } from "../base/navigation.ts";
import { openedAt } from "../base/opening.ts";
import { EXPAND, SHRINK } from "../base/signs.ts";
import {
  createHeadControl,
  createLayerControl,
  createMethodControl,
  createUnitControl,
  together,
} from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { drawing } from "../charts/svg.ts";
import { KNOCKS, knock, shownHeadOf, specsOf } from "../interventions/list.ts";
import { renderHeatmap } from "../maps/Heatmap.ts";
import { isHeard } from "../media/audio/heard.ts";
import { createForgetting } from "../text/forgetting.ts";
import { renderPredictions } from "../text/Predictions.ts";
import { hasManyTargets, renderTokenStrip } from "../text/TokenStrip.ts";
import { createAnswer } from "./answer.ts";
import { createChips } from "./chips.ts";
import { createFind } from "./find.ts";
import { createFollow } from "./follow.ts";
import { createPanes, type Panel } from "./tabs.ts";
import { createTextLine } from "./textLine.ts";

export const renderExplorer = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => refresh());
  const controls = together(
    createMethodControl(ctx, signal),
    createLayerControl(ctx, signal),
    createHeadControl(ctx, signal),
    createUnitControl(ctx, signal),
  );
  const chips = createChips(ctx, signal, answers);
  const answer = createAnswer(ctx, signal, answers);
  const copy = createCopyButton(ctx, signal);
  const follow = createFollow(ctx, signal, answers);
  const [text, heads] = [h("div.reading"), h("div.pane.heads.column")];
  const box = (): HTMLElement => h("div.map", { "data-box": "" });
  const [map, layers, picture, sound] = [box(), box(), box(), box()];
  const find = createFind(ctx, signal, (index) =>
    text.querySelector(`.aw-tok[data-i="${index}"]`)?.scrollIntoView({ block: "nearest" }),
  );
  const line = createTextLine(ctx, signal, answers, text);
  const forgetting = createForgetting(ctx, signal, answers, text);
  const sentence = h("p.sentence.clip");
  const message = h("div.warning", { role: "status" });
  const specs = h("div");
  const middle = h("div.pane.main.column", message, h("div.state", specs, follow.element), map, layers, picture, sound);
  const inner = ctx.child({ title: "" });
  /** A panel with another view, drawn when first opened; none if the view is not loaded. */
  const holding = (name: string, title: string): Panel[] => {
    const render = name === "Predictions" ? renderPredictions : ctx.views[name];
    if (!render) return [];
    const inside = h("div.panel");
    const open = (): void => {
      if (!inside.childElementCount) render(inner, inside);
    };
    return [{ name, title, element: h("section", { "data-of": name }, inside), open, roomy: true }];
  };
  const panes = createPanes(ctx, signal, heads, middle, [
    { name: "answer", title: "in words", element: answer.element, open: answer.show },
    ...holding("Predictions", "predictions"),
    ...holding("InterventionView", "what if a head or a row changed"),
    ...holding("RemovalView", "what if tokens were removed"),
    ...holding("FeatureStrip", "features"),
  ]);
  watchWidth(root, signal, panes.fit);
  panes.element.dataset.awKeys = KNOCKS;
  const frame = createFrame(ctx, root, {
    layout: ".flush.untitled",
    controls: controls.elements,
    lead: [
      chips.element,
      h(
        "div.text-lead",
        h("div.text-row", text, line.field, find.element, line.tools),
        forgetting.element,
        sentence,
        line.state,
      ),
    ],
    body: [panes.element],
    hint: `Click a ${ctx.axisOf(ctx.source().key).grid ? "patch" : "token"} to see what it ${ctx.source().words[2]}.`,
    actions: [copy.element],
  });
  root.classList.add("aw-explorer");
  root.role = "group";
  root.ariaLabel = "attention explorer";
  const expand = createExpand(root, signal);
  root.querySelector(":scope > .aw-toolbar > .aw-end")?.append(expand);
  onLetter(root, signal, "k", () => {
    const at = shownHeadOf(ctx);
    const why =
      answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? answers.failure("interventions") ?? "";
    if (!at || typeof at.head !== "number") setText(message, "Choose one head first: then k knocks it out.");
    else if (why) setText(message, `No head can be knocked out: it ${why}.`);
    else if (fixedWords(at.source, at.layer, at.head))
      setText(message, `This cannot be knocked out: ${fixedWords(at.source, at.layer, at.head)}.`);
    else {
      setText(message, "");
      knock(ctx, at.source.stack, at.layer, at.head, "zero");
    }
  });

  const exactRows = createExactRows(ctx, () => point());
  /** The readout: where the pointer or the pin is. Runs on every pointer move. */
  const point = (): void => {
    if (!picture.hidden || !sound.hidden || heads.matches(":hover, :focus-within")) return;
    const { source, layer, head } = ctx.resolved();
    const tile = ctx.tiles.get(source.id, layer, head) ?? null;
    const cells = describeCells(ctx, exactRows, tile, ctx.cell("hover"), ctx.cell("pinned"));
    frame.readout.show(`${cells} · ${whereWords(ctx)}`, root.contains(document.activeElement));
  };

  const { saes } = ctx.options as { saes?: unknown };
  const isOther = createWatch();
  const refresh = (): void => {
    controls.show();
    chips.show();
    copy.show();
    if (panes.isOpen("answer")) answer.show();
    follow.show();
    find.show();
    line.show();
    forgetting.show();
    if (setText(sentence, sentenceOf(ctx))) sentence.title = sentence.textContent ?? "";
  };
  const update = (): void => {
    const header = ctx.header();
    const { source } = ctx.resolved();
    frame.show("", header.model);
    refresh();
    if (!isOther(header, ctx.options, source, ctx.layered().source)) return;
    const predicts = header.predictions.items.length > 0;
    const attributed = source.kind === "attributions";
    const isSingle = source.layers.length * (source.heads?.length ?? 1) < 2;
    assign(chips.element.parentElement as HTMLElement, { hidden: !predicts });
    const many = hasManyTargets(ctx);
    const axis = ctx.axisOf(source.key);
    // A picture replaces map and heads, and if it is the whole input, also the text.
    const pictured = Boolean(axis.grid && ctx.views.ImageView);
    picture.hidden = !pictured;
    const sounds = !!ctx.views.AudioView && isHeard(ctx, source);
    const drawn = pictured || sounds;
    sound.hidden = !sounds;
    map.hidden = drawn || (attributed && !many);
    layers.hidden = drawn || !attributed || many || ctx.layered().source.layers.length < 2;
    text.hidden = pictured && axis.labels.every((_, i) => axis.special[i] || !axis.cells || (axis.cells[i] ?? -1) >= 0);
    assign(text.closest<HTMLElement>(".aw-lead") ?? text, { hidden: text.hidden });
    if (predicts) requestExplanation(ctx);
    drawMaps();
    panes.offer(
      (name) => {
        if (name === "FeatureStrip") return Boolean(saes);
        return predicts || !["RemovalView", "Predictions"].includes(name);
      },
      !(attributed || isSingle || pictured),
      pictured,
    );
  };
  /** Draw the visible parts for the first time. */
  const drawMaps = (): void => {
    if (!map.hidden && !map.firstChild) renderHeatmap(inner, map);
    if (!layers.hidden && !layers.firstChild) ctx.views.LayerMap?.(inner, layers);
    if (!text.hidden && !text.firstChild) renderTokenStrip(inner, text);
    if (picture.hidden && !heads.firstChild) ctx.views.HeadGrid?.(ctx.child({ title: "" }, ofGrid), heads);
    const { ImageView, AudioView } = ctx.views;
    for (const [media, draw] of [[picture, ImageView] as const, [sound, AudioView] as const])
      if (!media.hidden && !media.firstChild) draw?.(ctx.child({ title: "" }, frame.readout), media);
  };
  // The grid has the readout while one of its heads is hovered.
  const ofGrid: Readout = {
    show: (text, aloud) => heads.matches(":hover, :focus-within") && frame.readout.show(text, aloud),
  };
  answers.get("interventions"); // fetched early, so that it is available when needed
  update();
  ctx.views.ActiveList?.(inner, specs);
  on(heads, signal, { pointerleave: () => point() });
  return (changed) => {
    if (!only(changed, "hover")) update();
    else forgetting.show();
    point();
    if (changed.has("head") || changed.has("interventions")) setText(message, "");
    setFlag(root, "data-changed", specsOf(ctx).length > 0);
  };
});

/** The meaning of the colours of the text: which word speaks for the target, or which row of the map it is. */
function sentenceOf(ctx: ViewContext): string {
  const { source, layer, head } = ctx.resolved();
  const row = ctx.cell("pinned")?.query ?? -1;
  const explained = explanationAtRest(ctx);
  if (explained || source.kind === "attributions") return (explained ?? source).findings[Math.max(row, 0)] ?? "";
  const query = quoted(ctx.axisOf(source.query).labels, row < 0 ? openedAt(ctx, source) : row, ctx.options.indexBase);
  return `what ${query} ${source.words[2]} in ${addressWords(ctx, layer, head)}`;
}

/** A button that expands the view to the window, and back; Escape collapses it as well. */
function createExpand(root: HTMLElement, signal: AbortSignal): HTMLElement {
  const isLarge = (): boolean => root.matches(":popover-open");
  const button = iconButton(signal, "", "fill the window", () => set(!isLarge()));
  const set = (large: boolean): void => {
    // A popover is above everything, whatever the page does with the cell; without a popover it would be hidden.
    if (large) {
      root.popover = "manual";
      root.showPopover();
    } else {
      root.hidePopover();
      root.popover = null;
    }
    draw();
  };
  const draw = (): void => {
    const name = isLarge() ? "back to the page" : "fill the window";
    button.title = name;
    button.ariaLabel = name;
    setChildren(button, drawing(isLarge() ? SHRINK : EXPAND));
  };
  draw();
  button.hidden = !("showPopover" in root);
  on(root, signal, {
    keydown(event) {
      if (event.key === "Escape" && !event.defaultPrevented && isLarge()) set(false);
    },
  });
  return button;
}
