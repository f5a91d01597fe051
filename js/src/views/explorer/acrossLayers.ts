/** One pair of query and key through the layers: the strongest head of each. */
import type { ViewContext } from "../../context.ts";
import { assign, h, on, quoted, setFlag, setStyles, setText, thinned } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import type { Answers } from "../../wire/answers.ts";
import { floatsOf } from "../../wire/buffers.ts";
import type { Source } from "../../wire/wire.ts";
import { headAddress } from "../base/navigation.ts";

/** px that the number of a layer needs. */
const LABEL = 18;

export interface AcrossLayers {
  element: HTMLElement;
  /** Show a pair; -1: none. */
  show(query: number, key: number): void;
}

/** Tokens up to which the pair is read from tiles: decoding those of every head of a longer text would take long. */
const FEW = 128;

/** A layer's strongest head for the pair; null: not known. */
type Peak = { head: number | null; value: number } | null;

const argsOf = (source: Source, query: number, key: number) => ({ source: source.id, query, key });

export function createAcrossLayers(ctx: ViewContext, signal: AbortSignal, answers: Answers): AcrossLayers {
  const [title, about] = [h("b", "Over layers"), h("span.dim")];
  const bars = h("div.layer-bars", { role: "list", "aria-label": "strongest head of each layer" });
  const element = h("div.across", h("div.answer-head", title, about), bars);
  let peaks: Peak[] = [];
  on(bars, signal, {
    click({ target }) {
      const at = [...bars.children].indexOf((target as Element).closest("button") as Element);
      const layer = ctx.source().layers[at];
      if (layer === undefined) return;
      const head = peaks[at]?.head;
      ctx.selection.set(head === null || head === undefined ? { layer } : { layer, head });
    },
  });

  /** From the tiles if all are here, else from Python. */
  const read = (source: Source, query: number, key: number): Peak[] => {
    const heads = source.heads ?? ["-" as const];
    const best = (values: number[]): Peak => {
      let at = -1;
      for (const [i, value] of values.entries()) if (!Number.isNaN(value) && !(values[at]! >= value)) at = i;
      return at < 0 ? null : { head: source.heads?.[at] ?? null, value: values[at] as number };
    };
    const isShort = ctx.axisOf(source.query).labels.length <= FEW && ctx.axisOf(source.key).labels.length <= FEW;
    const tiles = isShort
      ? source.layers.map((layer) => heads.map((head) => ctx.tiles.get(source.id, layer, head)))
      : [[undefined]];
    if (tiles.flat().every(Boolean)) {
      return tiles.map((row) => best(row.map((tile) => tile?.value(query, key) ?? Number.NaN)));
    }
    const answer = answers.get("pair", argsOf(source, query, key));
    const values = answer?.buffers[0] && floatsOf(answer.buffers[0]);
    if (!values) return [];
    return source.layers.map((_, i) => best(values.slice(i * heads.length, (i + 1) * heads.length)));
  };

  return {
    element,
    show(query, key) {
      const source = ctx.source();
      const isShown = query >= 0 && key >= 0 && source.kind === "map" && source.layers.length > 1;
      assign(element, { hidden: !isShown });
      if (!isShown) return;
      const { layer } = ctx.resolved();
      peaks = read(source, query, key);
      // A page without a kernel may lack the other layers.
      assign(element, { hidden: peaks.length === 0 && Boolean(answers.failure("pair", argsOf(source, query, key))) });
      const base = ctx.options.indexBase;
      const pair = `${quoted(ctx.axisOf(source.query).labels, query, base)} → ${quoted(ctx.axisOf(source.key).labels, key, base)}`;
      setText(about, `${pair}${source.heads ? ", strongest head" : ""}`);
      while (bars.childElementCount > source.layers.length) bars.lastElementChild?.remove();
      while (bars.childElementCount < source.layers.length)
        bars.append(h("button.layer-bar", { type: "button" }, h("span"), h("i")));
      const room = bars.clientWidth / source.layers.length;
      const named = new Set(thinned(source.layers.length, room, LABEL));
      const top = Math.max(0, ...peaks.map((peak) => Math.abs(peak?.value ?? 0)));
      [...bars.children].forEach((bar, i) => {
        const number = source.layers[i] as number;
        const peak = peaks[i] ?? null;
        const [fill, name] = bar.children as unknown as [HTMLElement, HTMLElement];
        setStyles(fill, { height: `${peak && top ? Math.max(2, (100 * Math.abs(peak.value)) / top) : 0}%` });
        setText(name, named.has(i) ? ctx.layerName(number) : "");
        setFlag(bar, "data-now", number === layer);
        const where =
          peak && peak.head !== null ? `head ${headAddress(ctx, number, peak.head)}` : `layer ${number + base}`;
        const words = peak
          ? `${where}: ${printed(peak.value, false)}`
          : `layer ${ctx.layerName(number)}: not computed yet`;
        if (bar.ariaLabel !== words) {
          bar.ariaLabel = words;
          (bar as HTMLElement).title = words;
        }
      });
    },
  };
}
