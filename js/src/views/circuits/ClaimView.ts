/** Claims about heads: the verdict, the effect compared with its controls, and the counterexamples. */
import { atEnd, h, on, onResize, setChildren, setStyles, setText } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { drawInside } from "../base/inside.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening } from "../base/openText.ts";
import { only, view } from "../base/view.ts";
import { drawing, svg } from "../charts/svg.ts";
import { bestControl, type ClaimOptions, marked, type Report, type ShownClaim, SIGNS } from "./claims/claim.ts";
import { drawEffect, drawTexts } from "./claims/plots.ts";
import { decimal } from "./words.ts";

/** Smallest widths in px with a column for the details of the run, and with the two pictures side by side. */
const [THREE, TWO] = [960, 560];
const TALL = 176;
const WORST = 3;

export const renderClaimView = view((ctx, root, signal) => {
  const options = (): ClaimOptions => ctx.options as ClaimOptions;
  const answers = createAnswers(ctx, signal, () => update());
  let report: Report = { claims: [], margin: 0, level: 0, model: "" };
  const chips = h("div.claim-chips", { role: "group", "aria-label": "claims" });
  const sentence = h("span.claim-sentence");
  const sign = h("span.claim-sign");
  const verdict = h("b.claim-verdict");
  const words = h("span.claim-words");
  const effect = svg("svg", { role: "img", class: "aw-claim-plot" });
  const texts = svg("svg", { role: "img", class: "aw-claim-plot" });
  const [unit, head] = [h("span"), h("b")];
  const run = h("div.claim-run");
  const left = h("div.claim-panel", h("div.claim-head", h("b", "effect and controls"), unit), effect);
  const middle = h("div.claim-panel", h("div.claim-head", head, h("span", "beyond the control")), texts);
  const right = h("div.claim-panel", h("div.claim-head", h("b", "details of the run")), run);
  const worst = h("div.claim-worst");
  const opening = createOpening(ctx, signal, () => frame);
  /** Stands below the frame, so that neither picture becomes smaller. */
  const below = h("div");
  const copy = createCopyButton(ctx, signal, () => ({ of: "claim", claim: options().claim }));
  const frame = createFrame(ctx, root, {
    controls: [h("span.claim-label", "claim"), sentence],
    lead: [chips, h("div.claim-said", sign, verdict, words)],
    body: [h("div.claim-panels", left, middle, right), worst],
    skeleton: "chart",
    hint: "Click a claim to see its counterexamples.",
    actions: [copy.element],
  });
  const panels = root.querySelector(".aw-claim-panels") as HTMLElement;
  let width = 0;
  let shown: ShownClaim | null = null;
  const place = (): number => (report.claims[options().claim] ? options().claim : 0);
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
      const text = shown?.worst[at];
      if (!button || !text) return;
      isOpening = true;
      opening.open(at, text[0], button, text[4], { claim: place() });
    },
  });
  let isOpening = false;
  root.after(below);
  atEnd(signal, () => below.remove());
  let inside = new AbortController();
  let drawn: Promise<void> | null = null;
  let [model, opened] = ["", ""];
  const showInside = (): void => {
    const [inner] = options().inner ?? [];
    if (model !== (inner?.model ?? "")) {
      model = inner?.model ?? "";
      inside.abort();
      inside = new AbortController();
      setChildren(below);
      setStyles(below, { "margin-top": inner ? "8px" : "" });
      drawn = inner ? drawInside(ctx, inner, below, AbortSignal.any([signal, inside.signal])) : null;
    }
    // The reader opened it now.
    const now = String(options().opened ?? "");
    if (drawn && opened !== now && isOpening) void drawn.then(() => below.scrollIntoView({ block: "nearest" }));
    opened = now;
  };

  const draw = (): void => {
    if (!shown || width <= 0) return;
    const columns = width >= THREE ? 3 : width >= TWO ? 2 : 1;
    panels.dataset.columns = String(columns);
    const side = columns === 3 ? 250 : 0;
    const room = width - side;
    const first = columns === 1 ? room : Math.round(0.6 * room);
    panels.style.setProperty("--aw-first", `${first}px`);
    drawEffect(effect, shown, report.margin, first - 26);
    const height = Math.max(TALL, Number(effect.getAttribute("height")));
    drawTexts(texts, shown, report.margin, (columns === 1 ? room : room - first) - 26, height);
  };

  const say = (claim: ShownClaim): void => {
    const { mean, interval, difference, differenceInterval, below, values, needed } = claim;
    const ends = ([low, high]: readonly (number | null)[]): string =>
      `[${decimal(low ?? -Infinity).replace("Infinity", "∞")}, ${decimal(high ?? Infinity).replace("Infinity", "∞")}]`;
    const best = bestControl(claim);
    setChildren(
      words,
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
  };

  const list = (claim: ShownClaim): void => {
    const top = Math.max(1, claim.mean ?? 0, ...claim.values.flatMap((value) => value ?? []));
    const side = (text: string, other: string, name: string): HTMLElement =>
      h(
        "span.claim-text",
        { dir: "auto" },
        ...marked(text, other).map(([part, differs]) => (differs ? h("mark", { "data-of": name }, part) : part)),
      );
    const rows = claim.worst.slice(0, WORST).map(([text, corrupt, value, control], i) => {
      const isAbove = (value ?? 0) - (control ?? 0) >= report.margin;
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
        opening.button(i),
      );
      const [of, at] = options().opened ?? [];
      if (of === place() && at === i) row.ariaCurrent = "true";
      return row;
    });
    const heading = h(
      "div.claim-head",
      h("b", `worst ${rows.length}`),
      h("span", "against the claim"),
      h("span.claim-mark", "| mean of all texts"),
    );
    setChildren(worst, heading, ...rows);
  };

  const listRun = (claim: ShownClaim): void => {
    const { level, model } = report;
    const lines: [string, string][] = [
      [claim.causal ? "minimal pairs given" : "texts given", String(claim.given)],
      ...claim.leftOut.map(([why, count]): [string, string] => [why, `−${count}`]),
      ["texts used", String(claim.values.length)],
    ];
    setChildren(
      run,
      ...lines.flatMap(([name, value]) => [h("span", name), h("span.claim-value", value)]),
      h(
        "p",
        `${claim.causal ? "Causal, by patching" : "This shows where the head attends, not what the model uses"}. Intervals: bootstrap over texts, ${Math.round(100 * level)} %.${report.claims.length > 1 ? " Verdicts are Holm's for all claims." : ""}${model ? ` ${model}` : ""}`,
      ),
    );
  };

  const update = (): void => {
    frame.show("");
    const answer = answers.get<Report>("claims");
    frame.lacks(answer ? null : missingAnswer(answers, "claims", {}, "claims"));
    if (!answer) return;
    report = answer.meta;
    const { claims, margin } = report;
    const claim = claims[place()];
    if (!claim) return;
    shown = claim;
    root.ariaLabel = `claim: ${claim.claim}, ${claim.verdict}`;
    setText(sentence, claim.claim);
    chips.hidden = claims.length < 2;
    (chips.parentElement as HTMLElement).hidden = claims.length < 2;
    setChildren(
      chips,
      ...claims.map((one, i) =>
        h(
          "button.chip.claim-chip",
          { type: "button", "data-at": String(i), "aria-pressed": String(i === place()), "data-verdict": one.verdict },
          drawing(SIGNS[one.verdict], "20 20"),
          one.claim,
        ),
      ),
    );
    sign.dataset.verdict = claim.verdict;
    setChildren(sign, drawing(SIGNS[claim.verdict], "20 20"));
    setText(verdict, claim.verdict);
    say(claim);
    setText(unit, claim.unit);
    setText(head, `texts: ${claim.values.length}`);
    listRun(claim);
    list(claim);
    draw();
    copy.show();
    showInside();
    const best = bestControl(claim);
    const beyond = best ? `head ${claim.head} − best control ${decimal((claim.mean ?? 0) - best[1], 2, true)} · ` : "";
    const out = claim.leftOut.map(([why, count]) => `, ${count} ${why}`).join("");
    frame.readout.show(
      `${beyond}${claim.below} of ${claim.values.length} below ${margin} · ${claim.given} given${out}`,
      false,
    );
  };
  onResize(panels, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === width) return;
    width = now;
    draw();
  });
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update();
  };
});
