/**
 * Attributions in a single output: the text, the values in every layer, or, of many targets, targets by sources; and,
 * where there is room, the evidence for and against the target in words. All of them share a scale.
 */

import type { Readout } from "../../context.ts";
import { assign, h, reserve, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createAccount, detailsOf } from "../base/account.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { whereWords } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createNavigation } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createAnswer } from "../explorer/answer.ts";
import { renderHeatmap } from "../maps/Heatmap.ts";
import { renderLayerMap } from "../maps/LayerMap.ts";
import { hasManyTargets, renderTokenStrip } from "./TokenStrip.ts";

export const renderRelevanceMap = view((ctx, root, signal) => {
  const controls = createNavigation(ctx, signal);
  const answers = createAnswers(ctx, signal, () => answer.show());
  const answer = createAnswer(ctx, signal, answers);
  const copy = createCopyButton(ctx, signal);
  const title = h("b.title");
  const shows = createSegments("picture", { layers: "layers", targets: "targets" }, signal, () => update());
  const text = h("div.reading");
  const [map, layers] = [h("div.panel", { "data-box": "" }), h("div.panel", { "data-box": "" })];
  const account = createAccount(signal);
  const sums = h("div.overlay", account.element);
  const main = h("div.relevance-main.column", map, layers, sums);
  const side = h("div.relevance-side", { tabindex: "0", role: "group", "aria-label": "in words" }, answer.element);
  root.classList.add("aw-relevance");
  root.role = "group";
  const frame = createFrame(ctx, root, {
    layout: ".flush.untitled",
    controls: [title, ...controls.elements, shows.element],
    lead: [text],
    body: [main, side],
    hint: "Click a token to read its value.",
    actions: [copy.element],
  });
  const update = (): void => {
    const { source, layer, head } = ctx.resolved();
    const name = frame.show(whereWords(ctx));
    root.ariaLabel = name;
    if (setText(title, name)) title.title = name;
    const other = ctx.counterpart();
    if (other && name === source.title) reserve(title, name, other.source.title);
    controls.show();
    copy.show();
    answer.show();
    const hasLayers = ctx.layered().source.layers.length > 1;
    const hasTargets = hasManyTargets(ctx);
    assign(shows.element, { hidden: !(hasLayers && hasTargets) });
    const isMap = hasTargets && (!hasLayers || shows.value() === "targets");
    assign(map, { hidden: !isMap });
    assign(layers, { hidden: isMap || !hasLayers });
    assign(main, { hidden: !hasLayers && !hasTargets });
    const row = Math.max(0, ctx.cell("pinned")?.query ?? 0);
    account.show(source.accounts[row] ?? "", detailsOf(source, source.sums.slice(row, row + 1)));
    const longest = Math.max(0, ...source.accounts.map(({ length }) => length));
    reserve(
      sums,
      ...source.accounts
        .filter(({ length }) => length === longest)
        .slice(0, 1)
        .map((words) => `${words} Details`),
    );
    assign(sums, { hidden: !source.sums.length });
    ctx.tiles.request(source.id, layer, head);
  };
  update();
  // The readout is that of a hovered picture, otherwise that of the text.
  const speaks = (picture: HTMLElement): boolean => picture.matches(":hover, :focus-within");
  const from = (speaker: () => boolean): Readout => ({
    show: (words, aloud) => speaker() && frame.readout.show(words, aloud),
  });
  renderTokenStrip(
    ctx.child(
      { title: "" },
      from(() => !speaks(map) && !speaks(layers)),
    ),
    text,
  );
  renderHeatmap(
    ctx.child(
      { title: "" },
      from(() => speaks(map)),
    ),
    map,
  );
  renderLayerMap(
    ctx.child(
      { title: "" },
      from(() => speaks(layers)),
    ),
    layers,
  );
  return (changed) => {
    if (!only(changed, "hover")) update();
  };
});
