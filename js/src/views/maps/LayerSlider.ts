/** The position of linked views in the model: layer (with play), head or reduction, unit. */

import { h, setChildren, setText } from "../../dom.ts";
import { createNavigation } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";

export const renderLayerSlider = view((ctx, root, signal) => {
  const controls = createNavigation(ctx, signal);
  const note = h("div.note");
  root.role = "group";
  root.ariaLabel = "layer, head and unit";
  setChildren(root, h("div.toolbar.bare", ...controls.elements), note);
  return (changed) => {
    // Ignore hovering, which changes nothing here and is frequent.
    if (only(changed, "hover")) return;
    setText(note, ctx.layered().notes.join(" · "));
    controls.show();
  };
});
