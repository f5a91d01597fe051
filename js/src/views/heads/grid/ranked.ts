/** The heads that show a pattern most: ranked rows with a thumbnail, a bar and the value; or six named thumbnails. */
import type { ViewContext } from "../../../context.ts";
import { assign, density, h, on, setChildren, setFlag, setStyles, setText, walkList } from "../../../dom.ts";
import { tickText } from "../../../numbers.ts";
import type { HeadKey } from "../../../wire/wire.ts";
import { headlessWords } from "../../base/mixers.ts";
import { addressWords, headAddress } from "../../base/navigation.ts";
import type { Spot } from "./arrange.ts";
import { type Atlas, paintAtlas } from "./atlas.ts";
import type { Ranking } from "./patterns.ts";

/** Rows, and named thumbnails beneath a heat table. */
const [ROWS, THUMBS] = [12, 6];
/** Sides of their pictures in px. */
const [SMALL, LARGE] = [20, 36];

export interface RankedState {
  ranking: Ranking | null;
  atlas: Atlas | null;
  /** All heads that pass the filters, ranked. */
  spots: readonly Spot[];
  /** Whether the grid is a heat table. */
  isTable: boolean;
  selected: Spot | null;
  strongest(spot: Spot): string;
}

export interface Ranked {
  element: HTMLElement;
  /** `stateKey` names everything that the pictures depend on. */
  show(state: RankedState, stateKey: string): void;
}

interface Row {
  button: HTMLElement;
  canvas: HTMLCanvasElement;
  name: HTMLElement;
  bar: HTMLElement;
  value: HTMLElement;
  tag: HTMLElement;
}

export function createRanked(
  ctx: ViewContext,
  signal: AbortSignal,
  choose: (spot: Spot) => void,
  point: (spot: Spot | null) => void,
): Ranked {
  const element = h("div.ranked", { role: "listbox", "aria-label": "heads by pattern" });
  let shown: Spot[] = [];
  let drawnKey = "";
  const createRow = (i: number): Row => {
    const [canvas, bar] = [h("canvas", { "aria-hidden": "true" }), h("span.ranked-bar", h("i"))];
    const [name, value, tag] = [h("b"), h("span.value"), h("span.where")];
    const button = h("div.pattern.pick.ghost", { role: "option", tabindex: "-1" }, name, canvas, bar, value, tag);
    on(button, signal, {
      click: () => shown[i] && choose(shown[i]),
      pointerenter: () => point(shown[i] ?? null),
      pointerleave: () => point(null),
      focus: () => point(shown[i] ?? null),
      blur: () => point(null),
    });
    return { button, canvas, name, bar, value, tag };
  };
  const rows = Array.from({ length: ROWS }, (_, i) => createRow(i));
  walkList(element, signal);

  return {
    element,
    show({ ranking, atlas, spots, isTable, selected, strongest }, stateKey) {
      const key = [stateKey, ranking?.id, isTable].join("|");
      if (key !== drawnKey) {
        drawnKey = key;
        shown = ranking ? spots.slice(0, isTable ? THUMBS : ROWS) : [];
        setFlag(element, "data-thumbs", isTable);
        setChildren(element, ...rows.slice(0, shown.length).map(({ button }) => button));
        const dots = Math.max(1, Math.min(2, Math.round(density())));
        const side = (isTable ? LARGE : SMALL) * dots;
        const { layers, heads } = ctx.source();
        for (const [i, spot] of shown.entries()) {
          const { button, canvas, name, bar, value, tag } = rows[i] as Row;
          const [layer, head] = [layers[spot.layer], heads?.[spot.head] ?? "-"] as [number, HeadKey];
          const isHead = typeof head === "number" && !headlessWords(ctx.source(), layer, head);
          const of = ranking?.of(spot) ?? NaN;
          const share = Math.max(0, Math.min(1, ranking?.share(spot) ?? 0));
          setText(name, isHead ? headAddress(ctx, layer, head) : ctx.layerName(layer));
          setText(value, ranking && Math.abs(of) <= 1 ? of.toFixed(2) : tickText(of));
          setText(tag, strongest(spot));
          setStyles(bar.firstElementChild as HTMLElement, { width: `${100 * share}%` });
          const pattern = strongest(spot) ? `; its strongest pattern: ${strongest(spot)}` : "";
          const words = `${addressWords(ctx, layer, head)}, ${ranking?.words(spot)}${pattern}`;
          assign(button, { title: words });
          const line = { cols: 1, lines: [{ label: "", spots: [spot] }], shown: 1 };
          if (atlas) paintAtlas(canvas, line, { width: side, height: side }, 0, atlas);
        }
      }
      const at = shown.findIndex(({ layer, head }) => layer === selected?.layer && head === selected.head);
      for (const [i, { button }] of rows.entries()) {
        assign(button, { ariaSelected: String(i === at), tabIndex: i === Math.max(0, at) ? 0 : -1 });
      }
    },
  };
}
