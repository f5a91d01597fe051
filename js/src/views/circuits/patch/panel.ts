/** The panel next to the maps: the scale, the effect of the chosen activations, and the heads with the largest effects. */
import { barColours, heatMap } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { h, on, setChildren, setText } from "../../../dom.ts";
import { type ColourScale, createScale } from "../../base/colourScale.ts";
import { setAttributes, svg } from "../../charts/svg.ts";
import { decimal, word } from "../words.ts";
import {
  type Activation,
  activationName,
  baseOf,
  differing,
  endOf,
  headName,
  isSame,
  type Outcome,
  type PatchedRun,
  type Patching,
  ranked,
  rawOf,
  SITES,
  shareOf,
  sourceOf,
} from "./patching.ts";

const LISTED = 5;
/** px of the line's margin, and between two labels on it. */
const [MARGIN, APART] = [34, 64];

export interface Panel {
  element: HTMLElement;
  show(state: PanelState): void;
}

export interface PanelState {
  patching: Patching;
  /** The same activations in the other direction, and exact values where the shown values are estimates. */
  others: readonly Patching[];
  chosen: readonly Activation[];
  run: PatchedRun | null;
  /** Why the run is missing. */
  why: string;
  width: number;
}

/** The elements of the panel, and the state that they show. */
interface PatchPanel {
  readonly ctx: ViewContext;
  readonly scale: ColourScale;
  readonly meaning: HTMLSpanElement;
  readonly agreement: HTMLParagraphElement;
  readonly name: HTMLElement;
  readonly about: HTMLSpanElement;
  readonly line: SVGElement;
  readonly boxes: HTMLDivElement[];
  readonly list: HTMLDivElement;
  /** The activations that the list names, in its order. */
  activations: readonly Activation[];
}

export function createPanel(ctx: ViewContext, signal: AbortSignal, choose: (activation: Activation) => void): Panel {
  const scale = createScale();
  const meaning = h("span.clip.fine");
  const agreement = h("p.patch-agreement.fine");
  const [name, about] = [h("b"), h("span.patch-about.clip.fine")];
  const line = svg("svg", { class: "aw-drawn aw-patch-line", role: "img", height: 62 });
  const boxes = [h("div.patch-box"), h("div.patch-box", { "data-after": "" })];
  const list = h("div.patch-list", { role: "group", "aria-label": "places with the largest effect" });

  const view: PatchPanel = {
    ctx,
    scale,
    meaning,
    agreement,
    name,
    about,
    line,
    boxes,
    list,
    activations: [],
  };
  const element = h(
    "div.patch-panel",
    h("div.patch-head.fine", h("b", "share of the gap")),
    h("div.patch-scale", scale.element, meaning),
    agreement,
    h("div.patch-head.fine.patch-chosen", name, about),
    line,
    h("div.patch-boxes", ...boxes),
    list,
  );
  on(list, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
      const activation = view.activations[Number(at ?? -1)];
      if (activation) choose(activation);
    },
  });
  return {
    element,
    show: (state) => show(view, state),
  };
}

/** The target in the changed run, after the change, and in the run that activations are from, on the same line. */
function drawLine(view: PatchPanel, { patching, width }: PanelState, after: number): void {
  const { line } = view;
  const [base, source] = [baseOf(patching), sourceOf(patching)];
  const [low, high] = [Math.min(base, source, after || base), Math.max(base, source, after || base)];
  const x = (value: number): number => MARGIN + ((value - low) / (high - low || 1)) * (width - 2 * MARGIN);
  const names = differing(patching).map((label) => word(label, 12));
  const [from, to, at] = [x(base), x(source), x(after)];
  const hasAfter = !Number.isNaN(after);
  const text = (x: number, y: number, words: string, more: Record<string, string> = {}): SVGElement =>
    svg("text", { x: Math.max(20, Math.min(width - 20, x)), y, "text-anchor": "middle", ...more }, words);
  const isFree = (x: number, ...others: number[]): boolean => others.every((other) => Math.abs(x - other) >= APART);
  const parts = [
    svg("line", { x1: from, x2: to, y1: 30.5, y2: 30.5, class: "aw-patch-way" }),
    ...(hasAfter ? [svg("line", { x1: from, x2: at, y1: 30.5, y2: 30.5, class: "aw-patch-moved" })] : []),
    svg("circle", { cx: from, cy: 30.5, r: 5 }),
    svg("circle", { cx: to, cy: 30.5, r: 5 }),
    ...(hasAfter ? [svg("circle", { cx: at, cy: 30.5, r: 6, class: "aw-patch-after" })] : []),
    ...(hasAfter ? [text(at, 18, decimal(after, 2, true), { class: "aw-patch-now" })] : []),
    ...(!hasAfter || isFree(from, at) ? [text(from, 18, decimal(base, 2, true))] : []),
    ...(!hasAfter || isFree(to, at, from) ? [text(to, 18, decimal(source, 2, true))] : []),
    text(from, 52, names[0] ?? ""),
    ...(isFree(to, from) ? [text(to, 52, names[1] ?? "")] : []),
  ];
  setAttributes(line, {
    width,
    viewBox: `0 0 ${width} 62`,
    "aria-label": `${names[0]} ${decimal(base, 2)}, ${names[1]} ${decimal(source, 2)}${hasAfter ? `, patched ${decimal(after, 2)}` : ""}`,
  });
  line.replaceChildren(...parts);
}

