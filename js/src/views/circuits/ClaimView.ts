/** Claims about heads: the verdict, the effect compared with its controls, and the counterexamples. */
import type { ViewContext } from "../../context.ts";
import { atEnd, h, on, onResize, setChildren, setStyles, setText } from "../../dom.ts";
import { type Answers, createAnswers } from "../../wire/answers.ts";
import { type CopyButton, createCopyButton } from "../base/copyPython.ts";
import { createFrame, type Frame } from "../base/frame.ts";
import { drawInside } from "../base/inside.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening, type Opening } from "../base/openText.ts";
import { only, view } from "../base/view.ts";
import { drawing, svg } from "../charts/svg.ts";
import { bestControl, type ClaimOptions, marked, type Report, type ShownClaim, SIGNS } from "./claims/claim.ts";
import { drawEffect, drawTexts } from "./claims/plots.ts";
import { decimal } from "./words.ts";

/** Smallest widths in px with a column for the details of the run, and with the two pictures side by side. */
const [THREE, TWO] = [960, 560];
const TALL = 176;
const WORST = 3;

/** The elements of the view, and the state that they show. */
interface ClaimState {
  readonly ctx: ViewContext;
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly answers: Answers;
  /** The claims and their checks; empty until the answer arrives. */
  report: Report;
  readonly chips: HTMLDivElement;
  readonly sentence: HTMLSpanElement;
  readonly sign: HTMLSpanElement;
  readonly verdict: HTMLElement;
  readonly words: HTMLSpanElement;
  readonly effect: SVGElement;
  readonly texts: SVGElement;
  readonly unit: HTMLSpanElement;
  readonly head: HTMLElement;
  readonly run: HTMLDivElement;
  readonly worst: HTMLDivElement;
  readonly opening: Opening;
  /** Below the frame, so that neither picture becomes smaller. */
  readonly below: HTMLDivElement;
  readonly copy: CopyButton;
  readonly frame: Frame;
  readonly panels: HTMLElement;
  /** px of the picture; 0 while it is not visible. */
  width: number;
  /** The shown claim; null: none has arrived yet. */
  shown: ShownClaim | null;
  /** Whether the view has not chosen a claim yet. */
  isOpening: boolean;
  /** Ends the nested view of the model. */
  inside: AbortController;
  /** The drawing that others wait for, as it loads the plots. */
  drawn: Promise<void> | null;
  /** The model whose panels are shown. */
  model: string;
  /** The claim whose worst text is open. */
  opened: string;
}

export const renderClaimView = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update(state));
  const chips = h("div.claim-chips", { role: "group", "aria-label": "claims" });
  const sentence = h("span.claim-sentence.clip");
  const sign = h("span.claim-sign");
  const verdict = h("b.claim-verdict");
  const words = h("span.claim-words");
  const effect = svg("svg", { role: "img", class: "aw-drawn aw-claim-plot" });
  const texts = svg("svg", { role: "img", class: "aw-drawn aw-claim-plot" });
  const [unit, head] = [h("span"), h("b")];
  const run = h("div.claim-run");
  const left = h("div.claim-panel", h("div.claim-head.fine", h("b", "effect and controls"), unit), effect);
  const middle = h("div.claim-panel", h("div.claim-head.fine", head, h("span", "beyond the control")), texts);
  const right = h("div.claim-panel", h("div.claim-head.fine", h("b", "details of the run")), run);
  const worst = h("div.claim-worst");
  const opening = createOpening(ctx, signal, () => frame);
  /** Below the frame, so that neither picture becomes smaller. */
  const below = h("div");
  const copy = createCopyButton(ctx, signal, () => ({ of: "claim", claim: options(ctx).claim }));
  const frame = createFrame(ctx, root, {
    layout: ".flush.untitled",
    controls: [h("span.claim-label", "claim"), sentence],
    lead: [chips, h("div.claim-said.inline", sign, verdict, words)],
    body: [h("div.claim-panels", left, middle, right), worst],
    skeleton: "chart",
    hint: "Click a claim to see its counterexamples.",
    actions: [copy.element],
  });
  const panels = root.querySelector(".aw-claim-panels") as HTMLElement;

  const state: ClaimState = {
    ctx,
    root,
    signal,
    answers,
    report: { claims: [], margin: 0, level: 0, model: "" },
    chips,
    sentence,
    sign,
    verdict,
    words,
    effect,
    texts,
    unit,
    head,
    run,
    worst,
    opening,
    below,
    copy,
    frame,
    panels,
    width: 0,
    shown: null,
    isOpening: false,
    inside: new AbortController(),
    drawn: null,
    model: "",
    opened: "",
  };
  root.classList.add("aw-claims");
  root.role = "group";
  on(chips, signal, {
    click(event) {
      const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
      if (at === undefined) return;
      ctx.model.set("options", { ...ctx.model.get("options"), claim: Number(at) } as never);
      ctx.model.save_changes();
    },
  });
  on(worst, signal, {
    click(event) {
      const button = (event.target as Element).closest<HTMLButtonElement>("button[data-open]");
      const at = Number(button?.dataset.open ?? -1);
      const text = state.shown?.worst[at];
      if (!button || !text) return;
      state.isOpening = true;
      opening.open(at, text[0], button, text[4], { claim: claimIndex(state) });
    },
  });
  root.after(below);
  atEnd(signal, () => below.remove());
  onResize(panels, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === state.width) return;
    state.width = now;
    draw(state);
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update(state);
  };
});

