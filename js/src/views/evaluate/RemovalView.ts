/**
 * The top k tokens of an explanation are removed, or kept alone: the prediction for every k, and what the model still
 * sees. One request covers all steps; the slider acts in the browser.
 */

import { h, on, setChildren, setFlag, setText, shortLabel, watchWidth } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { nameOf } from "../base/cellValues.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFetchStatus } from "../base/fetchStatus.ts";
import { createMenu } from "../base/menu.ts";
import { chooseMethod } from "../base/methodChoice.ts";
import { methodsOf, plural } from "../base/navigation.ts";
import { createSegments } from "../base/segmentedControl.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { renderLayerSlider } from "../maps/LayerSlider.ts";
import { createUnits } from "../text/units.ts";
import { createChart } from "./removal/chart.ts";
import { choicesOf, EFFECTS, strategyName } from "./removal/maskingStrategies.ts";
import { drawPredictionChange } from "./removal/predictionChange.ts";
import { createRemainingText } from "./removal/remainingText.ts";
import { requestOf, rowWords } from "./removal/request.ts";
import { createStepSlider } from "./removal/stepSlider.ts";
import { type Mode, predictedWords, type Removal, removalAt, valueWithAll, valueWords } from "./removal/steps.ts";

const MODES: Record<Mode, string> = { gone: "remove the top k", kept: "keep only the top k" };
const NAMED = 4;

export const renderRemovalView = view((ctx, root, signal) => {
  /** Not inside another view, which has its own heading and menus. */
  const alone = root === ctx.el;
  const fold = root.closest("details");
  const method = createMenu("method", signal, (name) => chooseMethod(ctx, name));
  const operator = createMenu("removed by", signal, (name) => {
    ctx.model.set("options", { ...ctx.model.get("options"), operator: name } as never);
    ctx.model.save_changes();
  });
  const modes = createSegments("remove or keep", MODES, signal, () => paint());
  const units = createUnits(ctx, signal);
  const heading = createHeading(
    ctx,
    ...(alone ? [method.field] : []),
    operator.field,
    modes.element,
    ...(alone ? [units.element] : []),
  );
  const layers = h("div.removal-layers");
  const answers = createAnswers(ctx, signal, () => update());
  const state = createFetchStatus(() => answers);
  const caption = h("div.line");
  const player = createStepSlider(signal, () => paint());
  const chart = createChart(ctx, signal, (step) => {
    player.stop();
    if (step !== player.at()) player.go(step);
  });
  const turn = h("div.removal-turn");
  const readout = createReadout();
  const copy = createCopyButton(ctx, signal, () => {
    const [step, mode] = [player.at(), modes.value()];
    if (!removal || !Number.isFinite(removal.values[mode][step])) return null;
    return { of: "left", ...requestOf(ctx), k: removal.steps[step], kept: mode === "kept" };
  });
  const seen = createRemainingText(ctx, signal, (token) => choose(token));
  const body = h("div.removal-body", caption, chart.element, player.element, turn, ...readout.elements, seen.element);
  let removal: Removal | null = null;
  let width = 0;

  root.classList.add("aw-removal");
  root.role = "group";
  setChildren(
    root,
    ...heading.elements,
    ...(alone ? [layers] : []),
    state.element,
    body,
    ...(alone ? [copy.element] : []),
  );
  if (alone) renderLayerSlider(ctx.child({ title: "" }), layers);

  const read = (): void => {
    const [answer, topic, failure] = removalAt(answers, requestOf(ctx));
    setFlag(body, "data-stale", !answer);
    state.show(topic, failure);
    removal = answer ?? removal;
    body.hidden = !removal;
    if (answer) player.until(answer.steps.length - 1);
  };

  /** In a map, a token pins its row; in attributions, the slider moves to the step that removes the token. */
  const choose = (token: number): void => {
    const { kind, unit } = ctx.source();
    if (kind === "map") {
      ctx.selection.pin({ unit, query: token, key: -1 });
      return;
    }
    const rank = removal?.order.indexOf(token) ?? -1;
    if (!removal || rank < 0) return;
    const step = removal.steps.findIndex((k) => k > rank);
    player.go(step === player.at() ? step - 1 : step);
  };

  const update = (): void => {
    if (width <= 0 || fold?.open === false) return; // not visible: nothing is requested
    const { source } = ctx.resolved();
    if (alone) {
      const lost = ctx.tiles.status().state === "no-kernel";
      method.offer(ctx.options.method ? [] : methodsOf(ctx.header(), ctx.options.methods, lost), source.method);
      layers.hidden = source.kind === "attributions" && source.layers.length < 2;
      units.show();
      if (!layers.hidden) units.element.hidden = true;
    }
    read();
    const isPage = ctx.model.get("runtime") === "";
    operator.offer(removal ? choicesOf(removal, isPage) : [], removal?.operator ?? "");
    root.ariaLabel = heading.show(removal ? rowWords(ctx) : "", `remove the top k of ${source.title}`);
    if (!removal) return;
    seen.build();
    paint();
  };

  /** Update words, chart and text for the slider position. Sends nothing. */
  const paint = (): void => {
    if (!removal || width <= 0) return;
    copy.show();
    const { order, steps, operator: done, score, target, title } = removal;
    const [step, mode] = [player.at(), modes.value()];
    const isKept = mode === "kept";
    const { unit, key } = ctx.source();
    const k = steps[step] ?? 0;
    const all = order.length;
    const verb = isKept ? "kept" : "removed";
    const named = `“${shortLabel(target, 40)}”`;
    const what = score === "probability" ? `probability of ${named}` : named;
    setText(
      caption,
      `${what} (${title}) ${isKept ? "with only the top k" : "without the top k"} ${plural(unit)} · ${strategyName(done)}: ${EFFECTS[done]}`,
    );
    chart.show(removal, mode, step, width);
    drawPredictionChange(turn, removal, mode, step);
    const first = order.slice(0, Math.min(k, NAMED)).map((token) => nameOf(ctx, key, token));
    const list = first.length ? ` (${first.join(", ")}${k > NAMED ? ", …" : ""})` : "";
    const gone = `${k} of ${all} ${all === 1 ? unit : plural(unit)} ${verb}${list}`;
    const value = removal.values[mode][step] ?? NaN;
    const then = Number.isNaN(value)
      ? "no value is left"
      : `${target} ${valueWords(removal, value)}, ${valueWords(removal, valueWithAll(removal))} with all`;
    readout.show(`${gone}: ${then}${predictedWords(removal, mode, step, " · predicted now: ")}`, true);
    player.name(`${k} of ${all}`, `${plural(unit)} ${verb}`, `${gone}, ${then}`);
    seen.show(removal, new Set(isKept ? order.slice(k) : order.slice(0, k)));
  };

  if (fold) on(fold, signal, { toggle: () => update() });
  watchWidth(root, signal, (now) => {
    width = now;
    update();
  });
  return (changed) => {
    if (only(changed, "hover")) seen.point();
    else update();
  };
});