function fill(box: HTMLElement, title: string, outcomes: readonly Outcome[] | null, why: string): void {
  setChildren(
    box,
    h("div.patch-box-title.fine", title),
    ...(outcomes?.length
      ? outcomes.map(([label, p]) => h("div.patch-outcome", h("bdi", word(label)), h("span", p.toFixed(2))))
      : [h("div.patch-why.fine", why)]),
  );
}

function drawList(view: PatchPanel, { patching, others, chosen }: PanelState): void {
  const { ctx, list } = view;
  const isEstimate = patching.estimate;
  view.activations = isEstimate
    ? patching.checked
        .map(([site, layer, token, head]): Activation => [site, layer, token, head])
        .filter(([site]) => site === (patching.sites.includes("head") ? "head" : site))
        .sort((a, b) => Math.abs(shareOf(patching, b)) - Math.abs(shareOf(patching, a)))
        .slice(0, LISTED - 1)
    : ranked(patching, LISTED);
  const site = view.activations[0]?.[0] ?? "head";
  const exact = (activation: Activation): number => {
    const check = patching.checked.find(([...cell]) => isSame(cell.slice(0, 4) as unknown as Activation, activation));
    return check?.[5] ?? Number.NaN;
  };
  const columns: [string, (activation: Activation) => number][] = isEstimate
    ? [
        ["estimate", (activation) => shareOf(patching, activation)],
        ["patched", exact],
      ]
    : [patching, ...others.filter(({ estimate }) => !estimate)]
        .slice(0, 2)
        .map((other) => [other.direction, (activation) => shareOf(other, activation)]);
  const title = isEstimate ? "checked places" : site === "head" ? "top heads" : `top of ${SITES[site]}`;
  const sizes = view.activations.flatMap((activation) => columns.map(([, value]) => value(activation) || 0));
  const [low, high] = [Math.min(0, ...sizes), Math.max(0, ...sizes)];
  const span = high - low || 1;
  const { for: plus, against: minus } = barColours(ctx.theme);
  const rows = view.activations.map((activation, i) => {
    const value = columns[0]?.[1](activation) ?? Number.NaN;
    const bar = h("span.patch-bar");
    const [from, to] = [Math.min(0, value || 0), Math.max(0, value || 0)].map((end) => (100 * (end - low)) / span);
    bar.append(
      h("span", {
        style: `left:${from}%;width:${(to as number) - (from as number)}%;background:${value < 0 ? minus : plus}`,
      }),
      h("i", { style: `left:${(100 * -low) / span}%` }),
    );
    const [of, layer, , head] = activation;
    const words = of === "head" ? headName(ctx, layer, head ?? 0) : activationName(ctx, patching, activation);
    const row = h(
      "button.patch-item.pick.subrow.ghost",
      {
        type: "button",
        "data-at": String(i),
        "aria-pressed": String(chosen.some((other) => isSame(other, activation))),
      },
      h("span.patch-item-name.clip", words),
      bar,
      ...columns.map(([, value]) => h("span.patch-value", decimal(value(activation)))),
    );
    row.title = activationName(ctx, patching, activation);
    return row;
  });
  const heads = columns.map(([words]) => h("span.patch-value", words));
  setChildren(list, h("div.patch-item.subrow.ghost.patch-item-heads", h("b", title), ...heads), ...rows);
  list.style.setProperty("--aw-numbers", String(columns.length));
}

function show(view: PatchPanel, state: PanelState): void {
  const { ctx, boxes } = view;
  const { patching, chosen, run, why } = state;
  const end = endOf(patching);
  const [into, from] = differing(patching).map((label) => word(label, 16));
  const words = patching.gap === null ? "what patching adds to the target" : "share of the gap between both runs";
  view.scale.show({ map: heatMap(true, ctx.theme), range: [-end, end], words });
  setText(view.meaning, patching.gap === null ? "the runs do not differ: no shares" : `= answers as for ${from}`);
  const r = patching.agreement === null ? "" : `r ${decimal(patching.agreement)} on `;
  const dots = patching.estimate ? `estimated; ${r}${patching.checked.length} places that were patched (dots)` : "";
  setText(view.agreement, dots);
  const only = chosen.length === 1 ? (chosen[0] as Activation) : null;
  setText(
    view.name,
    only ? activationName(ctx, patching, only) : chosen.length ? `${chosen.length} places` : "no place chosen",
  );
  setText(
    view.about,
    only ? `alone, from ${from} into ${into}` : chosen.length ? `together, from ${from} into ${into}` : "",
  );
  const raw = only ? rawOf(patching, only) : Number.NaN;
  const after = run ? run.after : baseOf(patching) + raw;
  drawLine(view, state, after);
  const outcomes = patching.predicted[patching.direction === "denoise" ? 1 : 0];
  fill(boxes[0] as HTMLElement, "before", run?.was ?? outcomes, "not in this result");
  fill(boxes[1] as HTMLElement, "after", run?.now ?? null, why);
  drawList(view, state);
}