function options(ctx: ViewContext): ClaimOptions {
  return ctx.options as ClaimOptions;
}

function claimIndex(state: ClaimState): number {
  return state.report.claims[options(state.ctx).claim] ? options(state.ctx).claim : 0;
}

function showInside(state: ClaimState): void {
  const { below } = state;
  const [inner] = options(state.ctx).inner ?? [];
  if (state.model !== (inner?.model ?? "")) {
    state.model = inner?.model ?? "";
    state.inside.abort();
    state.inside = new AbortController();
    setChildren(below);
    setStyles(below, { "margin-top": inner ? "8px" : "" });
    state.drawn = inner
      ? drawInside(state.ctx, inner, below, AbortSignal.any([state.signal, state.inside.signal]))
      : null;
  }
  // The reader opened it now.
  const now = String(options(state.ctx).opened ?? "");
  if (state.drawn && state.opened !== now && state.isOpening)
    void state.drawn.then(() => below.scrollIntoView({ block: "nearest" }));
  state.opened = now;
}

function draw(state: ClaimState): void {
  const { report, effect, panels, width, shown } = state;
  if (!shown || width <= 0) return;
  const columns = width >= THREE ? 3 : width >= TWO ? 2 : 1;
  panels.dataset.columns = String(columns);
  const side = columns === 3 ? 250 : 0;
  const room = width - side;
  const first = columns === 1 ? room : Math.round(0.6 * room);
  panels.style.setProperty("--aw-first", `${first}px`);
  drawEffect(effect, shown, report.margin, first - 26);
  const height = Math.max(TALL, Number(effect.getAttribute("height")));
  drawTexts(state.texts, shown, report.margin, (columns === 1 ? room : room - first) - 26, height);
}

function say(state: ClaimState, claim: ShownClaim): void {
  const { mean, interval, difference, differenceInterval, below, values, needed } = claim;
  const ends = ([low, high]: readonly (number | null)[]): string =>
    `[${decimal(low ?? -Infinity).replace("Infinity", "∞")}, ${decimal(high ?? Infinity).replace("Infinity", "∞")}]`;
  const best = bestControl(claim);
  setChildren(
    state.words,
    `on average: ${claim.unit} `,
    h("b", decimal(mean ?? Number.NaN)),
    " ",
    h("span.claim-quiet", ends(interval)),
    ", ",
    h("b", decimal(difference ?? Number.NaN, 2, true)),
    " ",
    h("span.claim-quiet", ends(differenceInterval)),
    ` beyond ${claim.control === "same layer" ? "the other heads of its layer" : claim.control}`,
    ...(best ? ["; the best control ", h("b", decimal(best[1]))] : []),
    below ? "; but " : "; ",
    h("b", `${values.length - below} of ${values.length}`),
    " texts clear the margin.",
    needed > values.length ? ` A verdict needs ${needed} texts or more.` : "",
  );
}

