/** Concepts: scores over layers compared with random texts, and examples by how much their state shows a concept. */
import { assign, h, keyboard, on, onResize, safeText, setChildren, setText, shortLabel } from "../../dom.ts";
import { createAnswers } from "../../wire/answers.ts";
import { createAccount } from "../base/account.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { missingAnswer } from "../base/missing.ts";
import { createOpening } from "../base/openText.ts";
import { only, view } from "../base/view.ts";
import { createFigure } from "../charts/figure.ts";
import {
  type Chart,
  chartOf,
  drawAxes,
  drawBand,
  drawLine,
  drawSwatch,
  drawUpright,
  lookOf,
  placeAt,
} from "../charts/lineChart.ts";
import { svg } from "../charts/svg.ts";
import { decimal } from "../circuits/words.ts";
import { fillOf } from "../text/stripColour.ts";
import {
  type ConceptOptions,
  type Concepts,
  nearestPlace,
  pWords,
  type Row,
  type SortedTexts,
  scoreWords,
} from "./concepts.ts";
import { createPlainLayers } from "./layerSlider.ts";
import { showNotes, textStrip } from "./texts.ts";

const [TALL, LOW, WIDE] = [250, 160, 900];

const known = (row: Row): number[] => row.map((value) => value ?? Number.NaN);

