/** A model on a template as a sum over slots: what that loses, shapes, shares, a pair as a map, and what is worst. */
import { assign, h, keyboard, on, safeText, setChildren, setText, shortLabel } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createAccount } from "../base/account.ts";
import { createCopyButton, type NumberPlace } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening, inWords } from "../base/openText.ts";
import { only, view } from "../base/view.ts";
import { decimal } from "../circuits/words.ts";
import { topOf } from "./influence.ts";
import { drawPair } from "./pairMap.ts";
import { levelName, lossWords, percent, type ShapeOptions, type Shapes, slotNames } from "./shapes.ts";
import { showNotes, textStrip } from "./texts.ts";

export const renderShapeView = view((ctx, root, signal) => {
  const options = (): ShapeOptions => ctx.options as ShapeOptions;
  const answers = createAnswers(ctx, signal, () => update());
  let what: Shapes | null = null;
  /** "slot,level", "a,b" of the pair's map, the name of a share, or the place of a text. */
  let chosen: { kind: "level" | "cell" | "share" | "text"; at: string } | null = null;
  const target = h("span.concept-target");
  const [lost, rest, estimated] = [h("b.shape-lost"), h("span.shape-rest"), h("span.shape-tag", "estimated")];
  const shapes = h("div.shape-slots");
  const shares = h("div.shape-shares", { role: "list", "aria-label": "shares of the variance" });
  const pairHead = h("div.concept-head");
  const pairMap = h("table.shape-pair");
  const worst = h("div.shape-worst", { role: "list", "aria-label": "texts that the sum predicts worst" });
  const notes = createAccount(signal);
  const copy = createCopyButton(ctx, signal, () => numberAt());
  const frame = createFrame(ctx, root, {
    controls: [h("span.shape-label", "target"), target],
    lead: [h("div.shape-lead", lost, rest, estimated)],
    body: [
      h(
        "div.shape-panes",
        h("div.shape-pane", h("div.concept-head", h("b", "what each level adds")), shapes),
        h(
          "div.shape-pane",
          h("div.concept-head", h("b", "share of the variance")),
          shares,
          pairHead,
          h("div.shape-scroll", pairMap),
        ),
        h(
          "div.shape-pane",
          h("div.concept-head", h("b", "predicted worst"), h("span.concept-end", "model → sum")),
          worst,
        ),
      ),
      notes.element,
    ],
    skeleton: "rows",
    hint: "Click a level, a pair, or a text.",
    says: true,
    actions: [copy.element],
  });
  const opening = createOpening(ctx, signal, () => frame);
  root.classList.add("aw-shapes");
  root.role = "group";

  const numberAt = (): NumberPlace | null => {
    if (!what) return null;
    const [a = 0, b = 0] = chosen?.at.split(",").map(Number) ?? [];
    if (chosen?.kind === "level") return { of: "effect", slots: [a], levels: [b] };
    const pair = what.pairs[options().pair];
    if (chosen?.kind === "cell" && pair) return { of: "effect", slots: pair.slots, levels: [a, b] };
    if (chosen?.kind === "share") return { of: "share", name: chosen.at };
    return what.fidelities[0] === null ? null : { of: "fidelity" };
  };
  const choose = (kind: "level" | "cell" | "share" | "text", at: string): void => {
    chosen = chosen?.kind === kind && chosen.at === at ? null : { kind, at };
    draw();
  };
  const isChosen = (kind: string, at: string): boolean => chosen?.kind === kind && chosen.at === at;

  const drawShapes = (): void => {
    if (!what) return;
    const top = Math.max(...what.slots.map(({ values }) => topOf(values)), 1e-12);
    const slots = what.slots.map((slot, s) => {
      const rows = slot.levels.map((level, l) => {
        const value = slot.values[l] ?? Number.NaN;
        const bar = h("span.shape-bar", { "aria-hidden": "true" });
        const size = Number.isNaN(value) ? 0 : (50 * Math.abs(value)) / top;
        const side = value < 0 ? "against" : "for";
        bar.append(h("span", { "data-side": side, style: `${value < 0 ? "right" : "left"}:50%;width:${size}%` }));
        return h(
          "button.shape-level",
          {
            type: "button",
            "data-level": `${s},${l}`,
            "aria-pressed": String(isChosen("level", `${s},${l}`)),
            title: level,
          },
          h("span.shape-name", { dir: "auto" }, shortLabel(levelName(level), 28)),
          bar,
          h("span.concept-value", decimal(value, 2, true)),
        );
      });
      return h(
        "div.shape-slot",
        { role: "group", "aria-label": slot.name },
        h("div.shape-title", { dir: "auto", title: slot.name }, shortLabel(slot.name, 40)),
        ...rows,
      );
    });
    setChildren(shapes, ...slots);
  };

  const drawShares = (): void => {
    if (!what) return;
    const { pair } = options();
    const rows = what.shares.map(([name, share, place]) => {
      const bar = h("span.taught-bar", { "aria-hidden": "true" });
      bar.append(h("span", { style: `width:${100 * Math.max(0, Math.min(1, share ?? 0))}%` }));
      const button = h(
        "button.shape-share",
        {
          type: "button",
          "data-share": name,
          "data-pair": String(place),
          "aria-pressed": String(place >= 0 ? place === pair : isChosen("share", name)),
          title: slotNames(name),
        },
        h("span.shape-name", { dir: "auto" }, shortLabel(slotNames(name), 36)),
        bar,
        h("span.concept-value", percent(share)),
      );
      return h("div", { role: "listitem" }, button);
    });
    const more = what.others > 0 ? [h("div.concept-more", `${what.others} smaller ones`)] : [];
    const scrolled = shares.scrollTop;
    setChildren(shares, ...rows, ...more);
    shares.scrollTop = scrolled;
    const shown = what.pairs[pair];
    const names = shown?.slots.map((at) => shortLabel(what?.slots[at]?.name ?? "", 20)) ?? [];
    assign(pairMap, { hidden: !shown });
    const words =
      what.pairs.length === 0
        ? "No pairs were fitted."
        : shown
          ? "beyond what each adds alone"
          : "This pair has too many levels for a map.";
    setChildren(pairHead, ...(shown ? [h("b", { dir: "auto" }, names.join(" × "))] : []), h("span", words));
    if (shown) drawPair(pairMap, what, shown, chosen?.kind === "cell" ? chosen.at : "", ctx.theme);
  };

  const drawWorst = (): void => {
    if (!what) return;
    const rows = what.worst.map(([at, text, model, student]) =>
      h(
        "div.shape-row",
        { role: "listitem", "data-text": String(at), ...(isChosen("text", String(at)) ? { "data-chosen": "" } : {}) },
        textStrip(text),
        h(
          "span.concept-value",
          `${decimal(model ?? Number.NaN, 2, true)} → ${decimal(student ?? Number.NaN, 2, true)}`,
        ),
        opening.button(at),
      ),
    );
    const scrolled = worst.scrollTop;
    setChildren(worst, ...rows);
    worst.scrollTop = scrolled;
  };

  const say = (): void => {
    if (!what) return;
    const [a = 0, b = 0] = chosen?.at.split(",").map(Number) ?? [];
    let words = "";
    if (chosen?.kind === "level") {
      const slot = what.slots[a];
      words = `${safeText(slot?.name ?? "")} = ${inWords(levelName(slot?.levels[b] ?? ""))} adds ${decimal(slot?.values[b] ?? Number.NaN, 4, true)} to ${what.target}`;
    } else if (chosen?.kind === "cell") {
      const pair = what.pairs[options().pair];
      const [first, second] = pair?.slots.map((at) => what?.slots[at]) ?? [];
      words = `${inWords(levelName(first?.levels[a] ?? ""), 30)} with ${inWords(levelName(second?.levels[b] ?? ""), 30)} adds ${decimal(pair?.values[a]?.[b] ?? Number.NaN, 4, true)} beyond what each adds alone`;
    } else if (chosen?.kind === "share") {
      const share = what.shares.find(([name]) => name === chosen?.at)?.[1] ?? null;
      words = `${safeText(slotNames(chosen.at))} explains ${percent(share)} of the variance`;
    } else if (chosen?.kind === "text") {
      const one = what.worst.find(([at]) => String(at) === chosen?.at);
      if (one)
        words = `${inWords(one[1])}: the model says ${decimal(one[2] ?? Number.NaN, 3, true)}, the sum ${decimal(one[3] ?? Number.NaN, 3, true)}`;
    }
    frame.readout.show(words, true);
  };

  /** The marks of a list are one stop of the tab key, as far as arrows go from one to the next. */
  const rove = (list: Element): void => {
    const marks = [...list.querySelectorAll<HTMLElement>("button")];
    const stop = marks.find(({ ariaPressed }) => ariaPressed === "true") ?? marks[0];
    for (const mark of marks) mark.tabIndex = mark === stop ? 0 : -1;
  };
  const draw = (): void => {
    // What is clicked is drawn anew, and keeps the focus.
    const held = document.activeElement as HTMLElement | null;
    const key = ["level", "cell", "share"].find((name) => held?.dataset[name] !== undefined && root.contains(held));
    const value = key ? held?.dataset[key] : undefined;
    drawShapes();
    drawShares();
    for (const list of [shapes, shares, pairMap]) rove(list);
    drawWorst();
    if (key) {
      const all = [...root.querySelectorAll<HTMLElement>(`[data-${key}]`)];
      all.find((one) => one.dataset[key] === value)?.focus({ preventScroll: true });
    }
    copy.show();
    say();
  };

  const update = (): void => {
    const answer = answers.get<Shapes>("shapes");
    frame.lacks(answer ? null : missingAnswer(answers, "shapes", {}, "shapes"));
    what = answer ? { ...answer.meta, target: safeText(answer.meta.target) } : null;
    const of = what?.estimated ? "estimated from" : "all";
    const mean = what?.mean ?? Number.NaN;
    const model = what?.model ? ` · ${what.model}` : "";
    const about = what ? `${of} ${what.texts.toLocaleString("en")} texts, mean ${decimal(mean, 2, true)}${model}` : "";
    frame.show(about, "a simpler model");
    if (!what) return;
    setText(target, what.target);
    target.title = what.target;
    const [first, second] = lossWords(what);
    setText(lost, first);
    setText(rest, second);
    assign(estimated, { hidden: !what.estimated });
    showNotes(notes, what.notes);
    assign(root, { ariaLabel: `a simpler model of ${what.target}. ${what.summary}` });
    draw();
  };

  on(root, signal, {
    click(event) {
      const element = (event.target as Element).closest<HTMLElement>(
        "[data-level], [data-cell], [data-share], [data-open], [data-text]",
      );
      if (!element || !what) return;
      const { level, cell, share, pair, open, text } = element.dataset;
      if (level !== undefined) choose("level", level);
      else if (cell !== undefined) choose("cell", cell);
      else if (share !== undefined) {
        if (Number(pair) >= 0 && Number(pair) !== options().pair) {
          chosen = { kind: "share", at: share };
          ctx.model.set("options", { ...ctx.model.get("options"), pair: Number(pair) } as never);
          ctx.model.save_changes();
        } else choose("share", share);
      } else if (open !== undefined) {
        const one = what.worst.find(([at]) => String(at) === open);
        if (one) opening.open(one[0], one[1], element);
      } else if (text !== undefined) choose("text", text);
    },
  });
  /** Go to the next level, cell or share, as far as there is one. */
  const step = (by: number) => (): void => {
    const held = document.activeElement as HTMLElement | null;
    const list = held?.closest(".aw-shape-slots, .aw-shape-shares, .aw-shape-pair");
    if (!held || !list) return;
    const all = [...list.querySelectorAll<HTMLElement>("button")];
    all[Math.max(0, Math.min(all.length - 1, all.indexOf(held) + by))]?.focus();
  };
  const columns = (): number =>
    pairMap.contains(document.activeElement) ? (pairMap.querySelector("tbody tr")?.childElementCount ?? 2) - 1 : 1;
  keyboard(
    root,
    signal,
    {
      ArrowDown: () => step(columns())(),
      ArrowUp: () => step(-columns())(),
      ArrowRight: step(1),
      ArrowLeft: step(-1),
      Escape: () => {
        chosen = null;
        draw();
      },
    },
    "arrows: through levels, shares and cells · Enter: choose · Escape: none",
  );
  return (changed) => {
    if (!only(changed, "hover", "pinned", "layer", "head")) update();
  };
});
