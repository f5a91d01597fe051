/** Attributions in one output: targets by sources, the text, and the values in every layer. */

import { h, setChildren } from "../../dom.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { filterPlace } from "../base/filters.ts";
import { plural, whereWords } from "../base/navigation.ts";
import { createHeading, only, view } from "../base/view.ts";
import { renderHeatmap } from "../maps/Heatmap.ts";
import { renderLayerMap } from "../maps/LayerMap.ts";
import { hasManyTargets, renderTokenStrip } from "./TokenStrip.ts";

export const renderRelevanceMap = view((ctx, root, signal) => {
  const heading = createHeading(ctx, filterPlace(ctx));
  const copy = createCopyButton(ctx, signal);
  const [map, strip, layers] = [h("div.panel"), h("div.panel"), h("div.panel")];
  root.classList.add("aw-relevance");
  root.role = "group";
  setChildren(root, ...heading.elements, h("div.column", map, strip, layers), copy.element);
  const inner = ctx.child({ title: "" });
  const update = (): void => {
    root.ariaLabel = heading.show(
      (shown) => (shown.source.layers.length > 1 ? `${whereWords(ctx, shown)} · ` : "") + plural(shown.source.unit),
    );
    copy.show();
    map.hidden = !hasManyTargets(ctx);
    layers.hidden = ctx.layered().source.layers.length < 2;
  };
  update();
  renderHeatmap(inner, map);
  renderTokenStrip(inner, strip);
  renderLayerMap(inner, layers);
  return (changed) => {
    if (!only(changed, "hover")) update();
  };
});