export const renderConceptView = view((ctx, root, signal) => {
  const options = (): ConceptOptions => ctx.options as ConceptOptions;
  const set = (values: Partial<ConceptOptions>): void => {
    ctx.model.set("options", { ...ctx.model.get("options"), ...values } as never);
    ctx.model.save_changes();
  };
  const answers = createAnswers(ctx, signal, () => update());
  let what: Concepts | null = null;
  let chart: Chart | null = null;
  let width = 0;
  let hovered = -1; // place of the layer under the pointer
  const slider = createPlainLayers(signal, (place) => chooseLayer(place));
  const target = h("span.concept-target");
  const notes = createAccount(signal);
  const figure = createFigure();
  const { plot, picture } = figure;
  const table = h("table.concept-table", { "aria-label": "concepts at the layer" });
  const heading = h("div.concept-head");
  const list = h("div.concept-list", { role: "list", "aria-label": "examples by the concept" });
  const copy = createCopyButton(ctx, signal, () =>
    what ? { of: "score", concept: options().concept, layer: what.layers[place()] } : null,
  );
  const curves = h("div.concept-curves", figure.element);
  const panes = h(
    "div.concept-panes",
    h("div.concept-pane", curves, h("div.concept-scroll", table)),
    h("div.concept-pane", heading, list),
  );
  const frame = createFrame(ctx, root, {
    controls: [slider.element, target],
    body: [panes, notes.element],
    skeleton: "chart",
    hint: "Click a layer, a concept, or a text.",
    says: true,
    actions: [copy.element],
  });
  const opening = createOpening(ctx, signal, () => frame);
  let sorted: SortedTexts | null = null;
  root.classList.add("aw-concepts");
  root.role = "group";

  const place = (): number => {
    const wanted = options().layer ?? ctx.selection.get("layer");
    return what ? nearestPlace(what.layers, wanted) : 0;
  };
  const chooseLayer = (at: number): void => {
    const layer = what?.layers[at];
    if (layer === undefined) return;
    const { layers } = options();
    const isShared = layers.length === 0 || layers.includes(layer);
    if (options().layer !== (isShared ? null : layer)) set({ layer: isShared ? null : layer });
    if (isShared) ctx.selection.set({ layer });
  };
  const chooseConcept = (at: number): void => {
    if (at !== options().concept) set({ concept: at });
  };

  const drawChart = (): void => {
    if (!what || width <= 0) return;
    const { layers, concepts, scores, significant, low, high } = what;
    const { concept } = options();
    const at = place();
    const isWide = root.clientWidth >= WIDE;
    const axis = chartOf(width, 10, layers.length, 0, 1, isWide ? TALL : LOW);
    chart = axis;
    const order = [...concepts.keys()].sort((a, b) => Number(a === concept) - Number(b === concept));
    const parts = order.map((row) => {
      const look = lookOf(row, ctx.theme);
      const line = drawLine(axis, known(scores[row] ?? []), look);
      for (const dot of line.querySelectorAll("circle")) dot.remove();
      line.setAttribute("class", row === concept ? "aw-concept-line aw-concept-own" : "aw-concept-line");
      (scores[row] ?? []).forEach((value, i) => {
        if (value === null) return;
        const isSure = significant[row]?.[i];
        line.append(
          svg("circle", {
            cx: axis.x(i),
            cy: axis.y(value),
            r: row === concept ? 4.5 : 3.5,
            stroke: look.stroke,
            "stroke-width": 2,
            class: isSure ? "aw-concept-sure" : "aw-concept-hollow",
            ...(isSure ? { fill: look.stroke } : {}),
          }),
        );
      });
      return line;
    });
    const names = layers.map(String);
    figure.fill(
      axis.width,
      axis.height,
      drawAxes(axis, names),
      drawBand(axis, known(low), known(high), "var(--aw-apart)"),
      ...(hovered >= 0 && hovered !== at ? [drawUpright(axis, hovered, "aw-layer-over")] : []),
      drawUpright(axis, at, "aw-layer-now"),
      ...parts,
    );
    plot.ariaLabel = `share of the examples that each concept raises, over layers. ${scoreWords(what, concept, at)}. Left and right arrows change the layer, up and down the concept.`;
  };

  const drawTable = (): void => {
    if (!what) return;
    const { concepts, scores, accuracy, p, significant, low, high } = what;
    const { concept } = options();
    const at = hovered >= 0 ? hovered : place();
    const cells = (...values: string[]): HTMLElement[] => values.map((value) => h("td", value));
    const rows = concepts.map((name, row) => {
      const score = scores[row]?.[at] ?? Number.NaN;
      const button = h(
        "button.concept-name",
        {
          type: "button",
          "aria-pressed": String(row === concept),
          "data-concept": String(row),
          title: name,
          dir: "auto",
        },
        shortLabel(name, 40),
      );
      const isSure = significant[row]?.[at] ?? false;
      const mark = h("td.concept-sign", { title: isSure ? "significant" : "not significant" }, isSure ? "●" : "○");
      return h(
        "tr",
        row === concept ? { "data-chosen": "" } : {},
        h("th.concept-key", { scope: "row" }, h("span.concept-swatch", drawSwatch(lookOf(row, ctx.theme))), button),
        mark,
        ...cells(decimal(score), decimal(accuracy[row]?.[at] ?? Number.NaN), pWords(p[row]?.[at])),
      );
    });
    const band = h("span.concept-band", { "aria-hidden": "true" });
    const ends = [low[at], high[at]].map((end) => decimal(end ?? Number.NaN)).join(" to ");
    setChildren(
      table,
      h(
        "thead",
        h(
          "tr",
          h("th", `at layer ${what.layers[at]}`),
          h("td"),
          ...["score", "accuracy", "p (Holm)"].map((name) => h("th", name)),
        ),
      ),
      h(
        "tbody",
        ...rows,
        h(
          "tr.concept-random",
          h("th", { scope: "row" }, band, "random texts"),
          h("td"),
          h("td", { colspan: "3" }, ends),
        ),
      ),
    );
  };

  const drawList = (): void => {
    if (!what) return;
    const { concept } = options();
    const at = place();
    const args = { concept, layer: what.layers[at] };
    const answer = answers.get<SortedTexts>("texts", args);
    const why = answers.failure("texts", args);
    const name = shortLabel(what.concepts[concept] ?? "", 40);
    setChildren(
      heading,
      h("b", "examples by "),
      h("b", { dir: "auto" }, name),
      h("span", `at layer ${what.layers[at]}, by cosine${why ? `: ${why}` : ""}`),
      h("span.concept-end", "pushes the target"),
    );
    list.toggleAttribute("data-old", !answer);
    if (!answer || answer.meta === sorted) {
      if (answer) tint();
      return;
    }
    sorted = answer.meta;
    const { texts, numbers, left } = sorted;
    const half = Math.ceil(texts.length / 2);
    const rows = texts.map((text, i) =>
      h(
        "div.concept-row",
        { role: "listitem", "data-row": String(i) },
        h("span.concept-value", decimal(sorted?.cosines[i] ?? Number.NaN, 2, true)),
        textStrip(text),
        h("span.concept-push"),
        opening.button(numbers[i] ?? 0),
      ),
    );
    if (left > 0) rows.splice(half, 0, h("div.concept-more", `${left.toLocaleString("en")} texts in between`));
    setChildren(list, ...rows);
    list.scrollTop = 0;
    tint();
  };
  /** Colour the strips, and say which way the concept pushes the target for each text. */
  const tint = (): void => {
    if (!sorted) return;
    const { cosines, sensitivities } = sorted;
    const top = Math.max(...known(cosines).filter(Number.isFinite).map(Math.abs), 1e-9);
    for (const row of list.querySelectorAll<HTMLElement>("[data-row]")) {
      const i = Number(row.dataset.row);
      const fill = fillOf((cosines[i] ?? Number.NaN) / top, ctx.theme, true);
      const strip = row.querySelector(".aw-concept-text") as HTMLElement;
      strip.style.background = fill.css;
      strip.toggleAttribute("data-flip", fill.flips);
      const push = sensitivities[i];
      const sign = row.querySelector(".aw-concept-push") as HTMLElement;
      const words = push === null || push === undefined ? "–" : push > 0 ? "up" : push < 0 ? "down" : "not";
      setText(sign, words === "up" ? "▲ up" : words === "down" ? "▼ down" : words);
      sign.dataset.way = words;
      sign.title = `derivative of the target along the direction: ${push ?? "unknown"}`;
    }
  };

  const say = (): void => {
    if (what) frame.readout.show(scoreWords(what, options().concept, hovered >= 0 ? hovered : place()), true);
  };

  const update = (): void => {
    const answer = answers.get<Concepts>("concepts");
    frame.lacks(answer ? null : missingAnswer(answers, "concepts", {}, "scores of concepts"));
    what = answer ? { ...answer.meta, concepts: answer.meta.concepts.map(safeText) } : null;
    const about = what
      ? `share of ${what.examples} example${what.examples === 1 ? "" : "s"} that each concept raises · ${what.about}`
      : "";
    frame.show(about, "concepts");
    copy.show();
    if (!what) return;
    const name = safeText(what.target);
    setText(target, name);
    target.title = name;
    showNotes(notes, what.notes);
    assign(root, { ariaLabel: `concepts for ${name}` });
    slider.show(what.layers, place());
    drawChart();
    drawTable();
    drawList();
    say();
  };

  const point = (at: number): void => {
    if (at === hovered) return;
    hovered = at;
    drawChart();
    drawTable();
    say();
  };
  on(plot, signal, {
    pointermove: (event) => chart && what && point(placeAt(event, picture, chart, what.layers.length)),
    pointerleave: () => point(-1),
    click(event) {
      if (chart && what) chooseLayer(placeAt(event, picture, chart, what.layers.length));
    },
  });
  const step = (by: number) => (): void =>
    chooseLayer(Math.max(0, Math.min((what?.layers.length ?? 1) - 1, place() + by)));
  const turn = (by: number) => (): void =>
    chooseConcept(Math.max(0, Math.min((what?.concepts.length ?? 1) - 1, options().concept + by)));
  keyboard(
    plot,
    signal,
    {
      ArrowLeft: step(-1),
      ArrowRight: step(1),
      Home: step(-Infinity),
      End: step(Infinity),
      ArrowUp: turn(-1),
      ArrowDown: turn(1),
    },
    "← →: layer · ↑ ↓: concept",
  );
  on(table, signal, {
    click(event) {
      const at = (event.target as Element).closest<HTMLElement>("tr")?.querySelector<HTMLElement>("[data-concept]");
      if (at) chooseConcept(Number(at.dataset.concept));
    },
  });
  on(list, signal, {
    click(event) {
      const row = (event.target as Element).closest<HTMLElement>("[data-row]");
      const i = Number(row?.dataset.row ?? -1);
      const [at, text] = [sorted?.numbers[i], sorted?.texts[i]];
      if (row && at !== undefined && text !== undefined) opening.open(at, text, row.querySelector("button"));
    },
  });
  onResize(curves, signal, (box) => {
    const now = Math.floor(box.width);
    if (now <= 0 || now === width) return;
    width = now;
    drawChart();
  });
  return (changed) => {
    // A layer that is selected elsewhere is shown, whatever was chosen here.
    if (changed.has("layer") && options().layer !== null) set({ layer: null });
    if (!only(changed, "hover", "pinned", "head")) update();
  };
});
