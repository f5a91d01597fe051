/**
 * One text under several explanations: strips, each on its own scale or all on one, and how similarly every two of them
 * rank the text. A click on a cell compares two of them.
 */

import { assign, h, on, setChildren, setFlag, setText } from "../../dom.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { pinnedQuery } from "../base/pinnedQuery.ts";
import { createHeading, createReadout, only, view } from "../base/view.ts";
import { renderLayerSlider } from "../maps/LayerSlider.ts";
import { createAgreement } from "./agreement.ts";
import { createRows, currentElement } from "./rows.ts";
import { type Compared, createStrips, type Pair } from "./strips.ts";
import { createCompareWords } from "./words.ts";

/** Minimum width for placing the matrix beside the strips. */
const MOST_BESIDE = 6;

export const renderCompareView = view((ctx, root, signal) => {
  const { selection } = ctx;
  const rowWanted = (): number | null => (explanations.meta?.follows === false ? null : pinnedQuery(ctx));
  const args = (): Record<string, unknown> => {
    const { source, layer } = ctx.resolved();
    return { layer: source.kind === "map" ? layer : 0, query: rowWanted(), unit: source.unit };
  };
  const hover = (index: number): void => {
    selection.hover(index < 0 ? null : { unit: ctx.source().unit, query: -1, key: index });
  };
  const pin = (index: number): void => {
    const { unit } = ctx.source();
    const now = selection.get("pinned");
    if (explanations.meta?.follows) selection.pin(rowWanted() === index ? null : { unit, query: index, key: -1 });
    else selection.pin(now?.unit === unit && now.key === index ? null : { unit, query: -1, key: index });
  };
  const choose = (row: number, col: number): void => {
    const same = pair?.includes(row) && pair.includes(col);
    pair = row === col || same ? null : [row, col];
    paint();
    point();
    drawAgreement();
  };

  const explanations = createRows<Compared>(ctx, signal, "strips", args, () => draw(), "own");
  const words = createCompareWords(ctx, explanations);
  const heading = createHeading(ctx, explanations.form);
  const slider = h("div.panel");
  const all = h("button.button", { type: "button" });
  const strips = createStrips(ctx, signal, explanations, { hover, pin }, () => draw());
  const readout = createReadout();
  const agreement = createAgreement(ctx, signal, explanations, choose, strips.point, () => drawAgreement());
  const main = h("div.panel", h("div.row", explanations.scales, all), strips.element, ...readout.elements);
  const body = h("div.compare-body", main, agreement.element);
  const copy = createCopyButton(ctx, signal, () => agreement.place());
  let pair: Pair = null;

  root.classList.add("aw-compare");
  root.role = "group";
  setChildren(root, ...heading.elements, slider, body, copy.element);

  const draw = (): void => {
    explanations.read(strips.element, readout);
    const { meta, stale } = explanations;
    const title = heading.show(meta ? words.heading() : "");
    assign(root, { ariaLabel: `${title}: one text, several explanations` });
    assign(slider, { hidden: ctx.source().layers.length < 2 });
    if (!meta) return;
    const { length } = meta.names;
    if (pair && Math.max(...pair) >= length) pair = null;
    setText(all, `show all ${length}`);
    setFlag(body, "data-many", length > MOST_BESIDE);
    strips.build(meta.names);
    if (!stale) {
      paint();
      point();
    }
    drawAgreement();
  };
  const paint = (): void => {
    if (!explanations.meta) return;
    explanations.trim();
    assign(all, { hidden: !pair });
    strips.paint(pair);
  };
  /** Marks and numbers of the current element. Runs on every pointer move. */
  const point = (): void => {
    const { meta, shown } = explanations;
    if (!meta) return;
    const key = currentElement(ctx);
    strips.mark(key, (i) => words.value(shown[i], key));
    readout.show(words.read(key, pair), true);
  };
  const drawAgreement = (): void => {
    agreement.show(args(), pair);
    copy.show();
  };

  on(all, signal, {
    click() {
      if (pair) choose(...pair);
    },
  });
  renderLayerSlider(ctx.child({ title: "" }), slider);
  return (changed) => {
    if (only(changed, "hover")) point();
    else draw();
  };
});
