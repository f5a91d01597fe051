/** Everything in one output: the controls, the whole model, one head, the text, and the prediction. */

import { createWatch, h, on, setChildren, setFlag, setText } from "../dom.ts";
import { createAnswers } from "../wire/answers.ts";
import { createCopyButton } from "./base/copyPython.ts";
import { filterPlace } from "./base/filters.ts";
import { createMenu } from "./base/menu.ts";
import { chooseMethod } from "./base/methodChoice.ts";
import { methodsOf, stacksOf } from "./base/navigation.ts";
import { createHeading, only, view } from "./base/view.ts";
import { KNOCKS, knock, onK, shownHeadOf } from "./interventions/list.ts";
import { renderHeatmap } from "./maps/Heatmap.ts";
import { renderLayerSlider } from "./maps/LayerSlider.ts";
import { renderPredictions } from "./text/Predictions.ts";
import { hasManyTargets, renderTokenStrip } from "./text/TokenStrip.ts";

export const renderExplorer = view((ctx, root, signal) => {
  const method = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const stack = createMenu("stack", signal, (name) => ctx.selection.set({ stack: name }));
  const heading = createHeading(ctx, method.field, stack.field, filterPlace(ctx));
  const panel = (): HTMLElement => h("div.panel");
  const [slider, map, strip, layers, grid, predictions] = [panel(), panel(), panel(), panel(), panel(), panel()];
  // In reading order on a narrow page; on a wide page the second column moves to the left.
  const [main, side] = [h("div.column", map, strip, layers), h("div.column.side", grid, predictions)];
  const features = panel();
  const copy = createCopyButton(ctx, signal);
  const specs = h("div");
  const message = h("div.warning", { role: "status" });
  /** A view that is drawn when unfolded; empty if the view is not loaded. */
  const folded = (name: string, title: string): HTMLElement[] => {
    const render = ctx.views[name];
    if (!render) return [];
    const inside = h("div");
    const element = h("details.what-if", { "data-of": name }, h("summary", title), inside);
    on(element, signal, { toggle: () => inside.childElementCount || render(inner, inside) });
    return [element];
  };
  const inner = ctx.child({ title: "" });
  const body = h(
    "div.explorer-body",
    { role: "group", "aria-label": "all panels", "data-aw-keys": KNOCKS },
    slider,
    main,
    side,
    features,
    ...folded("InterventionView", "what if a head or a row of attention were changed"),
    ...folded("RemovalView", "what if tokens were removed"),
  );
  root.classList.add("aw-explorer");
  root.role = "group";
  root.ariaLabel = "attention explorer";
  setChildren(root, ...heading.elements, message, specs, body, copy.element);
  const answers = createAnswers(ctx, signal, () => undefined);
  onK(root, signal, () => {
    const at = shownHeadOf(ctx);
    const why =
      answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? answers.failure("interventions") ?? "";
    if (!at || typeof at.head !== "number") setText(message, "Choose one head first: then k knocks it out.");
    else if (why) setText(message, `No head can be knocked out: it ${why}.`);
    else {
      setText(message, "");
      knock(ctx, at.source.stack, at.layer, at.head, "zero");
    }
  });

  const isOther = createWatch();
  const update = (): void => {
    const { options } = ctx;
    const header = ctx.header();
    const { source } = ctx.resolved();
    heading.show("", header.model);
    copy.show();
    const lost = ctx.tiles.status().state === "no-kernel";
    if (!isOther(header, options, source, ctx.layered().source, lost)) return;
    const next = ctx.counterpart()?.source.method;
    method.offer(options.method ? [] : methodsOf(header, options.methods, lost), source.method, next);
    const stacks = options.stack ? [] : stacksOf(header, source.method);
    stack.offer(
      stacks.map((name) => ({ value: name, label: name })),
      source.stack,
    );
    const attributed = source.kind === "attributions";
    grid.hidden = attributed || source.layers.length * (source.heads?.length ?? 1) < 2;
    map.hidden = attributed && !hasManyTargets(ctx);
    layers.hidden = !attributed || ctx.layered().source.layers.length < 2;
    const removal = body.querySelector<HTMLElement>("[data-of=RemovalView]");
    if (removal) removal.hidden = header.predictions.items.length === 0;
    setFlag(body, "data-two", !(grid.hidden && header.predictions.items.length === 0));
  };
  answers.get("interventions"); // fetched early, so that it is there when needed
  update();
  renderLayerSlider(inner, slider);
  renderHeatmap(inner, map);
  renderTokenStrip(inner, strip);
  ctx.views.LayerMap?.(inner, layers);
  ctx.views.HeadGrid?.(inner, grid);
  ctx.views.ActiveList?.(inner, specs);
  renderPredictions(inner, predictions);
  const { saes } = ctx.options as { saes?: unknown };
  if (saes) ctx.views.FeatureStrip?.(inner, features);
  features.hidden = !saes;
  return (changed) => {
    if (!only(changed, "hover")) update();
    if (changed.has("head") || changed.has("interventions")) setText(message, "");
  };
});
