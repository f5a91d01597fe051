/**
 * Interventions: heads knocked out and rows of attention set, the list of active interventions, and the predictions
 * before and after. A nested view has only the controls, since its outer view shows the list and the prediction.
 */

import { h, on, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { onLetter } from "../base/letters.ts";
import { failed } from "../base/missing.ts";
import { attends, fixedWords } from "../base/mixers.ts";
import { headAddress } from "../base/navigation.ts";
import { createHeadControl, createLayerControl, together } from "../base/toolbar.ts";
import { only, view } from "../base/view.ts";
import { createActiveList } from "./bar.ts";
import { createChange } from "./change.ts";
import { ablated, KNOCKS, knock, shownHeadOf } from "./list.ts";
import { createRowEditor } from "./row.ts";

export const renderInterventionView = view((ctx, root, signal) => {
  const alone = root === ctx.el;
  const controls = together(createLayerControl(ctx, signal), createHeadControl(ctx, signal));
  const act = h("button.button.knock", { type: "button", "data-needs-kernel": "" });
  const how = h(
    "select.button",
    { "aria-label": "replacement for a head's output" },
    h("option", { value: "zero" }, "to zero"),
    h("option", { value: "mean" }, "to its mean"),
  );
  const answers = createAnswers(ctx, signal, () => update());
  const refusal = (): string =>
    answers.get<{ refusal: string }>("interventions")?.meta.refusal ?? answers.failure("interventions") ?? "";
  const bar = createActiveList(ctx, signal, "Nothing is changed yet.");
  const change = createChange(ctx, answers);
  const copy = createCopyButton(ctx, signal, () => change.numberAddress());
  const editor = createRowEditor(ctx, answers, signal, refusal);
  const pulls = h("div.row.active-acts", act, how);
  const row = h("div.active-pane.active-row", editor.element);
  const panes = alone
    ? [h("div.active-pane", pulls, bar.element), h("div.active-pane.active-next", change.element), row]
    : [h("div.active-pane", pulls), row];
  const frame = createFrame(ctx, root, {
    layout: ".flush.untitled",
    controls: controls.elements,
    body: [h("div.active-body", ...panes)],
    hint: "Knock out a head to see what changes.",
    says: true,
    actions: [copy.element],
  });
  root.classList.add("aw-intervention");
  root.role = "group";
  root.ariaLabel = "interventions";
  pulls.role = "group";
  pulls.ariaLabel = "heads";
  pulls.dataset.awKeys = KNOCKS;

  const toggle = (): void => {
    const at = shownHeadOf(ctx);
    if (!at || typeof at.head !== "number" || refusal() || fixedWords(at.source, at.layer, at.head)) return;
    const only = attends(at.source, at.layer, at.head) ? how.value : "zero";
    knock(ctx, at.source.stack, at.layer, at.head, only as "zero" | "mean");
  };
  on(act, signal, { click: toggle });
  onLetter(root, signal, "k", toggle);

  const update = (): void => {
    const at = shownHeadOf(ctx);
    const reason = refusal();
    frame.show("", "What if a head or a row changed");
    // Errors of the connection are already full sentences.
    const unasked = reason === answers.failure("interventions");
    const retry = (): void => answers.again("interventions");
    frame.lacks(
      !reason
        ? null
        : unasked
          ? { ...failed("interventions", reason, retry), other: true }
          : { kind: "none", words: `Nothing can be changed here: ${reason}` },
    );
    const head = at && typeof at.head === "number" ? at.head : null;
    const why = at && head !== null ? fixedWords(at.source, at.layer, head) : "";
    const out = at && head !== null && !why && ablated(ctx, at.source.stack, at.layer, head);
    const name = at && head !== null ? `head ${headAddress(ctx, at.layer, head)}` : "a head";
    setText(act, out ? `Restore ${name}` : `Knock out ${name}`);
    act.disabled = head === null || Boolean(reason || why);
    act.title = head === null ? "Choose one head first" : why ? `cannot be knocked out: ${why}` : "k";
    // The output of a kernel's head is set to zero alone.
    how.disabled = Boolean(reason || out || why) || !(at && head !== null && attends(at.source, at.layer, head));
    if (alone) {
      controls.show();
      bar.show();
      change.show();
      copy.show();
      frame.readout.show(change.words(), true);
    }
    editor.show();
  };
  return (changed) => {
    if (changed.has("interventions")) answers.retry("changed");
    if (!only(changed, "hover", "tiles")) update();
  };
});
