/** A pair of query and key through the layers: the strongest head of each. */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, quoted, setFlag, setStyles, setText, thinned, walkList, watchWidth } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import { NOT_COMPARED } from "../../wire/codec.ts";
import type { Source } from "../../wire/wire.ts";
import { headAddress } from "../base/navigation.ts";
import { pairRequest, pairValues } from "../heads/pairValues.ts";

/** px that the number of a layer needs. */
const LABEL = 18;

export interface AcrossLayers {
  element: HTMLElement;
  /** Show a pair; -1: none. */
  show(query: number, key: number): void;
}

/** A layer's strongest head for the pair; null: not computed. */
type Peak = { head: number | null; value: number } | null;

export function createAcrossLayers(ctx: ViewContext, signal: AbortSignal, answers: Answers): AcrossLayers {
  const [title, about] = [h("b", "Over layers"), h("span.dim")];
  const bars = h("div.layer-bars", { role: "listbox", "aria-label": "strongest head of each layer" });
  const element = h("div.across", h("div.answer-head", title, about), bars);
  walkList(bars, signal);
  let peaks: Peak[] = [];
  let width = 0;
  on(bars, signal, {
    click({ target }) {
      const at = [...bars.children].indexOf((target as Element).closest(".aw-layer-bar") as Element);
      const layer = ctx.source().layers[at];
      if (layer === undefined) return;
      const head = peaks[at]?.head;
      ctx.selection.set(head === null || head === undefined ? { layer } : { layer, head });
    },
  });

  const best = (values: ArrayLike<number>, source: Source): Peak => {
    let at = -1;
    for (let i = 0; i < values.length; i += 1) {
      if (!Number.isNaN(values[i] as number) && !((values[at] as number) >= (values[i] as number))) at = i;
    }
    return at < 0 ? null : { head: source.heads?.[at] ?? null, value: values[at] as number };
  };

  const number = (): void => {
    const { layers } = ctx.source();
    const named = new Set(thinned(layers.length, width / layers.length, LABEL));
    [...bars.children].forEach((bar, i) => {
      setText(bar.lastElementChild as Element, named.has(i) ? ctx.layerName(layers[i] as number) : "");
    });
  };
  watchWidth(bars, signal, (now) => {
    width = now;
    number();
  });

  return {
    element,
    show(query, key) {
      const source = ctx.source();
      const isShown = query >= 0 && key >= 0 && source.kind === "map" && source.layers.length > 1;
      assign(element, { hidden: !isShown });
      if (!isShown) return;
      const { layer: now } = ctx.resolved();
      peaks = pairValues(ctx, answers, source, query, key, !ctx.cell("pinned")).map((values) => best(values, source));
      // A page without a kernel may lack the other layers.
      const isLost = peaks.length === 0 && Boolean(answers.failure("pair", pairRequest(source, query, key)));
      assign(element, { hidden: isLost });
      const base = ctx.options.indexBase;
      const pair = `${quoted(ctx.axisOf(source.query).labels, query, base)} → ${quoted(ctx.axisOf(source.key).labels, key, base)}`;
      setText(about, `${pair}${source.heads ? ", strongest head" : ""}`);
      while (bars.childElementCount > source.layers.length) bars.lastElementChild?.remove();
      while (bars.childElementCount < source.layers.length)
        bars.append(h("div.layer-bar.ghost", { role: "option" }, h("span"), h("i")));
      if (width > 0) number();
      const top = Math.max(0, ...peaks.map((peak) => Math.abs(peak?.value ?? 0)));
      [...bars.children].forEach((bar, i) => {
        const layer = source.layers[i] as number;
        const peak = peaks[i] ?? null;
        setStyles(bar.firstElementChild as HTMLElement, {
          height: `${peak && top ? Math.max(2, (100 * Math.abs(peak.value)) / top) : 0}%`,
        });
        setFlag(bar, "data-now", layer === now);
        assign(bar as HTMLElement, { ariaSelected: String(layer === now), tabIndex: layer === now ? 0 : -1 });
        const where =
          peak && peak.head !== null ? `head ${headAddress(ctx, layer, peak.head)}` : `layer ${layer + base}`;
        const words = peak
          ? `${where}: ${printed(peak.value, false)}`
          : `layer ${ctx.layerName(layer)}: ${source.computed?.includes(layer) === false ? "not computed yet" : NOT_COMPARED}`;
        if (bar.ariaLabel !== words) {
          bar.ariaLabel = words;
          (bar as HTMLElement).title = words;
        }
      });
    },
  };
}
