/**
 * Interventions: heads knocked out and rows of attention set, the list of active ones, and the predictions before and
 * after. Inside another view only the controls are shown, since that view shows the list and the prediction itself.
 */

import { h, on, setChildren, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { headAddress } from "../base/navigation.ts";
import { createHeading, only, view } from "../base/view.ts";
import { renderLayerSlider } from "../maps/LayerSlider.ts";
import { createActiveList } from "./bar.ts";
import { createChange } from "./change.ts";
import { ablated, KNOCKS, knock, onK, shownHeadOf } from "./list.ts";
import { createRowEditor } from "./row.ts";

export const renderInterventionView = view((ctx, root, signal) => {
  const alone = root === ctx.el;
  const heading = createHeading(ctx);
  const slider = h("div");
  const act = h("button.button", { type: "button" });
  const how = h(
    "select.button",
    { "aria-label": "replacement for a head's output" },
    h("option", { value: "zero" }, "write nothing"),
    h("option", { value: "mean" }, "write its mean over the text"),
  );
  const why = h("div.warning", { role: "note" });
  const answers = createAnswers(ctx, signal, () => update());
  const refusal = (): string =>
    answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? answers.failure("interventions") ?? "";
  const bar = createActiveList(ctx, signal, "Nothing is changed yet: knock out a head, or set a row of its attention.");
  const change = createChange(ctx, answers);
  const copy = createCopyButton(ctx, signal, () => change.place());
  const editor = createRowEditor(ctx, answers, signal, refusal);
  const code = h("code", "trace.rerun(*view.interventions())");
  const note = h(
    "div.line",
    "Maps show the model as it was recorded. In Python, ",
    code,
    " gives a trace with the active interventions applied.",
  );
  const pulls = h("div.row.active-acts", act, how);
  root.classList.add("aw-intervention");
  root.role = "group";
  if (alone) {
    const body = h(
      "div.active-body",
      h("div.panel", pulls, editor.element),
      h("div.panel", bar.element, change.element),
    );
    setChildren(root, ...heading.elements, slider, why, body, note, copy.element);
    renderLayerSlider(ctx.child({ title: "" }), slider);
    root.ariaLabel = "interventions";
  } else setChildren(root, h("div", why), pulls, editor.element, note);
  pulls.role = "group";
  pulls.ariaLabel = "heads";
  pulls.dataset.awKeys = KNOCKS;

  const toggle = (): void => {
    const at = shownHeadOf(ctx);
    if (!at || typeof at.head !== "number" || refusal()) return;
    knock(ctx, at.source.stack, at.layer, at.head, how.value as "zero" | "mean");
  };
  on(act, signal, { click: toggle });
  onK(root, signal, toggle);

  const update = (): void => {
    const at = shownHeadOf(ctx);
    const reason = refusal();
    heading.show("", "interventions");
    // Errors of the connection are already full sentences.
    const unasked = reason === answers.failure("interventions");
    setText(why, reason && !unasked ? `Nothing can be changed here: ${reason}.` : reason);
    const head = at && typeof at.head === "number" ? at.head : null;
    const out = at && head !== null && ablated(ctx, at.source.stack, at.layer, head);
    const name = at && head !== null ? `head ${headAddress(ctx, at.layer, head)}` : "a head";
    setText(act, out ? `restore ${name}` : `knock out ${name}`);
    act.disabled = head === null || Boolean(reason);
    act.title = head === null ? "Choose one head first" : "k";
    how.disabled = Boolean(reason || out);
    if (alone) {
      bar.show();
      change.show();
      copy.show();
    }
    editor.show();
  };
  return (changed) => {
    if (changed.has("interventions")) answers.retry("changed");
    if (!only(changed, "hover", "tiles")) update();
  };
});