function list(state: ClaimState, claim: ShownClaim): void {
  const top = Math.max(1, claim.mean ?? 0, ...claim.values.flatMap((value) => value ?? []));
  const side = (text: string, other: string, name: string): HTMLElement =>
    h(
      "span.claim-text",
      { dir: "auto" },
      ...marked(text, other).map(([part, differs]) => (differs ? h("mark", { "data-of": name }, part) : part)),
    );
  const rows = claim.worst.slice(0, WORST).map(([text, corrupt, value, control], i) => {
    const isAbove = (value ?? 0) - (control ?? 0) >= state.report.margin;
    const share = Math.max(0, Math.min(1, (value ?? 0) / top));
    const bar = h("span.claim-bar", { "aria-hidden": "true" });
    bar.append(
      h("span", { style: `width:${100 * share}%`, ...(isAbove ? { "data-above": "" } : {}) }),
      h("i", { style: `left:${(100 * Math.max(0, claim.mean ?? 0)) / top}%` }),
    );
    const row = h(
      "div.claim-row",
      h("div.claim-pair", side(text, corrupt, "clean"), ...(corrupt ? [side(corrupt, text, "corrupt")] : [])),
      bar,
      h("span.claim-value", decimal(value ?? Number.NaN)),
      state.opening.button(i),
    );
    const [of, at] = options(state.ctx).opened ?? [];
    if (of === claimIndex(state) && at === i) row.ariaCurrent = "true";
    return row;
  });
  const heading = h(
    "div.claim-head.fine",
    h("b", `worst ${rows.length}`),
    h("span", "against the claim"),
    h("span.claim-mark", "| mean of all texts"),
  );
  setChildren(state.worst, heading, ...rows);
}

function listRun(state: ClaimState, claim: ShownClaim): void {
  const { report } = state;
  const { level, model } = report;
  const lines: [string, string][] = [
    [claim.causal ? "minimal pairs given" : "texts given", String(claim.given)],
    ...claim.leftOut.map(([why, count]): [string, string] => [why, `−${count}`]),
    ["texts used", String(claim.values.length)],
  ];
  setChildren(
    state.run,
    ...lines.flatMap(([name, value]) => [h("span", name), h("span.claim-value", value)]),
    h(
      "p",
      `${claim.causal ? "Causal, by patching" : "This shows where the head attends, not what the model uses"}. Intervals: bootstrap over texts, ${Math.round(100 * level)} %.${report.claims.length > 1 ? " Verdicts are Holm's for all claims." : ""}${model ? ` ${model}` : ""}`,
    ),
  );
}

function update(state: ClaimState): void {
  const { answers, chips, sign, frame } = state;
  frame.show("");
  const answer = answers.get<Report>("claims");
  frame.lacks(answer ? null : missingAnswer(answers, "claims", {}, "claims"));
  if (!answer) return;
  state.report = answer.meta;
  const { claims, margin } = state.report;
  const claim = claims[claimIndex(state)];
  if (!claim) return;
  state.shown = claim;
  state.root.ariaLabel = `claim: ${claim.claim}, ${claim.verdict}`;
  setText(state.sentence, claim.claim);
  chips.hidden = claims.length < 2;
  (chips.parentElement as HTMLElement).hidden = claims.length < 2;
  setChildren(
    chips,
    ...claims.map((item, i) =>
      h(
        "button.chip.claim-chip",
        {
          type: "button",
          "data-at": String(i),
          "aria-pressed": String(i === claimIndex(state)),
          "data-verdict": item.verdict,
        },
        drawing(SIGNS[item.verdict], "20 20"),
        item.claim,
      ),
    ),
  );
  sign.dataset.verdict = claim.verdict;
  setChildren(sign, drawing(SIGNS[claim.verdict], "20 20"));
  setText(state.verdict, claim.verdict);
  say(state, claim);
  setText(state.unit, claim.unit);
  setText(state.head, `texts: ${claim.values.length}`);
  listRun(state, claim);
  list(state, claim);
  draw(state);
  state.copy.show();
  showInside(state);
  const best = bestControl(claim);
  const beyond = best ? `head ${claim.head} − best control ${decimal((claim.mean ?? 0) - best[1], 2, true)} · ` : "";
  const out = claim.leftOut.map(([why, count]) => `, ${count} ${why}`).join("");
  frame.readout.show(
    `${beyond}${claim.below} of ${claim.values.length} below ${margin} · ${claim.given} given${out}`,
    false,
  );
}
